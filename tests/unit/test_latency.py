"""The command latency: refusals, and how measurements join a table. tests/workflow measures a grid."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import finished
import numpy as np
import pandas as pd
import pytest
from helpers import main, quick_first, write_collection

from beirgrid.core import paths
from beirgrid.results.efficiency import LATENCY_COLUMNS, read_latency
from beirgrid.results.summary import Cell, DatasetSummary, GridSummary
from beirgrid.runs import runs
from beirgrid.tools import latency, open_systems


@pytest.fixture
def grid(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    record = paths.RUN_RECORD.format(system="bm25", dataset="d")
    cell = Cell(system="bm25", dataset="d", scores="s", per_query="p", records=(record,))
    summary = GridSummary(
        systems=("bm25",), rows=("d",), datasets={"d": DatasetSummary()}, metrics=("ndcg@10",), cells=(cell,)
    )
    place = tmp_path / paths.GRID_SUMMARY.format(grid="g")
    place.parent.mkdir(parents=True)
    place.write_text(summary.model_dump_json(exclude_defaults=True))
    Path(record).parent.mkdir(parents=True)
    command = "python -m beirgrid --settings 1 retrieve lexical --system bm25 --made x"
    Path(record).write_text(json.dumps(finished.record("retrieve", command=command)))
    return place


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--dataset", "e"], "the grid has no dataset 'e' (it has: d)"),
        (["--dataset", "d", "--systems", "tas-b"], "the grid has no system 'tas-b' on 'd' (it has: bm25)"),
        (["--dataset", "d"], "results/runs/bm25/d.json: it records a job of another version of beirgrid"),
    ],
)
def test_what_cannot_be_measured_is_said(grid, capsys, monkeypatch, options, message):
    """A grid is named by its folder, by its name in the working folder, or by neither where there is one."""
    for place in (["--directory", str(grid.parent)], ["--grid", "g"], []):
        assert main(["latency", *place, *options]) == 1
        assert message in capsys.readouterr().err
    assert not (grid.parent / "tables").exists()


def test_of_several_grids_one_must_be_named(grid, capsys):
    shutil.copytree(grid.parent, grid.parent.with_name("h"))
    assert main(["latency", "--dataset", "d"]) == 1
    assert "which grid?" in capsys.readouterr().err
    assert main(["latency", "--grid", "i", "--dataset", "d"]) == 1
    assert "has no grid 'i' (it has g, h)" in capsys.readouterr().err


def test_measurements_join_those_of_other_hardware(tmp_path):
    def measured(hardware: str, p50: float, **others: object) -> pd.DataFrame:
        row = {
            "system": "s",
            "dataset": "d",
            "step": "retrieve",
            "depth": 9,
            "hardware": hardware,
            "cpus": 2,
            "concurrency": 1,
        }
        numbers = dict.fromkeys(("documents", "queries", "queries_per_second", "p95_ms", "p99_ms", "mean_ms"), 1.0)
        texts = {"device": "cpu", "precision": "", "as_run": True}
        return pd.DataFrame([{**row, **numbers, **texts, "p50_ms": p50, **others}]).reindex(columns=LATENCY_COLUMNS)

    path = tmp_path / "latency.csv"
    for table in (measured("a", 1), measured("b", 2), measured("a", 3), measured("a", 4, depth=8)):
        latency.write(table, path)
    found = read_latency(path)[["hardware", "depth", "p50_ms"]].to_numpy().tolist()
    assert sorted(found) == [["a", 8, 4], ["a", 9, 3], ["b", 9, 2]]


def test_percentiles_are_in_milliseconds():
    opened = open_systems.OpenSystem(lambda text: runs.EMPTY, 9, "a processor")
    timing = latency._Timing("retrieve", 9, np.arange(1, 102) / 1000, [["d"]] * 101, 10.1)
    (row,) = latency._rows(opened, [timing])
    assert row.items() >= {"p50_ms": 51, "p95_ms": 96, "p99_ms": 100, "queries_per_second": 10}.items()
    assert row["mean_ms"] == pytest.approx(51)
    assert (row["documents"], row["queries"]) == (1, 101)


# Takes 50 ms for each query, beside its start, and finds nothing for the word "none".
PROGRAM = """
import json, sys, time
corpus, queries, run = sys.argv[1:]
ids = [json.loads(line)["_id"] for line in open(corpus)]
open("started", "a").write("x")
with open(run, "w") as out:
    for line in open(queries):
        time.sleep(0.05)
        query = json.loads(line)
        if "none" not in query["text"]:
            out.writelines(f"{query['_id']} Q0 {one} 1 {rank} x\\n" for rank, one in enumerate(ids))
