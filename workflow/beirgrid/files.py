"""Atomic files: an artifact appears under its name only when it is whole."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

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


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    with atomic(path) as temporary:
        temporary.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def read_json(path: str | Path) -> Any:
    """Read a JSON file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def sha256(path: str | Path) -> str:
    """Return the SHA-256 of a file as 64 hex digits, reading it in blocks."""
    with Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def size(path: str | Path) -> int:
    """Return the bytes of a file, or of all files under a folder."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    return sum(child.stat().st_size for child in path.rglob("*") if child.is_file())
