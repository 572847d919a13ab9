"""Control ir_datasets' downloads: one job per file at a time, and from a mirror if it has the file."""

from __future__ import annotations

import errno
import importlib.util
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

from ..core import files
from ..core.errors import DataError, say


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
    listed: dict[str, Any] = files.read_json(Path(package.origin).parent / "etc" / "downloads.json")
    return listed


# Folder or URL prefix with files of ir_datasets, named by their MD5 sums; empty for none.
_MIRROR: ContextVar[str] = ContextVar("mirror", default="")


def prepare(mirror: str) -> None:
    """Make ir_datasets' downloads in this process wait for their lock and try the mirror first."""
    _MIRROR.set(mirror)
    _wrap_downloads()


@cache
def _wrap_downloads() -> None:
    """Wrap the method of ir_datasets that downloads one file, since ir_datasets has no hook for locks or mirrors.

    ir_datasets still resumes broken transfers and compares MD5 sums itself.
    """
    from ir_datasets.util import Download

    download = Download.path

    def path(self: Any, force: bool = True) -> Any:
        target = self._cache_path
        if not force or self._path is not None or (target and Path(target).exists()):
            return download(self, force)
        with one_at_a_time(target) if target else nullcontext():
            return _from_mirror(self, download)

    Download.path = path


@contextmanager
def one_at_a_time(what: str | Path) -> Iterator[None]:
    """Hold the lock of a download, across all machines that share ir_datasets' folder."""
    from filelock import FileLock, Timeout
    from ir_datasets.util import home_path

    home = home_path()
    if not os.access(home, os.W_OK):  # nothing can be downloaded to it either
        yield
        return
    name = os.path.relpath(what, home) if Path(what).is_absolute() else str(what)
    locks, mode = home / "locks", stat.S_IMODE(home.stat().st_mode)
    if not locks.exists():
        locks.mkdir(exist_ok=True)
        locks.chmod(mode)  # everyone who may write to the folder may use the lock
    # Only system locks are used: a lock file would outlive a job that dies on another machine.
    lock = FileLock(locks / f"{name.replace(os.sep, '--')}.lock", mode=mode & 0o666, fallback_to_soft=False)
    try:
        held = lock.acquire(timeout=0)
    except Timeout:
        say(f"waiting for another job that fetches {name}")
        held = lock.acquire()
    except OSError as error:
        if error.errno != errno.ENOSYS:
            raise
        raise DataError(
            f"{home} is on a file system without file locks (flock): set IR_DATASETS_HOME to a folder on another one"
        ) from None
    with held:
        yield


def _from_mirror(file: Any, download: Any) -> Any:
    """Download a file from the mirror if it has the file, otherwise from ir_datasets' own URL.

    Raises:
        DataError: the mirror's file differs from the one that ir_datasets expects.
    """
    from ir_datasets.util import HashVerificationError

    mirrored = _mirrored(file.expected_md5)
    if mirrored is None:
        return download(file)
    place, source = mirrored
    origins, file.mirrors = file.mirrors, [source]
    try:
        return download(file)
    except HashVerificationError as error:
        raise DataError(
            f"the mirror's file {place} is not the expected one: {error}. Replace it or remove it."
        ) from None
    finally:
        file.mirrors = origins


def _mirrored(md5: str | None) -> tuple[str, Any] | None:
    """Return the mirror's location of the file with an MD5 sum; None if there is none."""
    from ir_datasets.util import LocalDownload, RequestsDownload

    mirror = _MIRROR.get()
    if not mirror or not md5:
        return None
    if not mirror.startswith(("http://", "https://")):
        file = Path(mirror) / md5
        return (str(file), LocalDownload(file, mkdir=False)) if file.is_file() else None
    url = f"{mirror.rstrip('/')}/{md5}"
    return (url, RequestsDownload(url)) if _exists(url) else None


def _exists(url: str) -> bool:
    import requests

    try:
        answer = requests.head(url, allow_redirects=True, timeout=15)
    except requests.RequestException as error:
        raise DataError(f"the mirror cannot be reached: {error}") from None
    if answer.status_code not in (200, 404):
        raise DataError(f"the mirror answers {answer.status_code} for {url}")
    return answer.status_code == 200
