"""A corpus of odd collections: each gives the right artifacts, or one message that names file and place."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import fetch_corpus, fetch_dataset, main

from beirgrid.collections import collection, training_data
from beirgrid.collections.qrels import read as read_qrels
from beirgrid.runs import runs

CORPUS = '{"_id": "d1", "title": "", "text": "one"}\n{"_id": "d2", "title": "", "text": "two"}\n'
QUERIES = '{"_id": "q1", "text": "first"}\n{"_id": "q2", "text": "second"}\n'
QRELS = "query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td2\t2\n"
GOOD = {"corpus.jsonl": CORPUS, "queries.jsonl": QUERIES, "qrels/test.tsv": QRELS}
NAMES = {"corpus": "corpus.jsonl", "queries": "queries.jsonl", "qrels": "qrels/test.tsv"}

# What stands in place of a file: its text or bytes, nothing, or what makes it.
Content = str | bytes | Callable[[Path], object] | None


class Fetched(NamedTuple):
    """The output of one fetch of corpus and dataset: error or warnings, and the artifacts."""

    lines: list[str]
    failed: bool
    out: Path

    def documents(self) -> dict[str, str]:
        rows = pq.read_table(self.out / "corpus.parquet").to_pylist()
        return {row["_id"]: row["text"] for row in rows}

    def queries(self) -> dict[str, str]:
        return collection.read_queries(self.out / "queries.parquet")

    def qrels(self) -> dict[str, dict[str, int]]:
        return read_qrels(self.out / "qrels.tsv")


@pytest.fixture
def fetch(tmp_path, capsys):
    """Lay out the good collection with some files replaced, and fetch it in this process."""

    def call(changes: dict[str, Content]) -> Fetched:
        folder, out = tmp_path / "folder", tmp_path / "out"
        (folder / "qrels").mkdir(parents=True)
        for name, content in {**GOOD, **changes}.items():
            if callable(content):
                content(folder / name)
            elif content is not None:
                (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
        source = {"source": "local", "path": str(folder)}
        statuses = []
        for words in (fetch_corpus(source, out, "odd"), fetch_dataset(source, out, "odd")):
            statuses.append(main(words))
            if statuses[-1]:
                break
        lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("fetch odd")]
        return Fetched(lines, any(statuses), out)

    return call


def of(kind: str, content: Content, **others: Content) -> dict[str, Content]:
    return {NAMES[kind]: content, **{NAMES[name]: value for name, value in others.items()}}


def zipped(kind: str, data: bytes) -> dict[str, Content]:
    """Return the changes that put a gzipped file in place of a plain one."""
    return {NAMES[kind]: None, f"{NAMES[kind]}.gz": data}


def document(text: str) -> dict[str, Content]:
    """Return a corpus with a third line."""
    return of("corpus", f"{CORPUS}{text}\n")


def judged(text: str) -> dict[str, Content]:
    """Return qrels with a fourth line."""
    return of("qrels", f"{QRELS}{text}\n")


def fifo(path: Path) -> None:
    os.mkfifo(path)


def dangling(path: Path) -> None:
    path.symlink_to(path.parent / "gone")


def folder(path: Path) -> None:
    path.mkdir()


def table(**cases: tuple[dict[str, Content], Any]) -> Any:
    return pytest.mark.parametrize(("changes", "expected"), list(cases.values()), ids=list(cases))


THIRD = r"folder/corpus\.jsonl:3: "
FOURTH = r"folder/qrels/test\.tsv:4: "
NO = r"folder has no {} \(or "


@table(
    # ---- what JSON can hold
    id_true=(document('{"_id": true, "text": "x"}'), THIRD + "'_id' should be text, got bool"),
    id_ends_in_newline=(document(r'{"_id": "d3\n", "text": "x"}'), THIRD + r"the id 'd3\\n' has white space"),
    id_long_with_space=(document('{"_id": "%s b", "text": "x"}' % ("a" * 10**6)), THIRD + r"the id 'a+\.\.\.a+ b' has"),
    id_32767_bytes=(document('{"_id": "%s", "text": "x"}' % ("a" * 32767)), THIRD + ".* has more than 32,766 bytes"),
    # ---- encodings
    utf_16_le=(of("corpus", CORPUS.encode("utf-16-le")), r"corpus\.jsonl:1: not JSON"),
    mixed_line_ends=(of("qrels", QRELS.replace("\nq2", "\rq2")), r"test\.tsv:2: a carriage return within a line"),
    # ---- files
    gz_second_member_cut=(
        zipped("corpus", gzip.compress(CORPUS.encode()) + gzip.compress(b'{"_id": "d3"}\n')[:-6]),
        r"corpus\.jsonl\.gz: truncated or corrupt after line [23]",
    ),
    corpus_is_a_folder=(of("corpus", folder), NO.format(r"corpus\.jsonl")),
    corpus_is_a_fifo=(of("corpus", fifo), NO.format(r"corpus\.jsonl")),
    qrels_are_a_link_to_nothing=(of("qrels", dangling), NO.format(r"qrels/test\.tsv")),
    # ---- qrels
    line_of_a_megabyte=(judged("x" * 10**6), FOURTH + r"expected the columns .*; got 'x+\.\.\.x+'"),
    columns_swapped_unnoticed=(of("qrels", "d1\tq1\t1\nd2\tq2\t2\n"), "'odd': the qrels judge 2 queries that do not"),
    mark_amid_qrels=(of("qrels", QRELS + "\ufeffq1\td2\t1\n"), r"test\.tsv:4: the id .* begins with a byte order mark"),
    ids_of_other_case=(of("qrels", QRELS.replace("d", "D").replace("querY-iD", "")), "none of the 2 documents"),
    ids_decomposed=(
        of("corpus", CORPUS.replace("d1", "é").replace("d2", "ü"), qrels="q1\te\u0301\t1\n"),
        "none of the 1 documents that the qrels judge",
    ),
    query_id_begins_with_a_mark=(
        of("queries", QUERIES.replace('"q1"', '"\\ufeffq1"'), qrels=QRELS.replace("q1", "\ufeffq1")),
        "begins with a byte order mark",
    ),
    zero_and_minus_zero=(document('{"_id": 0}\n{"_id": -0}'), "duplicate document id '0': .*:3 and .*:4"),
    corpus_that_the_disk_cannot_read=(
        of("corpus", lambda path: path.symlink_to("/proc/self/mem")),
        r"Input/output error \(.*folder/corpus\.jsonl\)",
    ),
    nothing_is_relevant=(
        of("qrels", QRELS.replace("1\n", "0\n").replace("2\n", "-1\n")),
        "'odd': none of its 2 judgements is relevant",
    ),
    trec_with_grade_and_iteration_swapped=(of("qrels", "q1 1 d1 0\n"), "'odd': none of its 1 judgements is relevant"),
    qrels_in_quotes=(of("qrels", '"q1"\t"d1"\t1\n'), r"""the qrels judge 1 queries that do not exist, '"q1"' first"""),
    qrels_with_commas=(of("qrels", "query-id,corpus-id,score\nq1,d1,1\n"), r"test\.tsv:1: expected the columns query-"),
)  # fmt: skip
def test_one_message_names_file_and_place(fetch, changes, expected):
    fetched = fetch(changes)
    assert fetched.failed, fetched.lines
    assert len(fetched.lines) == 1, fetched.lines
    assert fetched.lines[0].startswith("beirgrid stage fetch_")
    assert len(fetched.lines[0]) < 1500
    assert re.search(expected, fetched.lines[0]), fetched.lines[0]
    left = {path.name for path in fetched.out.iterdir()} if fetched.out.is_dir() else set()
    assert left in (set(), {"corpus.parquet", "corpus.json"})


def with_id(identifier: str) -> dict[str, Content]:
    """Return a collection of which a query and a document have an odd id."""
    row = json.dumps({"_id": identifier, "text": "odd"}) + "\n"
    lines = f"{QRELS}{identifier}\td1\t1\nq1\t{identifier}\t2\n"
    return of("corpus", CORPUS + row, queries=QUERIES + row.replace("odd", "odder"), qrels=lines)


ODD_IDS = r"""" ' \ / ../../x # %s {id} $(id) `id` * , ; : - --help & N/A NA nan null None true 0 -1 007 1e3 1.0"""


