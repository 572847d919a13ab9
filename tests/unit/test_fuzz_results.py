"""A corpus of odd runs, qrels, summaries, records and tables: each gives the right numbers, or one message."""

from __future__ import annotations

import gzip
import io
import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import finished
import numpy as np
import pandas as pd
import pytest
from helpers import main

from beirgrid import load_scores
from beirgrid.__main__ import command
from beirgrid.core import files, paths, provenance
from beirgrid.core.errors import DataError

QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t1\nq2\td3\t1\n"
RUN = "q1 Q0 d1 1 3 t\nq1 Q0 d2 2 2 t\nq2 Q0 d3 1 1 t\n"
SYSTEMS, DATASETS = ("first", "second"), ("scifact", "mine")
GRID, SCORES = "results/grids/g/grid.json", "results/metrics/first/scifact.json"
MEANS, PER_QUERY = "results/metrics/{}/scifact.json", "results/metrics/{}/scifact.per-query.parquet"
RUN_RECORD, TABLE = "results/runs/first/scifact.json", "results/grids/g/tables/scores.csv"


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """Run a command in this process; return its status, and what it wrote to both streams."""

    def run(*words: str | Path) -> tuple[int, str, str]:
        try:
            status = main([*map(str, words)])
        except SystemExit as ended:  # argparse
            status = int(ended.code or 0)
        return (status, *capsys.readouterr())

    return run


# Runs and qrels


@pytest.fixture
def evaluate(call, tmp_path):
    """Evaluate a run on qrels, and print the scores."""

    def run(text: str | bytes = RUN, qrels: str = QRELS, *options: str, name: str = "a.trec") -> tuple[int, str, str]:
        (tmp_path / name).write_bytes(text.encode() if isinstance(text, str) else text)
        (tmp_path / "qrels.tsv").write_text(qrels)
        metrics = ["--metrics", "ndcg@10", "mrr@10", *options]
        return call("evaluate", "--run", tmp_path / name, "--qrels", tmp_path / "qrels.tsv", *metrics)

    return run


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        (RUN.replace(" 3 t", f" {'9' * 5000} t"), QRELS, "a.trec:1: the score '9999"),
        (RUN + f"q1 Q0 {'x' * 5000} 3 1 t\n" * 2, QRELS, "xxx' is ranked twice for query 'q1'"),
        (RUN, QRELS.replace("q2\t", "q2\u00a0\t"), "qrels.tsv:4: the id 'q2\\xa0' has white space in it"),
        (RUN, QRELS + "\ufeffq1\td3\t1\n", "qrels.tsv:5: the id '\\ufeffq1' begins with a byte order mark"),
        (RUN, QRELS + "q1\td3\t101\n", "qrels.tsv:5: 101 is not a relevance grade (at most 100)"),
    ],
)
def test_a_run_or_qrels_that_would_score_wrongly_are_refused(evaluate, run, qrels, message):
    status, out, err = evaluate(run, qrels)
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert message in err
    assert len(err) < 1000


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        (RUN, QRELS + "q1\td1\t0\n", "qrels judge 1 (query, document) pairs again with another grade; the last one"),
        (
            RUN.replace("d1", "\u00e9"),
            QRELS.replace("d1", "e\u0301"),
            "1 documents of {run} are not judged, but their ids",
        ),
        (RUN.replace("d1", "e\u0301"), QRELS.replace("d1", "\u00e9"), "(NFC or NFD), 'e\\u0301' first"),
    ],
)
def test_what_looks_alike_or_is_overruled_is_told(evaluate, tmp_path, run, qrels, message):
    status, _, err = evaluate(run, qrels)
    assert (status, err.count("\n")) == (0, 1)
    assert message.format(run=tmp_path / "a.trec") in err


@pytest.mark.parametrize(("grade", "share"), [(0, (8 + 9) / 20), (1, None)])
def test_the_share_of_unjudged_documents_is_recorded_if_some_are_judged_not_relevant(evaluate, tmp_path, grade, share):
    ranked = "".join(f"{query} Q0 d{n} {n} {20 - n} t\n" for query in ("q1", "q2") for n in range(1, 13))
    qrels = f"query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\td2\t{grade}\nq2\td3\t1\n"
    assert evaluate(ranked, qrels, "--output", tmp_path / "a.json", "--per-query", tmp_path / "a.parquet")[0] == 0
    assert provenance.read_record(tmp_path / "a.json")["facts"].get("not_judged") == (share and pytest.approx(share))


