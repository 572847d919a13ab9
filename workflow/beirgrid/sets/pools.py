"""Pools: the (query, document) pairs to judge, which are the top documents of several systems' runs.

Pools of this kind are TREC's (Spärck Jones and van Rijsbergen, 1975).
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from .agreement import Pair

# Ranked document ids by system and query, best first.
Rankings = Mapping[str, Mapping[str, Sequence[str]]]


class Pool(NamedTuple):
    """The pairs to judge, best ranks first, with the coverage of the pool.

    Attributes:
        pairs: the chosen pairs, without those of earlier pools.
        candidates: pairs among the top ``depth`` documents of all runs.
        coverage: by system, the depth to which the pool has all of its documents, and the share of its top ``depth``
            documents that the pool lacks.
    """

    pairs: list[Pair]
    candidates: int
    coverage: dict[str, tuple[int, float]]


def pool(rankings: Rankings, depth: int, budget: int | None = None, earlier: Collection[Pair] = ()) -> Pool:
    """Choose the pairs to judge.

    Args:
        depth: documents considered per run and query.
        budget: most pairs; None for all candidates.
        earlier: pairs that are in the pool already: the budget is for others.
    """
    # Pairs of one rank alternate between queries, so that a budget cuts all queries equally. Ties are broken by id.
    order: dict[Pair, tuple[int, int, Pair]] = {}
    for query in dict.fromkeys(query for run in rankings.values() for query in run):
        ranks: dict[str, int] = {}
        for run in rankings.values():
            for rank, document in enumerate(run.get(query, ())[:depth]):
                ranks[document] = min(rank, ranks.get(document, rank))
        turns: Counter[int] = Counter()
        for document, rank in sorted(ranks.items()):
            order[query, document] = rank, turns[rank], (query, document)
            turns[rank] += 1
    before = set(earlier)
    chosen = sorted((pair for pair in order if pair not in before), key=order.__getitem__)[:budget]
    kept = before.union(chosen)
    coverage = {system: _coverage(run, kept, depth) for system, run in rankings.items()}
    return Pool(chosen, len(order), coverage)


def draw(*words: str) -> float:
    """Hash words to a number from 0 to 1."""
    return int.from_bytes(hashlib.sha256("\0".join(words).encode()).digest()[:7]) / 2**56


def sample_queries(queries: Iterable[str], number: int | None) -> list[str]:
    """Sample queries, or take all, by a hash of their ids, so that a larger sample contains every smaller one."""
    return sorted(queries, key=lambda query: draw("sample", query))[:number]


def _coverage(run: Mapping[str, Sequence[str]], kept: set[Pair], depth: int) -> tuple[int, float]:
    """Return the coverage of a run by the pairs that are kept."""
    tops = {query: documents[:depth] for query, documents in run.items()}
    gaps = [rank for query, top in tops.items() for rank, document in enumerate(top) if (query, document) not in kept]
    return min(gaps, default=depth), len(gaps) / max(1, sum(map(len, tops.values())))
