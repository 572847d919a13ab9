"""Fuse runs: reciprocal ranks and the weighted sum here, other methods and norms in ranx.

The definitions are those of ranx (Bassani and Romelli, 2022); the tests compare. ranx itself takes seconds to import.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pydantic import Json

from ..config.fusions import METHODS, FusionName, Method, Norm
from ..config.values import Size
from . import runs

# Takes the scores of a run for a query, float64 [documents], best first; returns the points of its documents.
Normalise = Callable[[np.ndarray], np.ndarray]
_NORMS: dict[str, Normalise] = {
    # 0 for the worst document and 1 for the best.
    "min-max": lambda scores: (scores - scores.min()) / (np.ptp(scores) or 1.0),
    # Mean 0 and variance 1.
    "zmuv": lambda scores: (scores - scores.mean()) / (scores.std() or 1.0),
    # Equal steps from 1 for the first document; the step below the last document is 0.
    "rank": lambda scores: 1 - np.arange(len(scores)) / len(scores),
}


@dataclass(frozen=True)
class Fusion:
    """How runs are fused. The method's parameter has one of the last six keys, or is tuned for the metric."""

    method: FusionName
    depth: Size = 1000
    norm: Norm = "min-max"
    metric: str | None = None
    weights: Json[tuple[float, ...]] | None = None
    k: Size | None = None
    gamma: float | None = None
    sigma: float | None = None
    phi: float | None = None
    w: Size | None = None
    n_segments: Size | None = None

    @property
    def of_method(self) -> Method:
        """What is known of the method."""
        return METHODS[self.method]

    @property
    def arguments(self) -> dict[str, Any]:
        """The parameter, by its name, if it has a value."""
        name = self.of_method.parameter
        value = getattr(self, name, None)
        value = self.of_method.default if value is None and not self.metric else value
        return {} if value is None else {name: value}


class Fuser:
    """Fuses the same runs, with one value of the method's parameter after the other.

    A run without documents for a query does not count for it.
    """

    def __init__(self, parts: Sequence[runs.Run], how: Fusion) -> None:
        self.parts = parts
        self.how = how
        self.ranx: Any = None
        if how.method not in ("rrf", "wsum") or (how.method == "wsum" and how.norm not in _NORMS):
            self.ranx = importlib.import_module(f"{__package__}.ranx_fusion").RanxFuser(parts, how.method, how.norm)

    def fuse(self, depth: int, **parameters: Any) -> runs.Run:
        """Return the fused run, ``depth`` documents per query.

        Args:
            parameters: arguments of the method, as ranx names them. Weights are equal unless given.
        """
        if self.how.of_method.parameter == "weights":
            parameters.setdefault("weights", [1 / len(self.parts)] * len(self.parts))
        scored = self.ranx.scores(**parameters) if self.ranx else self._sums(**parameters)
        fused: runs.Run = dict.fromkeys((query for part in self.parts for query in part), runs.EMPTY)
        for query, ids, scores in scored:
            fused[query] = runs.canonical(query, ids, scores, depth)
        return fused

    def _sums(self, **parameters: Any) -> Iterator[tuple[str, list[str], list[float]]]:
        """Yield each query, its documents, and the sums of their weighted points."""
        k = parameters.get("k", 0)
        shares = parameters.get("weights", [1.0] * len(self.parts))
        # Reciprocal rank fusion (Cormack et al., 2009): 1 / (k + rank).
        by_rank: Normalise = lambda scores: 1 / (k + 1 + np.arange(len(scores)))  # noqa: E731
        normalise = by_rank if self.how.method == "rrf" else _NORMS[self.how.norm]
        for query in dict.fromkeys(query for part in self.parts for query in part):
            sums: dict[str, float] = {}
            for part, share in zip(self.parts, shares, strict=True):
                ranking = part.get(query, runs.EMPTY)
                if ranking.ids:
                    points = share * normalise(ranking.scores.astype(np.float64))
                    for document, of_part in zip(ranking.ids, points.tolist(), strict=True):
                        sums[document] = sums.get(document, 0.0) + of_part
            yield query, list(sums), list(sums.values())


def fuse(parts: Sequence[runs.Run], how: Fusion, **estimates: Any) -> runs.Run:
    """Fuse runs with the given parameter, and with what a trained method has estimated."""
    return Fuser(parts, how).fuse(how.depth, **how.arguments, **estimates)
