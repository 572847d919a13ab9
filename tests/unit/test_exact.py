"""Exact dense search finds the results of float64 for any vectors, and computes few scores in float64."""

from __future__ import annotations

import inspect
from functools import partial
from typing import Any

import faiss
import numpy as np
import pytest
import torch

from beirgrid.core.errors import DataError
from beirgrid.search import exact, flat

DEVICES = ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]
DIMENSION = 16


def _integers(rows: int, seed: int, most: int = 4096) -> np.ndarray:
    """Draw integers of 12 bits. Their inner products are exact in float64."""
    return np.random.default_rng(seed).integers(-most, most, (rows, DIMENSION)).astype(np.float32)


def _scaled(powers: list[int], seed: int) -> np.ndarray:
    """Draw vectors whose lengths differ by powers of two."""
    return _integers(450, seed) * np.float32(2) ** np.resize(powers, 450).astype(np.float32)[:, None]


def _outlier() -> np.ndarray:
    vectors = _integers(450, 1)
    vectors[300, 3] = 2.0**127
    return vectors


DOCUMENTS = {
    "ordinary": _integers(450, 1),
    "near-ties": _integers(1, 2) + _integers(450, 3, most=2),
    "duplicates": np.resize(_integers(3, 4), (450, DIMENSION)),
    "duplicates-of-the-best": np.concatenate([_integers(250, 1), np.resize(_integers(1, 1) * 3, (200, DIMENSION))]),
    "huge": _scaled([100], 5),
    "huge-among-ordinary": _scaled([0, 0, 0, 0, 0, 0, 60, 112], 6),
    "one-component-overflows": _outlier(),
    "denormal": _scaled([-145], 7),
    "denormal-among-ordinary": _scaled([0, -145, -60], 8),
    "zero": np.zeros((450, DIMENSION), np.float32),
    "negative": -np.abs(_integers(450, 9)) - 1,
    "one": _integers(1, 10),
    "fewer-than-wanted": _integers(7, 11),
}
QUERIES = {
    "ordinary": _integers(11, 20),
    "positive": np.abs(_integers(11, 21)) + 1,
    "huge": _integers(11, 22) * np.float32(2.0**100),
    "denormal": _integers(11, 23) * np.float32(2.0**-145),
    "zero": np.zeros((11, DIMENSION), np.float32),
}


