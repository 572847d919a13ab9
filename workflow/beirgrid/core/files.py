"""Atomic files: an artifact appears under its name only when it is whole."""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import BeirgridError, DataError, quoted

# Errors of a lock on a file system that has no locks.
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)

# What mends a damaged artifact: Snakemake makes what is not there.
REMEDY = "If the grid made it, delete it and run the grid again"

_MARK = ".beirgrid-tmp"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def _remove_leftovers(target: Path) -> None:
    """Delete temporaries of the same target whose process, on this host, is gone (killed, say)."""
    host = socket.gethostname()
    for leftover in target.parent.glob(f".{target.name}{_MARK}-{host}-*"):
        pid = leftover.name.rsplit("-", 1)[1]
        if not (pid.isdigit() and Path(f"/proc/{pid}").exists()):
            _remove(leftover)


@contextmanager
def scratch(target: str | Path) -> Iterator[Path]:
    """Yield a temporary path beside ``target`` where nothing stands, and remove what is left there after.

    Temporaries of killed processes go when another one of the same target is made.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(target)
    temporary = target.parent / f".{target.name}{_MARK}-{socket.gethostname()}-{os.getpid()}"
    _remove(temporary)
    try:
        yield temporary
    finally:
        _remove(temporary)


@contextmanager
def atomic(target: str | Path, directory: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``target`` and rename it to ``target`` if the block succeeds.

    With ``directory=True`` the temporary path is a fresh folder. If the block raises, the temporary
    is removed and whatever stood at ``target`` is left as it was.
    """
    target = Path(target)
    with scratch(target) as temporary:
        if directory:
            temporary.mkdir()
        yield temporary
        if directory:
            _remove(target)
        else:
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
        temporary.rename(target)


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold the lock of a file for the block; wait while another process holds it. The file stays."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def write_text(path: str | Path, text: str) -> None:
    """Write a text as UTF-8, atomically."""
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode())


def replace_text(path: str | Path, text: str) -> bool:
    """Write a text as UTF-8, atomically, unless the file has it already; tell whether it was written."""
    try:
        if Path(path).read_bytes() == text.encode():
            return False
    except OSError:  # it is not there, or cannot be read
        pass
    write_text(path, text)
    return True


def replace_texts(folder: Path, texts: Mapping[str, str]) -> bool:
    """Write texts to files of a folder by their names, as ``replace_text`` does; tell whether one was written."""
    written = [replace_text(folder / name, text) for name, text in texts.items()]
    return any(written)


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Turn whatever a library raises on a damaged file in the block into one message that names the file.

    Raises:
        DataError: the file is missing, cut or otherwise damaged.
    """
    try:
        yield
    except (BeirgridError, MemoryError):
        raise
    except FileNotFoundError:
        raise DataError(f"{path} is missing. {REMEDY}") from None
    except PermissionError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # each library has its own: ArrowInvalid, BadZipFile, RuntimeError (faiss), …
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} is damaged ({reason}). {REMEDY}") from None


@contextmanager
def named(path: str | Path) -> Iterator[None]:
    """Add the name of the file to an OSError of the block: Python names no file if reading an open one fails."""
    try:
        yield
    except OSError as error:
        if error.errno and not error.filename:
            error.filename = str(path)
        raise


def read_json(path: str | Path) -> Any:
    """Read a JSON file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object (``object_pairs_hook``). Python's own takes the last value of a key that occurs twice.

    Raises:
        ValueError: a key occurs twice.
    """
    row = dict(pairs)
    if len(row) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {quoted(next(key for key in keys if keys.count(key) > 1))} occurs twice")
    return row


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file as 64 hex digits, reading it in blocks."""
    with named(path), Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def equal(one: Path, other: Path) -> bool:
    """Tell whether two files have the same bytes. The ends are compared first: there, fine-tuned weights differ."""
    block, length = 2**20, one.stat().st_size
    if length != other.stat().st_size:
        return False
    with named(one), one.open("rb") as first, other.open("rb") as second:
        for start in range(length - length % block, -1, -block):
            first.seek(start)
            second.seek(start)
            if first.read(block) != second.read(block):
                return False
    return True


def size(path: str | Path) -> int:
    """Return the bytes of a file, or of all files under a folder."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    return sum(child.stat().st_size for child in path.rglob("*") if child.is_file())
