"""Fuse runs by reciprocal ranks or by weighted sums of normalised scores.

The definitions are those of ranx (Bassani and Romelli, 2022); the tests compare. ranx itself takes seconds to import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import numpy as np

from ..config.values import Norm
from . import runs

Method = Literal["rrf", "wsum"]

# Takes the scores of a run for a query, float64 [documents], best first; returns the points of its documents.
Normalise = Callable[[np.ndarray], np.ndarray]
_NORMS: dict[Norm, Normalise] = {
    # 0 for the worst document and 1 for the best.
    "min-max": lambda scores: (scores - scores.min()) / (np.ptp(scores) or 1.0),
    # Mean 0 and variance 1.
    "zmuv": lambda scores: (scores - scores.mean()) / (scores.std() or 1.0),
    # Equal steps from 1 for the first document; the step below the last document is 0.
    "rank": lambda scores: 1 - np.arange(len(scores)) / len(scores),
}


def fuse(
    parts: list[runs.Run],
    method: Method,
    depth: int,
    *,
    k: int = 60,
    norm: Norm = "min-max",
    weights: Sequence[float] | None = None,
) -> runs.Run:
    """Fuse runs to ``depth`` documents per query. A run without documents for a query does not count for it.

    Args:
        method: ``rrf`` (reciprocal rank, with the constant ``k``) or ``wsum`` (weighted sum of normalised scores).
        weights: weights of a weighted sum, one per run; equal weights unless given.
    """
    normalise, shares = _NORMS[norm], list(weights or [1 / len(parts)] * len(parts))
    if method == "rrf":
        # Reciprocal rank fusion (Cormack et al., 2009): 1 / (k + rank).
        normalise, shares = lambda scores: 1 / (k + 1 + np.arange(len(scores))), [1.0] * len(parts)
    fused = {}
    for query in dict.fromkeys(query for part in parts for query in part):
        sums: dict[str, float] = {}
        for part, share in zip(parts, shares, strict=True):
            ranking = part.get(query, runs.EMPTY)
            if ranking.ids:
                points = share * normalise(ranking.scores.astype(np.float64))
                for document, of_part in zip(ranking.ids, points.tolist(), strict=True):
                    sums[document] = sums.get(document, 0.0) + of_part
        fused[query] = runs.canonical(query, sums, list(sums.values()), depth)
    return fused
