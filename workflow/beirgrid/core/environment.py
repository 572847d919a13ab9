"""Prepare and check the environment of the workflow's jobs."""

from __future__ import annotations

import atexit
import ctypes
import hashlib
import os
import platform
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from .interrupts import show_interrupts


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


def die_with_parent() -> None:
    """Ask the kernel to kill this process, a program that a stage started, when the stage is killed.

    An orphan would keep writing beside a rerun.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1  # linux/prctl.h
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def handle_signals() -> None:
    """Treat SIGHUP (the terminal was closed) like SIGTERM: finish running jobs, then exit. Under ``nohup``, the signal
    stays ignored.

    A second Ctrl-C, which does not wait for running jobs, is shown in one line.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
    show_interrupts("stopped at once. The same command continues the run")
