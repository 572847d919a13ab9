"""What is open for single queries: systems and rerankers. A stage has its opener beside its work: ``open_{stage}``."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from ..core.errors import BeirgridError
from .runs import Run

# Opens the system of a run, or the reranker of a manifest of pair scores.
OpenPart = Callable[..., Any]


class NotSearchable(BeirgridError):
    """A system cannot be opened, or ranks otherwise than its run."""


class OpenScorer(NamedTuple):
    """An open reranker."""

    read: Callable[[set[str]], dict[str, str]]  # texts of documents by id
    score: Callable[[str, list[str]], np.ndarray]  # of a query's text and texts of documents: float32 [texts]
    hardware: str  # of its model: cpu, or the name of the GPU
    precision: str  # of its model
    together: int  # documents that a chat model orders together; 0 if each is scored alone


class OpenWriter(NamedTuple):
    """An open model that writes texts in place of queries."""

    write: Callable[[Mapping[str, str]], Mapping[str, list[str]]]  # texts by id, of texts of queries by id
    hardware: str  # of the model: cpu, or the name of the GPU
    precision: str  # of the model


class OpenSystem(NamedTuple):
    """An open system."""

    rank: Callable[[Mapping[str, str]], Run]  # of texts of queries by id; a text without limits has an id of its own
    depth: int  # documents that it retrieves, or reranks
    hardware: str = "cpu"
    precision: str = ""
    parts: tuple[OpenSystem, ...] = ()  # systems whose rankings it reads
    scorer: OpenScorer | None = None  # of the ranking of its first part
    exact: Callable[[Mapping[str, str]], Run] | None = None  # ranks by the exact index behind an approximate one
    writer: OpenWriter | None = None  # of the texts with which it searches
    starts: bool = False  # a program anew whenever it ranks

    @property
    def whole(self) -> list[OpenSystem]:
        """The system, and all systems behind it."""
        return [self, *(system for part in self.parts for system in part.whole)]
