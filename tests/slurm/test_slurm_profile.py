"""``snakemake --profile slurm`` in a fresh checkout, on a real SLURM cluster."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import beirgrid, copy_checkout
from sites import TABLE, slurm_jobs, undisturbed, wait_for

ON_GPU = {"encode_dense", "retrieve_dense", "score"}
# The rules of small corpora that share a cluster job, by the name of its group. Jobs of GPU nodes share none.
TOGETHER = {
    "retrieve-bm25": "evaluate_retrieve_lexical",
    "evaluate": "evaluate",
    "combine-1": "evaluate_fuse_rerank",
}


def _rule(job: dict[str, str]) -> str:
    """Return the rule of a SLURM job, or the name and the rules of one that is a group."""
    return job["Comment"].removeprefix("rule_").split("_wildcards_")[0]


@pytest.mark.parametrize(
    ("small_corpus", "datasets", "submitted"),
    [
        pytest.param(0, 1, 18, marks=pytest.mark.full, id="a job per stage"),
        pytest.param(100, 1, 14, id="a small corpus"),
        pytest.param(100, 2, 21, marks=pytest.mark.full, id="two small corpora"),
    ],
)
def test_the_literal_command_runs_every_kind_of_stage_on_the_nodes_it_belongs_to(
    write_config, tmp_path, small_corpus, datasets, submitted
):
    grid = write_config(["bm25-flat", "tiny", "bm25+ce", "fused"], small_corpus, datasets)
    undisturbed(grid, tmp_path / "undisturbed")
    checkout = copy_checkout(tmp_path / "checkout")
    command = [Path(sys.executable).parent / "snakemake", "--profile", "slurm", "--configfile", grid]
    with (tmp_path / "told").open("w+") as told, (tmp_path / "screens").open("w+") as screens:
        process = subprocess.Popen(command, cwd=checkout, stdout=told, stderr=subprocess.STDOUT)
        wait_for((checkout / "results/status.jsonl").exists)
        while process.poll() is None:
            screens.write(beirgrid("status", "--directory", checkout).stdout)
            time.sleep(2)
        assert process.returncode == 0, (tmp_path / "told").read_text()
    last = beirgrid("status", "--directory", checkout).stdout
    assert last.startswith("finished after 0:")
    assert (checkout / TABLE).read_text() == (tmp_path / "undisturbed" / TABLE).read_text()

    jobs = slurm_jobs(checkout)
    assert {job["JobState"] for job in jobs} == {"COMPLETED"}
    rules = {_rule(job) for job in jobs}
    together = {f"{name}_{stages}" for name, stages in TOGETHER.items()}
    assert len(jobs) == submitted
    assert rules > (together | ON_GPU if small_corpus else ON_GPU)
    for job in jobs:
        if _rule(job) in ON_GPU:
            assert job["NodeList"] == "gpu1"
            assert job["TresPerJob"] == "gres:gpu:1"
        else:
            assert job["NodeList"] in ("cpu1", "cpu2")
            assert "TresPerJob" not in job

    shown = (tmp_path / "screens").read_text()
    assert shown.startswith("running for 0:00:")
    assert re.search(r"^Running, \d+:$", shown, re.MULTILINE)
    assert re.search(r"^  fetch_corpus small +0:\d\d:\d\d +not begun$", shown, re.MULTILINE)
    assert re.search(r"^\d+ of \d+ jobs done, .*about 0:\d\d:\d\d left$", shown, re.MULTILINE)
    scores = beirgrid("report", "--directory", checkout).stdout
    assert re.search(r"^small( +0\.\d{4}\S*)+$", scores, re.MULTILINE), scores
