"""Fuse runs by reciprocal ranks or by weighted sums of normalised scores.

The definitions are those of ranx (Bassani and Romelli, 2022); the tests compare. ranx itself takes seconds to import.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple

import numpy as np

from ..config.values import Norm
from ..core.errors import DataError, quoted
from . import runs

Method = Literal["rrf", "wsum"]


class Points(NamedTuple):
    """Contributions of one run to the documents of one query.

    Attributes:
        ranked: float64 [documents], for the run's documents, in rank order.
        others: for documents that only other runs rank.
    """

    ranked: np.ndarray
    others: float = 0.0


# Takes a ranking's scores, float64 [documents], best first, and the number of documents in all runs of the query.
Normalise = Callable[[np.ndarray, int], Points]


def fuse(
    parts: list[runs.Run],
    method: Method,
    depth: int,
    *,
    k: int = 60,
    norm: Norm = "min-max",
    weights: Sequence[float] | None = None,
) -> runs.Run:
    """Fuse runs. If a run has no documents for a query, only the other runs count.

    Args:
        parts: the runs.
        method: ``rrf`` (reciprocal rank) or ``wsum`` (weighted sum of normalised scores).
        depth: documents per query to keep.
        k: constant of reciprocal rank fusion.
        norm: normalisation of scores before a weighted sum.
        weights: weights of a weighted sum, one per run; equal weights unless given.

    Raises:
        DataError: ``norm`` is ``max`` and the best score of a query is not positive.
    """
    if method == "rrf":
        normalise, shares = _reciprocal_ranks(k), [1.0] * len(parts)
    else:
        normalise, shares = _NORMS[norm], list(weights or [1 / len(parts)] * len(parts))
        if norm == "max":
            _refuse_negative(parts)
    return {
        query: _fuse_query(query, [part.get(query, runs.EMPTY) for part in parts], shares, normalise, depth)
        for query in dict.fromkeys(query for part in parts for query in part)
    }


def _fuse_query(
    query: str, rankings: list[runs.Ranking], weights: list[float], normalise: Normalise, depth: int
) -> runs.Ranking:
    """Sum the weighted points of one query's documents."""
    rows = {document: row for row, document in enumerate(dict.fromkeys(id_ for part in rankings for id_ in part.ids))}
    sums = np.zeros(len(rows))
    for ranking, weight in zip(rankings, weights, strict=True):
        if ranking.ids:
            ranked, others = normalise(ranking.scores.astype(np.float64), len(rows))
            points = np.full(len(rows), others)
            points[[rows[document] for document in ranking.ids]] = ranked
            sums += weight * points
    return runs.canonical(query, rows, sums, depth)


def _reciprocal_ranks(k: int) -> Normalise:
    """Reciprocal rank fusion (Cormack et al., 2009): 1 / (k + rank)."""
    return lambda scores, documents: Points(1 / (k + 1 + np.arange(len(scores))))


def _min_max(scores: np.ndarray, documents: int) -> Points:
    """Scale to 0 for the worst document and 1 for the best."""
    return Points((scores - scores.min()) / (np.ptp(scores) or 1.0))


def _max(scores: np.ndarray, documents: int) -> Points:
    """Divide by the best score."""
    return Points(scores / scores.max())


def _sum(scores: np.ndarray, documents: int) -> Points:
    """Subtract the worst score, and scale to sum 1."""
    distances = scores - scores.min()
    return Points(distances / (distances.sum() or 1.0))


def _zmuv(scores: np.ndarray, documents: int) -> Points:
    """Standardise to mean 0 and variance 1."""
    return Points((scores - scores.mean()) / (scores.std() or 1.0))


def _rank(scores: np.ndarray, documents: int) -> Points:
    """Fall in equal steps from 1 for the first document; the step below the last document is 0."""
    return Points(1 - np.arange(len(scores)) / len(scores))


def _borda(scores: np.ndarray, documents: int) -> Points:
    """Like ``rank``, over the documents of all runs. Unranked documents share the mean of the remaining ranks."""
    return Points(1 - np.arange(len(scores)) / documents, 0.5 - (len(scores) - 1) / (2 * documents))


_NORMS: dict[Norm, Normalise] = {
    "min-max": _min_max,
    "max": _max,
    "sum": _sum,
    "zmuv": _zmuv,
    "rank": _rank,
    "borda": _borda,
}


def _refuse_negative(parts: list[runs.Run]) -> None:
    """Refuse scores whose order division by the maximum would reverse, such as logits."""
    for number, part in enumerate(parts, start=1):
        for query, ranking in part.items():
            if ranking.ids and ranking.scores[0] <= 0:
                raise DataError(
                    f"run {number}, query {quoted(query)}: its best score is {ranking.scores[0]:g}, which norm max "
                    "cannot divide by; use norm min-max"
                )