"""


@pytest.fixture
def program(tmp_path, monkeypatch) -> None:
    """A grid whose system is a program."""
    monkeypatch.chdir(tmp_path)
    Path("program.py").write_text(PROGRAM)
    documents = [{"_id": f"d{i}", "title": "", "text": f"text {i}"} for i in range(3)]
    queries = [{"_id": "q1", "text": "one"}, {"_id": "q2", "text": "none"}]
    judged = {"test": [(query["_id"], "d1", 1) for query in queries]}
    entry = json.dumps({"source": "local", "path": str(write_collection(tmp_path / "raw", documents, queries, judged))})
    corpus, record = (path.format(corpus="c") for path in (paths.CORPUS, paths.CORPUS_RECORD))
    assert main(["fetch", "corpus", "--name", "c", "--entry", entry, "--output", corpus, "--record", record]) == 0
    dataset = ["--name", "d", "--entry", '{"corpus": "c"}', "--corpus-entry", entry, "--corpus", corpus]
    texts, qrels, of_dataset = (path.format(dataset="d") for path in (paths.QUERIES, paths.QRELS, paths.DATASET_RECORD))
    made = ["--queries", texts, "--qrels", qrels, "--record", of_dataset]
    assert main(["fetch", "dataset", *dataset, *made]) == 0
    run, of_run = (path.format(system="own", dataset="d") for path in (paths.RUN, paths.RUN_RECORD))
    words = ["--system", "own", "--command", "python3 program.py {corpus} {queries} {run}"]
    words += ["--corpus", corpus, "--queries", texts, "--allow", "missing-queries", "--output", run, "--record", of_run]
    assert main(["retrieve", "program", *words]) == 0
    cell = Cell(system="own", dataset="d", scores="s", per_query="p", records=(record, of_dataset, of_run))
    grid = GridSummary(systems=("own",), rows=("d",), datasets={"d": DatasetSummary()}, metrics=("p@1",), cells=(cell,))
    place = Path(paths.GRID_SUMMARY.format(grid="g"))
    place.parent.mkdir(parents=True)
    place.write_text(grid.model_dump_json(exclude_defaults=True))
    Path("started").unlink()


@pytest.mark.parametrize("users", quick_first(["1", "2"]))
def test_a_program_is_started_for_each_query_if_it_is_named(program, capsys, users):
    words = ["latency", "--dataset", "d", "--warm-up", "1", "--concurrency", users]
    assert main([*words, "--systems", "own"]) == 0, capsys.readouterr().err
    assert Path("started").read_text() == "xxx"
    (row,) = read_latency(Path("results/grids/g/tables/latency.csv")).to_dict("records")
    assert 50 < row["p50_ms"] < 30_000
    assert (row["queries"], row["documents"], row["hardware"]) == (2, 1.5, open_systems.cpu_name())


def test_a_program_that_is_not_named_does_not_start(program, capsys):
    """The folder may be somebody else's."""
    assert main(["latency", "--dataset", "d"]) == 1
    assert "own is left out: it starts a program; --systems own measures it" in capsys.readouterr().err
    assert main(["search", "own", "d", "text"]) == 1
    assert "'own' is a program, which only latency starts, with --systems own" in capsys.readouterr().err
    assert not Path("started").exists()


def test_a_recorded_search_with_a_model_is_opened_with_all_of_its_options(tmp_path):
    settings = {"depth": 7, "model": {"family": "dense", "similarity": "cosine"}}
    parts = {"inputs": {"checkpoint": "c", "corpus": "x", "queries": "q", "indexes": ["0.faiss"]}, "settings": settings}
    job = {"stage": "retrieve_vectors", **parts, "outputs": {"output": "o", "record": "r"}, "options": {"system": "d"}}
    record = finished.record("retrieve", job=job, command="python -m beirgrid stage retrieve_vectors")
    (tmp_path / "r.json").write_text(json.dumps(record))
    values = open_systems.read_job(tmp_path / "r.json")
    assert (values["depth"], values["checkpoint"].name, values["model"].family) == (7, "c", "dense")
