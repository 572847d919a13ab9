"""Checks of a model's results: finite numbers, and different vectors or scores for different texts."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np

from ..core.errors import DataError


def check_finite(vectors: Any, names: list[str], precision: str) -> None:
    """Raise DataError naming the first text whose vector (or score, or sparse row) is NaN or infinite.

    If ``precision`` is below float32, the message suggests float32.
    """
    if hasattr(vectors, "indptr"):  # a CSR matrix: a row's sum is finite if its values are
        vectors = vectors.sum(axis=1)
    finite = np.isfinite(np.asarray(vectors)).reshape(len(names), -1).all(axis=1)
    if finite.all():
        return
    remedy = "set precision: float32 in the model's entry. If the values are still not finite, its weights are broken"
    if precision == "float32":
        remedy = "its checkpoint holds weights that are not finite, or too large for any precision"
    raise DataError(
        f"the model gives NaN or infinite values for {int((~finite).sum())} of {len(names)} texts, first "
        f"{names[int(np.argmin(finite))]}, in {precision}: {remedy}"
    )


_alike = partial(np.allclose, rtol=1e-5, atol=1e-7)  # rounding depends on a text's length
_BROKEN = "its weights are broken, or were not loaded as they were trained (computed in {})"


def check_scores_differ(scores: np.ndarray, pairs: Iterable[tuple[str, str]], precision: str) -> None:
    """Raise DataError if a reranker gives one score to all pairs, though documents of one query begin differently.

    ``scores`` are those so far, float32 [1 or more]; ``pairs`` the query and document of the latest ones.
    """
    if not _alike(scores, scores[0]):
        return
    beginnings = {(query, _beginning(document)) for query, document in pairs}
    if len(beginnings) > len({query for query, _ in beginnings}):
        raise DataError(
            f"the model gives the score {scores[0]:g} to all {len(scores):,} pairs of query and document, though "
            f"the documents differ: {_BROKEN.format(precision)}"
        )


class CollapseCheck:
    """Checks, block by block, that different texts get different vectors. A broken model maps all to one."""

    def __init__(self, precision: str) -> None:
        self.precision = precision
        self.first: tuple[np.ndarray, str] | None = None
        self.varied = self.texts_differ = False

    def add(self, vectors: Any, texts: list[str]) -> None:
        """Add the vectors (or sparse rows, or one number per text) of some texts."""
        if self.varied or not texts:
            return
        if hasattr(vectors, "indptr"):
            vectors = np.concatenate([vectors.sum(axis=1), vectors.power(2).sum(axis=1)], axis=1)
        rows = np.asarray(vectors).reshape(len(texts), -1)
        beginnings = list(map(_beginning, texts))
        self.first = self.first or (rows[0].copy(), beginnings[0])
        self.varied = not _alike(rows, self.first[0])
        self.texts_differ = self.texts_differ or any(beginning != self.first[1] for beginning in beginnings)

    def check(self, what: str) -> None:
        """Raise DataError if all vectors are equal although the texts begin differently."""
        if self.first is not None and self.texts_differ and not self.varied:
            size = "all zero" if not self.first[0].any() else "the same"
            raise DataError(
                f"the model's vectors of {what} are {size}, though the texts differ: {_BROKEN.format(self.precision)}"
            )


def _beginning(text: str) -> str:
    """Return what every model reads of a text, without case and white space, which not every model tells apart."""
    return " ".join(text[:1000].casefold().split())
