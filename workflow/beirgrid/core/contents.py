"""Cache the hashes of local files, so that dry runs read each file once."""

from __future__ import annotations

import json
import os
import stat
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import files
from .errors import DataError

# The cache file, in the working directory.
KEPT = Path(".snakemake/beirgrid/hashes.json")
# A file that changed within this many nanoseconds may change again under the same timestamp, so it is not cached.
_SETTLED = 2 * 10**9


class Contents:
    """Hashes of local files. A file is read again when its inode, size, mtime or ctime changes."""

    def __init__(self, kept: Path = KEPT) -> None:
        """Load the cache file ``kept``. Without one, every file is read."""
        self.kept = kept
        self.known: dict[str, Any] = {}
        self.read: dict[str, Any] = {}
        with suppress(OSError, ValueError):
            found = files.read_json(kept)
            self.known = found if isinstance(found, dict) else {}

    def hashes(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the SHA-256 of each readable file."""
        before, found = len(self.read), {}
        for path in paths:
            with suppress(OSError):
                found[path] = self._hash_of(path)
        if len(self.read) > before:
            with suppress(OSError, DataError):  # in a read-only folder, nothing is cached
                files.write_json(self.kept, self.known | self.read)
        return found

    def _hash_of(self, path: str) -> str:
        """Return the hash of a file. A pipe or device is not read; its ``stat`` stands in for the content."""
        place = os.path.realpath(path)
        status = Path(place).stat()
        told = [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
        if not stat.S_ISREG(status.st_mode):
            return json.dumps(told)
        known = self.read.get(place) or self.known.get(place)
        if isinstance(known, list) and len(known) == 5 and known[:4] == told:
            return str(known[4])
        digest = files.sha256(place)
        if time.time_ns() - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED:
            self.read[place] = [*told, digest]
        return digest
