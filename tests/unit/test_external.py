"""Runs of other software: fetching them, and their files in the configuration."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from graph import records
from helpers import fetch_collection, main, tracked_configuration

from beirgrid import config
from beirgrid.core.errors import ConfigError
from beirgrid.graph.dag import stages
from beirgrid.graph.grid import Grid
from beirgrid.runs import runs

QUERIES = ("q1", "q2", "d3")
RUN = "q1 Q0 d1 1 3 t\nq1 Q0 d2 2 3 t\nq1 Q0 d3 3 9 t\nd3 Q0 d3 1 8 t\nd3 Q0 d2 2 7 t\nd3 Q0 d1 3 6 t\n"


@pytest.fixture(scope="module")
def collection(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with queries.parquet and corpus.parquet of three documents; the query d3 is a document."""
    folder = tmp_path_factory.mktemp("collection")
    documents = [{"_id": f"d{i}", "title": "", "text": f"text {i}"} for i in (1, 2, 3)]
    queries = [{"_id": query, "text": "text 3"} for query in (*QUERIES, "unjudged")]
    return fetch_collection(folder, documents, queries, [(query, "d1", 1) for query in QUERIES])


@pytest.fixture
def fetch(collection: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return a function that fetches a run with a content and returns the output."""

    def call(content: str | bytes, *options: str, name: str = "a.trec", status: int = 0) -> str:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
        files = ["--queries", str(collection / "queries.parquet"), "--corpus", str(collection / "corpus.parquet")]
        written = ["--output", str(tmp_path / "x.run.gz"), "--record", str(tmp_path / "x.json")]
        found = main(["fetch", "run", "--system", "s", "--run", str(tmp_path / name), *files, *written, *options])
        assert found == status
        return capsys.readouterr().err

    return call


@pytest.mark.parametrize("name", ["a.trec", "a.trec.gz"])
def test_a_run_is_sorted_and_loses_what_is_not_ranked(fetch, tmp_path, name):
    content = RUN.replace("\n", "\r\n").encode()
    options = ("--depth", "2", "--allow", "missing-queries")
    fetch(gzip.compress(content) if name.endswith(".gz") else content, *options, name=name)
    run = runs.read(tmp_path / "x.run.gz")
    # d3 is dropped for the query d3 before the cut; of equal scores the larger id comes first.
    assert {query: ranking.ids for query, ranking in run.items()} == {"q1": ["d3", "d2"], "d3": ["d2", "d1"]}
    record = json.loads((tmp_path / "x.json").read_text())
    assert record["stage"] == "fetch_run"
    assert record["job"]["settings"]["allow"] == ["missing-queries"]
    counts = ("queries", "queries_lacking", "queries_without_documents", "queries_without_qrels", "excluded_documents")
    assert [record["facts"][name] for name in counts] == [3, 1, 1, 0, 1]
    assert record["facts"]["source"] == str(tmp_path / name)


def test_queries_without_qrels_are_left_out_and_missing_ones_are_told(fetch, tmp_path):
    said = fetch(RUN + "unjudged Q0 d1 1 1 t\nelsewhere Q0 d1 1 1 t\n", "--allow", "missing-queries")
    assert "warning: left out: 2 queries of the run without qrels" in said
    assert "warning: the run has no documents for 1 of 3 queries with qrels; each counts 0" in said
    assert list(runs.read(tmp_path / "x.run.gz")) == ["q1", "d3"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (RUN + "q2 Q0 d9 1 1 t\n", "a.trec:7: the corpus has no document 'd9'. It lacks 1 of the run's 4 documents."),
        ("x Q0 d1 1 1 t\n", "a.trec has none of the 3 queries of the dataset that have qrels ('q1', say). It has 'x'."),
        ("# ir_metadata.start\n# tag: x\n# ir_metadata.end\n", "It has nothing. Is it the run of another dataset?"),
        (RUN, "a.trec lacks 1 of the 3 queries of the dataset that have qrels ('q2', say). Was it cut short?"),
        (RUN + "q2 Q0 d1\n", "a.trec:7: not a TREC run line"),
    ],
)
def test_a_run_that_does_not_fit_is_refused_in_one_message(fetch, tmp_path, content, message):
    said = fetch(content, status=1)
    assert message in said
    assert said.count("\n") == 1
    assert [path.name for path in tmp_path.iterdir()] == ["a.trec"]


def test_a_header_of_ir_metadata_and_other_comments_are_no_lines(fetch, tmp_path):
    header = "# ir_metadata.start\n# tag: a\n# method:\n#   name: a b c\n# ir_metadata.end\n"
    fetch(header + RUN + "# now q2\nq2 Q0 d1 1 1 t\n")
    assert len(runs.read(tmp_path / "x.run.gz")["q1"].ids) == 3


# The configuration


@pytest.fixture
def raw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The tracked configuration with an external system, in a working directory with its run of SciFact."""
    merged = tracked_configuration()
    merged["systems"]["mine"] = {"run": "runs/{dataset}.trec"}
    merged["systems"]["bm25+mine"] = {"fusion": "rrf", "of": ["bm25", "mine"]}
    merged["grid"] = {"systems": ["bm25+mine"], "datasets": ["scifact", "bioasq"]}
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs/scifact.trec").write_text(RUN)
    return merged


def test_a_run_is_needed_for_each_dataset_that_is_supplied(raw, tmp_path):
    grid = Grid(config.load(raw))
    read = stages()["fetch_run"].files(grid, system="mine", dataset="scifact")
    assert read == [str(tmp_path / "runs/scifact.trec")]
    assert records(grid, "mine", "scifact")[-1] == "results/runs/mine/scifact.json"


def test_one_file_is_not_the_run_of_two_datasets(raw, tmp_path):
    raw["systems"]["mine"]["run"] = str(tmp_path / "runs/scifact.trec")
    raw["grid"]["datasets"] = ["scifact"]
    config.load(raw)
    raw["grid"]["datasets"] = ["scifact", "fiqa"]
    with pytest.raises(ConfigError, match=r"systems\.mine\.run: .* names one file for 2 datasets; put {dataset} in it"):
        config.load(raw)
