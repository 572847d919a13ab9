"""Processes that run the workflow: those of this machine, and the one that may run it in a working directory."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core import files

# The process that runs the workflow in the working directory holds the lock of this file.
LOCK = Path(".snakemake/beirgrid/run.lock")
# Commands that may work beside a run.
_READERS = {"status", "plan", "report", "compare", "evaluate", "export", "list", "init", "doctor", "search", "show"}


def began(pid: int) -> float | None:
    """Return when a process of this machine began (a later one may have its number), or None if none is seen."""
    import psutil  # Snakemake brings it

    try:
        moment: float = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None
    return moment


def hidden(pid: int) -> bool:
    """Tell whether there is a process that is another user's: some machines do not show those."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return False


def living() -> list[int]:
    """Return the processes of this machine that run the workflow or a stage of it in the working directory."""
    import psutil

    here, found = str(Path.cwd()), []
    for process in psutil.process_iter(["cwd", "cmdline"]):
        if process.info["cwd"] == here and _works([Path(word).name for word in process.info["cmdline"] or ()]):
            found.append(process.pid)
    return found


def _works(words: list[str]) -> bool:
    """Tell from the words of a process whether it is Snakemake or a stage, and no command that a person waits for."""
    if "snakemake" in words:
        return True
    return "beirgrid" in words and not _READERS & {*words[words.index("beirgrid") + 1 :][:1]}


def run_alone() -> None:
    """Let Snakemake refuse to run where another process runs the workflow, even one with other files.

    Snakemake's own lock lets two runs pass that begin at the same moment or that make different files. The run that
    ends first then removes the locks of both.
    """
    from snakemake.persistence import PersistenceBase

    locked = PersistenceBase.lock
    if locked.__module__ == __name__:  # a workflow that uses this one as a module twice
        return

    @contextmanager
    def lock(persistence: Any) -> Iterator[None]:
        with _alone(), locked(persistence):
            yield

    PersistenceBase.lock = lock


@contextmanager
def _alone() -> Iterator[None]:
    from snakemake_interface_common.exceptions import ApiError  # of which Snakemake prints the message alone

    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another run works in {Path.cwd()}: wait until it ends (python -m beirgrid status shows it)"
            raise ApiError(f"{message}, or give this run a --directory of its own") from None
        except OSError as error:
            if error.errno not in files.NO_LOCKS:
                raise  # a file system without such locks has Snakemake's own alone
        yield
