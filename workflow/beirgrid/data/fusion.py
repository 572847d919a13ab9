"""Fusion of runs through ranx: reciprocal rank fusion, and weighted sums of normalised scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from ..config.values import Norm
from ..core.environment import prepare_libraries
from ..core.errors import DataError
from . import runs

Method = Literal["rrf", "wsum"]
# Queries that ranx holds at a time: its runs take about 100 times the memory of the files.
CHUNK = 500
_WIDTH = 8
# ranx cannot type a query without documents. The placeholder stands in for a document and is left out of the result.
_PLACEHOLDER = "-" * _WIDTH


def fuse(
    parts: list[runs.Run],
    method: Method,
    depth: int,
    *,
    k: int = 60,
    norm: Norm = "min-max",
    weights: Sequence[float] | None = None,
) -> runs.Run:
    """Return the fusion of runs. Where a run has no documents for a query, the other runs alone count.

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
    if method == "wsum":
        weights = list(weights) if weights else [1 / len(parts)] * len(parts)
    queries = list(dict.fromkeys(query for part in parts for query in part))
    if not queries:
        return {}
    if norm == "max" and method == "wsum":
        _refuse_negative(parts)
    fused: runs.Run = {}
    for start in range(0, len(queries), CHUNK):
        fused.update(_fuse_queries(parts, queries[start : start + CHUNK], method, depth, k, norm, weights))
    return fused


def _fuse_queries(
    parts: list[runs.Run],
    queries: list[str],
    method: Method,
    depth: int,
    k: int,
    norm: Norm,
    weights: Sequence[float] | None,
) -> runs.Run:
    prepare_libraries()
    import ranx

    # ranx compiles anew for each length of the longest id that it meets, so ids become numbers of one
    # width. Methods that look at ranks alone get scores that fall by one, so that ties keep their
    # canonical order.
    by_rank = method == "rrf" or norm in ("rank", "borda")
    names = {query: _names([part[query] for part in parts if query in part]) for query in queries}
    inputs = [ranx.Run({query: _scores(part.get(query), names[query], by_rank) for query in queries}) for part in parts]
    if method == "rrf":
        fused = ranx.fuse(inputs, norm=None, method="rrf", params={"k": k})
    else:
        fused = ranx.fuse(inputs, norm=norm, method="wsum", params={"weights": weights})
    result: runs.Run = {}
    for query, numbered in fused.to_dict().items():
        documents = {number: document for document, number in names[query].items()}
        scores = {documents[number]: score for number, score in numbered.items() if number in documents}
        result[query] = runs.canonical(query, scores, np.fromiter(scores.values(), np.float64, len(scores)), depth)
    return result


def _names(rankings: list[runs.Ranking]) -> dict[str, str]:
    """Return document id to number, as text of one width, for the documents of one query."""
    ids = dict.fromkeys(document for ranking in rankings for document in ranking.ids)
    return {document: f"{number:0{_WIDTH}d}" for number, document in enumerate(ids)}


def _scores(ranking: runs.Ranking | None, names: dict[str, str], by_rank: bool) -> dict[str, float]:
    if ranking is None or not ranking.ids:
        return {_PLACEHOLDER: 0.0}
    scores = range(len(ranking.ids), 0, -1) if by_rank else ranking.scores.tolist()
    return {names[document]: float(score) for document, score in zip(ranking.ids, scores, strict=True)}


def _refuse_negative(parts: list[runs.Run]) -> None:
    """Refuse scores that division by the maximum would turn upside down (logits, say)."""
    for number, part in enumerate(parts, start=1):
        for query, ranking in part.items():
            if ranking.ids and ranking.scores[0] <= 0:
                raise DataError(
                    f"run {number}, query {query!r}: its best score is {ranking.scores[0]:g}, which norm max cannot "
                    "divide by; use norm min-max"
                )
