"""Compare fusion with a slow reference in plain Python, written from the definitions, and with ranx."""

from __future__ import annotations

import importlib.util
import itertools
import json
import math
import os
import random
import re
import struct
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from beirgrid.config.fusions import METHODS
from beirgrid.config.fusions import NORMS as RANX_NORMS
from beirgrid.runs import runs
from beirgrid.runs.fusion import Fuser, Fusion, fuse

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


def random_part(rng: random.Random, queries: list[str], shape: str, deepest: int) -> dict[str, Scores]:
    """Return a run in which some queries have one document, some many, and some none."""
    part = {}
    for query in queries:
        depth = rng.choice((0, 1, 2, 10, 60, deepest))
        documents = [document for document in rng.sample(IDS, depth) if document != query]
        if documents:
            part[query] = {document: single(SHAPES[shape](rng)) for document in documents}
    return part


@cache
def random_parts(shape: str, count: int, queries_of_all: int = 60, deepest: int = 400) -> list[dict[str, Scores]]:
    rng = random.Random(f"{shape} {count}")
    queries = rng.sample(IDS, queries_of_all)
    parts = [random_part(rng, queries, shape, deepest) for _ in range(count)]
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
        right = np.array([scores[document] for document in ids])
        assert (np.abs(values - right) <= np.maximum(1e-6, 1e-6 * np.abs(right))).all()
        assert ids == ordered(dict(zip(ids, values.tolist(), strict=True)))


# Tests ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("k", [0, 1, 60])
@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("shape", SHAPES)
def test_reciprocal_rank_fusion(shape: str, count: int, k: int) -> None:
    parts = random_parts(shape, count)
    got = fuse([rankings(part) for part in parts], Fusion("rrf", k=k))
    assert_equal(got, slow_fusion(parts, lambda scores: reciprocal_ranks(scores, k), [1.0] * count))


@pytest.mark.parametrize("weights", [[0.5, 0.5], [0.9, 0.25], [0.2, 0.3, 0.5]], ids=str)
@pytest.mark.parametrize("norm", NORMS)
@pytest.mark.parametrize("shape", SHAPES)
def test_weighted_sum(shape: str, norm: str, weights: list[float]) -> None:
    parts = random_parts(shape, len(weights))
    got = fuse([rankings(part) for part in parts], Fusion("wsum", norm=norm, weights=weights))
    assert_equal(got, slow_fusion(parts, NORMS[norm], weights))


@pytest.mark.parametrize("norm", NORMS)
def test_equal_scores_fuse_to_equal_scores(norm: str) -> None:
    parts = [{"q": dict.fromkeys("9aé𝔘", single(0.1))}, {"q": dict.fromkeys("9b", 7.0)}]
    got = fuse([rankings(part) for part in parts], Fusion("wsum", 10, norm, weights=[0.5, 0.5]))
    assert_equal(got, slow_fusion(parts, NORMS[norm], [0.5, 0.5]))


@pytest.mark.parametrize("method", ["rrf", "wsum"])
def test_disjoint_documents_alternate_and_disjoint_queries_keep_their_only_ranking(method: str) -> None:
    first = {"q": {"a": 3.0, "b": 2.0, "c": 1.0}, "1": {"a": 3.0, "b": 2.0}}
    second = {"q": {"x": 30.0, "y": 20.0, "z": 10.0}, "2": {"9": 1.0, "10": 1.0, "a": 0.5}}
    got = fuse([rankings(first), rankings(second)], Fusion(method, 10, weights=[0.5, 0.5]))
    ids = {query: ranking.ids for query, ranking in got.items()}
    assert ids == {"q": ["x", "a", "y", "b", "z", "c"], "1": ["a", "b"], "2": ["9", "10", "a"]}


