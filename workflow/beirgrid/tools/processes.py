"""Find the processes that run the workflow, and allow only one run per working directory."""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from ..core import files

# Lock file held by the run in the working directory.
LOCK = Path(".snakemake/beirgrid/run.lock")
# Linux's identifier of each boot.
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def began(pid: int) -> float | None:
    """Return the start time of a process, which identifies it beside its id; None if it is not visible."""
    import psutil  # a dependency of Snakemake

    try:
        moment: float = psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None
    return moment


def hidden(pid: int) -> bool:
    """Tell whether a process exists but belongs to another user, whose processes some machines hide."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return False


def living() -> list[int]:
    """Return the processes on this machine that run the workflow or one of its stages in the working directory."""
    import psutil

    here, found = str(Path.cwd()), []
    for process in psutil.process_iter(["cwd", "cmdline"]):
        if process.info["cwd"] == here and _works([Path(word).name for word in process.info["cmdline"] or ()]):
            found.append(process.pid)
    return found


def _works(words: list[str]) -> bool:
    """Tell from a command line whether the process is Snakemake, or one of its jobs, which read ``@-``."""
    return "snakemake" in words or ("beirgrid" in words and words[-1:] == ["@-"])


def allow_one_run() -> None:
    """Make Snakemake refuse to run if another process runs the workflow in the same directory, even with other targets.

    Snakemake's own lock lets two runs pass that begin at the same moment or that make different files. The run that
    ends first then removes the locks of both. Upstream mended one race of this kind, that of the lock's folder
    (https://github.com/snakemake/snakemake/pull/2225). A plugin cannot replace the lock.

    A second call does nothing, so a workflow may use this one as a module twice.
    """
    from snakemake.persistence import PersistenceBase
    from snakemake_interface_common.exceptions import ApiError

    locked = PersistenceBase.lock
    if locked.__module__ == __name__:
        return

    @contextmanager
    def lock(persistence: Any) -> Iterator[None]:
        with _alone() as mark:
            if persistence.locked:
                _release(persistence, mark.read_text())
            try:
                with ExitStack() as held:
                    try:
                        mark.write_text(_here())
                        held.enter_context(locked(persistence))
                    except OSError as error:
                        raise ApiError(f"{Path.cwd()} cannot be locked for this run: {error.strerror}") from None
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
    Path(".snakemake/locks").mkdir(parents=True, exist_ok=True)  # cleanup_locks removes it; locking needs it


def _here() -> str:
    """Return the machine's name and boot id; empty if unknown."""
    try:
        return f"{socket.gethostname()} {_BOOT.read_text().strip()}"
    except OSError:
        return ""


def _related(pid: int) -> bool:
    """Tell whether a process is this one, its ancestor or descendant, or one of SLURM's, which ``cluster`` checks."""
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
    """Hold the run lock; yield the file in which its holder records its machine."""
    from snakemake_interface_common.exceptions import ApiError  # Snakemake prints only its message

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
            yield Path(os.devnull)  # without file locks, only Snakemake's own lock applies
        else:
            yield LOCK
