"""Compare the rankings of two systems without judgements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

# Rankings by query.
Rankings = Mapping[str, Sequence[str]]
_PERSISTENCE = 0.9
DEEPEST = 100
# Depths of pools, and most rankings that are compared.
DEPTHS, _MOST = (5, 10, 20, 50), 200_000


class Alike(NamedTuple):
    """Means over queries: overlap, rank-biased overlap, and Kendall's tau of common documents."""

    overlap: float
    rank_biased: float
    tau: float


def rows(rankings: Mapping[str, Rankings]) -> Iterator[dict[str, Any]]:
    """Yield a row for all systems and for each pair of them: how alike they are, and how many pairs a pool would have.

    ``queries`` counts the compared queries: the first ones, if there are too many.
    """
    pairs = list(itertools.combinations(rankings, 2))
    queries = list(dict.fromkeys(query for of_system in rankings.values() for query in of_system))

    def pooled(*systems: str) -> dict[str, int]:
        return {f"pool@{depth}": sum(_size(rankings, systems, query, depth) for query in queries) for depth in DEPTHS}

    yield {"system": "all", "other": "", "queries": len(queries), **pooled(*rankings)}
    compared = queries[: max(1, _MOST // max(1, len(pairs)))]
    for pair in pairs:
        first, other = ({query: rankings[name].get(query, ()) for query in compared} for name in pair)
        found = compare(first, other)
        alike = {"overlap@10": found.overlap, "rbo": found.rank_biased, "tau": found.tau}
        yield {"system": pair[0], "other": pair[1], "queries": len(compared), **alike, **pooled(*pair)}


def _size(rankings: Mapping[str, Rankings], systems: Sequence[str], query: str, depth: int) -> int:
    return len({document for system in systems for document in rankings[system].get(query, ())[:depth]})


def compare(first: Rankings, second: Rankings, depth: int = 10) -> Alike:
    """Compare two systems on the queries that both have.

    Args:
        first, second: rankings by query, best first.
        depth: depth of the overlap. The other two values use the top 100.
    """
    common = [query for query in first if query in second and first[query] and second[query]]
    values = [
        (
            len(set(first[query][:depth]) & set(second[query][:depth])) / depth,
            rank_biased_overlap(first[query][:DEEPEST], second[query][:DEEPEST]),
            _tau(first[query][:DEEPEST], second[query][:DEEPEST]),
        )
        for query in common
    ]
    if not values:
        return Alike(*[float("nan")] * 3)
    with np.errstate(all="ignore"):
        return Alike(*map(float, np.nanmean(np.array(values), axis=0)))


def rank_biased_overlap(first: Sequence[str], second: Sequence[str], persistence: float = _PERSISTENCE) -> float:
    """Compute extrapolated rank-biased overlap (Webber, Moffat and Zobel, 2010).

    Args:
        first, second: document ids, best first. The longer ranking is cut to the length of the shorter one.
        persistence: weight of each rank relative to the previous one.
    """
    depth = min(len(first), len(second))
    seen_first: set[str] = set()
    seen_second: set[str] = set()
    agreed, total = 0, 0.0
    for rank, (one, other) in enumerate(zip(first, second, strict=False), start=1):
        agreed += (one == other) + (one != other) * ((one in seen_second) + (other in seen_first))
        seen_first.add(one)
        seen_second.add(other)
        total += agreed / rank * persistence**rank
    return (1 - persistence) / persistence * total + agreed / depth * persistence**depth if depth else 0.0


def _tau(first: Sequence[str], second: Sequence[str]) -> float:
    from scipy.stats import kendalltau

    ranks = {document: rank for rank, document in enumerate(second)}
    common = [ranks[document] for document in first if document in ranks]
    return float(kendalltau(range(len(common)), common).statistic) if len(common) > 1 else float("nan")