ASCENDING = "a.trec ascend from line to line, and the highest score counts as the best"
ALL_EQUAL = "so they are ordered by their ids, whatever their ranks say"


@pytest.mark.parametrize(
    ("run", "warning", "told"),
    [
        ("q1 Q0 d1 1 0.1 t\nq1 Q0 d2 2 0.9 t\nq2 Q0 d3 1 0.2 t\n", ASCENDING, True),
        # One may be unsorted.
        ("q1 Q0 d1 1 0.9 t\nq1 Q0 d2 2 0.1 t\nq2 Q0 d1 1 0.1 t\nq2 Q0 d3 2 0.9 t\n", ASCENDING, False),
        ("q1 Q0 d1 1 1 t\nq1 Q0 d2 2 1 t\nq2 Q0 d3 1 1 t\n", ASCENDING, False),
        ("q1 Q0 d1 1 1 t\nq2 Q0 d3 1 1 t\n", ASCENDING, False),
        ("q1 Q0 d1 1 0 t\nq1 Q0 d2 2 0 t\nq2 Q0 d3 1 0 t\n", ALL_EQUAL, True),
        # One number in float32.
        ("q1 Q0 d1 1 1700000002 t\nq1 Q0 d2 2 1700000001 t\nq2 Q0 d3 1 1 t\n", ALL_EQUAL, True),
        ("q1 Q0 d1 1 1 t\nq1 Q0 d2 2 1 t\nq2 Q0 d3 1 2 t\nq2 Q0 d1 2 1 t\n", ALL_EQUAL, False),
        ("q1 Q0 d1 1 1 t\nq2 Q0 d3 1 1 t\n", ALL_EQUAL, False),
    ],
)
def test_scores_that_order_documents_otherwise_than_meant_are_told(evaluate, run, warning, told):
    status, _, err = evaluate(run)
    assert status == 0
    assert (warning in err) == told


@pytest.mark.parametrize("odd", ["-0.0", "1e-46", "1e-400", "-1e-400"])
def test_scores_that_float32_holds_as_0_are_a_tie(evaluate, odd):
    """trec_eval puts the larger id first: d2, whose grade is 1, then d1, whose grade is 2."""
    run = f"q1 Q0 d1 1 {odd} t\nq1 Q0 d2 2 0 t\n"
    ideal, found = 2 + 1 / np.log2(3), 1 + 2 / np.log2(3)
    assert evaluate(run, "q1\td1\t2\nq1\td2\t1\n")[1].startswith(f"nDCG@10\t{found / ideal:.4f}\n")


COMMENTS = "# a comment\n#one: two\n# 1 0 d1 1 0.5 t\n# query-id corpus-id score\n"


@pytest.mark.parametrize(
    ("run", "qrels", "score"),
    [
        (COMMENTS + RUN + COMMENTS, COMMENTS + QRELS + COMMENTS, "1.0000"),
        ("\ufeff" + COMMENTS + RUN, COMMENTS + "q1 0 d1 2\n#\nq1 0 d2 1\nq2 0 d3 1\n", "1.0000"),
        # An id of a query may begin with #.
        (RUN.replace("q2", "#2"), COMMENTS + QRELS.replace("q2", "#2"), "1.0000"),
        (RUN.replace("q2", "#2"), "q1 0 d1 2\n#2 0 d3 1\n#2 0 d4 1\n", "0.8066"),  # (1 + 1 / (1 + 1 / log2(3))) / 2
    ],
)
def test_comments_in_runs_and_qrels_are_skipped(evaluate, run, qrels, score):
    status, out, err = evaluate(run, qrels)
    assert (status, err) == (0, "")
    assert out.startswith(f"nDCG@10\t{score}\n")
    assert out.endswith("queries\t2\n")


@pytest.mark.parametrize("path", [".", "loop", "gone", "/proc/self/mem"])
def test_a_path_that_is_no_run_is_named(call, tmp_path, monkeypatch, path):
    monkeypatch.chdir(tmp_path)
    Path("loop").symlink_to("loop")
    Path("qrels.tsv").write_text(QRELS)
    status, out, err = call("evaluate", "--run", path, "--qrels", "qrels.tsv")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert path in err


