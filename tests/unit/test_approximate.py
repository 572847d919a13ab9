"""Approximate indexes of dense vectors: recall, size, and their names in grids and records."""

from __future__ import annotations

import json
import shlex
from typing import Any

import faiss
import numpy as np
import pytest
import small
from graph import inputs, records, settings
from helpers import fetch_corpus, fetch_dataset, main, tracked_configuration

from beirgrid import config
from beirgrid.config.systems import Flat, Hnsw, Int8
from beirgrid.core.errors import DataError
from beirgrid.pipeline.grid import Grid
from beirgrid.search import approximate

KINDS = [
    pytest.param(Hnsw(kind="hnsw", links=16, construction=64, search=64), 0.99, 1.0, id="hnsw"),
    pytest.param(Int8(kind="int8"), 0.95, 0.27, id="int8"),
]


def _vectors(rows: int, seed: int, dimension: int = 64) -> np.ndarray:
    """Draw unit vectors in clusters, the case for such indexes."""
    rng = np.random.default_rng(seed)
    centres = np.random.default_rng(0).standard_normal((20, dimension))
    vectors = centres[rng.integers(20, size=rows)] + rng.standard_normal((rows, dimension))
    return (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)


def _best(documents: np.ndarray, queries: np.ndarray, depth: int) -> np.ndarray:
    return np.argsort(-(queries.astype(np.float64) @ documents.T.astype(np.float64)), axis=1)[:, :depth]


@pytest.mark.parametrize(("kind", "least", "size"), KINDS)
def test_an_index_finds_most_of_the_best_in_fewer_bytes(tmp_path, kind, least, size):
    documents, queries = _vectors(1500, 1), _vectors(20, 2)
    shards = [tmp_path / f"{number}.faiss" for number in range(2)]
    for path, part in zip(shards, np.split(documents, [1000]), strict=True):
        approximate.write_index(part, kind, path)
    scores, rows = approximate.search_shards(shards, queries, 10, kind)
    assert scores.shape == rows.shape == (20, 10)
    assert (np.diff(scores, axis=1) <= 0).all()
    exact = _best(documents, queries, 10)
    found = np.mean([len(set(ours) & set(best)) / 10 for ours, best in zip(rows, exact, strict=True)])
    assert least <= found <= 1
    if size < 1:
        assert sum(path.stat().st_size for path in shards) < size * documents.nbytes
    again = tmp_path / "again.faiss"
    approximate.write_index(documents[:1000], kind, again)
    assert again.read_bytes() == shards[0].read_bytes()
    with pytest.raises(DataError, match="dimension 64, but the queries have 32"):
        approximate.search_shards(shards, queries[:, :32].copy(), 10, kind)


@pytest.mark.parametrize("there", [Hnsw(kind="hnsw"), Int8(kind="int8"), Flat()])
@pytest.mark.parametrize("asked", [Hnsw(kind="hnsw"), Int8(kind="int8"), Flat()])
def test_an_index_of_another_kind_is_named(tmp_path, there, asked):
    """A file without a record replaced the index."""
    path = tmp_path / "0.faiss"
    approximate.write_index(_vectors(20, 1), there, path)
    if there == asked:
        assert approximate.search_shards([path], _vectors(1, 2), 5, asked)[1].shape == (1, 5)
        return
    with pytest.raises(DataError, match=rf"{path} (is an index of another kind|is damaged)"):
        approximate.search_shards([path], _vectors(1, 2), 5, asked)


@pytest.mark.parametrize("asked", [Int8(kind="int8"), Flat()])
def test_an_index_of_distances_is_named(tmp_path, asked):
    index = faiss.index_factory(64, "SQ8" if asked.kind == "int8" else "Flat", faiss.METRIC_L2)
    index.train(_vectors(20, 1))
    index.add(_vectors(20, 1))
    faiss.write_index(index, str(tmp_path / "0.faiss"))
    with pytest.raises(DataError, match=r"0\.faiss (does not compare vectors by inner product|is an index of another)"):
        approximate.search_shards([tmp_path / "0.faiss"], _vectors(1, 2), 5, asked)


