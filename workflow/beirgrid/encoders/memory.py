"""Memory of batches on a CPU: kept from batch to batch, and given back when there is not enough."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any

# Options of glibc's mallopt.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENAS = -1, -3, -8
# oneDNN writes code for each new shape of a batch. If the address space is limited (``ulimit -v``) and full, the code
# finds room only in what is reserved here. Each new thread takes 8 MB of it for its stack.
_RESERVE = 64 * 2**20


class KeptMemory:
    """What glibc keeps of a batch for the next one. Without it, page faults take a tenth of the time of encoding.

    Other C libraries keep what they keep.
    """

    def __init__(self) -> None:
        self._library: Any = ctypes.CDLL(None)
        self._reserve = mmap.mmap(-1, _RESERVE)
        # All threads share one arena, because glibc keeps nothing in the others.
        self._set({_MMAP_THRESHOLD: 2**30, _TRIM_THRESHOLD: 2**31 - 1, _ARENAS: 1})
        # A tokenizer's threads would wait for each other there. On four cores, four threads take longer than one.
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

    def give_back(self) -> None:
        """Give back what is kept, and keep nothing from now on."""
        self._reserve.close()
        self._set({_MMAP_THRESHOLD: 2**20, _TRIM_THRESHOLD: 2**17})
        if hasattr(self._library, "malloc_trim"):
            self._library.malloc_trim(0)

    def _set(self, options: dict[int, int]) -> None:
        if hasattr(self._library, "mallopt"):
            for option, value in options.items():
                self._library.mallopt(option, value)