@pytest.mark.parametrize("metric", ["ndcg@99999999999999999999", "recall@9223372036854775808", "p@1000001"])
def test_a_cut_off_beyond_all_runs_is_refused(evaluate, metric):
    status, _, err = evaluate(RUN, QRELS, metric)
    assert status == 1
    assert err == f"beirgrid evaluate: error: '{metric}' looks deeper than any run (1,000,000 documents)\n"


@pytest.mark.parametrize("run", ["# ir_metadata.start\n# ir_metadata.end\n", gzip.compress(b"")])
def test_queries_without_documents_are_told(evaluate, run):
    status, out, err = evaluate(run, name="a.trec" if isinstance(run, str) else "a.run.gz")
    assert (status, out) == (0, "nDCG@10\t0.0000\nRR@10\t0.0000\nqueries\t2\n")
    assert "lacks 2 of 2 queries with qrels, 'q1' first; they count 0" in err
    assert err.count("count 0") == 1


def test_ids_that_differ_after_a_zero_byte_are_two(evaluate):
    """trec_eval reads an id up to a zero byte."""
    run = "q1 Q0 d\0001 1 3 t\nq1 Q0 d\0002 2 2 t\n"
    assert evaluate(run, "q1\td\0002\t1\n")[1] == "nDCG@10\t0.6309\nRR@10\t0.5000\nqueries\t1\n"  # 1 / log2(3)


@pytest.mark.parametrize(
    ("tag", "weights", "message"),
    [
        ("x", '["a", 1]', "weights.0: Input should be a valid number"),
        ("x", "[1, NaN]", "query 'q1': the score of document 'd1' is NaN"),
        ("x", "[1, 1e300]", "query 'q1': the score of document 'd1' is more than float32 holds"),
        *((tag, "[1, 1]", f"{tag!r} cannot be the tag of a run") for tag in ("", "a b", "a\tb", "a\n")),
    ],
)
def test_a_fusion_that_no_file_can_hold_is_refused(call, tmp_path, tag, weights, message):
    (tmp_path / "a.trec").write_text(RUN)
    words = ["--runs", *[tmp_path / "a.trec"] * 2, "--method", "wsum", "--weights", weights, "--system", tag]
    status, _, err = call("fuse", *words, "--output", tmp_path / "o.run.gz", "--record", tmp_path / "o.json")
    assert status == 1
    assert message in err.splitlines()[-1]
    assert not (tmp_path / "o.run.gz").exists()


# Results


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished grid of two systems on two datasets."""
    folder = tmp_path_factory.mktemp("fuzz") / "work"
    with finished.at(folder):
        for dataset in DATASETS:
            finished.collection(Path(), dataset)
            for seed, system in enumerate(SYSTEMS):
                finished.searched(system, dataset, finished.rankings(seed, better=5 * seed), "float32", depth=10)
        cells = [
            finished.cell(system, dataset, [paths.DATASET_RECORD.format(dataset=dataset)])
            for dataset in DATASETS
            for system in SYSTEMS
        ]
        grid = finished.summary(cells, name="g", metrics=tuple(finished.METRICS))
        files.write_text(GRID, grid.model_dump_json())
    return folder


@pytest.fixture
def here(work: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy, the working directory, which a test may damage."""
    shutil.copytree(work, tmp_path / "work")
    monkeypatch.chdir(tmp_path / "work")
    return tmp_path / "work"


def put(path: str, value: Any, *keys: str) -> None:
    """Set a value in a JSON file, or delete it (``...``)."""
    content = place = json.loads(Path(path).read_text())
    for key in keys[:-1]:
        place = place[key]
    if value is ...:
        del place[keys[-1]]
    else:
        place[keys[-1]] = value
    Path(path).write_text(json.dumps(content))


