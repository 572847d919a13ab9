"""Find the processes that run the workflow, and refuse a run beside them."""

from __future__ import annotations

import os
from pathlib import Path

from ..core.errors import BeirgridError


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


def refuse_beside_others() -> None:
    """Raise BeirgridError if older processes run the workflow in this folder, or the jobs of a run that was killed.

    Snakemake's lock does not see such jobs, nor runs of other targets. SLURM's jobs are those of ``cluster``.
    """
    mine = began(os.getpid()) or 0.0
    older = [pid for pid in living() if (began(pid) or mine) < mine]
    if others := [str(pid) for pid in older if not _related(pid)]:
        raise BeirgridError(
            f"another run, or jobs of a run that was killed, work in {Path.cwd()}: wait until they end, or stop them "
            f"(process {', '.join(others)})"
        )


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