@pytest.mark.parametrize("depth", [1, 7, 100])
@pytest.mark.parametrize("method", ["rrf", "wsum"])
def test_depth_cuts_the_canonical_order(method: str, depth: int) -> None:
    parts = [rankings(part) for part in random_parts("ties", 2)]
    whole = fuse(parts, Fusion(method, 10**6, weights=[0.5, 0.5]))
    cut = fuse(parts, Fusion(method, depth, weights=[0.5, 0.5]))
    assert {q: r.ids for q, r in cut.items()} == {q: r.ids[:depth] for q, r in whole.items()}
    assert {q: r.scores.tolist() for q, r in cut.items()} == {q: r.scores[:depth].tolist() for q, r in whole.items()}


# Each case is fused alone and query by query, so that ranx gets runs with the same queries.
RANX = """
import json, ranx, ranx.fusion, sys
fused = []
for case in json.load(sys.stdin):
    params = dict(case["params"])
    if case["trained"]:
        name = {"bayesfuse": "log_odds", "mapfuse": "map_scores"}.get(case["method"], "probs")
        given = {"n_segments": params.pop("n_segments")} if "n_segments" in params else {}
        qrels, runs = ranx.Qrels(case["qrels"]), [ranx.Run(run) for run in case["runs"]]
        params[name] = getattr(ranx.fusion, case["method"] + "_train")(qrels, runs, **given)
    found = {}
    for query in {query for run in case["runs"] for query in run}:
        having = [n for n, run in enumerate(case["runs"]) if query in run]
        of_query = {k: [v[n] for n in having] if hasattr(v, "__len__") else v for k, v in params.items()}
        runs = [ranx.Run({query: case["runs"][n][query]}) for n in having]
        if len(runs) > 1:
            found |= ranx.fuse(runs, case["norm"], case["method"], of_query).to_dict()
    fused.append({query: {document: float(score) for document, score in of.items()} for query, of in found.items()})
print(json.dumps(fused))
"""


def falling(scores: Scores) -> Scores:
    """Return scores that fall with each rank."""
    return {document: 2.0 - place / 1e3 for place, document in enumerate(ordered(scores))}


def by_ranx(cases: list[dict]) -> list[dict[str, Scores]]:
    """Fuse in another process, which does not compile ranx: that takes half a minute."""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    fused = subprocess.check_output([sys.executable, "-c", RANX], input=json.dumps(cases), env=environment, text=True)
    return json.loads(fused)


@pytest.mark.slow  # imports ranx twice, and fuses 120 cases
def test_fusion_equals_that_of_ranx() -> None:
    """Rank by rank where a method reads ranks: ranx sorts equal scores as it falls, so it gets ranks in their place."""
    cases, ours = [], []
    for method, of_method in METHODS.items():
        for norm, shape in [(norm, shape) for norm in of_method.norms or ("min-max",) for shape in SHAPES]:
            if "condorcet" in method or (shape == "ties" and (norm in ("rank", "borda") or of_method.reads == "both")):
                continue  # ranx orders equal documents otherwise
            parts = random_parts(shape, 3, 24, 20)
            if of_method.trained:  # ranx's training needs the same queries in all runs
                parts = [
                    {query: part[query] for query in part if all(query in each for each in parts)} for part in parts
                ]
            value = [0.5, 0.3, 0.2] if of_method.parameter == "weights" else of_method.values and of_method.values[4]
            params = {of_method.parameter: value} if value else {}
            grades = {query: {d: n % 3 for n, d in enumerate(of)} for query, of in parts[0].items()}
            given = parts
            if of_method.reads == "ranks":
                given = [
                    {q: {d: 2.0 - n / 1e3 for n, d in enumerate(ordered(of))} for q, of in p.items()} for p in parts
                ]
            read = {"norm": norm if of_method.norms else None, "method": method, "params": params}
            cases.append({**read, "trained": of_method.trained, "qrels": grades, "runs": given})
            fuser = Fuser([rankings(part) for part in parts], Fusion(method, norm=norm))
            estimates = fuser.ranx.estimates(grades, **params) if of_method.trained else {}
            ours.append(fuser.fuse(1000, **params, **estimates))
    assert {case["method"] for case in cases} == {*METHODS} - {"condorcet", "w_condorcet"}
    for case, expected, got in zip(cases, by_ranx(cases), ours, strict=True):
        named = case["method"], case["norm"]
        assert expected, named
        for query, scores in expected.items():
            assert got[query].ids == ordered(dict(zip(*got[query], strict=True))), named
            found = dict(zip(got[query].ids, got[query].scores.tolist(), strict=True))
            assert found == pytest.approx(dict(list(scores.items())), rel=1e-5, abs=1e-6), named


