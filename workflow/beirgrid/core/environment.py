"""Prepare and check the environment of the workflow's jobs."""

from __future__ import annotations

import atexit
import ctypes
import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from . import compiled
from .errors import BeirgridError, quoted
from .interrupts import show_interrupts


@compiled.once
def prepare_libraries() -> None:
    """Give numba a cache folder that it can write, safe beside other runs.

    numba caches compiled functions beside their source or in the user's home. If neither is writable, it gets a
    temporary folder, which is deleted when this process ends.
    """
    try:
        home = Path.home()
    except RuntimeError:  # neither HOME nor a passwd entry for the user
        os.environ["HOME"] = temporary_folder()
        home = Path.home()
    package = Path(__file__).parent.parent
    beside = all(_writable(package / layer / "__pycache__") for layer in ("search", "analysis", "encoders/kernels"))
    others = [os.environ.get("NUMBA_CACHE_DIR"), Path(os.environ.get("XDG_CACHE_HOME", home / ".cache")) / "numba"]
    if not beside and not any(_writable(Path(folder)) for folder in others if folder):
        os.environ["NUMBA_CACHE_DIR"] = temporary_folder()
        if numba := sys.modules.get("numba"):  # in a fork, numba has read the variable already
            numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]
    compiled.guard()


def _writable(folder: Path) -> bool:
    """Tell whether a folder is writable by creating a file: the modes do not show a read-only mount."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


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
