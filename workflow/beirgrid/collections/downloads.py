"""The files that ir_datasets downloads: their sizes, and one job per file at a time."""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from ..core import files
from ..core.errors import say


def size(identifier: str) -> tuple[str, float]:
    """Return the file with the documents of an ir_datasets id, and its size in MB, 0 if unknown.

    Both are read from ir_datasets' package data, without importing it.
    """
    group, _, name = identifier.partition("/")
    known = _listed().get(group, {})
    while name and name not in known:
        name = name.rpartition("/")[0]
    return f"{group}/{name}", known.get(name, {}).get("size_hint", 0) / 1e6


@cache
def _listed() -> dict[str, Any]:
    package = importlib.util.find_spec("ir_datasets")
    if package is None or not package.origin:  # not in this environment
        return {}
    return dict(files.read_json(Path(package.origin).parent / "etc" / "downloads.json"))


@contextmanager
def one_at_a_time(identifier: str) -> Iterator[None]:
    """Hold the lock of the file with the documents of an id, across all machines that share ir_datasets' folder."""
    from filelock import FileLock, Timeout
    from ir_datasets.util import home_path

    home = home_path()
    if not os.access(home, os.W_OK):  # nothing can be downloaded to it either
        yield
        return
    name = size(identifier)[0].strip("/")
    # Other users may lock it too. Only system locks are used: a lock file would outlive a job that dies elsewhere.
    lock = FileLock(home / f"{name.replace('/', '--')}.lock", mode=0o666, fallback_to_soft=False)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        say(f"waiting for another job that fetches {name}")
        held = lock.acquire()
    with held:
        yield