@pytest.mark.slow
@pytest.mark.parametrize(("method", "weights"), [("condorcet", None), ("w_condorcet", [0.5, 0.3, 0.2])])
def test_a_majority_without_cycles_is_the_order_of_condorcet(method: str, weights: list[float] | None) -> None:
    """Two of three runs, which outweigh the third, agree: their order is that of ranx and ours."""
    documents = random.Random(3).sample(IDS, 40)
    agreed = {document: 40.0 - place for place, document in enumerate(documents)}
    reverse = {document: float(place) for place, document in enumerate(documents)}
    parts = [{"q": agreed}, {"q": agreed}, {"q": reverse}]
    case = {"norm": None, "method": method, "trained": False, "runs": parts, "qrels": {}}
    [expected] = by_ranx([case | {"params": {"weights": weights} if weights else {}}])
    got = fuse([rankings(part) for part in parts], Fusion(method, weights=weights))["q"]
    assert got.ids == list(expected["q"]) == documents
    assert got.scores.tolist() == list(expected["q"].values())


@pytest.mark.slow
def test_neighbours_have_the_majority_of_condorcet_whatever_the_seed_of_hashes() -> None:
    parts = [rankings(part) for part in random_parts("ties", 3, 24, 20)]
    got = fuse(parts, Fusion("condorcet", 10**6))
    for query, ranking in got.items():
        present = [part[query].ids for part in parts if query in part]
        places = [{document: place for place, document in enumerate(ids)} for ids in present]
        for first, second in itertools.pairwise(ranking.ids):
            for_first = sum(of.get(first, 10**6) < of.get(second, 10**6) for of in places)
            for_second = sum(of.get(second, 10**6) < of.get(first, 10**6) for of in places)
            assert for_first * 2 >= len(places) or for_second * 2 < len(places), query
    script = (
        "import sys; sys.path.insert(0, 'tests/parity'); from test_fusion import *\n"
        "parts = [rankings(part) for part in random_parts('ties', 2, 24, 20)]\n"
        "print(hash('a'), [ranking.ids for ranking in fuse(parts, Fusion('condorcet', 20)).values()])"
    )
    seeds = [{**os.environ, "PYTHONHASHSEED": seed} for seed in ("1", "2")]
    printed = [subprocess.check_output([sys.executable, "-c", script], env=of, text=True) for of in seeds]
    (one, same), (other, again) = (line.split(" ", 1) for line in printed)
    assert one != other
    assert same == again


def test_every_method_and_norm_of_ranx_is_named() -> None:
    [folder] = importlib.util.find_spec("ranx").submodule_search_locations
    for file, names in (("fusion", METHODS), ("normalization", RANX_NORMS)):
        switch = (Path(folder) / file / "__init__.py").read_text().partition("_switch(")[2]
        named = {
            name.replace("min_max", "min-max").replace("x_i", "x-i") for name in re.findall('"([a-z_-]+)"', switch)
        }
        assert named == {*names}


def test_rankings_without_documents() -> None:
    empty = runs.canonical("q", [], [])
    full = runs.canonical("q", ["a", "b"], [2.0, 1.0])
    assert fuse([{"q": empty}, {"q": full}], Fusion("rrf", 10))["q"].ids == ["a", "b"]
    assert fuse([{"q": empty}, {"q": empty}], Fusion("rrf", 10))["q"].ids == []
    assert fuse([{}, {}], Fusion("rrf", 10)) == {}
