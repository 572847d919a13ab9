"""Processes that run the workflow: those of this machine, and the one that may run it in a working directory."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..core import files

# The process that runs the workflow in the working directory holds the lock of this file.
LOCK = Path(".snakemake/beirgrid/run.lock")
# A name that Linux gives to each of its starts.
_BOOT = Path("/proc/sys/kernel/random/boot_id")
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
    ends first then removes the locks of both. Upstream mended one race of this kind, that of the lock's folder
    (https://github.com/snakemake/snakemake/pull/2225). A plugin cannot replace the lock.

    A second call does nothing, so a workflow may use this one as a module twice.
    """
    from snakemake.persistence import PersistenceBase

    locked = PersistenceBase.lock
    if locked.__module__ == __name__:
        return

    @contextmanager
    def lock(persistence: Any) -> Iterator[None]:
        with _alone() as mark:
            if persistence.locked:
                _release(persistence, mark.read_text())
            mark.write_text(_here())
            try:
                with locked(persistence):
                    yield
            finally:
                mark.write_text("")

    PersistenceBase.lock = lock


def _release(persistence: Any, holder: str) -> None:
    """Release Snakemake's lock if the run that left it is known to be gone; else say what to type.

    The caller holds the run lock, which no process of this machine can hold beside it. A process of another machine may
    hold it unseen: some shared file systems keep locks to each machine.

    Args:
        persistence: Snakemake's, which is locked.
        holder: where the last run ran, if it did not end.
    """
    from snakemake_interface_common.exceptions import ApiError

    where = f"{Path.cwd()} is locked by a run that did not end"
    if not holder or holder != _here():
        if holder:
            where += f", on {holder.split()[0]}"
        advice = "If it no longer runs, repeat the command with --unlock, then without. Finished files stay"
        raise ApiError(f"{where}. {advice}")
    if jobs := [str(pid) for pid in living() if not _related(pid)]:
        raise ApiError(f"{where}, and its jobs continue: wait until they end, or stop them (process {', '.join(jobs)})")
    persistence.cleanup_locks()
    Path(".snakemake/locks").mkdir(parents=True, exist_ok=True)  # which that removes, and locking needs


def _here() -> str:
    """Return the name of this machine and of its start; an empty text where the system does not tell."""
    try:
        return f"{socket.gethostname()} {_BOOT.read_text().strip()}"
    except OSError:
        return ""


def _related(pid: int) -> bool:
    """Tell whether a process is this one, started it or was started by it, or is SLURM's, which is asked elsewhere."""
    import psutil

    me = psutil.Process()
    if pid in {process.pid for process in (me, *me.parents(), *me.children(recursive=True))}:
        return True
    try:
        return "SLURM_JOB_ID" in psutil.Process(pid).environ()
    except psutil.NoSuchProcess:
        return True
    except psutil.AccessDenied:
        return False


@contextmanager
def _alone() -> Iterator[Path]:
    """Hold the run lock; yield the file in which the run that holds it says where it runs."""
    from snakemake_interface_common.exceptions import ApiError  # of which Snakemake prints the message alone

    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = f"another run works in {Path.cwd()}: wait until it ends (beirgrid status shows it)"
            raise ApiError(f"{message}, or give this run a --directory of its own") from None
        except OSError as error:
            if error.errno not in files.NO_LOCKS:
                raise
            yield Path(os.devnull)  # a file system without such locks has Snakemake's own alone
        else:
            yield LOCK
