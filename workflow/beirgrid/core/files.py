"""Atomic files: an artifact appears under its name only when it is complete. Temporary folders, and those of caches."""

from __future__ import annotations

import atexit
import fcntl
import glob
import hashlib
import json
import os
import platform
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import BeirgridError, DataError, quoted

# How to repair a damaged artifact: Snakemake makes missing files again.
REMEDY = "If the workflow made this file, delete it and run the grid again"

_MARK = ".beirgrid-tmp"


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


@contextmanager
def scratch(target: str | Path) -> Iterator[Path]:
    """Yield an unused temporary path beside ``target``, and delete what is left there afterwards.

    Also deletes the temporary files that killed processes of this machine left for the same target.
    """
    target = Path(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    host = socket.gethostname()
    for leftover in target.parent.glob(f".{glob.escape(target.name)}{_MARK}-{host}-*"):
        pid = leftover.name.rsplit("-", 1)[1]
        if not (pid.isdigit() and Path(f"/proc/{pid}").exists()):
            _remove(leftover)
    temporary = target.parent / f".{target.name}{_MARK}-{host}-{os.getpid()}"
    _remove(temporary)
    try:
        yield temporary
    finally:
        _remove(temporary)


@contextmanager
def atomic(target: str | Path, directory: bool = False) -> Iterator[Path]:
    """Yield a temporary path beside ``target`` and rename it to ``target`` if the block succeeds.

    With ``directory=True`` the temporary path is a new folder. If the block raises, the temporary is deleted and
    ``target`` is unchanged. A symbolic link to a file is kept, and the file that it points to is replaced.

    Raises:
        DataError: the target exists and is not a file, or not a folder.
    """
    place = Path(target) if directory else Path(os.path.realpath(target))
    if place.exists() and not (place.is_dir() if directory else place.is_file()):
        raise DataError(f"output {target} exists and is not a {'folder' if directory else 'file'}")
    with scratch(place) as temporary:
        if directory:
            temporary.mkdir()
        yield temporary
        if directory:
            _remove(place)
        else:
            with temporary.open("rb") as written:
                os.fsync(written.fileno())
        temporary.rename(place)


@contextmanager
def locked(path: str | Path) -> Iterator[None]:
    """Hold the lock of a file for the block; wait while another process holds it. The lock file is kept."""
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        yield


def write_text(path: str | Path, text: str) -> None:
    """Write a text as UTF-8, atomically."""
    with atomic(path) as temporary:
        temporary.write_bytes(text.encode())


def replace(path: str | Path, content: str | bytes) -> bool:
    """Write a file atomically, a text as UTF-8, unless it has this content already; return whether it was written."""
    content = content.encode() if isinstance(content, str) else content
    if Path(path).is_file() and Path(path).read_bytes() == content:
        return False
    with atomic(path) as temporary:
        temporary.write_bytes(content)
    return True


def write_json(path: str | Path, value: Any) -> None:
    """Write ``value`` as indented JSON, atomically."""
    write_text(path, json.dumps(value, indent=2, ensure_ascii=False) + "\n")


@contextmanager
def reading(path: str | Path) -> Iterator[None]:
    """Convert any exception that a library raises on a missing or damaged file into a DataError that names the file."""
    try:
        yield
    except (BeirgridError, MemoryError):
        raise
    except FileNotFoundError:
        raise DataError(f"{path} is missing. If the workflow makes this file, run the grid again") from None
    except PermissionError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}") from None
    except Exception as error:  # each library has its own: ArrowInvalid, BadZipFile, RuntimeError (faiss), …
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise DataError(f"{path} is damaged ({reason}). {REMEDY}") from None


@contextmanager
def errors_with_name(path: str | Path) -> Iterator[None]:
    """Add the file's name to an OSError of the block. Python omits it when reading an open file fails."""
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
    """Build a JSON object (an ``object_pairs_hook``); raise ValueError for a key that occurs twice."""
    row: dict[str, Any] = {}
    for key, value in pairs:
        if key in row:
            raise ValueError(f"the key {quoted(key)} occurs twice")
        row[key] = value
    return row


def forms(path: Path) -> list[Path]:
    """Return the existing ones of a file and its gzipped form."""
    return [form for form in (path, path.with_name(f"{path.name}.gz")) if form.is_file()]


def sha256(path: str | Path) -> str:
    """Compute the SHA-256 of a file in blocks, as 64 hex digits."""
    with errors_with_name(path), Path(path).open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def size(path: str | Path) -> int:
    """Return the size in bytes of a file, or of all files under a folder."""
    path = Path(path)
    if path.is_file():
        return path.stat().st_size
    return sum(child.stat().st_size for child in path.rglob("*") if child.is_file())


def compiled_folder(source: Path, version: str) -> str:
    """Return a writable folder for what a compiler with a cache makes of a source file, for NUMBA_CACHE_DIR.

    numba writes the index of a cache before the code that it names, so it would run older code, or code for another
    processor, after a kill. Hence each state of the file, version and machine has a folder of its own.
    """
    key = f"{version} {platform.node()} {platform.machine()}".encode() + source.read_bytes()
    try:
        caches = os.environ.get("NUMBA_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        folder = Path(caches, "beirgrid", hashlib.sha256(key).hexdigest()[:16])
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()  # modes do not show a read-only mount
    except (OSError, RuntimeError):  # RuntimeError: neither HOME nor a passwd entry for the user
        return temporary_folder()
    return str(folder)


def temporary_folder() -> str:
    """Create a private folder in $TMPDIR that is deleted when this process ends."""
    folder = tempfile.mkdtemp(prefix="beirgrid-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