def test_truncated_vectors_have_length_1_again_for_cosine_only():
    vectors = np.array([[3, 4, 12], [0, 0, 5]], np.float32)
    np.testing.assert_allclose(approximate.truncate(vectors, 2, "cosine"), [[0.6, 0.8], [0, 0]], rtol=1e-6)
    assert approximate.truncate(vectors, 2, "dot").tolist() == [[3, 4], [0, 0]]
    assert approximate.truncate(vectors, None, "cosine") is vectors
    with pytest.raises(DataError, match="3 dimensions, fewer than `dimensions: 4`"):
        approximate.truncate(vectors, 4, "dot")


# In a grid

SYSTEMS: dict[str, Any] = {
    "plain": {"retriever": "minilm"},
    "short": {"retriever": "minilm", "dimensions": 256},
    "graph": {"retriever": "minilm", "index": {"kind": "hnsw", "links": 16}},
    "deeper": {"retriever": "minilm", "index": {"kind": "hnsw", "links": 16, "search": 2000}},
    "both": {"retriever": "minilm", "index": {"kind": "int8"}, "dimensions": 256},
}


def _grid(systems: dict[str, Any]) -> Grid:
    raw = tracked_configuration()
    raw["systems"] = raw["systems"] | systems
    raw["grid"] = {"systems": list(systems), "datasets": ["demo"]}
    return Grid(config.load(raw))


def test_an_index_has_its_parameters_in_its_name():
    grid = _grid(SYSTEMS)
    flat_shard = "results/indexes/minilm/demo/0.faiss"
    plain = inputs(grid, "retrieve_dense", system="plain", dataset="demo")
    assert plain["indexes"] == [flat_shard]
    names = {"short": "flat-d256", "graph": "hnsw-16-200", "deeper": "hnsw-16-200", "both": "int8-d256"}
    for system, name in names.items():
        search = inputs(grid, "retrieve_dense", system=system, dataset="demo")
        assert search["indexes"] == [f"results/indexes/minilm/demo/{name}/0.faiss"]
        assert "exact" not in search
        assert f"results/indexes/minilm/demo/{name}/0.json" in records(grid, system, "demo")
    plain = settings(grid, "retrieve_dense", system="plain", dataset="demo")
    assert not plain["two_towers"]
    assert "index" not in plain
    variant = {"model": "minilm", "corpus": "demo", "variant": "hnsw-16-200", "shard": "0"}
    built = settings(grid, "index_approximate", **variant)
    assert built["index"] == {"kind": "hnsw", "links": 16, "construction": 200}
    assert (built["dimensions"], built["similarity"]) == (None, "cosine")
    assert settings(grid, "retrieve_dense", system="deeper", dataset="demo")["index"]["search"] == 2000


def _run(*words: Any) -> None:
    assert main([str(word) for word in words]) == 0, shlex.join(map(str, words))


def test_the_stages_record_build_size_and_recall(tmp_path, tiny_models):
    source = {"source": "local", "path": str(small.collection(tmp_path / "data"))}
    corpus, queries = tmp_path / "corpus.parquet", tmp_path / "queries.parquet"
    _run(*fetch_corpus(source, tmp_path))
    _run(*fetch_dataset(source, tmp_path))
    entry = '{"family": "dense", "similarity": "cosine"}'
    model = ("--model", entry, "--checkpoint", tiny_models["dense"], "--corpus", corpus, "--precision", "float32")
    vectors, exact, index = tmp_path / "0.npy", tmp_path / "flat" / "0.faiss", tmp_path / "int8" / "0.faiss"
    _run("encode", *model, "--shard-size", 100, "--output", vectors, "--record", tmp_path / "0.json")
    _run("index", "dense", "--vectors", vectors, "--output", exact, "--record", exact.with_suffix(".json"))
    options = ("--index", '{"kind": "int8"}', "--dimensions", 8)
    _run(
        *("index", "approximate", "--exact", exact, *options, "--similarity", "cosine"),
        *("--output", index, "--record", index.with_suffix(".json")),
    )
    facts = json.loads(index.with_suffix(".json").read_text())["facts"]
    assert (facts["documents"], facts["dimension"], facts["bytes"]) == (60, 8, index.stat().st_size)
    assert facts["build_seconds"] >= 0
    run = tmp_path / "s.run.gz"
    _run(
        *("retrieve", "dense", "--system", "s", *model, "--indexes", index, *options),
        *("--queries", queries, "--depth", 20, "--output", run, "--record", tmp_path / "s.json"),
    )
    record = json.loads((tmp_path / "s.json").read_text())
    assert record["settings"]["index"] == {"kind": "int8"}
    assert record["settings"]["dimensions"] == 8
