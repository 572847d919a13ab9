"""Models behind an ``endpoint``: encoders, rerankers, and chat models that order documents (RankGPT)."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np

from ..config.models import ChatModel, DenseModel, ListwiseReranker, ModelEntry
from ..core import files
from ..core.compute import Runtime
from ..core.errors import DataError
from ..core.progress import Progress
from ..models.endpoints import LEDGER, PROBE, Client, is_same_model, probe
from .protocol import DenseVectors, OpenModel, Scorer, parts, unit_length

# Device and precision in records of served models.
DEVICE = "endpoint"
PRECISION = "an unknown precision"
_RANKED = re.compile(r"\d+")
# RankGPT's messages.
_SYSTEM = "You are RankGPT, an intelligent assistant that can rank passages based on their relevancy to the query."
_BEFORE = (
    "I will provide you with {count} passages, each indicated by number identifier []. \n"
    "Rank the passages based on their relevance to query: {query}."
)
_AFTER = (
    "Search Query: {query}. \nRank the {count} passages above based on their relevance to the search query. "
    "The passages should be listed in descending order using identifiers. The most relevant passages should be "
    "listed first. The output format should be [] > [], e.g., [1] > [2]. Only response the ranking results, do "
    "not say any word or explain."
)
Messages = Sequence[Mapping[str, str]]


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
        embed = partial(self.client.embed, query=role == "query", dimension=self.dimension)
        batches = parts([prompt + text for text in texts], self.client.endpoint.batch)
        vectors = np.concatenate(list(self.client.each(embed, batches)))
        return unit_length(vectors) if self.entry.similarity == "cosine" else vectors


class ServedWriter(_Served):
    """Writes texts by ``/chat/completions``, each with a seed of its own."""

    entry: ChatModel

    def generate(
        self, texts: list[str], *, per_text: int, seed: int, progress: Progress | None = None
    ) -> list[list[str]]:
        """Write ``per_text`` texts for each message."""

        def write(asked: tuple[str, int]) -> str:
            message = [{"role": "user", "content": asked[0]}]
            written = self.client.chat(message, temperature=self.entry.temperature, seed=asked[1])
            if progress and asked[1] == seed:
                progress.add(1)
            return written

        asked = [(text, seed + number) for text in texts for number in range(per_text)]
        return [*parts(list(self.client.each(write, asked)), per_text)]


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
        # Two queries may have the same text, so it is the object that tells them apart.
        of_queries = groupby(range(len(queries)), key=lambda row: id(queries[row]))
        tasks = [part for _, rows in of_queries for part in parts(list(rows), size)]
        compute = self.listwise.scores if self.listwise else self.client.rerank
        scores = np.empty(len(queries), np.float32)

        def ask(rows: list[int]) -> np.ndarray:
            return compute(queries[rows[0]], [documents[row] for row in rows])

        for rows, of_rows in zip(tasks, self.client.each(ask, tasks), strict=True):
            scores[rows] = of_rows
            if progress:
                progress.add(len(rows))
        return scores


class Listwise:
    """Orders of documents that a chat model gives, window by window, from the last documents to the first (RankGPT).

    Prompt and windows are those of Sun et al. 2023 (https://arxiv.org/abs/2304.09542). The last window begins with the
    first document also where step and depth do not fit. A document's score is how many documents it is ranked above.

    Attributes:
        counts: windows, and of these the ones whose answers are no order, or no order of all documents.
    """

    def __init__(self, entry: ListwiseReranker, chat: Callable[[Messages], str]) -> None:
        self.entry = entry
        self.chat = chat
        self.counts = {"windows": 0, "windows_without_an_order": 0, "windows_with_gaps": 0}
        self.mutex = threading.Lock()

    def scores(self, query: str, documents: list[str]) -> np.ndarray:
        """Score the documents of a query, given in the order of the first stage."""
        order = list(range(len(documents)))
        for start, stop in windows(len(documents), self.entry.window, self.entry.step):
            texts = [" ".join(documents[row].split()[: self.entry.words]) for row in order[start:stop]]
            ranked = self._permutation(self.chat(messages(query, texts)), stop - start)
            order[start:stop] = [order[start + place] for place in ranked]
        scores = np.empty(len(documents), np.float32)
        scores[order] = np.arange(len(documents))[::-1]
        return scores

    def facts(self) -> dict[str, Any]:
        """Return the prompt for a window of one document, and the counts of windows."""
        return {"prompt": messages("{query}", ["{document}"]), **self.counts}

    def _permutation(self, answer: str, documents: int) -> list[int]:
        """Parse the order in an answer. Documents that it omits follow in their previous order."""
        # No window has so many documents that nine digits do not tell them apart; int refuses thousands of digits.
        named = [int(number[:9]) - 1 for number in _RANKED.findall(answer)]
        known = [place for place in dict.fromkeys(named) if 0 <= place < documents]
        with self.mutex:
            self.counts["windows"] += 1
            if not known:
                self.counts["windows_without_an_order"] += 1
            elif sorted(named) != list(range(documents)):
                self.counts["windows_with_gaps"] += 1
        return [*known, *(place for place in range(documents) if place not in known)]


def windows(documents: int, window: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each window, from the last documents to the first."""
    stop = documents
    while stop > 1:
        start = max(stop - window, 0)
        yield start, stop
        stop = stop - step if start else 0


def messages(query: str, documents: list[str]) -> list[dict[str, str]]:
    """Build RankGPT's chat messages for ordering documents."""
    fields = {"query": query, "count": len(documents)}
    before = _BEFORE.format(**fields)
    turns = [("system", _SYSTEM), ("user", before), ("assistant", "Okay, please provide the passages.")]
    for number, text in enumerate(documents, 1):
        turns += [("user", f"[{number}] {text}"), ("assistant", f"Received passage [{number}].")]
    turns.append(("user", _AFTER.format(**fields)))
    return [{"role": role, "content": content} for role, content in turns]