@pytest.mark.parametrize(
    "identifier",
    [
        pytest.param(identifier, id=ascii(identifier[:30]))
        for identifier in [
            *ODD_IDS.split(),
            *("query-id", "corpus-id", "é", "\u200b", "x\ufeff", "\u202eabc", "👍🏽", "e\u0301", "\U0010ffff"),
            *("\x00", "a\x00b", "\x7f", "\x1b[2J", "x" * 32_766),
        ]
    ],
)
def test_an_odd_id_is_kept(fetch, tmp_path, identifier):
    fetched = fetch(with_id(identifier))
    assert not fetched.failed, fetched.lines
    assert fetched.documents() == {"d1": "one", "d2": "two", identifier: "odd"}
    assert fetched.queries() == {"q1": "first", "q2": "second", identifier: "odder"}
    assert fetched.qrels() == {"q1": {"d1": 1, identifier: 2}, "q2": {"d2": 2}, identifier: {"d1": 1}}
    runs.write(
        tmp_path / "x.run.gz", {identifier: runs.Ranking([identifier, "d1"], np.array([2, 1], np.float32))}, "odd"
    )
    assert runs.read(tmp_path / "x.run.gz")[identifier].ids == [identifier, "d1"]


FORMS: dict[str, dict[str, Content]] = {
    "gz of several members": zipped(
        "corpus", b"".join(gzip.compress(line.encode()) for line in CORPUS.splitlines(keepends=True))
    ),
    "gz members that split a line": zipped(
        "corpus", gzip.compress(CORPUS.encode()[:20]) + gzip.compress(CORPUS.encode()[20:])
    ),
    "gz with zeros after": zipped("corpus", gzip.compress(CORPUS.encode()) + bytes(512)),
    "folder beside": {"corpus.jsonl.gz": folder},
    "byte order mark before TREC's": of("qrels", "\ufeffq1 0 d1 1\nq2 0 d2 2\n"),
    "TREC's, oddly spaced": of("qrels", " q1\t 0  d1 1 \nq2 Q0 d2 +2\n"),
    "a column of row numbers": of("qrels", "\tquery-id\tcorpus-id\tscore\n0\tq1\td1\t1\n1\tq2\td2\t2\n"),
    "a column of notes": of("qrels", "query-id\tcorpus-id\tscore\tnote\nq1\td1\t1\t?\nq2\td2\t2\t1\n"),
    "CRCRLF": {name: text.replace("\n", "\r\r\n") for name, text in GOOD.items()},
    "judged twice alike": of("qrels", QRELS + "q1\td1\t1\n"),
    "link": of("corpus", lambda path: (path.with_name("c").write_text(CORPUS), path.symlink_to("c"))),
}


