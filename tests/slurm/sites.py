"""Working directories on the cluster of cluster.sh, and their runs."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from helpers import ROOT, snakemake, stage_processes

CLUSTER = Path(__file__).parent / "cluster.sh"
FOLDER = Path(os.environ.get("BEIRGRID_SLURM", "/tmp/beirgrid-slurm"))
TABLE = "results/grids/grid/tables/scores.csv"


def wait_for(condition: Callable[[], Any], seconds: float = 90, every: float = 0.2) -> Any:
    """Wait until ``condition`` is true, and return its value."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(every)
    raise TimeoutError(f"waited {seconds} s in vain")


class Site:
    """A working directory on the cluster, and its Snakemake processes."""

    def __init__(self, folder: Path, configfile: Path) -> None:
        self.folder = folder
        self.configfile = configfile
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str | Path, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start Snakemake with the SLURM profile, polling its jobs every few seconds."""
        command = [*before, sys.executable, "-m", "snakemake", "--profile", "slurm", "--configfile", self.configfile]
        command += ["--directory", self.folder, "--slurm-init-seconds-before-status-checks", "2", *arguments]
        process = subprocess.Popen(
            list(map(str, command)),
            cwd=ROOT,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            # As in a terminal, even where these tests run in the background of a shell, which ignores it.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run Snakemake with the SLURM profile and wait for its end."""
        return end(self.start(*arguments))

    def jobs(self, rule: str = "") -> list[dict[str, str]]:
        """Return the facts of this folder's SLURM jobs, of one rule or of all, including ended jobs."""
        return [job for job in slurm_jobs(self.folder) if job["Comment"].startswith(f"rule_{rule}")]

    def states(self, rule: str) -> list[str]:
        """Return the states of a rule's jobs, in the order of submission."""
        return [job["JobState"] for job in self.jobs(rule)]

    def live(self) -> list[dict[str, str]]:
        """Return the jobs that have not ended."""
        return [job for job in self.jobs() if job["JobState"] in ("PENDING", "RUNNING", "COMPLETING")]

    def stage(self, stage: str) -> int | None:
        """Return the process id of a running stage of this folder."""
        return next((pid for pid, name in stage_processes(self.folder).items() if name == stage), None)

    def hang(self, stage: str) -> int:
        """Wait until a stage runs, stop its process, as a dead disk would, and return its id."""
        process = wait_for(lambda: self.stage(stage), every=0.05)
        os.kill(process, signal.SIGSTOP)
        return process

    @property
    def table(self) -> str:
        """The final table of the run."""
        return (self.folder / TABLE).read_text()

    @property
    def leftovers(self) -> list[Path]:
        """Temporary files under results/."""
        return list((self.folder / "results").rglob("*beirgrid-tmp*"))

    def clear(self) -> None:
        """End all processes and jobs that the test left."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        if live := self.live():
            subprocess.run(["scancel", *(job["JobId"] for job in live)], check=True)
            wait_for(lambda: not self.live())


def slurm_jobs(folder: Path) -> list[dict[str, str]]:
    """Return the controller's facts of the jobs that work in ``folder``."""
    shown = subprocess.run(
        ["scontrol", "--oneliner", "--details", "show", "jobs"], capture_output=True, text=True, check=True
    ).stdout
    jobs = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in shown.splitlines()]
    return [job for job in jobs if job.get("WorkDir") == str(folder)]


def end(process: subprocess.Popen[str], seconds: float = 400) -> subprocess.CompletedProcess[str]:
    """Wait for a process and return its output."""
    output, _ = process.communicate(timeout=seconds)
    return subprocess.CompletedProcess(process.args, process.returncode, output)


def undisturbed(configfile: Path, folder: Path, *arguments: str) -> None:
    """Run a grid, or the beginning of one, without SLURM."""
    done = snakemake("--configfile", configfile, "--directory", folder, "--cores", "2", *arguments)
    assert done.returncode == 0, done.stdout
