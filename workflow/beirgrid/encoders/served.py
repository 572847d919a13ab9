"""Encoders and scorers for models behind an ``endpoint``."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..config.models import CrossEncoder, DenseModel, ListwiseReranker, ModelEntry
from ..core import files
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from ..models.endpoints import Client
from ..models.probe import LEDGER, PROBE, alike, probe, reached
from .cutting import Beginning
from .engine import parts
from .listwise import Listwise, of_queries
from .protocol import TextsAlone, TextScorer

# Device and precision in records of served models.
DEVICE, PRECISION = "endpoint", "an unknown precision"


class _Served:
    """Base of served models: client, probe, facts for records."""

    precision = PRECISION

    def __init__(self, folder: Path, entry: ModelEntry, runtime: Runtime, answers: Path | None = None) -> None:
        assert entry.endpoint is not None
        self.entry = entry
        endpoint = reached(entry.endpoint, runtime.connection)
        with files.reading(folder / PROBE):
            self.probed: list[Any] = files.read_json(folder / PROBE)["probe"]
        if not alike(self.probed, probe(entry.family, endpoint, folder)):
            raise DataError(
                f"the server's model {endpoint.model!r} has changed since {folder.parent} was fetched: it answers the "
                f"same texts differently. Give the new model an entry of its own, or delete {folder.parent} to rerun "
                "everything that depends on it"
            )
        self.client = Client(endpoint, folder.parent / LEDGER, answers, files.sha256(folder / PROBE))

    def read(self, texts: list[str]) -> list[list[int]]:
        """Return the texts' bytes, because the server's tokens are unknown."""
        return [list(text.encode()) for text in texts]

    def facts(self) -> dict[str, Any]:
        """Return the server and the usage of its requests for the record of an artifact."""
        return {"device": DEVICE, "precision": self.precision, **self.client.facts()}


class ServedEncoder(TextsAlone, _Served):
    """Encodes texts by ``/embeddings``: float32 [texts, dimension], of length 1 for cosine similarity."""

    entry: DenseModel

    def __init__(self, folder: Path, entry: DenseModel, runtime: Runtime, answers: Path | None = None) -> None:
        super().__init__(folder, entry, runtime, answers)
        self.dimension = len(self.probed[0])

    def vectors(self, texts: list[str], role: str, progress: Progress | None) -> np.ndarray:
        """Return the vectors of texts. The role is ``query`` or ``document``."""
        prompt = getattr(self.entry.prompts, role) or ""
        batches = parts([prompt + text for text in texts], self.client.endpoint.batch)
        found = np.empty((len(texts), self.dimension), np.float32)
        done = 0
        for vectors in self.client.each(lambda batch: self._vectors(batch, role), batches):
            found[done : done + len(vectors)] = vectors
            done += len(vectors)
            if progress:
                progress.add(len(vectors))
        return found

    def _vectors(self, texts: list[str], role: str) -> np.ndarray:
        vectors = self.client.embed(texts, query=role == "query", dimension=self.dimension)
        if self.entry.similarity == "cosine":
            vectors = vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
        return vectors


class ServedScorer(TextScorer, _Served):
    """Scores pairs of query and document by ``/rerank``, the documents of one query together."""

    def spent(self) -> dict[str, float]:
        """Return the countable facts: requests, tokens, price and, for chat models, windows."""
        return {name: number for name, number in self.facts().items() if isinstance(number, int | float)}

    def score_beginnings(
        self, queries: list[Beginning], documents: list[Beginning], *, progress: Progress | None = None
    ) -> np.ndarray:
        """Score each pair: float32 [pairs]. Consecutive pairs of a query share requests."""
        tasks = [part for rows in of_queries(queries) for part in parts(rows, self.documents_together(len(rows)))]
        scores = np.empty(len(queries), np.float32)

        def ask(rows: list[int]) -> np.ndarray:
            return self.scores(queries[rows[0]].text, [documents[row].text for row in rows])

        for rows, found in zip(tasks, self.client.each(ask, tasks), strict=True):
            scores[rows] = found
            if progress:
                progress.add(len(rows))
        return scores

    def documents_together(self, documents: int) -> int:
        """Return how many of a query's documents one call of ``scores`` takes: at most those of a request."""
        return self.client.endpoint.batch

    def scores(self, query: str, documents: list[str]) -> np.ndarray:
        """Score documents for a query: float32 [documents]."""
        return self.client.rerank(query, documents)


class ServedListwise(ServedScorer):
    """Scores from an order of documents, from ``/chat/completions``."""

    entry: ListwiseReranker

    def __init__(self, folder: Path, entry: ListwiseReranker, runtime: Runtime, answers: Path | None = None) -> None:
        super().__init__(folder, entry, runtime, answers)
        self.listwise = Listwise(entry, self.client.chat)

    def facts(self) -> dict[str, Any]:
        """Add the prompt and the number of malformed answers to the facts of the endpoint."""
        return super().facts() | self.listwise.facts()

    def documents_together(self, documents: int) -> int:
        """Return the number of all documents of a query, which are ordered together."""
        return documents

    def scores(self, query: str, documents: list[str]) -> np.ndarray:
        """Score the documents of a query, given in the order of the first stage."""
        return self.listwise.scores(query, documents)


def open_served(
    folder: Path, entry: ModelEntry, runtime: Runtime, answers: Path | None
) -> ServedEncoder | ServedScorer:
    """Open a served model as its family."""
    if isinstance(entry, DenseModel):
        return ServedEncoder(folder, entry, runtime, answers)
    if isinstance(entry, ListwiseReranker):
        return ServedListwise(folder, entry, runtime, answers)
    assert isinstance(entry, CrossEncoder)
    return ServedScorer(folder, entry, runtime, answers)
