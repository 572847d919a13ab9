"""Find the processes and SLURM's jobs that run the workflow, and refuse a run beside them."""

from __future__ import annotations

import re
import shutil
import subprocess
from itertools import pairwise
from pathlib import Path

import psutil  # a dependency of Snakemake

from ..core.errors import BeirgridError

# Snakemake's SLURM plugin names all jobs of a run by the run's UUID, after a prefix if one is set.
_RUN = re.compile(r"([\w-]+_)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def refuse_beside_others() -> None:
    """Raise BeirgridError if older processes run the workflow in this folder, or the jobs of a run that was killed.

    Snakemake's lock does not see such jobs, nor runs of other targets. ``refuse_beside_orphans`` sees those of SLURM.
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


def refuse_beside_orphans(folder: Path, executor: str) -> None:
    """Raise BeirgridError if jobs of an earlier run that works in ``folder`` are in SLURM's queue.

    After a SIGKILL of Snakemake, or a crash of its machine, its jobs continue, and a second run would write the same
    files. Call this before a run's first job. It asks the cluster, because a marker file could be stale. Other
    executors skip it on a machine without SLURM, or in a folder in which no SLURM job ever ran.
    """
    submitted = executor == "slurm" or (folder / ".snakemake" / "slurm_logs").exists()
    if not (submitted and shutil.which("squeue")):
        return
    command = ["squeue", "--noheader", "--format=%j|%u|%Z"]  # pending, running and ending jobs
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        raise BeirgridError(f"squeue does not say whether jobs of an earlier run live: {listed.stderr.strip()}")
    for line in listed.stdout.splitlines():
        name, user, place = line.split("|", 2)
        if _RUN.fullmatch(name) and Path(place).resolve() == folder.resolve():
            raise BeirgridError(
                f"SLURM still has jobs of an earlier run in this folder (run {name}, user {user}), which write the "
                f"files that this run would write. Wait until they end (squeue --name {name}) or cancel them (scancel "
                f"--name {name}); then run again."
            )
