"""Compare the rankings of two systems without judgements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

# Rankings by query.
Rankings = Mapping[str, Sequence[str]]
_PERSISTENCE = 0.9
_DEEPEST = 100


class Alike(NamedTuple):
    """Means over queries: overlap, rank-biased overlap, and Kendall's tau of common documents."""

    overlap: float
    rank_biased: float
    tau: float


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
            rank_biased_overlap(first[query][:_DEEPEST], second[query][:_DEEPEST]),
            _tau(first[query][:_DEEPEST], second[query][:_DEEPEST]),
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
