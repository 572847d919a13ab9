"""The three heads of BGE-M3 in one grid: each encodes for itself, from one checkpoint."""

from __future__ import annotations

import json

import pytest
from checkpoints import save_pickled, save_roberta
from helpers import beirgrid
from small import ENCODE, finish

from beirgrid.collections import collection
from beirgrid.core import files
from beirgrid.runs import runs

SYSTEMS = {
    "bm25-flat": {"retriever": "bm25", "fields": "flat"},
    "m3": {"retriever": "m3"},
    "m3-sparse": {"retriever": "m3", "head": "sparse"},
    "m3-tokens": {"retriever": "m3", "head": "tokens", "exhaustive": True},
    "m3-hybrid": {"fusion": "wsum", "of": ["m3", "m3-sparse"], "weights": [1, 0.3]},
    "m3-all": {"first_stage": "m3-hybrid", "reranker": "m3", "head": "tokens", "depth": 10},
}


@pytest.fixture
def m3(tmp_path):
    """Save a RoBERTa with the heads of BGE-M3, in their published, pickled form."""
    import torch

    folder = save_pickled(tmp_path / "published", save_roberta(tmp_path / "plain"))
    torch.manual_seed(4)
    for head, size in (("sparse", 1), ("colbert", 24)):
        layer = torch.nn.Linear(32, size)
        torch.nn.init.ones_(layer.bias)  # some weights are above 0
        torch.save(layer.state_dict(), folder / f"{head}_linear.pt")
    return {"family": "dense", "path": str(folder), "similarity": "cosine", "pooling": "cls", "pickled": True}


@pytest.mark.slow
def test_each_head_has_vectors_of_its_own(small_grid, tmp_path, m3):
    of_m3 = {"models": {"m3": m3}, "systems": SYSTEMS, "encode": {**ENCODE, "shard": 40}}
    configfile = small_grid(tmp_path, **of_m3)
    finish(configfile, tmp_path)
    results = tmp_path / "results"
    dimensions = {"m3": 32, "m3~sparse": 261, "m3~tokens": 24}
    assert sorted(folder.name for folder in (results / "models").iterdir()) == ["m3"]
    assert sorted(folder.name for folder in (results / "benchmarks/encode").iterdir()) == sorted(dimensions)
    for name, dimension in dimensions.items():
        records = [files.read_json(results / f"embeddings/{name}/small/{shard}.json") for shard in range(2)]
        assert [record["facts"]["documents"] for record in records] == [40, 20]
        assert {record["facts"]["dimension"] for record in records} == {dimension}
    assert "Nothing to be done" in finish(configfile, tmp_path, "-n")

    query = collection.read_queries(results / "datasets/small/queries.parquet")["q1"]
    for system in ("m3-sparse", "m3-tokens", "m3-all"):
        found = beirgrid("search", system, "small", query, "--json", "--depth", "5", "--directory", tmp_path)
        assert found.returncode == 0, found.stderr
        assert [hit["id"] for hit in json.loads(found.stdout)] == list(
            runs.read(results / f"runs/{system}/small.run.gz")["q1"].ids[:5]
        )

    # A grid of the dense head alone uses the same vectors.
    alone = small_grid(tmp_path, **of_m3, grid={"systems": ["m3"], "datasets": ["small"]})
    planned = finish(alone, tmp_path, "-n")
    assert "rule encode" not in planned
    assert "rule retrieve" not in planned
