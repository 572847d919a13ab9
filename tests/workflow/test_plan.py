"""The plan of a grid."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from helpers import ROOT, beirgrid, python
from small import job_counts, run

from beirgrid.__main__ import main
from beirgrid.core.compute import has_gpu_driver
from beirgrid.graph import artifacts
from beirgrid.graph.dag import Job, jobs_behind
from beirgrid.graph.grid import Grid
from beirgrid.tools.plan import _resources, merged


def _plan(configfile: Path, folder: Path, *options: str) -> dict[str, Any]:
    done = beirgrid("plan", "--configfile", configfile, "--directory", folder, "--format", "json", *options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_it_counts_the_jobs_that_snakemake_would_run(small_grid, tmp_path):
    configfile = small_grid(tmp_path)
    counts = job_counts(run(configfile, tmp_path, "--dry-run"))
    plan = _plan(configfile, tmp_path)
    assert {rule: sums["jobs"] for rule, sums in plan["rules"].items()} == counts
    assert plan["total"]["jobs"] == plan["jobs_in_all"] == sum(counts.values())
    for sums in plan["rules"].values():
        assert sums["mem_mb"] > 600
        assert sums["runtime"] >= 20


def test_what_is_done_is_not_planned_and_took_less_memory_than_was_asked(finished):
    plan = _plan(finished / "grid.yaml", finished)
    assert plan["total"]["jobs"] == 0
    assert plan["jobs_in_all"] > 20
    resources = _resources(grid := Grid(merged([finished / "grid.yaml"], [])), "cpu")
    for job in jobs_behind(grid, *(artifacts.scores(grid, *cell) for cell in grid.runs)):
        record = json.loads((finished / job.record).read_text())
        assert record["peak_memory_mb"] < resources.mem_mb(job, 1), job


def test_the_amounts_of_a_plan_are_those_that_the_jobs_met(finished):
    """Seconds depend on the machine; the documents, queries, pairs and tokens behind them do not."""
    planned = _resources(Grid(merged([finished / "grid.yaml"], [])), "cpu")
    stages = [finished / "results" / name for name in ("datasets", "embeddings", "pairs")]
    records = [(path, json.loads(path.read_text())) for folder in stages for path in folder.rglob("*.json")]
    met: list[tuple[float, float]] = []
    for path, record in records:
        facts, names = record["facts"], path.relative_to(finished / "results").parts
        if record["stage"] == "fetch_dataset":
            met.append((planned.sizes.queries(names[1]), facts["queries"]))
        elif record["stage"] == "encode" and names[1] == "tiny-dense":
            met.append((planned.sizes.documents("small", int(path.stem)), facts["documents"]))
        elif record["stage"] == "score":
            wildcards = {"reranker": names[1], "dataset": names[2], "first": path.stem}
            met.append((planned.work(Job.of("score", wildcards))["pairs"], facts["pairs"]))
    assert len(met) >= 4
    for expected, counted in met:
        assert 1 / 3 <= expected / counted <= 3, (expected, counted)


@pytest.mark.skipif(has_gpu_driver(), reason="this machine has a GPU")
def test_models_run_where_the_machine_or_the_person_says(small_grid, tmp_path):
    configfile = small_grid(tmp_path)
    here, cluster = _plan(configfile, tmp_path), _plan(configfile, tmp_path, "--device", "cuda")
    assert (here["device"], cluster["device"]) == ("cpu", "cuda")
    assert here["total"]["gpu_hours"] == 0 < cluster["total"]["gpu_hours"]
    asked = [plan["rules"]["encode_dense"]["mem_mb"] for plan in (here, cluster)]
    assert asked[0] < 3000 < 4000 + asked[0] < asked[1]  # the libraries of CUDA
    assert here["cores"] == min(8, len(os.sched_getaffinity(0)))


@pytest.mark.slow
def test_the_papers_grid_is_planned_at_its_size(tmp_path):
    plan = _plan(ROOT / "config/grids/paper.yaml", tmp_path, "--device", "cuda")
    assert sorted(plan["not_supplied"]) == ["bioasq", "robust04", "signal1m", "trec-news"]
    assert 1900 < plan["total"]["jobs"] < 2100
    assert 10e3 < plan["rules"]["fetch_corpus"]["download_mb"] < 13e3  # CQADupStack's archive, of 5.3 GB, once
    assert plan["peak_mb"] > plan["total"]["kept_mb"]
    assert not plan["too_large"]


def test_a_job_that_no_node_takes_is_named(tmp_path):
    small = tmp_path / "nodes.yaml"
    small.write_text("grid: {systems: [sparta], datasets: [msmarco]}\nnodes: {cpu: {mem_mb: 2000}}\n")
    done = beirgrid("plan", "--configfile", small, "--directory", tmp_path)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("Too large: index_sparse sparta msmarco")]
    assert re.search(r"msmarco \d+: [\d,]{5,} expected, but nodes\.cpu\.mem_mb allows 2,000: raise it, or set", line)


def test_the_time_of_a_plan_is_that_of_its_hours_on_the_cores_here(tmp_path):
    grid = tmp_path / "grid.yaml"
    grid.write_text("grid: {systems: [minilm], datasets: [quora]}\ndevice: cpu\n")
    said = beirgrid("plan", grid, "--directory", tmp_path).stdout
    assert re.match(r"1 system, 1 dataset: (\d+) of \1 jobs to run\n", said)
    told = re.search(r"^About (.+) on (\d+) cores? without a GPU, at most \S+ [GM]B of disk$", said, re.MULTILINE)
    hours = re.search(r"^total +\d+ +([\d.]+) ", said, re.MULTILINE)
    assert pd.Timedelta(told[1]).total_seconds() / 3600 == pytest.approx(float(hours[1]) / int(told[2]), abs=0.02)
    assert "GPU h" not in said


def test_a_configfile_that_does_not_exist_is_named(tmp_path):
    done = beirgrid("plan", "--configfile", tmp_path / "none.yaml", "--directory", tmp_path)
    assert done.stderr == f"beirgrid plan: error: No such file or directory ({tmp_path}/none.yaml)\n"


@pytest.mark.parametrize(
    ("text", "arguments", "message"),
    [
        ("grid: {systems: [bm52], datasets: [scifact]}", [], "no system is named 'bm52'; did you mean 'bm25'?"),
        ("grid: [", [], "grid.yaml cannot be read as YAML: while parsing a flow node"),
        ("", [], "grid.yaml: Config file must be given as JSON or YAML with keys at top level"),
        ("- a", [], "grid.yaml: Config file must be given as JSON or YAML with keys at top level"),
        ("grid:\n\tsystems: []", [], "grid.yaml cannot be read as YAML: while scanning for the next token"),
        ("device: \udcff", [], "grid.yaml cannot be read as YAML: 'utf-8' codec can't decode byte 0xff"),
        ("grid: {datasets: {}}", [], "grid.yaml: grid.datasets: {} has no key to merge, so ['trec-covid', 'nfcorpus'"),
        ("device: cpu", ["--config", "grid={datasets: {}}"], "--config: grid.datasets: {} has no key to merge"),
        ("device: cpu\ndevice: cuda", [], "grid.yaml cannot be read as YAML: device stands twice"),
        ("device: cpu", ["--config", "foo"], "--config: Invalid config definition"),
    ],
)
def test_what_cannot_be_planned_is_told_in_one_message(tmp_path, text, arguments, message):
    (tmp_path / "grid.yaml").write_bytes(text.encode(errors="surrogateescape"))
    done = beirgrid("plan", "--directory", tmp_path, "--configfile", tmp_path / "grid.yaml", *arguments)
    assert done.returncode != 0
    assert message in done.stderr
    assert "Traceback" not in done.stderr


# Prints the jobs that Snakemake would run, those that the plans of the stages name, and the sums of the plan.
BEHIND = """
import json, sys
from pathlib import Path
from beirgrid.graph import artifacts, gate
from beirgrid.graph.grid import Grid
from beirgrid.graph.dag import jobs_behind
from beirgrid.graph.rules import Rules
from beirgrid.tools.plan import _jobs, _plan, _resources, merged
resources = _resources(grid := Grid(merged([Path(sys.argv[1])])), "cuda")
gate.announce(grid.config, grid)
planned = dict(_jobs(resources, ["--configfile", sys.argv[1]]))
dry = [[job.rule, sorted(map(list, job.wildcards))] for job in planned]
named = [[job.rule, sorted(map(list, job.wildcards))] for job in Rules(grid, own_python=True).jobs]
print(json.dumps([dry, named, _plan(resources, planned)["total"]]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("grid", sorted(path.stem for path in (ROOT / "config/grids").glob("*.yaml")))
def test_the_jobs_behind_the_cells_of_a_grid_are_those_of_a_dry_run(grid, tmp_path):
    """The dry run ends with an error where Snakemake cannot run the grid. What it looks up is in the tracked lock."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    shutil.copy(ROOT / "checkpoints.lock.json", tmp_path)
    words = [python(), "-c", BEHIND, str(ROOT / f"config/grids/{grid}.yaml")]
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    dry, named, total = json.loads(done.stdout.splitlines()[-1])
    jobs, behind = ({json.dumps(job) for job in jobs} for jobs in (dry, named))
    assert jobs - behind == {json.dumps([rule, []]) for rule in ("aggregate", "report")}
    assert behind <= jobs
    assert (tmp_path / "checkpoints.lock.json").read_bytes() == (ROOT / "checkpoints.lock.json").read_bytes()
    if "demo" not in grid:
        assert total["gpu_hours"] > 0
        assert total["kept_mb"] > 1000


# Where the documentation has the GPU hours, and mostly the CPU hours, of a grid.
HOURS: dict[str, dict[str, str]] = {
    **{
        name: {"docs/datasets.md": rf"`{name}` \|.*\| ([\d.,]+) \| ([\d.,]+) \| [^|]+ \|\n"}
        for name in ("nano", "long", "reasoning", "multilingual", "today", "today-small")
    },
    str(ROOT / "config/config.yaml"): {
        "README.md": r"estimates ([\d.]+) GPU hours, (\d+) CPU hours and",
        "docs/cluster.md": r"826 jobs, ([\d.]+) GPU hours, (\d+) core hours",
    },
    "paper": {
        "README.md": r"estimates (\d+) GPU hours, (\d+) CPU hours,\n",
        "docs/cluster.md": r"GPU \| (\d+) hours.*\n.* (\d+) core hours",
    },
    "adaptation": {"README.md": r"`adaptation` .*: (\d+) GPU hours"},
}


@pytest.mark.slow
@pytest.mark.parametrize("grid", HOURS)
def test_the_hours_of_the_documentation_are_those_of_plan(grid, tmp_path, capsys):
    assert main(["plan", grid, "--device", "cuda", "--format", "json", "--directory", str(tmp_path)]) == 0
    total = json.loads(capsys.readouterr().out)["total"]
    for page, told in HOURS[grid].items():
        hours = [float(text.replace(",", "")) for text in re.search(told, (ROOT / page).read_text()).groups()]
        planned = [total["gpu_hours"], total["cpu_hours"]][: len(hours)]
        assert hours == pytest.approx(planned, rel=0.03, abs=0.06), page
