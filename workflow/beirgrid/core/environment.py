"""The environment in which the workflow's jobs run."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shutil
import signal
import tempfile
from functools import cache
from pathlib import Path

from .errors import BeirgridError


@cache
def prepare_libraries() -> None:
    """Let ranx and numba be imported where neither the user's home nor the installed packages can be written.

    numba keeps compiled functions beside their source or in the user's home, and ir_datasets, which ranx imports,
    creates a folder there. Each of them gets a temporary folder where it has no other, until this process ends. Not
    every environment of the jobs has ranx.
    """
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and a user whom the machine does not know
        os.environ["HOME"] = _temporary()
        home = Path.home()
    if not _created(Path(os.environ.get("IR_DATASETS_HOME", home / ".ir_datasets"))):
        os.environ["IR_DATASETS_HOME"] = _temporary()
    compiled = map(importlib.util.find_spec, ("ranx", "beirgrid.search", "beirgrid.analysis"))
    beside = all(_writable(_cache_beside(found.origin)) for found in compiled if found and found.origin)
    others = [os.environ.get("NUMBA_CACHE_DIR"), Path(os.environ.get("XDG_CACHE_HOME", home / ".cache")) / "numba"]
    if not beside and not any(_writable(Path(folder)) for folder in others if folder):
        os.environ["NUMBA_CACHE_DIR"] = _temporary()


def _cache_beside(module: str) -> Path:
    return Path(module).parent / "__pycache__"


def _created(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return True


def _writable(folder: Path) -> bool:
    """Tell whether a file can be created in a folder, by creating one: a read-only mount has the same modes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _temporary() -> str:
    folder = tempfile.mkdtemp(prefix="beirgrid-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def check_temporary_folder() -> None:
    """Raise BeirgridError unless 1 MB can be written to $TMPDIR: Snakemake's scheduler and the stages write there."""
    folder = os.environ.get("TMPDIR", "")
    try:
        folder = folder or tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(bytes(2**20))
            stream.flush()
    except OSError as error:
        where = f"TMPDIR: nothing can be written to {folder or 'any folder for temporary files'} ({error.strerror})"
        raise BeirgridError(f"{where}; free space there, or set TMPDIR to another folder") from None


def heed_hangup() -> None:
    """Have SIGHUP, which a terminal that closes sends, end Snakemake as SIGTERM does: once the running jobs have ended.

    Under ``nohup``, which has the signal ignored, it stays ignored.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
