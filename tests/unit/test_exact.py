"""Exact dense search finds the results of float64 for any vectors, and its first pass proves most of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from beirgrid.core.errors import DataError
from beirgrid.search import exact, exact_int8, flat

LOW = pytest.mark.parametrize("low", [torch.bfloat16, torch.float32], ids=str)
DIMENSION = 16


def _integers(rows: int, seed: int, most: int = 4096) -> np.ndarray:
    """Draw integers of 12 bits, of which bfloat16 keeps 8. Their inner products are exact in float64."""
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


@LOW
@pytest.mark.parametrize("queries", QUERIES)
@pytest.mark.parametrize("documents", DOCUMENTS)
def test_the_best_are_those_of_float64(monkeypatch, documents, queries, low):
    monkeypatch.setattr(exact, "BLOCK", 64)  # several blocks and groups of queries, though the arrays are small
    monkeypatch.setattr(exact, "QUERIES", 8)
    vectors, asked = DOCUMENTS[documents], QUERIES[queries]
    shards = torch.from_numpy(vectors).tensor_split([100, 101, 252])
    scores, rows, _ = exact.search(shards, torch.from_numpy(asked), 20, low)
    best, order = _expected(vectors, asked, 20)
    assert (rows.numpy() == order).all()
    assert (scores.numpy() == best).all()


@LOW
@pytest.mark.parametrize("dimension", [3, 384, 1000])
def test_the_first_pass_is_off_by_no_more_than_its_bound(dimension, low):
    rng = np.random.default_rng(dimension)
    for power in (0, 40, -40, -64):  # of documents and queries: at the last, products underflow
        scale = np.float32(2.0) ** (power + rng.integers(-3, 3, (500, 1)).astype(np.float32))
        documents = torch.from_numpy(rng.standard_normal((500, dimension), np.float32) * scale)
        queries = torch.from_numpy(rng.standard_normal((20, dimension), np.float32) * scale[:20] + 2.0**power)
        shift = exact.shift_of(documents)
        top = exact.Top(queries, shift, 5, low)
        products, error = top._products(exact.block_of(documents, 0, 0, 500, shift, low))
        true = queries.double() @ (documents.double() - shift.double()).T
        bound = error[:, None] + (2**-8 if low == torch.bfloat16 else 0) * products.double().abs()
        assert ((products.double() - true).abs() <= bound).all()
        assert error.isfinite().all()


INTEGERS = pytest.mark.skipif(not torch.cpu._is_vnni_supported(), reason="this CPU multiplies no integers of 8 bits")


@INTEGERS
@pytest.mark.parametrize("sample", [16, 10_000])
@pytest.mark.parametrize("queries", ["ordinary", "positive"])
@pytest.mark.parametrize("documents", DOCUMENTS)
def test_the_best_by_integers_are_those_of_float64(monkeypatch, documents, queries, sample):
    monkeypatch.setattr(exact_int8, "BLOCK", 32)
    monkeypatch.setattr(exact_int8, "QUERIES", 4)
    monkeypatch.setattr(exact_int8, "SAMPLE", sample)  # of 16 documents, a rank is no good guess of a floor
    monkeypatch.setattr(exact_int8, "_DEVIATIONS", 0)
    monkeypatch.setattr(exact_int8, "_ROOM", 1)
    vectors, asked = DOCUMENTS[documents], QUERIES[queries]
    assert exact_int8.usable(asked)
    for cuts in ([100, 101, 252], []):
        scores, rows, _ = exact_int8.search(np.split(vectors, cuts), asked, 20)
        best, order = _expected(vectors, asked, 20)
        assert (rows == order).all()
        assert (scores == best).all()


@INTEGERS
@pytest.mark.parametrize("queries", ["huge", "denormal", "zero"])
def test_queries_that_are_no_integers_are_searched_for_in_another_format(queries):
    asked = QUERIES[queries]
    assert not exact_int8.usable(asked)
    scores, rows = flat.search_exact(DOCUMENTS["ordinary"], asked, 20)
    best, order = _expected(DOCUMENTS["ordinary"], asked, 20)
    assert (rows == order).all()
    assert (scores == best.astype(np.float32)).all()


@INTEGERS
def test_vectors_of_one_dimension_are_searched():
    rng = np.random.default_rng(0)
    documents, queries = (rng.standard_normal((rows, 1), np.float32) for rows in (3000, 5))
    best, order = _expected(documents, queries, 20)
    scores, rows = flat.search_exact(documents, queries, 20)
    assert (rows == order).all()
    assert (scores == best.astype(np.float32)).all()


@INTEGERS
@pytest.mark.parametrize("dimension", [3, 384, 1000])
def test_integers_are_off_by_no_more_than_their_bound(dimension):
    rng = np.random.default_rng(dimension)
    for power in (0, 20, -20):
        scale = np.float32(2.0) ** (power + rng.integers(-3, 3, (500, 1)).astype(np.float32))
        documents = rng.standard_normal((500, dimension), np.float32) * scale
        queries = rng.standard_normal((20, dimension), np.float32) * scale[:20] + np.float32(2.0**power)
        shift = documents.mean(0)
        block = exact_int8._block(documents, shift, 0)
        top = exact_int8.Int8Top(queries, shift, 5)
        true = queries.astype(np.float64) @ (documents.astype(np.float64) - shift.astype(np.float64)).T
        top.floor[:] = np.sort(true)[:, 250]
        number, rows = top._candidates(block)
        for query in range(20):
            assert set(np.flatnonzero(true[query] >= top.floor[query])) <= set(rows[number == query])
        assert len(rows) / 20 < 400  # the bound excludes what lies well below


@INTEGERS
def test_a_sample_guesses_floors_that_hold():
    rng = np.random.default_rng(0)
    documents, queries = (rng.standard_normal((n, 64), np.float32) for n in (100_000, 30))
    scores, rows, counts = exact_int8.search([documents], queries, 10)
    assert counts["int8"] == 100_000 * 30  # and no query is searched for again
    assert counts["float32"] == 0
    assert 10 * 30 <= counts["float64"] < 100 * 30
    best, order = _expected(documents, queries, 10)
    assert (rows == order).all()
    np.testing.assert_allclose(scores, best, rtol=1e-13)


@INTEGERS
@pytest.mark.parametrize("shards", [1, 3])
def test_a_query_whose_floor_was_guessed_too_high_is_searched_for_again(shards, monkeypatch):
    """For some of the queries, the best documents are all in the sample."""
    monkeypatch.setattr(exact_int8, "SAMPLE", 1024)
    rng = np.random.default_rng(0)
    documents, queries = (rng.standard_normal((n, 64), np.float32) for n in (60_000, 30))
    for shard in np.array_split(documents, shards):
        shard[:: len(shard) // 1024, 0] += 20
    queries[:10, 0] += 3
    scores, rows, counts = exact_int8.search(np.array_split(documents, shards), queries, 200)
    assert 60_000 * 30 + 10 * 60_000 // shards <= counts["int8"] < 60_000 * 60
    best, order = _expected(documents, queries, 200)
    assert (rows == order).all()
    np.testing.assert_allclose(scores, best, rtol=1e-13)


@INTEGERS
def test_what_integers_cannot_tell_apart_is_multiplied_in_float32():
    rng = np.random.default_rng(0)
    sides = np.where(np.arange(40_000) % 2, 1, -1).astype(np.float32)[:, None]  # so that the mean is of no use
    documents = sides + rng.standard_normal((40_000, 64), np.float32) / 1000
    queries = rng.standard_normal((30, 64), np.float32)
    scores, rows, counts = exact_int8.search(np.array_split(documents, 2), queries, 10)
    assert counts["int8"] <= 20_000 * 30
    assert counts["float32"] >= 20_000 * 30
    best, order = _expected(documents, queries, 10)
    assert (rows == order).all()
    np.testing.assert_allclose(scores, best, rtol=1e-13)


def test_the_first_pass_excludes_nearly_all_of_ordinary_vectors():
    rng = np.random.default_rng(0)
    documents, queries = (torch.from_numpy(rng.standard_normal((n, 64), np.float32)) for n in (20_000, 30))
    counts = exact.search([documents], queries, 10, torch.bfloat16)[2]
    assert counts["bfloat16"] == 20_000 * 30
    assert counts["float32"] == 0
    assert 10 * 30 <= counts["float64"] < 50 * 30


def test_vectors_that_point_the_same_way_are_told_apart_in_bfloat16():
    rng = np.random.default_rng(0)
    documents, queries = (1 + rng.standard_normal((n, 64)) / 100 for n in (20_000, 30))
    counts = exact.search([torch.tensor(documents).float()], torch.tensor(queries).float(), 10, torch.bfloat16)[2]
    assert counts["float32"] == 0
    assert counts["float64"] < 20_000


def test_what_bfloat16_cannot_tell_apart_is_multiplied_in_float32():
    rng = np.random.default_rng(0)
    sides = np.where(np.arange(20_000) % 2, 1, -1).astype(np.float32)[:, None]  # so that the mean is of no use
    documents = torch.from_numpy(sides + rng.standard_normal((20_000, 64), np.float32) / 1000)
    queries = torch.from_numpy(rng.standard_normal((30, 64), np.float32))
    scores, rows, counts = exact.search([documents], queries, 10, torch.bfloat16)
    assert counts["bfloat16"] <= 4 * exact.BLOCK * 30
    assert counts["float32"] >= (20_000 - 3 * exact.BLOCK) * 30
    assert counts["float64"] < 2 * exact.BLOCK * 30
    best, order = _expected(documents.numpy(), queries.numpy(), 10)
    assert (rows.numpy() == order).all()
    np.testing.assert_allclose(scores, best, rtol=1e-13)


@pytest.mark.parametrize(("documents", "queries", "shape"), [(0, 3, (3, 0)), (7, 0, (0, 5))])
def test_without_documents_or_queries_nothing_is_found(documents, queries, shape):
    scores, rows = flat.search_exact(np.ones((documents, 8), np.float32), np.ones((queries, 8), np.float32), 5)
    assert scores.shape == rows.shape == shape


@pytest.mark.parametrize("compute", [exact.scores_in_torch, exact.scores_compiled])
def test_equal_vectors_have_equal_scores_wherever_they_are(compute):
    rng = np.random.default_rng(0)
    documents = torch.from_numpy(np.tile(rng.standard_normal(385).astype(np.float32), (5001, 1)))
    queries = torch.from_numpy(rng.standard_normal((2, 385)).astype(np.float32))
    query = torch.arange(2).repeat_interleave(5001)
    scores = compute(queries, documents, query, torch.arange(5001).repeat(2)).reshape(2, 5001)
    assert (scores == scores[:, :1]).all()
    np.testing.assert_allclose(scores[:, 0], queries.double() @ documents[0].double(), rtol=1e-13)


@pytest.mark.parametrize("queries", [1, 2, 11])
def test_threads_divide_the_queries_and_pytorch_keeps_its_own(queries):
    before = torch.get_num_threads()
    documents, asked = _integers(450, 1), _integers(queries, 2)
    torch.set_num_threads(3)
    try:
        scores, rows = flat.search_exact(documents, asked, 20)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
    best, order = _expected(documents, asked, 20)
    assert (rows == order).all()
    assert (scores == best.astype(np.float32)).all()


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_a_vector_that_is_not_finite_is_refused(value):
    documents = _integers(300, 1)
    documents[200, 5] = value
    with pytest.raises(DataError, match="not a finite number"):
        flat.search_exact(documents, _integers(3, 2), 5)


def test_shards_that_are_loaded_ahead_are_searched_as_mapped_ones(tmp_path, monkeypatch):
    monkeypatch.setattr(flat, "_BLOCK", 64)
    vectors, queries = _integers(450, 1), _integers(5, 2)
    shards = [tmp_path / f"{number}.faiss" for number in range(3)]
    for path, part in zip(shards, np.split(vectors, [130, 200]), strict=True):
        flat.write_index(part, path)
    best, order = _expected(vectors, queries, 30)
    cpu = torch.device("cpu")
    for scores, rows in (
        flat.search_shards(shards, queries, 30),
        flat._search(flat._loaded(shards, DIMENSION, cpu), queries, 30, cpu),
    ):
        assert scores.dtype == np.float32
        assert (rows == order).all()
        assert (scores == best.astype(np.float32)).all()
    shards[1].write_bytes(b"")
    with pytest.raises(DataError, match=r"1\.faiss is damaged"):
        list(flat._loaded(shards, DIMENSION, cpu))
