"""A grid on the cluster of cluster.sh: what each fault test starts from, and what it must end in."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import ROOT, snakemake
from small import ENCODE, SYSTEMS, collection

CLUSTER = Path(__file__).parent / "cluster.sh"
FOLDER = Path(os.environ.get("BEIRGRID_SLURM", "/tmp/beirgrid-slurm"))
TABLE = "results/tables/scores.csv"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "full: only in make test-slurm-full")


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> None:
    """Reach the cluster that cluster.sh started; there is nothing to test without it."""
    if not (FOLDER / "slurm.conf").exists():
        pytest.skip("no test cluster runs; make test-slurm starts one")


def wait_for(condition: Callable[[], Any], seconds: float = 90, every: float = 0.2) -> Any:
    """Return the first true value of ``condition``."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(every)
    raise TimeoutError(f"waited {seconds} s in vain")


class Site:
    """A working directory on the cluster, and the Snakemake processes that a person starts there."""

    def __init__(self, folder: Path, configfile: Path) -> None:
        self.folder = folder
        self.configfile = configfile
        self.started: list[subprocess.Popen[str]] = []

    def start(self, *arguments: str | Path, before: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        """Start Snakemake with the SLURM profile, in a hurry: it asks after its jobs every few seconds."""
        command = [*before, sys.executable, "-m", "snakemake", "--profile", "slurm", "--configfile", self.configfile]
        command += ["--directory", self.folder, "--slurm-init-seconds-before-status-checks", "2", *arguments]
        process = subprocess.Popen(
            list(map(str, command)), cwd=ROOT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        self.started.append(process)
        return process

    def run(self, *arguments: str | Path) -> subprocess.CompletedProcess[str]:
        """Run Snakemake with the SLURM profile to its end."""
        return end(self.start(*arguments))

    def jobs(self, rule: str = "") -> list[dict[str, str]]:
        """Return the facts of this folder's SLURM jobs, of one rule or of all, the ended ones too."""
        return [job for job in slurm_jobs(self.folder) if job["Comment"].startswith(f"rule_{rule}")]

    def states(self, rule: str) -> list[str]:
        """Return the states of a rule's jobs, in the order of submission."""
        return [job["JobState"] for job in self.jobs(rule)]

    def live(self) -> list[dict[str, str]]:
        """Return the jobs that are not over."""
        return [job for job in self.jobs() if job["JobState"] in ("PENDING", "RUNNING", "COMPLETING")]

    def stage(self, stage: str) -> int | None:
        """Return the process id of a stage that runs in this folder."""
        for entry in Path("/proc").glob("[0-9]*"):
            try:
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if words[1:4] == [b"-m", b"beirgrid", stage.encode()] and (entry / "cwd").resolve() == self.folder:
                    return int(entry.name)
            except OSError:
                continue
        return None

    def hang(self, stage: str) -> int:
        """Wait until a stage runs, stop its process, as one that waits for a dead disk, and return its id."""
        process = wait_for(lambda: self.stage(stage), every=0.05)
        os.kill(process, signal.SIGSTOP)
        return process

    @property
    def table(self) -> str:
        """The table that the run ends in."""
        return (self.folder / TABLE).read_text()

    @property
    def leftovers(self) -> list[Path]:
        """Temporary files under results/."""
        return list((self.folder / "results").rglob("*beirgrid-tmp*"))

    def clear(self) -> None:
        """End what the test left running."""
        for process in self.started:
            if process.poll() is None:
                process.kill()
                process.wait()
        if live := self.live():
            subprocess.run(["scancel", *(job["JobId"] for job in live)], check=True)
            wait_for(lambda: not self.live())


def slurm_jobs(folder: Path) -> list[dict[str, str]]:
    """Return what the controller knows of the jobs that work in ``folder``."""
    shown = subprocess.run(
        ["scontrol", "--oneliner", "--details", "show", "jobs"], capture_output=True, text=True, check=True
    ).stdout
    jobs = [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in shown.splitlines()]
    return [job for job in jobs if job.get("WorkDir") == str(folder)]


def end(process: subprocess.Popen[str], seconds: float = 400) -> subprocess.CompletedProcess[str]:
    """Wait for a process and return what it said."""
    output, _ = process.communicate(timeout=seconds)
    return subprocess.CompletedProcess(process.args, process.returncode, output)


@pytest.fixture(scope="session")
def write_config(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Callable[..., Path]:
    """Return a function that writes a configfile of the small grid, with some of its systems."""
    data = collection(tmp_path_factory.mktemp("data") / "small")

    def write(systems: list[str], **changes: Any) -> Path:
        settings = {
            "corpora": {"small": {"source": "local", "path": str(data), "documents": 60}},
            "datasets": {"small": {"corpus": "small", "queries": 11}},
            "models": {
                "tiny-dense": {"family": "dense", "path": str(tiny_models["dense"]), "similarity": "cosine"},
                "tiny-ce": {"family": "cross-encoder", "path": str(tiny_models["cross-encoder"]), "max_length": 64},
            },
            "systems": SYSTEMS,
            "grid": {"systems": systems, "datasets": ["small"]},
            "encode": {**ENCODE, "shard": 60},
            "metrics": ["ndcg@10", "recall@100"],
            **changes,
        }
        path = tmp_path_factory.mktemp("config") / "grid.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    return write


def undisturbed(configfile: Path, folder: Path, *arguments: str) -> None:
    """Run a grid, or the beginning of one, without SLURM."""
    done = snakemake("--configfile", configfile, "--directory", folder, "--cores", "2", *arguments)
    assert done.returncode == 0, done.stdout


@pytest.fixture(scope="session")
def dense_grid(write_config: Callable[..., Path]) -> Path:
    """The configfile of the fault tests: one dense system, one shard."""
    return write_config(["tiny"])


@pytest.fixture(scope="session")
def fetched(dense_grid: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory in which all is fetched: what is left to do is what runs into faults."""
    folder = tmp_path_factory.mktemp("fetched")
    undisturbed(dense_grid, folder, "--until", "fetch_dataset", "fetch_model")
    return folder


@pytest.fixture(scope="session")
def expected(dense_grid: Path, fetched: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table of an undisturbed run."""
    folder = tmp_path_factory.mktemp("undisturbed") / "site"
    shutil.copytree(fetched, folder)
    undisturbed(dense_grid, folder)
    return (folder / TABLE).read_text()


@pytest.fixture
def site(fetched: Path, dense_grid: Path, expected: str, tmp_path: Path):
    """A working directory of its own for a fault test."""
    shutil.copytree(fetched, tmp_path / "site")
    site = Site(tmp_path / "site", dense_grid)
    yield site
    site.clear()
