"""Published queries are put in the order of the corpus, and do not fit another corpus."""

from __future__ import annotations

import gzip
import json
import random
import subprocess
from pathlib import Path
from typing import Any

import model_hub
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import beirgrid, main

from beirgrid.collections import collection, predictions

IDS = ["7", "0", "6", "1", "5", "2", "4", "3"]
QUERIES = {name: [f"what is {name}", f"where is {name}", "naïve 👍"] for name in IDS}
LISTS = [{"id": name, "queries": queries} for name, queries in QUERIES.items()]


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of eight documents; buckets and row groups are smaller."""
    monkeypatch.setattr(predictions, "BUCKET", 3)
    monkeypatch.setattr(collection, "ROW_GROUP", 2)
    rows = [IDS, [""] * 8, ["text"] * 8]
    pq.write_table(pa.table(rows, collection.CORPUS_SCHEMA), tmp_path / "corpus.parquet", row_group_size=5)
    return tmp_path / "corpus.parquet"


def _command(corpus: Path, entry: dict[str, Any]) -> list[str]:
    """Return the words of the command that fetches an expansion."""
    words = ["fetch", "expansion", "--entry", json.dumps(entry), "--corpus", str(corpus)]
    return [*words, "--output", f"{corpus.parent}/out/corpus.parquet", "--record", f"{corpus.parent}/out/corpus.json"]


def _fetch(corpus: Path, **entry: Any) -> list[list[str]]:
    """Fetch an expansion; return the queries of each document."""
    assert main(_command(corpus, entry)) == 0
    output = corpus.parent / "out" / "corpus.parquet"
    table = pq.read_table(output)
    assert table.schema == collection.EXPANSION_SCHEMAS["query-generator"]
    facts = json.loads(output.with_suffix(".json").read_text())["facts"]
    assert facts["queries"] == sum(map(len, table["queries"].to_pylist()))
    assert sorted(path.name for path in output.parent.iterdir()) == ["corpus.json", "corpus.parquet"]
    return table["queries"].to_pylist()


def _lines(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def _wrong(corpus: Path, capsys: pytest.CaptureFixture[str], **entry: Any) -> str:
    with pytest.raises(AssertionError):
        _fetch(corpus, **entry)
    error = capsys.readouterr().err
    assert "Traceback" not in error
    assert not list(corpus.parent.glob("out/*"))
    return error.splitlines()[-1].removeprefix("beirgrid stage fetch_expansion: error: ")


EXPECTED = [QUERIES[name] for name in IDS]


@pytest.mark.parametrize(("key", "queries"), [("_id", "queries"), ("docid", "predicted_queries")])
def test_lists_of_queries_come_in_any_order(corpus, key, queries):
    rows = [{key: name, queries: QUERIES[name]} for name in sorted(IDS)]
    path = corpus.with_name("queries.jsonl.gz")
    path.write_bytes(gzip.compress(_lines(rows).encode()))
    assert _fetch(corpus, source="local", path=str(path)) == EXPECTED
    assert _fetch(corpus, source="local", path=str(path), queries=2) == [found[:2] for found in EXPECTED]


def test_lines_may_have_one_query_each(corpus):
    """As BEIR's generated queries: whole documents, each as often as it has queries. Numbers may be ids."""
    folder = corpus.with_name("folder")
    folder.mkdir()
    rows = [{"_id": int(name), "title": "", "text": "t", "query": QUERIES[name][n]} for n in range(3) for name in IDS]
    (folder / "a.jsonl").write_text(_lines(rows[:10]))
    (folder / "b.jsonl").write_text(_lines(rows[10:]))
    assert _fetch(corpus, source="local", path=str(folder)) == EXPECTED


def test_queries_of_another_corpus_are_refused(corpus, capsys):
    path = corpus.with_name("queries.jsonl")
    entry = {"source": "local", "path": str(path)}
    path.write_text(_lines([*LISTS, {"id": "8", "queries": ["x"]}]))
    assert _wrong(corpus, capsys, **entry) == f"{path}:9: the corpus has no document '8'"
    path.write_text(_lines(LISTS[:-1]))
    assert _wrong(corpus, capsys, **entry).startswith("there are no queries for the document '3'. If some documents")
    assert _fetch(corpus, **entry, allow=["missing-documents"]) == [*EXPECTED[:-1], []]


@pytest.mark.parametrize(
    ("contents", "message"),
    [
        ({}, "{folder} has no .jsonl files, or does not exist"),
        ({"a.txt": LISTS}, "{folder} has no .jsonl files, or does not exist"),
        ({"a.jsonl": [*LISTS, LISTS[2]]}, "{folder}/a.jsonl:9: the document '6' has queries already"),
        (
            {"a.jsonl": [{"id": "0", "queries": "one"}]},
            "{folder}/a.jsonl:1: expected a list of texts under 'queries' or 'predicted_queries', or a 'query'",
        ),
        ({"a.jsonl": [{"id": name, "queries": []} for name in IDS]}, "no document has queries"),
        ({"a.jsonl": LISTS, "a.jsonl.gz": LISTS}, "{folder} has both a.jsonl and a.jsonl.gz: keep one of them"),
    ],
)
def test_queries_that_cannot_be_read_are_refused(corpus, capsys, contents, message):
    folder = corpus.with_name("folder")
    for name, rows in contents.items():
        folder.mkdir(exist_ok=True)
        text = _lines(rows).encode()
        (folder / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    assert _wrong(corpus, capsys, source="local", path=str(folder)) == message.format(folder=folder)


@pytest.mark.parametrize("name", [".a.jsonl", "._a.jsonl", ".ipynb_checkpoints/a-checkpoint.jsonl"])
def test_hidden_files_are_not_read(corpus, name):
    folder = corpus.with_name("folder")
    (folder / name).parent.mkdir(parents=True)
    (folder / "a.jsonl").write_text(_lines(LISTS))
    (folder / name).write_text(_lines([{"id": IDS[0], "query": "a left-over"}]))
    assert _fetch(corpus, source="local", path=str(folder)) == EXPECTED


def test_queries_come_from_a_commit_of_the_hub(corpus, tmp_path):
    rows = [{"id": name, "predicted_queries": QUERIES[name]} for name in random.Random(0).sample(IDS, 8)]

    def fetch(hub: model_hub.ModelHub, revision: str, pattern: str) -> subprocess.CompletedProcess[str]:
        """Run the command in a process of its own: the hub's client reads its address once."""
        entry = {"source": "huggingface", "id": "somebody/queries", "revision": revision, "files": [pattern]}
        return beirgrid(*_command(corpus, entry), environment=hub.environment(tmp_path / "home"))

    with model_hub.serve() as hub:
        files = {"d2q/a.jsonl": _lines(rows[:4]).encode(), "d2q/b.jsonl": _lines(rows[4:]).encode(), "run.py": b"1/0"}
        commit = hub.commit("datasets/somebody/queries", files)
        hub.commit("datasets/somebody/queries", {})
        done = fetch(hub, commit, "d2q/*.jsonl")
        assert done.returncode == 0, done.stderr
        assert pq.read_table(tmp_path / "out/corpus.parquet")["queries"].to_pylist() == EXPECTED
        assert not any("run.py" in asked for asked in hub.asked)
        for revision, pattern, message in (
            (commit, "*.csv", "has no files *.csv"),
            ("0" * 40, "*", "somebody/queries at 000000000000 cannot be read ("),
        ):
            failed = fetch(hub, revision, pattern)
            assert failed.returncode == 1
            assert "Traceback" not in failed.stderr
            assert message in failed.stderr.splitlines()[-1]