@pytest.mark.parametrize("changes", list(FORMS.values()), ids=list(FORMS))
def test_odd_forms_of_the_same_collection_give_the_same_artifacts(fetch, changes):
    fetched = fetch(changes)
    assert (fetched.failed, fetched.lines) == (False, [])
    assert fetched.documents() == {"d1": "one", "d2": "two"}
    assert fetched.queries() == {"q1": "first", "q2": "second"}
    assert fetched.qrels() == {"q1": {"d1": 1}, "q2": {"d2": 2}}


def test_of_long_documents_few_are_in_memory(tmp_path, monkeypatch):
    """Whoever reads them: the corpus with its expansions, or a sample for training."""
    monkeypatch.setattr(collection, "GROUP_TEXT", 25)
    ids, texts = [f"d{row}" for row in range(7)], [f"{row}" * 10 for row in range(7)]
    pq.write_table(pa.table([ids, [""] * 7, texts], collection.CORPUS_SCHEMA), tmp_path / "corpus.parquet")
    shards = []
    for shard, rows in enumerate((range(4), range(4, 7))):
        shards.append(tmp_path / f"{shard}.parquet")
        schema = collection.EXPANSION_SCHEMAS["query-generator"]
        pq.write_table(pa.table([[[f"q{row}"] for row in rows]], schema), shards[-1])
    expanded = list(collection.read_expanded(tmp_path / "corpus.parquet", shards))
    assert [document.text for group in expanded for document in group] == [f"{row * 10} q{row[0]}" for row in "0123456"]
    assert list(map(len, expanded)) == [2, 2, 2, 1]  # 13 letters each
    sampled = list(training_data.read_rows(tmp_path / "corpus.parquet", [0, 2, 3, 4, 6]))
    assert [[document.id for document in group] for group in sampled] == [["d0", "d2", "d3"], ["d4", "d6"]]


def test_a_text_that_is_too_long_for_bm25_fails_the_index(tmp_path, capsys):
    """Anserini logs the exception, leaves the document out, and exits with 0."""
    texts = ["a", "a" * 20_000_001]
    pq.write_table(pa.table([["a", "long"], ["", ""], texts], collection.CORPUS_SCHEMA), tmp_path / "c.parquet")
    command = ["index", "lexical", "--corpus", "c.parquet", "--fields", "flat", "--output", "i", "--record", "i.json"]
    with contextlib.chdir(tmp_path):
        assert main(command) == 1
    assert "String value length (20000001) exceeds the maximum allowed (20000000" in capsys.readouterr().err
