"""Canonical order, run files, reranking."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import yaml
from helpers import ROOT, main

from beirgrid.core.errors import DataError
from beirgrid.measures import metric_key
from beirgrid.runs import runs

ZIPPED = gzip.compress(b"".join(b"1 Q0 d%d %d %d t\n" % (i, i, 900 - i) for i in range(900)))


@pytest.mark.parametrize(
    ("query", "scores", "options", "order"),
    [
        ("q", {"10": 1, "9": 1, "a": 1, "é": 2}, {}, ["é", "a", "9", "10"]),  # ties go to the larger id as a string
        ("q", {"a": 1.0 + 1e-12, "b": 1.0}, {}, ["b", "a"]),  # float32 cannot tell the scores apart
        ("b", {"a": 3, "b": 2, "c": 1}, {"depth": 2}, ["a", "b"]),  # the id of the query is ranked like any other
        ("b", {"a": 3, "b": 2, "c": 1}, {"depth": 2, "excluded": {"b"}}, ["a", "c"]),
        ("q", {"a": 4, "b": 3, "c": 2, "d": 1}, {"depth": 2, "excluded": {"a", "c"}}, ["b", "d"]),  # before the cut
    ],
)
def test_the_canonical_order(query, scores, options, order):
    assert runs.canonical(query, [*scores], [*scores.values()], **options).ids == order


def test_the_lines_of_a_run_are_those_of_trec(tmp_path):
    scores = np.array([1 / 3, 1e-10, -2.5], np.float32)
    run = {"50%s": runs.Ranking(["a%d", "%", "c"], scores), "empty": runs.EMPTY}
    runs.write(tmp_path / "x.run.gz", run, "100%")
    assert gzip.decompress((tmp_path / "x.run.gz").read_bytes()).decode().splitlines() == [
        "50%s Q0 a%d 1 0.333333343 100%",
        "50%s Q0 % 2 1.00000001e-10 100%",
        "50%s Q0 c 3 -2.5 100%",
    ]


def test_a_run_gives_the_same_bytes_again(tmp_path):
    scores = np.random.default_rng(0).standard_normal(500).astype(np.float32)
    run = {query: runs.canonical(query, [f"d{i}" for i in range(500)], scores) for query in ("1", "2")}
    for name in ("x", "y"):
        runs.write(tmp_path / f"{name}.run.gz", run, "system")
    assert (tmp_path / "x.run.gz").read_bytes() == (tmp_path / "y.run.gz").read_bytes()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1 Q0 a 1 0.5 t\n1 Q0 a 2 0.4 t\n", r":2: document 'a' is ranked twice for query '1'"),
        ("1 Q0 a 1 high t\n", r":1: not a TREC run line"),
        ("1 Q0 a 1 0.5\n", r":1: not a TREC run line"),
        ("1 Q0 a 1 0.5 t\n\n1 Q0 b 1 0.4 t\n", r":2: not a TREC run line"),
        ("1 Q0 a 1 0.5 t\r1 Q0 b 2 0.4 t\r", r":1: a carriage return within a line"),
        ("1 Q0 a 1 \u0661 t\n", r":1: not a TREC run line"),
        ("1 Q0 a 1 nan t\n", r":1: the score 'nan' is not a number that float32 holds"),
        ("1 Q0 a 1 0.5 t\n1 Q0 b 2 -inf t\n", r":2: the score '-inf' is not a number that float32 holds"),
        ("1 Q0 a 1 1e39 t\n", r":1: the score '1e39' is not a number that float32 holds"),
        ("1 Q0 a 1 1_000 t\n", r":1: the score '1_000' is not a number that float32 holds"),
        ("1\u00a0Q0\u00a0a\u00a01\u00a00.5\u00a0t\n", r":1: not a TREC run line"),
        ("1 Q0 a 1 0x1p3 t\n", r":1: not a TREC run line"),
        ("\ufeff\ufeff1 Q0 a 1 0.5 t\n", r":1: a byte order mark before an id"),
        ("1 Q0 a 1 0.5 t\n\ufeff2 Q0 a 1 0.5 t\n", r":2: a byte order mark before an id: was a file appended\?"),
        ("1 Q0 \ufeffa 1 0.5 t\n", r":1: a byte order mark before an id: was a file appended\?"),
        (b"1 Q0 a 1 0.5 t\n1 Q0 caf\xe9 2 0.4 t\n", r":2: not UTF-8 \(byte 0xe9\)"),
        ("1 Q0 a 1 0.5 t\n".encode("utf-16"), r":1: not UTF-8 \(byte 0xff\)"),
        ("", r": truncated or corrupt after line 0 \(it is empty\)"),
        (ZIPPED[:-30], r"\.gz: truncated or corrupt after line"),
        (ZIPPED + b"garbage", r"\.gz: truncated or corrupt after line 900"),
        ("1 Q0 a 1 0.5 t\n", r"\.gz: truncated or corrupt after line 0"),
        (ZIPPED[:12] + bytes(28) + ZIPPED[40:], r"\.gz: truncated or corrupt after line \d"),
    ],
)
def test_broken_runs_are_refused(tmp_path, text, message):
    data = text if isinstance(text, bytes) else text.encode()
    path = tmp_path / ("x.run.gz" if r"\.gz" in message else "x.run")
    path.write_bytes(data)
    with pytest.raises(DataError, match=rf"x\.run{message}"):
        runs.read(path)


def test_a_run_that_a_person_wrote_is_read(tmp_path):
    (tmp_path / "x.run").write_bytes(
        b"\xef\xbb\xbf1\tQ0\ta\t9\t-1e-3\tmy-run\r\n1  Q0  caf\xc3\xa9 0 +2 x\r\n2 0 b - .5 -"
    )
    assert {query: ids for query, (ids, _) in runs.read(tmp_path / "x.run").items()} == {"1": ["café", "a"], "2": ["b"]}


@pytest.mark.parametrize(
    ("line", "message"),
    [("2 Q0 a 1 0.5 t", "x.run has 1 query without qrels, '2' first"), ("1 Q0 a 1 0.5", "x.run:2: not a TREC run")],
)
def test_a_broken_run_of_a_grid_leaves_no_scores(tmp_path, capsys, line, message):
    (tmp_path / "x.run").write_text(f"1 Q0 a 1 0.5 t\n{line}\n")
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n")
    arguments = ["evaluate", "--system", "s", "--dataset", "d", "--metrics", "ndcg@10"]
    for option, name in (("run", "x.run"), ("qrels", "qrels.tsv"), ("output", "m.json"), ("per-query", "m.parquet")):
        arguments += [f"--{option}", str(tmp_path / name)]
    assert main(arguments) == 1
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["qrels.tsv", "x.run"]


def test_below_the_depth_the_first_stages_order_is_kept():
    ids = [f"d{i:04}" for i in range(1000)]
    first = runs.canonical("q", ids, np.linspace(9, 1, 1000))
    scores = {("q", document): float(-i) * 1000 for i, document in enumerate(first.ids[:100][::-1])}
    again = runs.reordered("q", first, scores, 100)
    assert again.ids[:100] == first.ids[:100][::-1]
    assert again.ids[100:] == first.ids[100:]
    assert runs.canonical("q", again.ids, again.scores).ids == again.ids  # the scores alone say the same


def test_a_pair_without_score_is_an_error():
    with pytest.raises(DataError, match="no score for query 'q' with document 'b'"):
        runs.reordered("q", runs.canonical("q", ["a", "b"], [2, 1]), {("q", "a"): 1.0}, 2)


@pytest.mark.parametrize("qrels", ["1 0 b 1\r\n2 0 b 1\r\n", "query-id\tcorpus-id\tscore\r\n1\tb\t1\r\n2\tb\t1\r\n"])
@pytest.mark.parametrize("name", ["x.trec", "x.trec.gz"])
def test_the_scores_of_a_run_are_printed(tmp_path, capsys, qrels, name):
    """BEIR's and TREC's qrels, DOS line ends, plain and gzipped; without --metrics, those of config.yaml."""
    run = b"1 Q0 a 1 0.5 t\r\n1 Q0 b 2 0.4 t\r\n3 Q0 b 2 0.4 t\r\n"
    (tmp_path / name).write_bytes(gzip.compress(run) if name.endswith(".gz") else run)
    (tmp_path / "qrels").write_text(qrels)
    arguments = ["evaluate", "--run", str(tmp_path / name), "--qrels", str(tmp_path / "qrels")]
    assert main(arguments) == 0
    said = capsys.readouterr()
    assert "1 query without qrels, '3' first; they are skipped" in said.err
    assert "x.trec" in said.err
    assert "lacks 1 of 2 queries with qrels, '2' first; they count 0" in said.err
    # One of two queries is answered, by a document at rank 2: nDCG is 1 / log2(3) there.
    expected = {"nDCG@10": 0.3155, "R@100": 0.5, "R@1000": 0.5, "RR@10": 0.25, "AP@1000": 0.25, "P@10": 0.05}
    printed = dict(line.split("\t") for line in said.out.splitlines())
    assert {metric: float(value) for metric, value in printed.items()} == expected | {"queries": 2}
    assert ["main", *map(metric_key, expected)] == yaml.safe_load((ROOT / "config/config.yaml").read_text())["metrics"]


def test_a_run_of_other_queries_has_no_scores(tmp_path, capsys):
    (tmp_path / "x.trec").write_text("7 Q0 a 1 0.5 t\n")
    (tmp_path / "qrels").write_text("1 0 a 1\n")
    assert main(["evaluate", "--run", str(tmp_path / "x.trec"), "--qrels", str(tmp_path / "qrels")]) == 1
    assert "x.trec has 1 query without qrels, '7' first" in capsys.readouterr().err
