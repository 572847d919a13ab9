"""Any run is read as written, in the order of trec_eval 9, or refused with file and line."""

from __future__ import annotations

import gzip
import math
import re
import tempfile
from pathlib import Path

import numpy as np
import pytest
import pytrec_eval
from hypothesis import example, given
from hypothesis import strategies as st

from beirgrid.core.errors import DataError
from beirgrid.runs import runs

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)
TIES = st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e-45, 0.1, 1 / 3, 16777216.0, 16777217.0, 3.4028234e38])
# Ids have no white space, begin with no byte order mark (fetch refuses both) and are what UTF-8 can hold.
IDS = st.text(st.characters(exclude_categories=["Cs", "Zs", "Zl", "Zp", "Cc"]), min_size=1, max_size=6).filter(
    lambda text: not text.startswith("\ufeff")
)
NUMBERED = st.integers(0, 120).map(str)
RUNS = st.dictionaries(IDS, st.dictionaries(IDS | NUMBERED, FLOATS | TIES, min_size=1, max_size=30), max_size=5)


def _read(data: bytes, name: str = "x.run") -> runs.Run | str:
    """Return the run, or the message without the folder in it."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_bytes(data)
        try:
            return runs.read(path)
        except DataError as error:
            return str(error).replace(str(path), name)


@given(RUNS)
@example({"q": {"a": 0.0, "b": -0.0}})
@example({"q": {"a": 3.4028234663852886e38}})  # nine digits are more than float32's largest number
@example({"1": {"10": 0.5, "9": 0.5, "ﬀ": 0.5, "𝔘": 0.5}})
@example({"1": {"1": 0.5}})  # a run does not decide which documents are not ranked for a query
def test_a_written_run_is_read_as_it_was(run):
    rankings = {query: runs.canonical("", list(scores), list(scores.values())) for query, scores in run.items()}
    with tempfile.TemporaryDirectory() as folder:
        runs.write(Path(folder) / "x.run.gz", rankings, "tag")
        again = runs.read(Path(folder) / "x.run.gz")
    assert list(again) == list(rankings)
    for query, (ids, scores) in rankings.items():
        assert again[query].ids == ids
        np.testing.assert_array_equal(again[query].scores, scores)


@given(st.dictionaries(IDS | NUMBERED, FLOATS | TIES | st.floats(-1e30, 1e30), min_size=1, max_size=60))
def test_the_order_is_trec_evals(scores):
    """trec_eval reveals its order through the reciprocal rank of each document alone."""
    ranking = runs.canonical("", list(scores), list(scores.values()))
    keys = [(np.float32(scores[document]), document.encode()) for document in ranking.ids]
    assert keys == sorted(keys, reverse=True)
    qrels = {document: {document: 1} for document in scores}
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"recip_rank"})
    found = evaluator.evaluate(
        {document: {name: float(score) for name, score in scores.items()} for document in scores}
    )
    ranks = {document: round(1 / values["recip_rank"]) for document, values in found.items()}
    assert [ranks[document] for document in ranking.ids] == list(range(1, len(scores) + 1))


COLUMN = st.one_of(
    st.sampled_from(["1", "Q0", "a", "0.5", "-1e-3", "nan", "inf", "1e39", "1_0", "0x1p3", "tag", "", "é", "\u00a0"]),
    st.text(max_size=4),
)
SEPARATOR = st.sampled_from([" ", " ", " ", "\t", "  ", "\u00a0", "\x1c", "\x0b"])
LINE = st.builds(lambda columns, space: space.join(columns), st.lists(COLUMN, max_size=8), SEPARATOR) | st.builds(
    "{} Q0 {} 1 {} tag".format, st.sampled_from("12"), st.sampled_from("abcdef"), COLUMN | FLOATS
)
TEXT = st.builds(
    lambda lines, end: end.join(lines).encode("utf-8", "replace"),
    st.lists(LINE, max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
)


@given(TEXT | st.binary(max_size=60), st.booleans())
@example(b"", True)
@example(b"1 Q0 1 1 0.5 t", False)
@example(b"1\r1 Q0 a 1 t", False)
@example(b"# 1 Q0 a 1 t\n#1 Q0 a 1 0.5 t\n#", False)
@example(b"1 Q0 a 1 0.5 t\n1 Q0 \xe9 2 0.5 t\n", True)
@example("1 Q0 a\u00a0b 1 0.5 t".encode(), False)
def test_any_bytes_are_a_run_or_one_message(data, zipped):
    name = "x.run.gz" if zipped else "x.run"
    found = _read(gzip.compress(data) if zipped and data else data, name)
    if isinstance(found, str):
        assert "\n" not in found
        assert re.match(rf"{re.escape(name)}(:\d+|: truncated or corrupt after line \d+)", found), found
        return
    rows = [line.split() for line in data.removeprefix(b"\xef\xbb\xbf").splitlines() if b"\n" in data or line]
    rows = [
        row
        for row in rows
        if not row or row[0][:1] != b"#" or (len(row) == 6 and (row[0] != b"#" or row[1] in (b"Q0", b"0")))
    ]
    assert {len(row) for row in rows} <= {6}
    assert sum(len(ranking.ids) for ranking in found.values()) == len(rows)
    for query, _, document, _, score, _ in rows:
        ids, scores = found[query.decode()]
        assert scores[ids.index(document.decode())] == np.float32(float(score))


@pytest.mark.parametrize(
    ("scores", "number"),
    [([math.nan], "NaN"), ([0.0, math.nan], "NaN"), ([1.0, 1e39], "more than float32 holds"), ([-math.inf], "more")],
)
def test_a_score_that_is_no_number_is_never_ranked(scores, number):
    with pytest.raises(DataError, match=rf"query 'q': the score of document '\d' is {number}"):
        runs.canonical("q", [str(number) for number in range(len(scores))], scores)
