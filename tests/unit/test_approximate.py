"""Approximate indexes of dense vectors: recall, size, and their names in grids and records."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkpoints import encode_texts, opened, random_texts
from graph import inputs, records, settings
from helpers import main, tracked_configuration
from pydantic import TypeAdapter
from sentence_transformers.util.quantization import quantize_embeddings, semantic_search_faiss

from beirgrid import config
from beirgrid.collections import collection
from beirgrid.config.models import Model
from beirgrid.config.systems import AnyIndex, Binary, Flat, Hnsw, Int8
from beirgrid.core.compute import Compute
from beirgrid.core.errors import DataError
from beirgrid.graph.grid import Grid
from beirgrid.search import approximate
from beirgrid.stages.retrieve import work as retrieve
from beirgrid.tools import latency

KINDS = [
    pytest.param(Hnsw(kind="hnsw", links=16, construction=64, search=64), 0.99, 1.0, id="hnsw"),
    pytest.param(Int8(kind="int8"), 0.95, 0.27, id="int8"),
    pytest.param(Binary(kind="binary", oversampling=10), 0.4, 0.04, id="binary"),
    pytest.param(Int8(kind="int8", oversampling=10), 0.7, 0.27, id="binary-int8"),
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


@pytest.mark.parametrize("there", [Hnsw(kind="hnsw"), Int8(kind="int8"), Binary(kind="binary"), Flat()])
@pytest.mark.parametrize("asked", [Hnsw(kind="hnsw"), Int8(kind="int8"), Binary(kind="binary"), Flat()])
def test_an_index_of_another_kind_is_named(tmp_path, there, asked):
    """A file without a record replaced the index."""
    path = tmp_path / "0.faiss"
    approximate.write_index(_vectors(20, 1), there, path)
    if there == asked:
        assert approximate.search_shards([path], _vectors(1, 2), 5, asked)[1].shape == (1, 5)
        return
    with pytest.raises(DataError, match=rf"{path} (is an index of another kind|is damaged)"):
        approximate.search_shards([path], _vectors(1, 2), 5, asked)


def _binary(folder: Path, documents: np.ndarray, shards: int, oversampling: int) -> tuple[Binary, list[Path]]:
    kind = Binary(kind="binary", oversampling=oversampling)
    paths = [folder / f"{number}.faiss" for number in range(shards)]
    for path, part in zip(paths, np.array_split(documents, shards), strict=True):
        approximate.write_index(part, kind, path)
    return kind, paths


@pytest.mark.parametrize(
    ("shards", "dimension", "depth", "oversampling"),
    [(1, 64, 10, 4), (1, 100, 10, 1), (1, 64, 200, 4), (3, 64, 50, 12), (3, 100, 200, 3)],
)
def test_binary_vectors_rank_as_in_sentence_transformers(tmp_path, shards, dimension, depth, oversampling):
    """Also where bits fill no byte, and where more are found than there are. Of shards, all documents are scored again:
    faiss leaves open which of those that differ in as many bits are the last ones.
    """
    documents, queries = _vectors(600, 1, dimension), _vectors(9, 2, dimension)
    codes = quantize_embeddings(documents, precision="ubinary")
    asked = {"corpus_precision": "ubinary", "top_k": depth, "rescore_multiplier": oversampling}
    expected, _ = semantic_search_faiss(queries, corpus_embeddings=codes, **asked)
    kind, paths = _binary(tmp_path, documents, shards, oversampling)
    for indexes in (paths, [approximate.read_index(path, kind) for path in paths]):
        scores, rows = approximate.search_shards(indexes, queries, depth, kind)
        assert rows.tolist() == [[hit["corpus_id"] for hit in of_query] for of_query in expected]
        theirs = [[hit["score"] for hit in of_query] for of_query in expected]
        np.testing.assert_allclose(scores, theirs, rtol=1e-6)


def _bytes(vectors: np.ndarray) -> np.ndarray:
    """Return the vectors that one byte per dimension can hold: the middle of each of 255 steps of the range."""
    low = vectors.min(0)
    size = np.ptp(vectors, axis=0)
    return low + (np.floor((vectors - low) / size * 255) + 0.5) / 255 * size


@pytest.mark.parametrize("scored_by", ["bits", "bytes"])
def test_the_documents_that_differ_least_over_all_shards_are_scored_again(tmp_path, scored_by):
    documents, queries = _vectors(600, 1), _vectors(9, 2)
    kind, paths = _binary(tmp_path, documents, 3, 4)
    vectors = documents > 0
    if scored_by == "bytes":
        kind = Int8(kind="int8", oversampling=4)
        for path, part in zip(paths, np.split(documents, 3), strict=True):
            approximate.write_index(part, kind, path)
        vectors = np.concatenate([_bytes(part) for part in np.split(documents, 3)])
    scores, rows = approximate.search_shards(paths, queries, 10, kind)
    for number, query in enumerate(queries):
        differing = ((vectors > 0) != (query > 0)).sum(1)
        last = np.sort(differing)[10 * 4 - 1]
        assert (differing[rows[number]] <= last).all()
        right = vectors @ query.astype(np.float64)
        assert {*np.flatnonzero((differing < last) & (right > scores[number, -1] + 1e-6))} <= {*rows[number]}
        np.testing.assert_allclose(scores[number], right[rows[number]], rtol=1e-5)


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
    "bits": {"retriever": "minilm", "index": {"kind": "binary", "oversampling": 8}},
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
    names = {
        "short": "flat-d256",
        "graph": "hnsw-16-200",
        "deeper": "hnsw-16-200",
        "both": "int8-d256",
        "bits": "binary",
    }
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


def test_the_stages_record_build_size_and_recall(tmp_path, tiny_models):
    entry = {"family": "dense", "similarity": "cosine"}
    vectors, exact, index = tmp_path / "0.npy", tmp_path / "flat" / "0.faiss", tmp_path / "int8" / "0.faiss"
    assert encode_texts(vectors, tiny_models["dense"], random_texts(60), entry) == 0
    assert main(["index", "dense", "--vectors", vectors, *_made(exact)]) == 0
    options = ["--index", '{"kind": "int8"}', "--dimensions", 8]
    assert main(["index", "approximate", "--exact", exact, *options, "--similarity", "cosine", *_made(index)]) == 0
    facts = json.loads(index.with_suffix(".json").read_text())["facts"]
    assert (facts["documents"], facts["dimension"], facts["bytes"]) == (60, 8, index.stat().st_size)
    assert facts["build_seconds"] >= 0
    pq.write_table(pa.table([["q"], ["ab cd"]], schema=collection.QUERIES_SCHEMA), tmp_path / "queries.parquet")
    model = ["--model", json.dumps(entry), "--checkpoint", tiny_models["dense"], "--precision", "float32"]
    read = ["--corpus", tmp_path / "corpus.parquet", "--queries", tmp_path / "queries.parquet", "--indexes", index]
    run = tmp_path / "s.run.gz"
    assert main(["retrieve", "dense", "--system", "s", *model, *read, *options, "--depth", 20, *_made(run)]) == 0
    record = json.loads(run.with_suffix(".json").read_text())
    assert record["job"]["settings"]["index"] == {"kind": "int8"}
    assert int(record["job"]["settings"]["dimensions"]) == 8


@pytest.mark.parametrize(
    ("index", "dimensions"),
    [
        ({"kind": "int8"}, 8),
        ({"kind": "int8", "oversampling": 4}, None),
        ({"kind": "binary"}, None),
        ({"kind": "flat"}, 8),
    ],
)
def test_latency_has_the_recall_beside_the_exact_index(tmp_path, tiny_models, index, dimensions):
    """The index stays open. Recall is that of the top 10 of the exact vectors."""
    entry, texts = {"family": "dense", "similarity": "cosine"}, random_texts(60)
    vectors, exact, approximated = tmp_path / "0.npy", tmp_path / "flat" / "0.faiss", tmp_path / "other" / "0.faiss"
    assert encode_texts(vectors, tiny_models["dense"], texts, entry) == 0
    assert main(["index", "dense", "--vectors", vectors, *_made(exact)]) == 0
    options = ["--index", json.dumps(index), *(["--dimensions", dimensions] if dimensions else [])]
    words = ["index", "approximate", "--exact", exact, *options, "--similarity", "cosine", *_made(approximated)]
    assert main(words) == 0
    pq.write_table(pa.table([["q"], ["ab cd"]], schema=collection.QUERIES_SCHEMA), tmp_path / "queries.parquet")
    given: dict[str, Any] = {
        "model": TypeAdapter(Model).validate_python(entry),
        "checkpoint": tiny_models["dense"],
        "corpus": tmp_path / "corpus.parquet",
        "queries": tmp_path / "queries.parquet",
        "compute": Compute(device="cpu", precision="float32"),
        "indexes": (approximated,),
        "index": TypeAdapter(AnyIndex).validate_python(index),
    }
    given |= {"dimensions": dimensions, "depth": 20, "query_tower": None, "two_towers": False}
    given |= {"rewrites": None, "method": ""}
    open_system = partial(retrieve.open_retrieve_vectors, None, **given, tokens=(), candidates=None)
    system, asked = open_system(), texts[:30]
    (row,) = latency.measure(system, asked)
    queries = opened("dense", tiny_models["dense"], {"similarity": "cosine"}).encode_queries(asked)
    best = [{f"d{number}" for number in rows} for rows in _best(np.load(vectors), queries, 10)]
    found = [{*system.rank({"": text})[""].ids[:10]} for text in asked]
    shares = [len(exact & own) / 10 for exact, own in zip(best, found, strict=True)]
    assert 0 < np.mean(shares) < 1
    assert row["recall_of_exact"] == pytest.approx(np.mean(shares))
    exact.unlink()
    assert np.isnan(next(latency.measure(open_system(), asked))["recall_of_exact"])


def _made(output: Path) -> list[object]:
    return ["--output", output, "--record", output.with_suffix(".json")]
