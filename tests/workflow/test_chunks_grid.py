"""A grid whose systems read documents in chunks, beside the same models without chunks."""

from __future__ import annotations

import json

import pytest
from helpers import beirgrid
from small import ENCODE, SYSTEMS, finish

from beirgrid.collections import collection
from beirgrid.core import files
from beirgrid.results.efficiency import read_latency
from beirgrid.runs import runs

CHUNKS = {"tokens": 20, "stride": 10}
CHUNKED = {
    "best": {"retriever": "tiny-dense", "chunks": {**CHUNKS, "aggregate": "max"}},
    "mean": {"retriever": "tiny-dense", "index": {"kind": "int8"}, "chunks": {**CHUNKS, "aggregate": "mean"}},
    "bm25+chunks": {
        **{"first_stage": "bm25-flat", "reranker": "tiny-ce", "depth": 5},
        **{"chunks": {"tokens": 30, "stride": 30, "aggregate": "max"}},
    },
}


@pytest.mark.slow
def test_a_grid_with_chunks_is_of_documents(small_grid, tmp_path):
    systems = {name: SYSTEMS[name] for name in ("bm25-flat", "tiny")} | CHUNKED
    configfile = small_grid(tmp_path, systems=systems, encode={**ENCODE, "shard": 40})
    finish(configfile, tmp_path)
    assert "Nothing to be done" in finish(configfile, tmp_path, "-n")
    results = tmp_path / "results"
    assert sorted(folder.name for folder in (results / "models").iterdir()) == ["tiny-ce", "tiny-dense"]
    for system in systems:
        ranked = runs.read(results / f"runs/{system}/small.run.gz")
        assert all(len({*ranking.ids}) == len(ranking.ids) for ranking in ranked.values())
        if "retriever" in systems[system] and system != "bm25-flat":
            assert {len(ranking.ids) for ranking in ranked.values()} <= {59, 60}  # one query is a document
    for name, several in (("max", True), ("mean", False)):
        model = f"tiny-dense~20-10-{name}/small"
        encoded, indexed = (
            [files.read_json(results / f"{kind}/{model}/{shard}.json")["facts"] for shard in range(2)]
            for kind in ("embeddings", "indexes")
        )
        assert [facts["documents"] for facts in (*encoded, *indexed)] == 2 * [40, 20]
        assert all(facts["chunks"] > 2 * facts["documents"] for facts in encoded)
        assert [facts.get("chunks") for facts in indexed] == [facts["chunks"] if several else None for facts in encoded]
    scored = files.read_json(results / "pairs/tiny-ce~30-30-max/small/bm25-flat.json")["facts"]
    assert scored["chunk_pairs"] > scored["pairs"] > 0
    sizes = files.read_json(results / "grids/grid/grid.json")["models"]
    assert sizes["best"]["model"] == "tiny-dense~20-10-max"
    query = collection.read_queries(results / "datasets/small/queries.parquet")["q1"]
    for system in ("best", "bm25+chunks"):
        found = beirgrid("search", system, "small", query, "--json", "--depth", "5", "--directory", tmp_path)
        assert found.returncode == 0, found.stderr
        ranking = runs.read(results / f"runs/{system}/small.run.gz")["q1"]
        assert [hit["id"] for hit in json.loads(found.stdout)] == list(ranking.ids[:5])
    words = ["latency", "--dataset", "small", "--output", "latency.csv"]
    words += ["--systems", "tiny", "best", "bm25+chunks", "--queries", "3", "--warm-up", "1", "--device", "cpu"]
    timed = beirgrid(*words, cwd=tmp_path)
    assert timed.returncode == 0, timed.stderr
    table = read_latency(tmp_path / "latency.csv")
    assert set(table.loc[table["as_run"], "system"]) == {"tiny", "best", "bm25+chunks"}
    sizes = {
        name: sum(
            files.read_json(path)["facts"]["bytes"] for path in (results / f"indexes/{name}/small").glob("*.json")
        )
        for name in ("tiny-dense", "tiny-dense~20-10-max", "tiny-dense~20-10-mean")
    }
    assert sizes["tiny-dense~20-10-max"] > 2 * sizes["tiny-dense"] == 2 * sizes["tiny-dense~20-10-mean"]
