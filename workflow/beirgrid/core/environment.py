"""The environment in which the workflow's jobs run."""

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


@compiled.once
def prepare_libraries() -> None:
    """Let numba be used where neither the user's home nor the installed packages can be written, and beside other runs.

    numba keeps compiled functions beside their source or in the user's home. Where neither can be written, it gets a
    temporary folder, until this process ends.
    """
    try:
        home = Path.home()
    except RuntimeError:  # no HOME, and a user whom the machine does not know
        os.environ["HOME"] = temporary_folder()
        home = Path.home()
    package = Path(__file__).parent.parent
    beside = all(_writable(package / layer / "__pycache__") for layer in ("search", "analysis", "encoders"))
    others = [os.environ.get("NUMBA_CACHE_DIR"), Path(os.environ.get("XDG_CACHE_HOME", home / ".cache")) / "numba"]
    if not beside and not any(_writable(Path(folder)) for folder in others if folder):
        os.environ["NUMBA_CACHE_DIR"] = temporary_folder()
        if numba := sys.modules.get("numba"):  # in a fork, which has read the variable before
            numba.config.CACHE_DIR = os.environ["NUMBA_CACHE_DIR"]
    compiled.guard()


def _writable(folder: Path) -> bool:
    """Tell whether a file can be created in a folder, by creating one: a read-only mount has the same modes."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def temporary_folder() -> str:
    """Create a folder in $TMPDIR, which only this user can read and which goes when this process ends."""
    folder = tempfile.mkdtemp(prefix="beirgrid-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def check_names(*names: str) -> None:
    """Refuse names that are not UTF-8, which neither parquet nor Java nor a record can hold.

    Args:
        names: names of files, beside those of the working directory and of $TMPDIR.

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


def die_with_parent() -> None:
    """Have the kernel kill this process, a program that a stage started, when the stage is killed.

    An orphan would write on beside a rerun.
    """
    if sys.platform == "linux":
        pr_set_pdeathsig = 1  # linux/prctl.h
        ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def heed_hangup() -> None:
    """Have SIGHUP, which a terminal that closes sends, end Snakemake as SIGTERM does: once the running jobs have ended.

    Under ``nohup``, which has the signal ignored, it stays ignored.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))
