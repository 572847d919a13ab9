"""Make numba's cache of compiled functions safe against killed processes, damaged files and concurrent runs."""

from __future__ import annotations

import glob
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache, wraps
from pathlib import Path
from typing import Any, TypeVar

from . import files
from .errors import warn

FoundT = TypeVar("FoundT")


def once(build: Callable[[], FoundT]) -> Callable[[], FoundT]:
    """Thread-safe cache for a zero-argument function (``functools.cache`` may call it in several threads)."""
    lock, cached = threading.Lock(), cache(build)

    @wraps(build)
    def call() -> FoundT:
        with lock:
            return cached()

    return call


@once
def guard() -> None:
    """Make numba write its cache under a lock, and recompile functions whose cached files cannot be read.

    numba has no hook for this (https://github.com/numba/numba/issues/10128 is about a race in this cache). It first
    writes the index of a function's files, and then the file that the index names. A process killed between the two
    writes would leave older code under that name. Two processes that compile one function for different types could
    write both under one name. numba would silently run either.
    """
    from numba.core.caching import IndexDataCacheFile

    if (
        IndexDataCacheFile.save.__module__ == __name__
    ):  # applied already; a second patch would deadlock on the first one's lock
        return
    save, load_index, load_data = (getattr(IndexDataCacheFile, name) for name in ("save", "_load_index", "_load_data"))

    def save_alone(self: Any, key: Any, data: Any) -> None:
        folder, stem = Path(self._cache_path), self._index_name.removesuffix(".nbi")
        with _alone(folder / f".{stem}.lock"):
            named = set(self._load_index().values())
            for path in folder.glob(f"{glob.escape(stem)}.*.nbc"):
                if path.name not in named:  # older code: remove it before the index names it
                    path.unlink(missing_ok=True)
            save(self, key, data)

    def load_index_or_none(self: Any) -> Any:
        try:
            return load_index(self)
        except OSError:
            raise
        except Exception as error:  # whatever unpickling raises
            _drop(self._index_path, error)
            return {}

    def load_data_or_none(self: Any, name: str) -> Any:
        try:
            return load_data(self, name)
        except OSError:
            raise
        except Exception as error:
            _drop(self._data_path(name), error)
            raise FileNotFoundError(name) from None  # numba treats this as a missing file, and compiles

    IndexDataCacheFile.save = save_alone
    IndexDataCacheFile._load_index = load_index_or_none
    IndexDataCacheFile._load_data = load_data_or_none


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock of a file for the block. Without effect on a file system that has no locks."""
    with ExitStack() as held:
        try:
            held.enter_context(files.locked(path))
        except OSError as error:
            if error.errno not in files.NO_LOCKS:
                raise
        yield


def _drop(path: str, error: Exception) -> None:
    warn(f"{path} is damaged ({type(error).__name__}): compiling again")
    Path(path).unlink(missing_ok=True)
