"""A grid with a gate: its datasets first, and then the others, without what deviates from its published values."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from helpers import beirgrid, copy_checkout, run_copy
from small import collection, table

from beirgrid.config.load import merged
from beirgrid.graph import gate
from beirgrid.graph.grid import Grid

SYSTEMS = {
    "plain": {"retriever": "bm25", "fields": "flat", "k1": 1.2},
    "fused": {"fusion": "rrf", "of": ["bm25-flat", "plain"]},
}
COLUMNS = "system,dataset,metric,value,class,source,note,protocol"


def _write(folder: Path, *systems: str) -> Path:
    """Write a grid of the collection small whose gate is the collection tiny, and return its file."""
    content = {
        "corpora": {name: {"source": "local", "path": str(folder / name)} for name in ("small", "tiny")},
        "datasets": {name: {"corpus": name} for name in ("small", "tiny")},
        "systems": SYSTEMS,
        "grid": {"name": "gated", "systems": [*systems], "datasets": ["small"], "gate": ["tiny"]},
        "metrics": ["ndcg@10"],
    }
    path = folder / "grid.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


@pytest.fixture
def gated(tmp_path: Path) -> Path:
    """The file of a grid with a gate, whose collections lie beside it."""
    collection(tmp_path / "small")
    collection(tmp_path / "tiny", 40, seed=1)
    return _write(tmp_path, "bm25-flat", "plain", "fused")


def _planned(gated: Path) -> dict:
    done = beirgrid("plan", gated, "--directory", gated.parent, "--format", "json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_plan_has_the_costs_of_both(gated):
    """Neither counts the work of the other."""
    done = beirgrid("plan", gated, "--directory", gated.parent)
    first, then = done.stdout.split("\nThen:\n")
    assert first.startswith("The gate:\n3 systems, 1 dataset: 11 of 11 jobs to run\nAbout ")
    assert then.startswith("3 systems, 1 dataset: 11 of 11 jobs to run\nAbout ")
    assert "stage" in then


def test_a_job_takes_the_grid_of_its_run(gated):
    """Of a cluster: it reads the configuration when the tables of the gate may be there."""
    loaded = merged([gated])
    first, own = gate.grids(loaded)
    assert gate.current(loaded).cells == first.cells == [(name, "tiny") for name in ("bm25-flat", "plain", "fused")]
    without = Grid(loaded, {"fused": "deviates"})
    for grid, is_gate in ((first, True), (own, False), (without, False)):
        gate.announce(loaded, grid)
        taken = gate.current(loaded)
        assert (taken.config.grid.name, taken.cells) == (grid.config.grid.name, grid.cells)
        assert gate.forget() == is_gate
    assert without.cells == [("bm25-flat", "small"), ("plain", "small")]


@pytest.mark.slow
def test_a_system_that_deviates_in_the_gate_is_not_run_on_the_other_datasets(gated, tmp_path):
    checkout = copy_checkout(tmp_path / "checkout")
    options = (gated, "--directory", tmp_path, "--cores", "2")
    snakemake = ("snakemake", "--cores", "2", "--directory", tmp_path, "--configfile", gated)
    line = "The gate of gated first, tiny: beirgrid run then goes on with the other datasets"
    # The values of today are published: one as it is, and one far from it.
    probe = yaml.safe_load(gated.read_text())
    probe["grid"] = {"name": "probe", "systems": ["bm25-flat", "fused"], "datasets": ["tiny"]}
    (tmp_path / "probe.yaml").write_text(yaml.safe_dump(probe))
    run_copy(checkout, *snakemake[:-1], tmp_path / "probe.yaml")
    values = {row["system"]: float(row["value"]) for row in table(tmp_path, grid="probe")}
    rows = [COLUMNS, f"bm25-flat,tiny,ndcg@10,{values['bm25-flat']},card,a paper,,"]
    rows.append(f"fused,tiny,ndcg@10,{values['fused'] + 0.3},card,a paper,,")
    rows.append(f"bm25-flat,tiny,ndcg@10,{values['bm25-flat'] + 0.3},card,another paper,,stemmed otherwise")
    (checkout / "config/published/planted.csv").write_text("\n".join(rows) + "\n")

    # Of plain Snakemake, a run makes the gate, with what the other grid has made; the next one makes the rest.
    made = (tmp_path / "results/metrics/fused/tiny.json").stat().st_mtime_ns
    assert line in run_copy(checkout, *snakemake)
    assert (tmp_path / "results/metrics/fused/tiny.json").stat().st_mtime_ns == made
    assert {row["verdict"] for row in table(tmp_path, "verdicts", "gated-gate") if row["system"] == "plain"} == {
        "no reference"
    }
    assert not (tmp_path / "results/metrics/bm25-flat/small.json").exists()
    reason = (
        f"deviates from its published value on tiny (nDCG@10 {values['fused']:.3f}, published "
        f"{values['fused'] + 0.3:.3f}), so it is not run"
    )
    said = run_copy(checkout, *snakemake)
    assert line not in said
    assert f"fused {reason}" in said
    assert {path.parent.name for path in tmp_path.glob("results/metrics/*/small.json")} == {"bm25-flat", "plain"}
    scores = {row["system"]: row for row in table(tmp_path, grid="gated")}
    assert {name: row["status"] for name, row in scores.items()} == {
        "bm25-flat": "done",
        "plain": "done",
        "fused": "declined",
    }
    assert scores["fused"]["detail"] == reason
    folder = tmp_path / "results/grids/gated"
    for path in (folder / "tables/ndcg@10.md", folder / "report/index.html"):
        assert f"declined: fused {reason}." in path.read_text(), path

    # Nothing is made again, and nothing is left to plan.
    before = {path: path.stat().st_mtime_ns for path in tmp_path.glob("results/**/*") if path.is_file()}
    run_copy(checkout, "beirgrid", "run", *options)
    after = {path: path.stat().st_mtime_ns for path in tmp_path.glob("results/**/*") if path.is_file()}
    assert {path for path in before if after.get(path) != before[path]} <= {tmp_path / "results/status.jsonl"}
    plan = json.loads(run_copy(checkout, "beirgrid", "plan", gated, "--directory", tmp_path, "--format", "json"))
    assert plan["gate"]["total"]["jobs"] == plan["total"]["jobs"] == 0

    # A system more sends the grid to its gate again, from which ``beirgrid run`` goes on.
    _write(tmp_path, "bm25-flat", "plain", "fused", "bm25")
    assert line in run_copy(checkout, "beirgrid", "run", *options, "-n")
    said = run_copy(checkout, "beirgrid", "run", *options)
    assert said.index(line) < said.index(f"fused {reason}")
    assert (tmp_path / "results/metrics/bm25/small.json").is_file()
    assert not (tmp_path / "results/metrics/fused/small.json").exists()


@pytest.mark.slow
def test_a_gate_that_fails_ends_the_run(gated):
    """No job of the other datasets begins, and no report is that of the grid."""
    corpus = gated.parent / "tiny/corpus.jsonl"
    corpus.write_text("no JSON\n")
    done = beirgrid("run", gated, "--directory", gated.parent, "--cores", "2")
    assert done.returncode == 1
    assert not (gated.parent / "results/corpora/small").exists()
    done = beirgrid("report", "--grid", "gated", cwd=gated.parent)
    assert done.returncode == 1
    assert "has no grid 'gated'; did you mean 'gated-gate'?" in done.stderr
