"""Compare fusion with a slow reference in plain Python, written from the definitions, and with ranx."""

from __future__ import annotations

import json
import math
import os
import random
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import get_args

import pytest

from beirgrid.config.values import Norm
from beirgrid.runs import fusion, runs

Scores = dict[str, float]

IDS = [str(n) for n in range(300)] + [f"{mark}{n:011d}" for mark in ("d", "é", "文", "𝔘") for n in range(60)]
SHAPES: dict[str, Callable[[random.Random], float]] = {
    "distinct": lambda rng: rng.uniform(0.1, 30),
    "ties": lambda rng: float(rng.randint(1, 6)),
    "logits": lambda rng: rng.gauss(-2, 5),
}


def single(score: float) -> float:
    """Round to float32."""
    return struct.unpack("f", struct.pack("f", score))[0]


def ordered(scores: Scores) -> list[str]:
    """Return the documents by (float32 score, id), both descending."""
    return sorted(scores, key=lambda document: (single(scores[document]), document), reverse=True)


# References -----------------------------------------------------------------------------------------------------------


def reciprocal_ranks(scores: Scores, k: int) -> Scores:
    return {document: 1 / (k + rank) for rank, document in enumerate(ordered(scores), start=1)}


def min_max(scores: Scores) -> Scores:
    low, span = min(scores.values()), max(scores.values()) - min(scores.values())
    return {document: (score - low) / span if span else 0.0 for document, score in scores.items()}


def zmuv(scores: Scores) -> Scores:
    mean = math.fsum(scores.values()) / len(scores)
    spread = math.sqrt(math.fsum((score - mean) ** 2 for score in scores.values()) / len(scores))
    return {document: (score - mean) / spread if spread else 0.0 for document, score in scores.items()}


def ranks(scores: Scores) -> Scores:
    return {document: 1 - place / len(scores) for place, document in enumerate(ordered(scores))}


NORMS = {"min-max": min_max, "zmuv": zmuv, "rank": ranks}


def weighted_sum(parts: list[Scores], weights: list[float]) -> Scores:
    """Sum scores per document; a part that lacks a document gives 0."""
    documents = {document for part in parts for document in part}
    return {d: math.fsum(w * part.get(d, 0.0) for w, part in zip(weights, parts, strict=True)) for d in documents}


# Random runs ----------------------------------------------------------------------------------------------------------


def random_part(rng: random.Random, queries: list[str], shape: str) -> dict[str, Scores]:
    """Return a run in which some queries have one document, some many, and some none."""
    part = {}
    for query in queries:
        depth = rng.choice((0, 1, 2, 10, 60, 400))
        documents = [document for document in rng.sample(IDS, depth) if document != query]
        if documents:
            part[query] = {document: single(SHAPES[shape](rng)) for document in documents}
    return part


def random_parts(shape: str, count: int) -> list[dict[str, Scores]]:
    rng = random.Random(f"{shape} {count}")
    queries = rng.sample(IDS, 60)
    parts = [random_part(rng, queries, shape) for _ in range(count)]
    asked = {query for part in parts for query in part}
    assert all(any(query not in part for query in asked) for part in parts)
    return parts


def rankings(part: dict[str, Scores]) -> runs.Run:
    return {query: runs.canonical(query, scores, list(scores.values())) for query, scores in part.items()}


def slow_fusion(parts: list[dict[str, Scores]], norm: Callable[[Scores], Scores], weights: list[float]) -> dict:
    """Fuse per query the parts that have documents for it."""
    fused = {}
    for query in {query for part in parts for query in part}:
        present = [(norm(part[query]), weight) for part, weight in zip(parts, weights, strict=True) if query in part]
        fused[query] = weighted_sum([scores for scores, _ in present], [weight for _, weight in present])
    return fused


def assert_equal(got: runs.Run, expected: dict[str, Scores]) -> None:
    assert set(got) == set(expected)
    for query, scores in expected.items():
        ids, values = got[query]
        assert ids == ordered(scores), query
        assert values.tolist() == pytest.approx([scores[document] for document in ids], rel=1e-6, abs=1e-6)
        assert ids == ordered(dict(zip(ids, values.tolist(), strict=True)))


