"""Compare the rankings of two systems without judgements: of two systems alike, or of a run with a reference."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

# Rankings by query.
Rankings = Mapping[str, Sequence[str]]
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


def rank_biased_overlap(first: Sequence[str], second: Sequence[str], persistence: float = _PERSISTENCE) -> float:
    """Compute extrapolated rank-biased overlap (Webber, Moffat and Zobel, 2010).

    Args:
        first, second: document ids, best first. The longer ranking is cut to the length of the shorter one.
        persistence: weight of each rank relative to the previous one.
    """
    depth = min(len(first), len(second))
    shares = _overlaps(first, second, depth)
    weights = persistence ** np.arange(1, depth + 1)
    whole = (1 - persistence) / persistence * shares @ weights
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


# Against a reference (Breuer et al., SIGIR 2020) ----------------------------------------------------------------------

# Ranks that are compared with a reference.
REFERENCE_DEPTH = 1000


def compare_with_reference(reference: Rankings, run: Rankings, depth: int = REFERENCE_DEPTH) -> dict[str, float]:
    """Return means over the queries of both runs; a query that one run lacks has no documents there.

    Returns:
        ``kendall_tau_union`` over the queries with two ranks or more, and ``rank_biased_overlap`` over all. NaN without
        a query.
    """
    queries = [(reference.get(query, ()), run.get(query, ())) for query in {**reference, **run}]
    taus = [tau for pair in queries if not np.isnan(tau := kendall_tau_union(*pair, depth=depth))]
    overlaps = [overlap_to_depth(*pair, depth=depth) for pair in queries]
    return {
        name: float(np.mean(values)) if values else np.nan
        for name, values in (("kendall_tau_union", taus), ("rank_biased_overlap", overlaps))
    }


def kendall_tau_union(reference: Sequence[str], run: Sequence[str], depth: int = REFERENCE_DEPTH) -> float:
    """Return Kendall's tau union of two rankings of one query, -1 to 1; NaN below two ranks.

    The documents of both rankings are numbered in the order in which they first appear, those of the reference first.
    Kendall's tau (b) then correlates the numbers that stand at the same ranks. In the paper's example, d1 d2 d3 against
    d1 d2 d4, the numbers are 1 2 3 and 1 2 4, so tau is 1 although the rankings share two documents only. repro_eval
    numbers the documents in the alphabetical order of their ids, so its value changes when documents are renamed.
    """
    from scipy.stats import kendalltau

    ranks = min(depth, len(reference), len(run))
    if ranks < 2:
        return np.nan
    numbers = {document: i for i, document in enumerate(dict.fromkeys([*reference[:depth], *run[:depth]]))}
    return float(kendalltau(np.arange(ranks), [numbers[document] for document in run[:ranks]]).statistic)


def overlap_to_depth(
    reference: Sequence[str], run: Sequence[str], persistence: float = 0.95, depth: int = REFERENCE_DEPTH
) -> float:
    """Return the rank-biased overlap of two rankings of one query, cut off at a depth instead of extrapolated.

    The weights persistence^(rank - 1) are scaled to add up to 1, so equal rankings of ``depth`` documents have 1, and
    shorter ones less.
    """
    return float(np.average(_overlaps(reference, run, depth), weights=persistence ** np.arange(depth)))
