"""Any local folder gives the collection that an independent reader reads, or one message with file and line."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from beirgrid.collections import collection
from beirgrid.collections.qrels import read as read_qrels
from beirgrid.config.datasets import Dataset, LocalCorpus
from beirgrid.core.errors import DataError
from beirgrid.stages.fetch import work as fetch

IDS = st.sampled_from(["1", "2", "a", "é", "𝔘", "10", "q 1", "\u00a0", "", " 2", "\ud800", "a\tb"]) | st.integers(
    -3, 12
)
TEXTS = st.text(max_size=8) | st.sampled_from(["", " ", "\u2028", "\x00", "\ufeff", "\ud83d", "a\nb", "a\r\nb", "\x85"])
JUNK = st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.lists(TEXTS, max_size=2)
ROW = st.fixed_dictionaries({"_id": IDS, "text": TEXTS}, optional={"title": TEXTS, "metadata": JUNK})
ODD_ROW = st.dictionaries(st.sampled_from(["_id", "id", "title", "text", "contents"]), JUNK | IDS, max_size=4) | JUNK
# Texts that no JSON encoder writes.
ODD_LINE = st.sampled_from(
    [
        *(b"", b" \t", b"{", b"nonsense", b"[" * 3000),
        b'{"_id": "1", "_id": "2", "text": "x"}',
        b'{"_id": "1", "text": "\xff"}',
        b'{"_id": "1", "text": "a"} {"_id": "2", "text": "b"}',
        b'{"_id": ' + b"9" * 5000 + b', "text": "x"}',
        b'{"_id": 1e400, "text": "x"}',
        b'{"_id": "1", "text": NaN}',
        b'\xef\xbb\xbf{"_id": "1", "text": "x"}',
        b'{"_id": "1", "text": "\\ud83d\\ude00"}',
        b'{"_id": "1", "text": "\x01"}',
    ]
)


def _dump(row: Any, ascii_only: bool) -> bytes:
    return json.dumps(row, ensure_ascii=ascii_only).encode("utf-8", "surrogatepass")


LINES = st.builds(_dump, ROW, st.booleans())
ODD_LINES = st.lists(LINES | LINES | LINES | st.builds(_dump, ODD_ROW, st.booleans()) | ODD_LINE, max_size=8)


def _join(lines: list[bytes], end: bytes, last: bool) -> bytes:
    return end.join(lines) + (end if last else b"")


ENDS = st.sampled_from([b"\n", b"\r\n", b"\r"])
DATA = st.builds(_join, st.lists(LINES, max_size=8) | ODD_LINES, ENDS, st.booleans()) | st.binary(max_size=40)


def _fetch(contents: dict[str, bytes], run: Callable[[Path, Path], Any], *names: str) -> Any:
    """Run on a folder of files; return the result, or the message of a DataError: one line that names a file."""
    with tempfile.TemporaryDirectory() as temporary:
        folder, results = Path(temporary) / "in", Path(temporary) / "out"
        (folder / "qrels").mkdir(parents=True)
        for name, data in contents.items():
            (folder / name).write_bytes(data)
        try:
            return run(folder, results)
        except DataError as error:
            message = str(error)
            assert message.isprintable(), message
            assert len(message) < 3000, message
            assert any(name in message for name in names), message
            return message


def _corpus(data: bytes) -> list[tuple[str, str, str]] | str:
    def run(folder: Path, results: Path) -> list[tuple[str, str, str]]:
        entry = LocalCorpus(source="local", path=str(folder))
        corpus = results / "corpus.parquet"
        fetch.fetch_corpus(name="c", entry=entry, output=corpus)
        return [document[:3] for rows in collection.read_documents(corpus) for document in rows]

    return _fetch({"corpus.jsonl": data}, run, "corpus.jsonl:", "corpus 'c'")


def _rows(data: bytes) -> list[dict[str, Any]]:
    """Read JSON lines independently of beirgrid."""
    lines = data.decode("utf-8-sig").split("\n")
    return [json.loads(line) for line in lines if line.strip()]


@given(DATA)
@example(b"")
@example(b'{"_id": "1", "text": "\\ud800"}')
def test_any_corpus_is_read_as_written_or_refused(data):
    found = _corpus(data)
    if not isinstance(found, str):
        expected = [(str(row["_id"]), row.get("title") or "", row.get("text") or "") for row in _rows(data)]
        assert found == expected
        assert len({identifier for identifier, _, _ in found}) == len(found)


@given(
    st.lists(st.tuples(st.text(max_size=5), st.text(max_size=20)), min_size=1, max_size=12), ENDS.filter(b"\r".__ne__)
)
def test_a_whole_corpus_is_never_refused(texts, end):
    rows = [{"_id": f"d{n}", "title": title, "text": f"{text}."} for n, (title, text) in enumerate(texts)]
    assert _corpus(_join([_dump(row, True) for row in rows], end, True)) == [tuple(row.values()) for row in rows]


CORPUS = [{"_id": name, "text": f"text {name}"} for name in ("1", "2", "a", "é")]
QUERIES = [{"_id": name, "text": f"query {name}"} for name in ("q1", "q2", "7")]
FIELD = st.sampled_from(
    ["q1", "q2", "7", "1", "2", "a", "é", "0", "-1", "+2", "Q0", "", "x", "1.5", "٣", "²", "1_0", "9" * 5000]
)
HEADERS = ["query-id\tcorpus-id\tscore", "corpus-id\tquery-id\tscore", "score\tquery-id\tcorpus-id", "query-id\tscore"]
JUDGEMENT = st.builds(
    "{}\t{}\t{}".format, st.sampled_from(["q1", "q2", "7"]), st.sampled_from("12aé"), st.integers(-2, 3)
)
QREL = st.builds("\t".join, st.lists(FIELD, min_size=1, max_size=5)) | st.text(max_size=12)
QRELS = st.builds(
    lambda header, lines, end: end.join([header, *lines] if header else lines).encode("utf-8", "surrogatepass"),
    st.sampled_from(["", *HEADERS]),
    st.lists(JUDGEMENT, max_size=8) | st.lists(JUDGEMENT | JUDGEMENT | QREL, max_size=8),
    st.sampled_from(["\n", "\r\n", "\r"]),
)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The documents of every dataset, fetched once."""
    folder = tmp_path_factory.mktemp("corpus")
    (folder / "corpus.jsonl").write_bytes(_join([_dump(row, False) for row in CORPUS], b"\n", True))
    entry = LocalCorpus(source="local", path=str(folder))
    fetch.fetch_corpus(name="c", entry=entry, output=folder / "corpus.parquet")
    return folder / "corpus.parquet"


