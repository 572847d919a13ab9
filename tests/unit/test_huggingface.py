"""Collections in the layouts of the Hugging Face hub, as local folders that the datasets library opens alike."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers import Rows, fetch_corpus, fetch_dataset, hub, main

from beirgrid.collections import collection
from beirgrid.collections.qrels import read as read_qrels

REVISION = "0123456789abcdef0123456789abcdef01234567"
DOCUMENTS = [
    {"_id": "d3", "title": "Third", "text": "third text, 👍"},
    {"_id": "d1", "title": "", "text": "naïve"},
    {"_id": "d2", "title": "Title only", "text": ""},
]
QUERIES = [{"_id": "q2", "text": "second"}, {"_id": "q1", "text": "première"}, {"_id": "other", "text": "unjudged"}]
QRELS = [("q1", "d1", 1), ("q2", "d3", 2), ("q2", "d2", 0)]
JUDGED = {"q2": {"d3": 2, "d2": 0}, "q1": {"d1": 1}}


def qrels(*rows: tuple) -> Rows:
    """Return rows of judgements, with a score where a row has it."""
    return [dict(zip(("query-id", "corpus-id", "score"), row, strict=False)) for row in rows]


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    """Keep what the library converts under the test's folder."""
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")


@pytest.fixture
def fetch(tmp_path, capsys):
    """Fetch corpus and dataset of a repository; return the message of the first that fails, or an empty string."""
    out = tmp_path / "out"

    def call(identifier: str, **entry: Any) -> str:
        source = {"source": "huggingface", "id": identifier, "revision": REVISION, "documents": 3}
        for words in (fetch_corpus(source, out), fetch_dataset(source, out, **entry)):
            if main(words):
                return capsys.readouterr().err.splitlines()[-1].partition(": error: ")[2]
        return ""

    return call


def assert_whole(out: Path, judged: dict[str, dict[str, int]]) -> None:
    assert pq.read_table(out / "corpus.parquet").to_pylist() == DOCUMENTS
    assert collection.read_queries(out / "queries.parquet") == {"q2": "second", "q1": "première"}
    assert read_qrels(out / "qrels.tsv") == judged


TEXTS = {"corpus": {"corpus": DOCUMENTS}, "queries": {"queries": QUERIES}}
GOOD = {"default": {"test": qrels(*QRELS)}, **TEXTS}
TWO_SPLITS = {"default": {"train": qrels(("other", "d1", 1)), "test": qrels(*QRELS)}}
# Newer repositories call the id ``id``, the qrels ``qrels``, all splits ``test``, and have real-valued scores.
NEWER = {
    "qrels": {"test": qrels(*((query, document, float(grade)) for query, document, grade in QRELS))},
    "corpus": {"test": [{"id": row["_id"], "title": row["title"], "text": row["text"]} for row in DOCUMENTS]},
    "queries": {"test": [{"id": row["_id"], "text": row["text"]} for row in QUERIES]},
}


@pytest.mark.parametrize("suffix", ["parquet", "jsonl"])
@pytest.mark.parametrize("layout", [TEXTS | TWO_SPLITS, NEWER])
def test_mteb_layout(tmp_path, fetch, layout, suffix):
    assert fetch(hub(tmp_path / "hub", layout, suffix)) == ""
    assert_whole(tmp_path / "out", JUDGED)


def test_folders_of_one_name_have_their_own_rows(tmp_path, fetch):
    """The library's cache takes two folders with the same name and README for one."""
    for place, documents in (("before", [{**row, "text": "another"} for row in DOCUMENTS]), ("after", DOCUMENTS)):
        assert fetch(hub(tmp_path / place / "hub", GOOD | {"corpus": {"corpus": documents}})) == ""
    assert_whole(tmp_path / "out", JUDGED)


def test_nanobeir_layout(tmp_path, fetch):
    """Every split is called ``train``; only relevant documents are listed, without a score or titles."""
    layout = {
        "corpus": {"train": [{"_id": row["_id"], "text": row["text"]} for row in DOCUMENTS]},
        "queries": {"train": QUERIES},
        "qrels": {"train": qrels(*(row[:2] for row in QRELS[:2]))},
    }
    assert fetch(hub(tmp_path / "hub", layout), split="train") == ""
    assert pq.read_table(tmp_path / "out" / "corpus.parquet")["title"].to_pylist() == ["", "", ""]
    assert read_qrels(tmp_path / "out" / "qrels.tsv") == {"q2": {"d3": 1}, "q1": {"d1": 1}}


def test_beir_layout(tmp_path, fetch):
    """The qrels are a dataset of their own."""
    judged = hub(tmp_path / "hub-qrels", TWO_SPLITS)
    assert fetch(hub(tmp_path / "hub", TEXTS), id=judged, revision=REVISION) == ""
    assert_whole(tmp_path / "out", JUDGED)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"corpus": None}, "configuration corpus .it has default, queries."),
        ({"default": None}, "has no configuration default or qrels"),
        ({"default": {"dev": qrels(*QRELS)}}, "'default' has no split 'test' .it has dev."),
        ({"corpus": {"a": DOCUMENTS, "b": DOCUMENTS}}, "'corpus' has no split 'corpus' .it has a, b."),
        ({"corpus": {"corpus": DOCUMENTS[:2]}}, "has 2 documents; the registry says 3"),
        ({"corpus": {"corpus": [{"text": "x"}]}}, "corpus row 1: no _id"),
        ({"default": {"test": qrels(("q1", "d1", 0.5))}}, "score 0.5 is not a whole number"),
        ({"default": {"test": qrels(("q1", "d1", float("nan")))}}, "score nan is not"),
        ({"default": {"test": [{"qid": "q1", "score": 1}]}}, "default row 1: no query-id"),
    ],
)
def test_another_layout_is_refused(tmp_path, fetch, changes, message):
    layout = {name: splits for name, splits in {**GOOD, **changes}.items() if splits}
    assert re.search(message, fetch(hub(tmp_path / "hub", layout)))


def test_a_damaged_file_is_named(tmp_path, fetch):
    identifier = hub(tmp_path / "hub", GOOD)
    (tmp_path / "hub/corpus/corpus-00000-of-00001.parquet").write_bytes(b"PAR1 not parquet")
    assert "hub at 0123456789ab cannot be read" in fetch(identifier)


def test_code_of_a_dataset_is_not_run(tmp_path, fetch):
    identifier = hub(tmp_path / "hub", GOOD)
    (tmp_path / "hub" / "hub.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    assert fetch(identifier)
    assert not (tmp_path / "ran").exists()


def test_a_hub_that_cannot_be_reached_is_named(fetch):
    """Tests run offline."""
    assert fetch("BeIR/scifact").startswith("BeIR/scifact at 0123456789ab cannot be read (")
