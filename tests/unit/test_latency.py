"""The command latency: refusals, and how measurements join a table. tests/workflow measures a grid."""

from __future__ import annotations

import shutil
from pathlib import Path

import finished
import numpy as np
import pandas as pd
import pytest
from helpers import main

from beirgrid.core import files, paths
from beirgrid.results.efficiency import LATENCY_COLUMNS, read_latency
from beirgrid.results.summary import Cell, DatasetSummary, GridSummary
from beirgrid.tools import latency

PROGRAM = {
    "stage": "retrieve_program",
    "inputs": {"corpus": "c", "queries": "q"},
    "settings": {"command": "touch started"},
    "outputs": {"output": "o", "record": "r"},
    "options": {"system": "own"},
}
# Systems with their records.
RECORDS = {
    "old": {"command": "python -m beirgrid --settings 1 retrieve lexical --system old --made x"},
    "own": {"job": PROGRAM, "settings": {"command": "touch started"}},
    "theirs": {"job": {"stage": "fetch_run"}, "facts": {"source_sha256": "0" * 64}},
}


@pytest.fixture
def grid(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    cells = []
    for system, keys in RECORDS.items():
        record = paths.RUN_RECORD.format(system=system, dataset="d")
        files.write_json(record, finished.record("retrieve", **keys))
        cells.append(Cell(system=system, dataset="d", scores="s", per_query="p", records=(record,)))
    summary = GridSummary(
        systems=tuple(RECORDS), rows=("d",), datasets={"d": DatasetSummary()}, metrics=("ndcg@10",), cells=tuple(cells)
    )
    place = tmp_path / paths.GRID_SUMMARY.format(grid="g")
    files.write_text(place, summary.model_dump_json(exclude_defaults=True))
    return place


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "e"], "the grid has no dataset 'e' (it has d)"),
        (["--dataset", "e", "--systems", "own"], "the grid has no dataset 'e' (it has d)"),
        (["--dataset", "d", "--systems", "tas-b,own"], "the grid has no system 'tas-b' on 'd' (it has old, own, "),
        (["--dataset", "d", "--systems", "owm"], "the grid has no system 'owm' on 'd'; did you mean 'own'?"),
        (["--dataset", "d"], "results/runs/old/d.json: it records a job of another version of beirgrid"),
        (["--dataset", "d", "--systems", "own"], "own is not measured: 'own' cannot be searched: it is a program, "),
        (["--dataset", "d", "--systems", "theirs"], "'theirs' cannot be searched: its stage fetch_run has no opener"),
    ],
)
def test_what_cannot_be_measured_is_said(grid, capsys, options, message):
    """A grid is named by its folder, by its name in the working folder, or by neither where there is one."""
    for place in (["--directory", str(grid.parent)], ["--grid", "g"], []):
        assert main(["latency", *place, *options]) == 1
        assert message in capsys.readouterr().err
    assert not (grid.parent / "tables").exists()
    assert not Path("started").exists(), "the folder may be somebody else's"


def test_of_several_grids_one_must_be_named(grid, capsys):
    shutil.copytree(grid.parent, grid.parent.with_name("h"))
    assert main(["latency", "--dataset", "d"]) == 1
    assert "which grid?" in capsys.readouterr().err
    assert main(["latency", "--grid", "i", "--dataset", "d"]) == 1
    assert "has no grid 'i' (it has g, h)" in capsys.readouterr().err


def test_measurements_join_those_of_other_hardware(tmp_path):
    def measured(hardware: str, p50: float, **others: object) -> pd.DataFrame:
        cell = {"system": "s", "dataset": "d", "step": "retrieve", "depth": 9, "hardware": hardware, "cpus": 2}
        numbers = dict.fromkeys(("documents", "queries", "p95_ms", "p99_ms", "mean_ms"), 1.0)
        texts = {"device": "cpu", "precision": "", "as_run": True}
        return pd.DataFrame([{**cell, **numbers, **texts, "p50_ms": p50, **others}]).reindex(columns=LATENCY_COLUMNS)

    path = tmp_path / "latency.csv"
    for table in (measured("a", 1), measured("b", 2), measured("a", 3), measured("a", 4, depth=8)):
        latency.write(table, path)
    found = read_latency(path)[["hardware", "depth", "p50_ms"]].to_numpy().tolist()
    assert sorted(found) == [["a", 8, 4], ["a", 9, 3], ["b", 9, 2]]
    # An earlier version could measure several users at a time.
    pd.read_csv(path).assign(concurrency=[1, 1, 8], queries_per_second=9.0).to_csv(path, index=False)
    assert list(read_latency(path)["hardware"]) == ["b", "a"]


def test_percentiles_are_in_milliseconds():
    row = latency.row("retrieve", 9, np.arange(1, 102) / 1000, [["d"]] * 101)
    assert row.items() >= {"p50_ms": 51, "p95_ms": 96, "p99_ms": 100, "documents": 1, "queries": 101}.items()
    assert row["mean_ms"] == pytest.approx(51)