def _dataset(corpus: Path, queries: bytes, qrels: bytes) -> tuple[dict[str, str], dict[str, dict[str, int]]] | str:
    def run(folder: Path, results: Path) -> tuple[dict[str, str], dict[str, dict[str, int]]]:
        texts, grades = results / "queries.parquet", results / "qrels.tsv"
        fetch.fetch_dataset(
            name="d",
            entry=Dataset(corpus="c"),
            corpus_entry=LocalCorpus(source="local", path=str(folder)),
            corpus=corpus,
            queries=texts,
            qrels=grades,
        )
        assert pq.read_table(texts).num_rows
        return collection.read_queries(texts), read_qrels(grades)

    contents = {"queries.jsonl": queries, "qrels/test.tsv": qrels}
    return _fetch(contents, run, "queries.jsonl:", "test.tsv:", "dataset 'd'", "qrels")


@given(data=QRELS | st.binary(max_size=30))
@example(data=b"")
@example(data="q1\t1\t٣\n".encode())
def test_any_qrels_are_read_as_written_or_refused(corpus, data):
    found = _dataset(corpus, _join([_dump(row, True) for row in QUERIES], b"\n", True), data)
    if isinstance(found, str):
        return
    expected: dict[str, dict[str, int]] = {}
    columns = ["query-id", "corpus-id", "score"]
    for number, line in enumerate(line for line in data.decode("utf-8-sig").split("\n") if line.strip()):
        fields = line.rstrip("\r").split("\t") if "\t" in line else line.split()
        if number == 0 and "query-id" in fields:
            columns = fields
            continue
        if len(fields) == 4 and len(columns) == 3:
            fields = [fields[0], *fields[2:]]
        row = dict(zip(columns, fields, strict=True))
        expected.setdefault(row["query-id"], {})[row["corpus-id"]] = int(row["score"])
    texts, qrels = found
    assert qrels == expected
    assert texts == {row["_id"]: row["text"] for row in QUERIES if row["_id"] in expected}


@given(data=DATA)
@example(data=b'{"_id": "q1", "text": "\\n\\t"}')
def test_any_queries_are_read_as_written_or_refused(corpus, data):
    ids = re.findall(rb'"_id": "(\w+)"', data) or [b"q1"]
    found = _dataset(corpus, data, b"".join(b"%s\t1\t1\n" % name for name in dict.fromkeys(ids)))
    if not isinstance(found, str):
        judged = [name.decode() for name in dict.fromkeys(ids)]
        assert list(found[0].items()) == [
            (str(row["_id"]), row["text"]) for row in _rows(data) if str(row["_id"]) in judged
        ]
        assert found[1] == {name: {"1": 1} for name in found[0]}
