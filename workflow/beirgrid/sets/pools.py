"""Pools: the (query, document) pairs to judge, chosen from the runs of several systems.

``depth`` takes the top documents of every run (Spärck Jones and van Rijsbergen, 1975). ``rbp`` takes the documents with
the largest sum of rank-biased-precision weights (Moffat, Webber and Zobel, SIGIR 2007).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Literal, NamedTuple

from .agreement import Pair

Method = Literal["depth", "rbp"]
# Ranked document ids by system and query, best first.
Rankings = Mapping[str, Mapping[str, Sequence[str]]]

# Persistence: the probability of reading the next document. Nearly all weight is in the top 20.
PERSISTENCE = 0.8


class Pool(NamedTuple):
    """The pairs to judge, most valuable first, with the coverage of the pool.

    Attributes:
        pairs: the chosen pairs, without those of earlier pools.
        candidates: pairs among the top ``depth`` documents of all runs.
        complete: by system, the depth to which the pool covers every query's documents.
        left_out: by system, the share of rank-biased-precision weight outside of the pool.
    """

    pairs: list[Pair]
    candidates: int
    complete: dict[str, int]
    left_out: dict[str, float]


def pool(
    rankings: Rankings,
    method: Method,
    depth: int,
    budget: int | None = None,
    earlier: Collection[Pair] = (),
) -> Pool:
    """Choose the pairs to judge.

    Args:
        method: weighting of pairs.
        depth: documents considered per run and query.
        budget: most pairs; None for all candidates.
        earlier: pairs that are in the pool already: the budget is for others.
    """
    weighed: dict[Pair, float] = {}
    turns: dict[Pair, int] = {}
    for query in dict.fromkeys(query for of_system in rankings.values() for query in of_system):
        seen: dict[float, int] = {}
        for document, weight in weights(method, [of.get(query, ())[:depth] for of in rankings.values()]).items():
            weighed[query, document] = weight
            # Pairs of equal weight alternate between queries, so that a budget cuts all queries equally.
            turns[query, document] = seen[weight] = seen.get(weight, -1) + 1
    before = set(earlier)
    fresh = (pair for pair in weighed if pair not in before)
    chosen = sorted(fresh, key=lambda pair: (-weighed[pair], turns[pair]))[:budget]
    kept = before.union(chosen)
    return Pool(
        chosen,
        len(weighed),
        {system: _complete(of_system, kept, depth) for system, of_system in rankings.items()},
        {system: _left_out(of_system, kept) for system, of_system in rankings.items()},
    )


def draw(*words: str) -> float:
    """Hash words to a number from 0 to 1."""
    return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:7]) / 2**56


def sample_queries(queries: Iterable[str], number: int | None) -> list[str]:
    """Sample queries, or take all, by a hash of their ids, so that a larger sample contains every smaller one."""
    return sorted(queries, key=lambda query: draw("sample", query))[:number]


def weights(method: Method, tops: Sequence[Sequence[str]]) -> dict[str, float]:
    """Weigh the documents of a query by their ranks: by the best one (depth), or by those in all runs (rbp)."""
    ranks: dict[str, list[int]] = {}
    for top in tops:
        for rank, document in enumerate(top):
            ranks.setdefault(document, []).append(rank)
    if method == "depth":
        return {document: 1 / (1 + min(of)) for document, of in ranks.items()}
    return {document: (1 - PERSISTENCE) * sum(PERSISTENCE**rank for rank in of) for document, of in ranks.items()}


def _complete(of_system: Mapping[str, Sequence[str]], kept: set[Pair], depth: int) -> int:
    """Return the depth to which the pool covers a run."""
    gaps = (
        rank
        for query, documents in of_system.items()
        for rank, document in enumerate(documents[:depth])
        if (query, document) not in kept
    )
    return min(gaps, default=depth)


def _left_out(of_system: Mapping[str, Sequence[str]], kept: set[Pair]) -> float:
    """Return the share of a run's rank-biased-precision weight outside of the pool."""
    weights = [
        (PERSISTENCE**rank, (query, document) in kept)
        for query, documents in of_system.items()
        for rank, document in enumerate(documents)
    ]
    total = sum(weight for weight, _ in weights)
    return sum(weight for weight, inside in weights if not inside) / total if total else 0.0