def _expected(documents: np.ndarray, queries: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Sort by float64 scores, and equal scores by row."""
    scores = queries.astype(np.float64) @ documents.T.astype(np.float64)
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    return np.take_along_axis(scores, rows, 1), rows


@pytest.fixture(params=["faiss", *DEVICES])
def first_pass(request, monkeypatch):
    """Choose the first pass; return the device. A CPU uses PyTorch's here too, so that it is tested without a GPU."""
    if request.param == "cpu":
        monkeypatch.setattr(exact, "_nearest", partial(exact._nearest_in_torch, device="cpu"))
    return "cpu" if request.param == "faiss" else request.param


@pytest.fixture
def scored(monkeypatch):
    """The number of scores in float64 that each call computes."""
    numbers = []

    def scores(query: np.ndarray, documents: np.ndarray, rows: np.ndarray) -> np.ndarray:
        numbers.append(len(rows))
        return compute(query, documents, rows)

    compute = exact.scores
    monkeypatch.setattr(exact, "scores", scores)
    return numbers


@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("documents", DOCUMENTS)
def test_the_best_are_those_of_float64(monkeypatch, documents, queries, first_pass):
    monkeypatch.setattr(exact, "QUERIES", 4)  # several groups and blocks, though the arrays are small
    monkeypatch.setattr(exact, "PRODUCTS", 4 * 64)
    monkeypatch.setattr(exact, "COMPONENTS", 5 * DIMENSION)
    monkeypatch.setattr(exact, "SLACK", 3)
    vectors, asked = DOCUMENTS[documents], QUERIES[queries]
    best, order = _expected(vectors, asked, 20)
    for cuts in ([100, 101, 252], []):
        scores, rows = exact.search(np.split(vectors, cuts), asked, 20, first_pass)
        assert (rows == order).all()
        assert (scores == best).all()


@pytest.mark.parametrize(
    ("device", "gpu_search", "depth", "gpus", "used"),
    [
        ("cpu", "faiss", 10, 1, exact._nearest),
        ("cuda:1", "torch", 10, 1, exact._nearest_in_torch),
        ("cuda:1", "faiss", 1948, 1, exact._nearest_in_faiss),
        ("cuda:1", "faiss", 1949, 1, exact._nearest_in_torch),
        ("cuda:1", "faiss", 10, 0, exact._nearest_in_torch),  # faiss-cpu
    ],
)
def test_faiss_multiplies_on_a_gpu_where_it_is_asked_for_and_can(monkeypatch, device, gpu_search, depth, gpus, used):
    monkeypatch.setattr(faiss, "get_num_gpus", lambda: gpus)
    first_pass = exact.first_pass(device, gpu_search, depth + exact.SLACK)
    assert getattr(first_pass, "func", first_pass) is used


def test_faiss_is_asked_on_a_gpu_as_it_takes_arguments(monkeypatch):
    """A stand-in for the GPU computes on the CPU what faiss's own signature was given."""
    signature = inspect.signature(faiss.knn_gpu)
    told = []

    def on_cpu(*arguments: Any, **options: Any) -> tuple[np.ndarray, np.ndarray]:
        given = signature.bind(*arguments, **options).arguments
        told.append((given["device"], given["use_cuvs"]))
        return faiss.knn(given["xq"], given["xb"], given["k"], given["metric"])

    monkeypatch.setattr(faiss, "get_num_gpus", lambda: 2)
    monkeypatch.setattr(faiss, "knn_gpu", on_cpu)
    monkeypatch.setattr(exact, "_gpu_memory", lambda: None)
    vectors, queries = DOCUMENTS["duplicates"], QUERIES["ordinary"]
    best, order = _expected(vectors, queries, 20)
    scores, rows = exact.search(np.split(vectors, [100]), queries, 20, "cuda:1", "faiss")
    assert told == [(1, False)] * 2
    assert (rows == order).all()
    assert (scores == best).all()


@pytest.mark.parametrize("depth", [1, 30])
def test_shards_threads_and_groups_of_queries_change_no_bit(monkeypatch, depth, first_pass):
    rng = np.random.default_rng(0)
    documents, queries = (rng.standard_normal((n, 385), np.float32) for n in (3000, 40))
    documents[rng.permutation(3000)[:1500]] = documents[0]  # more equal vectors than the first pass finds
    queries[:20] += documents[0] / 10
    best, order = _expected(documents, queries, depth)
    expected = None
    for cuts, group in (([], 100), ([1, 2, 1500], 100), ([700], 7)):
        monkeypatch.setattr(exact, "QUERIES", group)
        found = exact.search(np.split(documents, cuts), queries, depth, first_pass)
        expected = expected or found
        assert (found.scores == expected.scores).all()
        assert (found.rows == expected.rows).all()
    assert (expected.rows == order).mean() > 0.99  # a product of matrices gives equal vectors unequal scores
    np.testing.assert_allclose(expected.scores, best, rtol=1e-12)
    for rows in expected.rows:
        equal = rows[np.isin(rows, np.flatnonzero((documents == documents[0]).all(1)))]
        assert (np.diff(equal) > 0).all()


@pytest.mark.parametrize("dimension", [1, 3, 384, 1000])
def test_products_are_off_by_no_more_than_their_bound(dimension, first_pass):
    rng = np.random.default_rng(dimension)
    nearest = exact._nearest if first_pass == "cpu" else partial(exact._nearest_in_torch, device=first_pass)
    for power in (0, 40, -40, -64):  # of documents and queries: at the last, products underflow
        scale = np.float32(2.0) ** (power + rng.integers(-3, 3, (500, 1)).astype(np.float32))
        documents = rng.standard_normal((500, dimension), np.float32) * scale
        queries = rng.standard_normal((20, dimension), np.float32) * scale[:20] + np.float32(2.0**power)
        error = exact.errors(exact.lengths(queries), exact.lengths(documents).max(), dimension)
        products, rows = nearest(queries, documents, 500)
        for number, query in enumerate(queries):
            true = exact.scores(query, documents, rows[number])
            assert (np.abs(products[number] - true) < error[number]).all()
        assert np.isfinite(error).all()


def test_lengths_are_upper_bounds():
    for power in (0, 40, -60, -70, -140):
        vectors = _integers(50, 1) * np.float32(2.0) ** np.float32(power)
        true = np.sqrt((vectors.astype(np.float64) ** 2).sum(1))
        assert (exact.lengths(vectors) >= true).all()
        assert (exact.lengths(vectors) <= 1.001 * true + 2.0**-58).all()


@pytest.mark.parametrize("mean", [0, 100])
def test_few_scores_are_computed_of_ordinary_vectors(mean, first_pass, scored):
    """Also of vectors that all point the same way, as those of many models do."""
    rng = np.random.default_rng(0)
    documents, queries = (mean + rng.standard_normal((n, 64), np.float32) for n in (20_000, 30))
    exact.search([documents], queries, 10, first_pass)
    assert 10 * 30 <= sum(scored) < (50 if mean else 12) * 30


def test_of_many_equal_vectors_only_their_own_scores_are_computed(first_pass, scored):
    """The corpus has more documents without text than the first pass finds."""
    rng = np.random.default_rng(0)
    documents, queries = (rng.standard_normal((n, 64), np.float32) for n in (20_000, 30))
    documents[::10] = documents[0]
    queries[0] = documents[0]
    rows = exact.search(np.array_split(documents, 2), queries, 50, first_pass).rows
    assert rows[0].tolist() == list(range(0, 500, 10))
    assert sum(scored) < 2000 + 4 * 50 * 30


@pytest.mark.parametrize(("documents", "queries", "shape"), [(0, 3, (3, 0)), (7, 0, (0, 5))])
def test_without_documents_or_queries_nothing_is_found(documents, queries, shape):
    scores, rows = exact.search([np.ones((documents, 8), np.float32)], np.ones((queries, 8), np.float32), 5)
    assert scores.shape == rows.shape == shape


def test_equal_vectors_have_equal_scores_wherever_they_are():
    rng = np.random.default_rng(0)
    documents = np.tile(rng.standard_normal(385).astype(np.float32), (5001, 1))
    for query in rng.standard_normal((2, 385)).astype(np.float32):
        scores = exact.scores(query, documents, np.arange(5001))
        assert (scores == scores[0]).all()
        assert exact.scores(query, documents, np.array([7])) == scores[:1]  # alone, too
        np.testing.assert_allclose(scores[0], query.astype(np.float64) @ documents[0], rtol=1e-13)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_a_vector_that_is_not_finite_is_refused(value):
    documents = _integers(300, 1)
    documents[200, 5] = value
    with pytest.raises(DataError, match="not a finite number"):
        exact.search([documents], _integers(3, 2), 5)
    with pytest.raises(DataError, match="not a finite number"):
        exact.search([_integers(300, 2)], documents[199:201], 5)


def test_shards_on_disk_are_searched_as_arrays(tmp_path, monkeypatch):
    monkeypatch.setattr(flat, "_BLOCK", 64)
    vectors, queries = _integers(450, 1), _integers(5, 2)
    shards = [tmp_path / f"{number}.faiss" for number in range(3)]
    for path, part in zip(shards, np.split(vectors, [130, 200]), strict=True):
        flat.write_index(part, path)
    best, order = _expected(vectors, queries, 30)
    scores, rows = flat.search_shards(shards, queries, 30)
    assert scores.dtype == np.float32
    assert (rows == order).all()
    assert (scores == best.astype(np.float32)).all()
    with pytest.raises(DataError, match=r"dimension 16.*gives 8"):
        flat.search_shards(shards, queries[:, :8], 30)
    shards[1].write_bytes(b"")
    with pytest.raises(DataError, match=r"1\.faiss is damaged"):
        flat.search_shards(shards, queries, 30)


@pytest.mark.parametrize("rows", [[], [0], [6, 0, 6, 3], [2, 3], [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]])
def test_vectors_of_documents_are_read_by_their_rows_over_all_shards(tmp_path, rows):
    vectors = _integers(10, 30)
    shards = [tmp_path / "0.faiss", tmp_path / "1.faiss"]
    flat.write_index(vectors[:3], shards[0])
    flat.write_index(vectors[3:], shards[1])
    assert np.array_equal(flat.vectors_of(shards, np.array(rows, np.int64)), vectors[rows])


def test_vectors_of_documents_that_no_shard_has_are_refused(tmp_path):
    flat.write_index(_integers(3, 30), tmp_path / "0.faiss")
    with pytest.raises(DataError, match="the indexes have 3 documents, and not document 4"):
        flat.vectors_of([tmp_path / "0.faiss"], np.array([0, 3]))
    flat.write_index(_integers(3, 30), tmp_path / "1.faiss", np.array([2, 1]))
    with pytest.raises(DataError, match="has several vectors of each document"):
        flat.vectors_of([tmp_path / "1.faiss"], np.array([0]))