# Tests ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 60])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_reciprocal_rank_fusion(shape: str, count: int, k: int) -> None:
    parts = random_parts(shape, count)
    got = fusion.fuse([rankings(part) for part in parts], "rrf", 1000, k=k)
    assert_equal(got, slow_fusion(parts, lambda scores: reciprocal_ranks(scores, k), [1.0] * count))


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.9, 0.25], [0.2, 0.3, 0.5]], ids=str)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_weighted_sum(shape: str, norm: str, weights: list[float]) -> None:
    parts = random_parts(shape, len(weights))
    got = fusion.fuse([rankings(part) for part in parts], "wsum", 1000, norm=norm, weights=weights)
    assert_equal(got, slow_fusion(parts, NORMS[norm], weights))


@pytest.mark.parametrize("norm", NORMS)
def test_equal_scores_fuse_to_equal_scores(norm: str) -> None:
    parts = [{"q": dict.fromkeys("9aé𝔘", single(0.1))}, {"q": dict.fromkeys("9b", 7.0)}]
    got = fusion.fuse([rankings(part) for part in parts], "wsum", 10, norm=norm, weights=[0.5, 0.5])
    assert_equal(got, slow_fusion(parts, NORMS[norm], [0.5, 0.5]))


@pytest.mark.parametrize("method", ["rrf", "wsum"])
def test_disjoint_documents_alternate_and_disjoint_queries_keep_their_only_ranking(method: str) -> None:
    first = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}, "1": {"a": 3.0, "b": 2.0}}
    second = {"q": {"x": 30.0, "y": 20.0, "z": 10.0}, "2": {"9": 1.0, "10": 1.0, "a": 0.5}}
    got = fusion.fuse([rankings(first), rankings(second)], method, 10, weights=[0.5, 0.5])
    ids = {query: ranking.ids for query, ranking in got.items()}
    assert ids == {"q": ["x", "a", "y", "b", "z", "c"], "1": ["a", "b"], "2": ["9", "10", "a"]}


@pytest.mark.parametrize("depth", [1, 7, 100])
@pytest.mark.parametrize("method", ["rrf", "wsum"])
def test_depth_cuts_the_canonical_order(method: str, depth: int) -> None:
    parts = [rankings(part) for part in random_parts("ties", 2)]
    whole = fusion.fuse(parts, method, 10**6, weights=[0.5, 0.5])
    cut = fusion.fuse(parts, method, depth, weights=[0.5, 0.5])
    assert {q: r.ids for q, r in cut.items()} == {q: r.ids[:depth] for q, r in whole.items()}
    assert {q: r.scores.tolist() for q, r in cut.items()} == {q: r.scores[:depth].tolist() for q, r in whole.items()}


RANX = """
import json, ranx, sys
given, fused = json.load(sys.stdin), {}
for norm, runs in given["parts"].items():
    method = {"method": "rrf", "params": {"k": 60}}
    if norm != "rrf":
        method = {"method": "wsum", "params": {"weights": given["weights"]}}
    fused[norm] = ranx.fuse([ranx.Run(run) for run in runs], norm=None if norm == "rrf" else norm, **method).to_dict()
print(json.dumps(fused))
"""


@pytest.mark.slow
def test_fusion_equals_that_of_ranx() -> None:
    """The process does not compile ranx, which takes half a minute."""
    weights, queries = [0.5, 0.3, 0.2], [f"q{number}" for number in range(20)]

    def part(rng: random.Random) -> dict[str, Scores]:
        return {query: {document: rng.uniform(0.1, 30) for document in rng.sample(IDS, 60)} for query in queries}

    norms = ["rrf", *get_args(Norm)]
    parts = {norm: [part(rng) for _ in weights] for norm in norms for rng in [random.Random(norm)]}
    given = json.dumps({"parts": parts, "weights": weights})
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    fused = subprocess.check_output([sys.executable, "-c", RANX], input=given, env=environment, text=True)
    expected = json.loads(fused)
    assert list(expected) == norms
    for norm, runs_of_norm in parts.items():
        method = {} if norm == "rrf" else {"norm": norm, "weights": weights}
        got = fusion.fuse([rankings(run) for run in runs_of_norm], "wsum" if method else "rrf", 1000, **method)
        for query, scores in expected[norm].items():
            found = dict(zip(got[query].ids, got[query].scores.tolist(), strict=True))
            assert found == pytest.approx(scores, rel=1e-6, abs=1e-6), norm


def test_rankings_without_documents() -> None:
    empty = runs.canonical("q", [], [])
    full = runs.canonical("q", ["a", "b"], [2.0, 1.0])
    assert fusion.fuse([{"q": empty}, {"q": full}], "rrf", 10)["q"].ids == ["a", "b"]
    assert fusion.fuse([{"q": empty}, {"q": empty}], "rrf", 10)["q"].ids == []
    assert fusion.fuse([{}, {}], "rrf", 10) == {}
