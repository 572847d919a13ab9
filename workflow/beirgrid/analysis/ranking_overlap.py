"""Compare the rankings of systems without judgements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

# Rankings by query.
Rankings = Mapping[str, Sequence[str]]
# Depths of pools, and that of the overlap.
DEPTHS, _OVERLAP = (5, 10, 20, 50), 10


def rows(rankings: Mapping[str, Rankings]) -> Iterator[dict[str, Any]]:
    """Yield a row for all systems and for each pair of them, with the sizes of their pools and the pair's overlap.

    ``pool@5`` counts the pairs of a query and a document in the top 5 of any of the systems. ``overlap@10`` is the
    share of common documents of the top 10, as a mean over the queries that both systems have.

    Args:
        rankings: by system, the ids of each query's documents, best first.
    """
    queries = list(dict.fromkeys(query for of_system in rankings.values() for query in of_system))

    def tops(systems: Sequence[str], depth: int) -> list[list[set[str]]]:
        return [[set(rankings[system].get(query, ())[:depth]) for system in systems] for query in queries]

    def pools(systems: Sequence[str]) -> dict[str, int]:
        return {f"pool@{depth}": sum(len(set().union(*of)) for of in tops(systems, depth)) for depth in DEPTHS}

    yield {"system": "all", "other": "", "queries": len(queries), **pools([*rankings])}
    for system, other in itertools.combinations(rankings, 2):
        shares = [len(a & b) / _OVERLAP for a, b in tops((system, other), _OVERLAP) if a and b]
        overlap = float(np.mean(shares)) if shares else np.nan
        yield {
            "system": system,
            "other": other,
            "queries": len(queries),
            "overlap@10": overlap,
            **pools((system, other)),
        }