def reported() -> pd.DataFrame:
    """Return the reported scores by system and dataset."""
    return pd.read_csv(TABLE).set_index(["system", "dataset"])


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("name", "h", "is of the grid 'h': only the grid 'g' may have this folder"),
        ("name", "../../../outside", "is of the grid '../../../outside': only the grid 'g' may have"),
        ("seed", -1, "is not a summary of a grid"),
        ("seed", 10**30, "is not a summary of a grid"),
    ],
)
def test_a_summary_of_another_grid_or_of_none_is_refused(here, call, key, value, message):
    put(GRID, value, key)
    status, out, err = call("report")
    assert (status, out, err.count("\n")) == (1, "", 1)
    assert err.startswith(f"beirgrid report: error: {GRID} {message}")
    assert [path.name for path in (here / "results/grids").iterdir()] == ["g"]
    assert not (here / "results/grids/g/tables").exists()


def test_records_of_other_types_fail_their_cells_alone(here, call):
    other = "results/runs/second/mine.json"
    put(RUN_RECORD, [], "facts")
    put(other, float("nan"), "seconds")
    assert call("report")[0] == 0
    scores = reported()
    for cell, record, message in (
        (("first", "scifact"), RUN_RECORD, "facts: Input should be"),
        (("second", "mine"), other, "seconds: Input should be a finite number"),
    ):
        assert set(scores.loc[cell, "status"]) == {"failed"}
        assert scores.loc[cell, "detail"].str.contains(rf"{record} is not a record of beirgrid \({message}").all()
    assert (scores["status"] == "done").sum() == 4, set(scores["detail"])


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("outputs", None, "outputs"),
        ("outputs", "x", "outputs"),
        ("outputs", {"scifact.run.gz": {}}, "outputs.scifact.run.gz.bytes"),
        ("outputs", {"scifact.run.gz": 3}, "outputs.scifact.run.gz"),
        ("inputs", {"corpus": [{"bytes": 3}]}, "inputs.corpus.0.path: Field required"),
        ("inputs", {"corpus": [{"bytes": 3, "path": None}]}, "inputs.corpus.0.path"),
    ],
)
def test_a_record_without_the_bytes_or_the_path_of_a_file_is_refused(here, call, key, value, named):
    put(RUN_RECORD, value, key)
    run = ["--run", "results/runs/first/scifact.run.gz", "--qrels", "results/datasets/scifact/qrels.tsv"]
    status, _, err = call("evaluate", *run)
    assert status == 1
    assert f"{RUN_RECORD} is not a record of beirgrid ({named}" in err


def edit_qrels() -> None:
    path = Path("results/datasets/scifact/qrels.tsv")
    path.write_text(path.read_text().replace("\t3\n", "\t1\n"))


@pytest.mark.parametrize(
    ("kind", "damage", "message"),
    [
        ("trec", edit_qrels, "results/datasets/scifact/qrels.tsv is damaged: its SHA-256 is not the one in"),
        ("mteb", lambda: put(SCORES, 0.123, "scores", "means", "ndcg@10"), "have different means of ndcg@10"),
        ("mteb", lambda: put(SCORES, "x", "scores", "system"), "has the scores of x on scifact"),
        (
            "mteb",
            lambda: put(SCORES, ..., "finished"),
            f"{SCORES} is not a record of beirgrid (finished: Field required)",
        ),
        ("huggingface", lambda: put(SCORES, ..., "finished"), "(finished: Field required)"),
        ("mteb", lambda: put(SCORES, ..., "scores", "means", "ndcg@10"), f"{SCORES} has no ndcg@10, the main score of"),
        (
            "trec",
            lambda: _exchange("results/runs/{}/mine.run.gz", "results/runs/{}/mine.json"),
            "results/runs/first/mine.run.gz is another one than ",
        ),
    ],
)
def test_an_export_of_other_numbers_than_were_computed_is_refused(here, call, kind, damage, message):
    damage()
    status, _, err = call("export", kind, "--grid", "g", "--output", "out")
    assert status == 1
    assert message in err.splitlines()[-1]
    assert not Path("out").exists()


def edit_queries() -> None:
    path = Path("results/datasets/scifact/queries.parquet")
    pd.read_parquet(path).assign(text="other words").to_parquet(path)


