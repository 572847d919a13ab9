"""Processes of this machine that run the workflow."""

from __future__ import annotations

import os
from pathlib import Path


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
        words = {Path(word).name for word in process.info["cmdline"] or ()}
        if (
            process.info["cwd"] == here
            and words & {"snakemake", "beirgrid"}
            and not words & {"status", "plan", "report"}
        ):
            found.append(process.pid)
    return found
