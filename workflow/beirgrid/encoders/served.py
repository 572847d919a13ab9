"""Encoders and scorers for models behind an ``endpoint``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..config.models import DenseModel, ListwiseReranker, ModelEntry
from ..core import files
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from ..models.endpoints import LEDGER, PROBE, Client, is_same_model, probe
from .engine import parts
from .listwise import Listwise, of_queries
from .protocol import DenseVectors, OpenModel, Scorer, unit_length

# Device and precision in records of served models.
DEVICE, PRECISION = "endpoint", "an unknown precision"


class _Served(OpenModel):
    """Base of served models: client, probe, facts for records."""

    precision = PRECISION

    def __init__(self, folder: Path, entry: ModelEntry, runtime: Runtime, answers: Path | None = None) -> None:
        assert entry.endpoint is not None
        endpoint = entry.endpoint.connected(runtime.connection)
        with files.reading(folder / PROBE):
            self.probed: list[Any] = files.read_json(folder / PROBE)["probe"]
        if not is_same_model(self.probed, probe(entry.family, endpoint, folder)):
            raise DataError(
                f"the server's model {endpoint.model!r} has changed since {folder.parent} was fetched: it answers the "
                f"same texts differently. Give the new model an entry of its own, or delete {folder.parent} to rerun "
                "everything that depends on it"
            )
        self.entry = entry
        self.client = Client(endpoint, folder.parent / LEDGER, answers, files.sha256(folder / PROBE))

    def facts(self) -> dict[str, Any]:
        """Return the server and the usage of its requests for the record of an artifact."""
        return {"device": DEVICE, "precision": self.precision, **self.client.facts()}


class ServedEncoder(_Served, DenseVectors):
    """Encodes texts by ``/embeddings``: float32 [texts, dimension], of length 1 for cosine similarity."""

    entry: DenseModel

    def __init__(self, folder: Path, entry: DenseModel, runtime: Runtime, answers: Path | None = None) -> None:
        super().__init__(folder, entry, runtime, answers)
        self.dimension = len(self.probed[0])

    def encoded(self, texts: list[str], role: str) -> np.ndarray:
        """Return the vectors of one block, from the server."""
        prompt = getattr(self.entry.prompts, role) or ""

        def embed(batch: list[str]) -> np.ndarray:
            return self.client.embed(batch, query=role == "query", dimension=self.dimension)

        batches = parts([prompt + text for text in texts], self.client.endpoint.batch)
        vectors = np.concatenate(list(self.client.each(embed, batches)))
        return unit_length(vectors) if self.entry.similarity == "cosine" else vectors


class ServedScorer(_Served, Scorer):
    """Scores pairs by ``/rerank``, or by the orders of documents that ``/chat/completions`` gives.

    Requests for documents of one query go together. An order is of all of its documents, as the first stage has them.
    """

    def __init__(self, folder: Path, entry: ModelEntry, runtime: Runtime, answers: Path | None = None) -> None:
        super().__init__(folder, entry, runtime, answers)
        self.listwise = Listwise(entry, self.client.chat) if isinstance(entry, ListwiseReranker) else None

    def facts(self) -> dict[str, Any]:
        """Add the prompt and the number of malformed orders to the facts of the endpoint."""
        return super().facts() | (self.listwise.facts() if self.listwise else {})

    def spent(self) -> dict[str, float]:
        """Return the countable facts: requests, tokens, price and, for chat models, windows."""
        return {name: number for name, number in self.facts().items() if isinstance(number, int | float)}

    def score(self, queries: list[str], documents: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Score each pair: float32 [pairs]. Consecutive pairs of a query share requests."""
        size = len(queries) if self.listwise else self.client.endpoint.batch
        tasks = [part for rows in of_queries(queries) for part in parts(rows, size)]
        compute = self.listwise.scores if self.listwise else self.client.rerank
        scores = np.empty(len(queries), np.float32)

        def ask(rows: list[int]) -> np.ndarray:
            return compute(queries[rows[0]], [documents[row] for row in rows])

        for rows, of_rows in zip(tasks, self.client.each(ask, tasks), strict=True):
            scores[rows] = of_rows
            if progress:
                progress.add(len(rows))
        return scores
