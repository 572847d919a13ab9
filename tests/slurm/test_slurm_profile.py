"""``snakemake --profile slurm`` in a fresh checkout, on a real SLURM cluster."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from helpers import ROOT
from sites import TABLE, slurm_jobs, undisturbed

ON_GPU = {"encode", "retrieve_faiss", "score"}


def _rule(job: dict[str, str]) -> str:
    return job["Comment"].removeprefix("rule_").split("_wildcards_")[0]


def test_the_literal_command_runs_every_kind_of_stage_on_the_nodes_it_belongs_to(write_config, tmp_path):
    grid = write_config(["bm25-flat", "tiny", "bm25+ce", "fused"])
    undisturbed(grid, tmp_path / "undisturbed")
    checkout = tmp_path / "checkout"
    made = shutil.ignore_patterns(".*", "results", "logs", "__pycache__", "*.egg-info")
    shutil.copytree(ROOT, checkout, symlinks=True, ignore=made)
    command = [Path(sys.executable).parent / "snakemake", "--profile", "slurm", "--configfile", grid]
    done = subprocess.run(command, cwd=checkout, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (checkout / TABLE).read_text() == (tmp_path / "undisturbed" / TABLE).read_text()

    jobs = slurm_jobs(checkout)
    assert {job["JobState"] for job in jobs} == {"COMPLETED"}
    assert {_rule(job) for job in jobs} > ON_GPU
    for job in jobs:
        if _rule(job) in ON_GPU:
            assert job["NodeList"] == "gpu1"
            assert job["TresPerJob"] == "gres:gpu:1"
        else:
            assert job["NodeList"] in ("cpu1", "cpu2")
            assert "TresPerJob" not in job