def _keep_a_copy() -> None:
    """Keep the scores of a system under another name, as before a new run."""
    shutil.copytree("results/metrics/first", "results/metrics/first-old")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_keep_a_copy, "first-old/mine.json has the scores of first on mine: it was copied or renamed. Move it out of"),
        (lambda: shutil.copy(SCORES, "results/metrics/first/scifact (1).json"), "has the scores of first on scifact"),
        (lambda: _exchange(MEANS, PER_QUERY), "has the scores of second on scifact"),
        (lambda: put(SCORES, 0.99, "scores", "means", "ndcg@10"), "have different means of ndcg@10"),
        (
            lambda: _exchange("results/runs/{}/mine.run.gz", "results/runs/{}/mine.json"),
            "results/runs/first/mine.run.gz is another one than results/metrics/first/mine.json was made from",
        ),
    ],
)
def test_scores_that_were_copied_changed_or_overtaken_are_not_loaded(here, damage, message):
    shutil.rmtree("results/grids")  # so that all scores of the folder count
    assert len(load_scores("results")) == 8
    damage()
    with pytest.raises(DataError) as refused:
        load_scores("results")
    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("words", "damage", "status", "message"),
    [
        (["compare", ":first", ":second"], lambda: Path(GRID).write_text('{"grid'), 1, "the grid g is left out: "),
        (
            ["compare", ":first", ":second"],
            lambda: _exchange("results/runs/{}/mine.run.gz", "results/runs/{}/mine.json"),
            2,
            "results/runs/first/mine.run.gz is another one than",
        ),
        (["show", "first", "scifact", "q0"], edit_qrels, 1, "results/datasets/scifact/qrels.tsv is damaged"),
        (["show", "first", "scifact"], edit_queries, 1, "scifact/queries.parquet is damaged"),
    ],
)
def test_commands_name_what_was_changed_behind_scores(here, call, words, damage, status, message):
    damage()
    ended, _, err = call(*words)
    assert (ended, message in err) == (status, True)


def _exchange(*patterns: str) -> None:
    """Swap the files of the two systems."""
    for pattern in patterns:
        one, other = (Path(pattern.format(system)) for system in SYSTEMS)
        kept = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(kept)


def _raise_value() -> None:
    """Change a value per query, and have the record agree."""
    path = Path(PER_QUERY.format("first"))
    table = pd.read_parquet(path)
    table.loc[0, "ndcg@10"] = 2.0
    table.to_parquet(path)
    put(SCORES, {"bytes": path.stat().st_size, "sha256": files.sha256(path)}, "outputs", path.name)


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda: _exchange(PER_QUERY), "scifact.per-query.parquet is damaged: "),
        (lambda: _exchange(PER_QUERY, MEANS), f"{SCORES} has the scores of second on scifact"),
        (_raise_value, "have different means of ndcg@10"),
    ],
)
def test_scores_of_another_system_are_neither_reported_nor_compared(here, call, damage, message):
    damage()
    status, _, err = call("compare", ":first", ":second")
    assert (status, err.count("\n")) == (2, 1)
    assert message in err
    assert call("report")[0] == 0
    states = reported()["status"]
    assert set(states["first", "scifact"]) == {"failed"}
    assert set(states["first", "mine"]) == {"done"}


def test_a_metric_that_is_named_twice_is_one_test(here, call):
    """A second row of the same metric would double the corrected p values."""
    found = []
    for metrics in (["ndcg@10"], ["ndcg@10", "ndcg@10"]):
        call("compare", ":first", ":second", "--output", "c.csv", "--metrics", *metrics)
        found.append(Path("c.csv").read_text())
    assert found[0] == found[1]


@pytest.mark.parametrize(
    "words",
    [
        ["analyse", "--output", "results/grids/g", "--record", "analyses.json"],
        ["report", "--tables", str(Path(TABLE).parent), "--output", "page.html", "--record", "page.json"],
    ],
)
def test_tables_of_another_grid_are_neither_analysed_nor_shown(here, call, words):
    assert call("report")[0] == 0
    table = Path(TABLE).read_text()
    for other in (table.replace("second", "third"), "".join(table.splitlines(keepends=True)[:3])):
        Path(TABLE).write_text(other)
        status, _, err = call(*words, "--grid", GRID)
        assert status == 1
        assert f"{TABLE} has other cells than the grid" in err


def test_a_terminal_without_the_signs_gets_what_it_can_show(here, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))
    monkeypatch.setattr(sys, "argv", ["beirgrid", "report"])
    with pytest.raises(SystemExit, match=r"^0$"):
        command()
    assert b"\\u2020: open against" in written.getvalue()
