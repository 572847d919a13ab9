"""Find the processes that run the workflow, and refuse a run beside them."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import psutil  # a dependency of Snakemake

from ..core.errors import BeirgridError


def refuse_beside_others() -> None:
    """Raise BeirgridError if older processes run the workflow in this folder, or the jobs of a run that was killed.

    Snakemake's lock does not see such jobs, nor runs of other targets. SLURM's jobs are those of ``cluster``.
    """
    me, here, others = psutil.Process(), str(Path.cwd()), []
    related = {process.pid for process in (me, *me.parents())}
    for process in psutil.process_iter(["cwd", "cmdline", "create_time", "environ"]):
        facts = process.info
        older = facts["cwd"] == here and facts["create_time"] < me.create_time() and process.pid not in related
        works = _works([Path(word).name for word in facts["cmdline"] or ()])
        if older and works and "SLURM_JOB_ID" not in (facts["environ"] or {}):
            others.append(str(process.pid))
    if others:
        raise BeirgridError(
            f"Another run, or jobs of a run that was killed, work in {here}: wait until they end, or stop them "
            f"(process {', '.join(others)})"
        )


def _works(words: list[str]) -> bool:
    """Tell from a command line whether the process is Snakemake, or one of its jobs."""
    return "snakemake" in words or ("beirgrid", "stage") in pairwise(words)
