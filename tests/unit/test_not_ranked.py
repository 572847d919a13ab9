"""No retriever ranks a document that its dataset excludes for a query, so fusions and rerankers never read one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers import fetch_collection, run_work
from pydantic import TypeAdapter

from beirgrid.collections import collection
from beirgrid.config.models import CrossEncoder, Model
from beirgrid.core.compute import Compute
from beirgrid.runs import runs
from beirgrid.runs.fusion import Fusion
from beirgrid.stages.encode import work as encode
from beirgrid.stages.fuse import work as fuse
from beirgrid.stages.index import work as index
from beirgrid.stages.rerank import work as rerank
from beirgrid.stages.retrieve import work as retrieve
from beirgrid.stages.score import work as score

ON_CPU = Compute(device="cpu", precision="float32")
OWN = [f"d{number}" for number in range(4)]
# What retrieves: BM25, or a family, its checkpoint and the candidates of its search.
RETRIEVERS: dict[str, dict[str, Any]] = {
    "lexical": {},
    "dense": {"model": {"family": "dense", "similarity": "cosine"}, "checkpoint": "dense"},
    "sparse": {"model": {"family": "sparse"}, "checkpoint": "splade"},
    "candidates": {"model": {"family": "late-interaction"}, "checkpoint": "late-interaction", "candidates": 500},
    "exhaustive": {"model": {"family": "late-interaction"}, "checkpoint": "late-interaction"},
}


@pytest.fixture(scope="module")
def fetched(tmp_path_factory) -> Path:
    """A corpus, the queries of a dataset whose queries are documents, and the same queries with nothing excluded."""
    folder = tmp_path_factory.mktemp("own")
    rows = [
        {"_id": f"d{number}", "text": f"stone {chr(97 + number) * 3} {chr(98 + number) * 4}"} for number in range(9)
    ]
    fetch_collection(folder, rows, rows[: len(OWN)], [(own, "d8", 1) for own in OWN])
    assert collection.read_restrictions(folder / "queries.parquet")[0] == {own: {own} for own in OWN}
    pq.write_table(pq.read_table(folder / "queries.parquet").drop_columns(["excluded"]), folder / "free.parquet")
    return folder


def _indexed(retriever: str, folder: Path, corpus: Path, models: dict[str, Path]) -> dict[str, Any]:
    """Index a corpus and return what the search of a retriever takes beside the queries."""
    settings, vectors, built = RETRIEVERS[retriever], folder / "0.vectors", folder / "0.index"
    if retriever == "lexical":
        index.index_lexical(corpus=corpus, fields="flat", output=built)
        return {"index": built, "fields": "flat"}
    search = {
        "model": TypeAdapter(Model).validate_python(settings["model"]),
        "checkpoint": models[settings["checkpoint"]],
    }
    search |= {"corpus": corpus, "compute": ON_CPU}
    encode.encode(**search, shard_size=100, output=vectors)
    index.index_vectors(family=settings["model"]["family"], vectors=vectors, output=built)
    if retriever == "exhaustive":
        return {**search, "tokens": [vectors]}
    late = {"tokens": [vectors], "candidates": settings["candidates"]} if retriever == "candidates" else {}
    return {**search, **late, "indexes": [built]}


def _ranked(retriever: str, search: dict[str, Any], queries: Path, depth: int, folder: Path) -> dict[str, list[str]]:
    """Return the documents that a retriever ranks for each query."""
    output = folder / f"{queries.stem}.run.gz"
    asked = {"system": "s", "depth": depth, "queries": queries, "output": output}
    stage = retrieve.retrieve_lexical if retriever == "lexical" else retrieve.retrieve_vectors
    stage(**asked, **search)
    return {query: ranking.ids for query, ranking in runs.read(output).items()}


@pytest.mark.parametrize("retriever", RETRIEVERS)
def test_what_a_query_excludes_or_has_for_candidates_goes_before_the_cut(fetched, tiny_models, tmp_path, retriever):
    """More documents are excluded than the run holds, and the candidates are the last ones."""
    search = _indexed(retriever, tmp_path, fetched / "corpus.parquet", tiny_models)
    whole = _ranked(retriever, search, fetched / "free.parquet", 9, tmp_path)
    assert all(len(documents) == 9 for documents in whole.values())
    table = pq.read_table(fetched / "free.parquet")
    for column, listed, depth, ranked in (
        (collection.EXCLUDED, slice(5), 3, slice(5, 8)),
        (collection.CANDIDATES, slice(6, 9), 2, slice(6, 8)),
    ):
        lists = [whole[own][listed] for own in table["_id"].to_pylist()]
        pq.write_table(table.append_column(column, [lists]), tmp_path / "queries.parquet")
        found = _ranked(retriever, search, tmp_path / "queries.parquet", depth, tmp_path)
        assert found == {own: documents[ranked] for own, documents in whole.items()}, column.name


def test_fusion_and_reranking_keep_to_the_documents_of_their_runs(fetched, tiny_models, tmp_path):
    first = {own: runs.canonical(own, [f"d{n}" for n in range(9)], list(range(9)), excluded={own}) for own in OWN}
    runs.write(tmp_path / "first.run.gz", first, "s")
    known = {"run": tmp_path / "first.run.gz", "corpus": fetched / "corpus.parquet", "compute": ON_CPU}
    known |= {"checkpoint": tiny_models["cross-encoder"], "queries": fetched / "queries.parquet", "depth": 3}
    manifest, written = tmp_path / "pairs" / "scores.json", {"system": "s"}
    model = CrossEncoder(family="cross-encoder")
    run_work(score.score, manifest, model=model, pairs=tmp_path / "pairs", version=1, **known)
    rerank.rerank(first_stage=known["run"], scores=manifest, depth=3, output=tmp_path / "r.run.gz", **written)
    parts = [known["run"], tmp_path / "r.run.gz"]
    fuse.fuse(runs=parts, fusion=Fusion("rrf"), output=tmp_path / "f.run.gz", **written)
    for name in ("r", "f"):
        combined = runs.read(tmp_path / f"{name}.run.gz")
        assert {own: set(combined[own].ids) for own in combined} == {own: set(first[own].ids) for own in OWN}
