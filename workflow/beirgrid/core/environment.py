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

from .errors import BeirgridError, quoted
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


def open_standard_streams() -> None:
    """Open /dev/null in place of standard streams that the shell closed (``>&-``).

    Otherwise the next file to be opened gets the number of such a stream, and what Java and child processes print.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.dup2(os.open(os.devnull, os.O_RDWR), number)
            os.set_inheritable(number, True)
            setattr(sys, name, os.fdopen(number, "w" if number else "r", closefd=False))


def check_names(*names: str) -> None:
    """Refuse file names that are not UTF-8: parquet, Java and records cannot hold them.

    Args:
        names: file names to check in addition to the working directory and $TMPDIR.

    Raises:
        BeirgridError: a name is not UTF-8, or the working directory is gone.
    """
    try:
        folder = str(Path.cwd())
    except FileNotFoundError:
        raise BeirgridError("the working directory was deleted: go to another one") from None
    for name in (folder, os.environ.get("TMPDIR", ""), *names):
        try:
            name.encode()
        except UnicodeEncodeError:
            raise BeirgridError(
                f"the name {quoted(os.fsencode(name))} is not UTF-8: rename the file or folder"
            ) from None


def check_folders(*names: str) -> None:
    """Check the working directory of a run, and folders in it.

    Raises:
        BeirgridError: it cannot be written to, a folder is a file, or a folder or a path in it is a link that leads
            nowhere.
    """
    check_writable(Path())
    for name in names:
        if (folder := Path(name)).is_dir():
            broken = [path for path in sorted(folder.iterdir()) if not path.exists()]
        else:
            broken = [folder] if os.path.lexists(folder) else []
        if broken:
            raise BeirgridError(f"{broken[0].absolute()} is no folder, or a link that leads nowhere: move it away")


def check_writable(directory: Path) -> None:
    """Raise BeirgridError if Snakemake cannot write its files in the working directory of a run."""
    for folder in (directory, directory / ".snakemake"):
        if folder.is_dir() and not os.access(folder, os.W_OK):
            raise BeirgridError(f"nothing can be written to {folder.absolute()}: --directory names another folder")


def check_temporary_folder() -> None:
    """Raise BeirgridError unless 1 MB can be written to $TMPDIR, where Snakemake's scheduler and the stages write."""
    folder = os.environ.get("TMPDIR", "")
    try:
        folder = folder or tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(bytes(2**20))
            stream.flush()
    except OSError as error:
        where = f"TMPDIR: nothing can be written to {folder or 'any folder for temporary files'} ({error.strerror})"
        raise BeirgridError(f"{where}; free space there, or set TMPDIR to another folder") from None


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
