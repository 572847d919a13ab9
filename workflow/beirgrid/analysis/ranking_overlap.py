"""Compare the rankings of two systems without judgements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

# Rankings by query.
Rankings = Mapping[str, Sequence[str]]
# Weight of each rank relative to the previous one.
_PERSISTENCE = 0.9
DEEPEST = 100
# Depths of pools, and most rankings that are compared.
DEPTHS, _MOST = (5, 10, 20, 50), 200_000


def rows(rankings: Mapping[str, Rankings]) -> Iterator[dict[str, Any]]:
    """Yield a row for all systems and for each pair of them: how alike they are, and how many pairs a pool would have.

    ``queries`` counts the compared queries: the first ones, if there are too many. ``compare`` gives the likeness.
    """
    pairs = list(itertools.combinations(rankings, 2))
    queries = list(dict.fromkeys(query for of_system in rankings.values() for query in of_system))

    def pooled(*systems: str) -> dict[str, int]:
        return {f"pool@{depth}": sum(_size(rankings, systems, query, depth) for query in queries) for depth in DEPTHS}

    yield {"system": "all", "other": "", "queries": len(queries), **pooled(*rankings)}
    compared = queries[: max(1, _MOST // max(1, len(pairs)))]
    for pair in pairs:
        first, other = ({query: rankings[name].get(query, ()) for query in compared} for name in pair)
        alike = dict(zip(("overlap@10", "rbo", "tau"), compare(first, other), strict=True))
        yield {"system": pair[0], "other": pair[1], "queries": len(compared), **alike, **pooled(*pair)}


def _size(rankings: Mapping[str, Rankings], systems: Sequence[str], query: str, depth: int) -> int:
    return len({document for system in systems for document in rankings[system].get(query, ())[:depth]})


def compare(first: Rankings, second: Rankings, depth: int = 10) -> tuple[float, ...]:
    """Return means over the queries that two systems have: overlap, rank-biased overlap, Kendall's tau of common ids.

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
        return (np.nan, np.nan, np.nan)
    with np.errstate(all="ignore"):
        return tuple(map(float, np.nanmean(np.array(values), axis=0)))


def rank_biased_overlap(first: Sequence[str], second: Sequence[str]) -> float:
    """Compute extrapolated rank-biased overlap (Webber, Moffat and Zobel, 2010) with a persistence of 0.9.

    Args:
        first, second: document ids, best first. The longer ranking is cut to the length of the shorter one.
    """
    depth = min(len(first), len(second))
    shares = _overlaps(first, second, depth)
    weights = _PERSISTENCE ** np.arange(1, depth + 1)
    whole = (1 - _PERSISTENCE) / _PERSISTENCE * shares @ weights
    return float(whole + shares[-1] * weights[-1]) if depth else 0.0


def _overlaps(first: Sequence[str], second: Sequence[str], depth: int) -> np.ndarray:
    """Return the share of documents that both rankings have down to each rank, float64 [depth]."""
    position = {document: rank for rank, document in enumerate(first[:depth])}
    shared = [max(rank, position[document]) for rank, document in enumerate(second[:depth]) if document in position]
    shares: np.ndarray = np.cumsum(np.bincount(np.array(shared, np.int64), minlength=depth)) / np.arange(1, depth + 1)
    return shares


def _tau(first: Sequence[str], second: Sequence[str]) -> float:
    from scipy.stats import kendalltau

    ranks = {document: rank for rank, document in enumerate(second)}
    common = [ranks[document] for document in first if document in ranks]
    return float(kendalltau(range(len(common)), common).statistic) if len(common) > 1 else float("nan")
