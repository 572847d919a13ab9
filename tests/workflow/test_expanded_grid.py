"""Expanded documents through the whole workflow: a tiny docT5query and a tiny DeepCT."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from small import finish, table

from beirgrid.collections import collection

pytestmark = pytest.mark.slow  # whole workflows

FIELDS = ("flat", "multifield")
SYSTEMS = {
    "doct5query": {"retriever": "bm25", "fields": "multifield", "expansion": "tiny-t5"},
    "deepct": {"retriever": "bm25", "fields": "flat", "expansion": "tiny-deepct"},
}
# The queries of this collection that somebody published: one that no document has, for a tenth of the documents.
PUBLISHED = {f"d{row}": ["wwww vvvv"] if row % 10 == 0 else [] for row in range(60)}


def _write(small_grid: Callable[..., Path], tiny_models: dict[str, Path], folder: Path, **t5: object) -> Path:
    generator = {"family": "query-generator", "path": str(tiny_models["query-generator"]), "queries_per_document": 2}
    weighter = {"family": "term-weights", "path": str(tiny_models["term-weights"])}
    published = folder.parent / f"{folder.name}-queries"
    published.mkdir(exist_ok=True)
    rows = [json.dumps({"id": document, "predicted_queries": queries}) for document, queries in PUBLISHED.items()]
    (published / "small.jsonl").write_text("\n".join(reversed(rows)))
    expansion = {"source": "local", "path": f"{published}/{{corpus}}.jsonl"}
    systems = {
        f"published-{fields}": {"retriever": "bm25", "fields": fields, "expansion": expansion} for fields in FIELDS
    }
    return small_grid(
        folder,
        models={"tiny-t5": {**generator, **t5}, "tiny-deepct": weighter},
        systems={**SYSTEMS, **systems},
        encode={"shard": 40, "precision": "float32"},
    )


@pytest.fixture(scope="module")
def expanded(small_grid, tiny_models, tmp_path_factory) -> Path:
    """The folder of one run of both systems. Tests must not change it."""
    folder = tmp_path_factory.mktemp("expanded")
    finish(_write(small_grid, tiny_models, folder), folder)
    return folder


def _rows(folder: Path, model: str) -> list[dict]:
    shards = [folder / f"results/expansions/{model}/small/{shard}.parquet" for shard in (0, 1)]
    return [row for shard in shards for row in pq.read_table(shard).to_pylist()]


def _search(index: Path, fields: str, word: str) -> set[str]:
    from beirgrid.search import lucene

    ids, _ = lucene.Searcher(index, fields=fields, language="en", k1=0.9, b=0.4, memory_mb=500).search(word, 100)
    return set(ids)


def test_a_document_is_found_by_a_word_that_only_its_queries_have(expanded):
    [documents] = collection.read_documents(expanded / "results/corpora/small/corpus.parquet")
    rows = _rows(expanded, "tiny-t5")
    assert len(rows) == len(documents) == 60
    assert {len(row["queries"]) for row in rows} == {2}
    written = {word for document in documents for word in document.text.split()}
    generated = [set(" ".join(row["queries"]).split()) for row in rows]
    word = max(set.union(*generated) - written, key=len)
    index = expanded / "results/indexes/bm25-multifield@tiny-t5/small/lucene"
    having = {document.id for document, words in zip(documents, generated, strict=True) if word in words}
    assert _search(index, "multifield", word) == having
    kept = {document.id for document in documents if (old := documents[7].text.split()[0]) in document.text.split()}
    assert _search(index, "multifield", old) == kept


def test_only_weighted_terms_are_indexed(expanded):
    [documents] = collection.read_documents(expanded / "results/corpora/small/corpus.parquet")
    rows = _rows(expanded, "tiny-deepct")
    left_out = [set(d.text.split()) - set(row["terms"]) for d, row in zip(documents, rows, strict=True)]
    word = next(word for words in left_out for word in sorted(words))
    index = expanded / "results/indexes/bm25-flat@tiny-deepct/small/lucene"
    having = {d.id for d, row in zip(documents, rows, strict=True) if word in row["terms"]}
    assert _search(index, "flat", word) == having


def test_published_queries_are_taken_once_for_all_systems_that_name_them(expanded):
    [path] = expanded.glob("results/published/*/small.json")
    assert path.parent.name == "published-flat"
    facts = {"documents": 60, "queries": 6, "documents_without_queries": 0}
    assert json.loads(path.read_text())["facts"] | {"bytes": 0} == {**facts, "bytes": 0}
    for fields in FIELDS:
        index = expanded / f"results/indexes/bm25-{fields}~published-flat/small/lucene"
        found = _search(index, fields, "wwww")
        assert found == {document for document, queries in PUBLISHED.items() if queries}
        made = json.loads((expanded / f"results/metrics/published-{fields}/small.json").read_text())
        assert 0 < made["scores"]["means"]["ndcg@10"] <= 1
    fetched = [row["system"] for row in table(expanded, "costs") if row["stage"] == "fetch_expansion"]
    assert fetched == ["published-flat", "published-multifield"]


def test_costs_count_the_expansion_and_the_report_tells_the_model(expanded):
    stages = [(row["system"], row["unit"]) for row in table(expanded, "costs") if row["stage"] == "expand"]
    assert stages == [("doct5query", "documents/s")] * 2 + [("deepct", "documents/s")] * 2
    made = json.loads((expanded / "results/expansions/tiny-t5/small/1.json").read_text())
    assert made["job"]["settings"]["model"]["queries_per_document"] == 2
    assert made["facts"]["documents"] == 20


def test_a_seed_makes_again_what_depends_on_it_and_a_note_only_tables(expanded, small_grid, tiny_models, tmp_path):
    noted = finish(_write(small_grid, tiny_models, tmp_path, note="told"), expanded, "-n")
    assert "Making the tables" in noted
    assert "Expanding" not in noted
    seeded = finish(_write(small_grid, tiny_models, tmp_path, seed=1), expanded, "-n")
    jobs = [f"Expanding shard {shard} of small with tiny-t5" for shard in (0, 1)]
    jobs += ["Indexing small for BM25 (multifield@tiny-t5)", "Retrieving small with doct5query"]
    assert all(job in seeded for job in jobs)
    assert not any(job in seeded for job in ("with tiny-deepct", "@tiny-deepct)", "with deepct"))
