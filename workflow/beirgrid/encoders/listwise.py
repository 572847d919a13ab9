"""Listwise rerankers: a chat model orders windows of documents, from the last to the first (RankGPT).

Prompt and windows are those of Sun et al. 2023 (https://arxiv.org/abs/2304.09542). The last window begins with the
first document also where step and depth do not fit. A document's score is how many documents it is ranked above.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np

from ..config.models import ListwiseReranker

_RANKED = re.compile(r"\d+")
_SYSTEM = "You are RankGPT, an intelligent assistant that can rank passages based on their relevancy to the query."
Messages = Sequence[Mapping[str, str]]


class Listwise:
    """Orders of documents that a chat model gives, and how many of its answers were none.

    Attributes:
        counts: windows, and of these the ones whose answers are no order, or no order of all documents.
    """

    def __init__(self, entry: ListwiseReranker, chat: Callable[[Messages], str]) -> None:
        self.entry, self.chat = entry, chat
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


def of_queries(queries: list[str]) -> list[list[int]]:
    """Return the rows of each query. Two may have the same text, so it is the object that tells them apart."""
    return [list(rows) for _, rows in groupby(range(len(queries)), key=lambda row: id(queries[row]))]


def windows(documents: int, window: int, step: int) -> Iterator[tuple[int, int]]:
    """Yield start and stop of each window, from the last documents to the first."""
    stop = documents
    while stop > 1:
        start = max(stop - window, 0)
        yield start, stop
        stop = stop - step if start else 0


def messages(query: str, documents: list[str]) -> list[dict[str, str]]:
    """Build RankGPT's chat messages for ordering documents."""
    count = len(documents)
    turns = [
        ("system", _SYSTEM),
        (
            "user",
            f"I will provide you with {count} passages, each indicated by number identifier []. \n"
            f"Rank the passages based on their relevance to query: {query}.",
        ),
        ("assistant", "Okay, please provide the passages."),
    ]
    for number, text in enumerate(documents, 1):
        turns += [("user", f"[{number}] {text}"), ("assistant", f"Received passage [{number}].")]
    turns.append(
        (
            "user",
            f"Search Query: {query}. \nRank the {count} passages above based on their relevance to the search query. "
            "The passages should be listed in descending order using identifiers. The most relevant passages should be "
            "listed first. The output format should be [] > [], e.g., [1] > [2]. Only response the ranking results, do "
            "not say any word or explain.",
        )
    )
    return [{"role": role, "content": content} for role, content in turns]
