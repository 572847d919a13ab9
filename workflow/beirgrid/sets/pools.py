"""Pools: the (query, document) pairs to judge, chosen from the runs of several systems.

``depth`` takes the top documents of every run (Spärck Jones and van Rijsbergen, 1975). ``rbp`` takes the documents with
the largest sum of rank-biased-precision weights (Moffat, Webber and Zobel, SIGIR 2007).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from operator import add
from typing import Literal, NamedTuple

Method = Literal["depth", "rbp"]
# Ranked document ids by system and query, best first.
Rankings = Mapping[str, Mapping[str, Sequence[str]]]

# Persistence: the probability of reading the next document. Nearly all weight is in the top 20.
PERSISTENCE = 0.8


class PooledPair(NamedTuple):
    """A pair to judge. Pairs with larger weights are worth more."""

    query: str
    document: str
    weight: float


class Pool(NamedTuple):
    """The pairs to judge, most valuable first, with the coverage of the pool.

    Attributes:
        pairs: the chosen pairs, without those of earlier pools.
        candidates: pairs among the top ``depth`` documents of all runs.
        complete: by system, the depth to which the pool covers every query's documents.
        left_out: by system, the share of rank-biased-precision weight outside of the pool.
    """

    pairs: list[PooledPair]
    candidates: int
    complete: dict[str, int]
    left_out: dict[str, float]


def pool(
    rankings: Rankings,
    method: Method,
    depth: int,
    budget: int | None = None,
    earlier: Collection[tuple[str, str]] = (),
) -> Pool:
    """Choose the pairs to judge.

    Args:
        method: weighting of pairs.
        depth: documents considered per run and query.
        budget: most pairs; None for all candidates.
        earlier: pairs that are in the pool already: the budget is for others.
    """
    queries = dict.fromkeys(query for of_system in rankings.values() for query in of_system)
    weigh = _WEIGHTS[method]
    pairs = [
        PooledPair(query, document, weight)
        for query in queries
        for document, weight in weigh([of.get(query, ())[:depth] for of in rankings.values()]).items()
    ]
    # Pairs of equal weight alternate between queries, so that a budget cuts all queries equally.
    seen: dict[tuple[str, float], int] = {}
    turn = {}
    for pair in pairs:
        turn[pair] = seen[pair.query, pair.weight] = seen.get((pair.query, pair.weight), -1) + 1
    kept = set(earlier)
    fresh = (pair for pair in pairs if pair[:2] not in kept)
    chosen = sorted(fresh, key=lambda pair: (-pair.weight, turn[pair]))[:budget]
    kept |= {pair[:2] for pair in chosen}
    return Pool(
        chosen,
        len(pairs),
        {system: _complete(of_system, kept, depth) for system, of_system in rankings.items()},
        {system: _left_out(of_system, kept) for system, of_system in rankings.items()},
    )


def draw(*words: str) -> float:
    """Hash words to a number from 0 to 1."""
    return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:7]) / 2**56


def sample_queries(queries: Iterable[str], number: int) -> list[str]:
    """Sample queries by a hash of their ids, so that a larger sample contains every smaller one."""
    return sorted(queries, key=lambda query: draw("sample", query))[:number]


def _by_rank(
    weigh: Callable[[int], float], combine: Callable[[float, float], float], tops: Sequence[Sequence[str]]
) -> dict[str, float]:
    """Weight each document by the weights of its ranks in all runs, combined."""
    weights: dict[str, float] = {}
    for top in tops:
        for rank, document in enumerate(top):
            weights[document] = combine(weights.get(document, 0.0), weigh(rank))
    return weights


_WEIGHTS: dict[str, Callable[[Sequence[Sequence[str]]], dict[str, float]]] = {
    "depth": partial(_by_rank, lambda rank: 1 / (1 + rank), max),  # that of the best rank
    "rbp": partial(_by_rank, lambda rank: (1 - PERSISTENCE) * PERSISTENCE**rank, add),
}


def _complete(of_system: Mapping[str, Sequence[str]], kept: set[tuple[str, str]], depth: int) -> int:
    """Return the depth to which the pool covers a run."""
    gaps = (
        rank
        for query, documents in of_system.items()
        for rank, document in enumerate(documents[:depth])
        if (query, document) not in kept
    )
    return min(gaps, default=depth)


def _left_out(of_system: Mapping[str, Sequence[str]], kept: set[tuple[str, str]]) -> float:
    """Return the share of a run's rank-biased-precision weight outside of the pool."""
    weights = [
        (PERSISTENCE**rank, (query, document) in kept)
        for query, documents in of_system.items()
        for rank, document in enumerate(documents)
    ]
    total = sum(weight for weight, _ in weights)
    return sum(weight for weight, inside in weights if not inside) / total if total else 0.0
