"""``snakemake --profile slurm`` in a fresh checkout, on a real SLURM cluster."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT
from sites import TABLE, slurm_jobs, undisturbed

ON_GPU = {"encode", "retrieve_faiss", "score"}


# What a small corpus has in one job, after the name of the job ({step}-{model or system}-{corpus or dataset}).
TOGETHER = {
    "encode-tiny-dense-small": "encode_index_faiss",
    "cell-bm25-flat-small": "evaluate_retrieve_lucene",
    "cell-tiny-small": "evaluate_retrieve_faiss",
    "cell-bm25+ce-small": "evaluate_rerank",
    "cell-fused-small": "evaluate_fuse",
}


def _rule(job: dict[str, str]) -> str:
    """Return the rule of a SLURM job, or the name and the rules of one that is a group."""
    return job["Comment"].removeprefix("rule_").split("_wildcards_")[0]


@pytest.mark.parametrize(
    "small_corpus", [pytest.param(0, marks=pytest.mark.full), 100], ids=["a job per stage", "a small corpus"]
)
def test_the_literal_command_runs_every_kind_of_stage_on_the_nodes_it_belongs_to(write_config, tmp_path, small_corpus):
    grid = write_config(["bm25-flat", "tiny", "bm25+ce", "fused"], small_corpus)
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
    rules = {_rule(job) for job in jobs}
    together = {f"{name}_{stages}" for name, stages in TOGETHER.items()}
    assert len(jobs) == (13 if small_corpus else 18)
    assert rules > (together if small_corpus else ON_GPU)
    for job in jobs:
        if ON_GPU & set(re.split(r"_(?!faiss)", _rule(job))):
            assert job["NodeList"] == "gpu1"
            assert job["TresPerJob"] == "gres:gpu:1"
        else:
            assert job["NodeList"] in ("cpu1", "cpu2")
            assert "TresPerJob" not in job
