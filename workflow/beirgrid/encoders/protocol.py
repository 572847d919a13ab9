"""Protocols of the models: encoders of documents and queries, and scorers of pairs.

Each model family has a class that implements one of them; ``open_encoder`` and ``open_scorer`` return it. ``Vectors``
is the family's type of vectors:

- dense: ``np.ndarray``, float32 [texts, dimension]
- sparse: ``scipy.sparse.csr_matrix``, float32 [texts, vocabulary]
- late interaction: ``search.maxsim.TokenVectors``, float32 [tokens, dimension] with the tokens of each text
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Protocol, TypeVar

import numpy as np

from ..core.progress import Progress
from .cutting import Beginning
from .engine import parts

# Texts per call of a library.
_TEXTS = 1024
Vectors = TypeVar("Vectors", covariant=True)


class Reader(Protocol):
    """A model that exposes the tokens it reads."""

    precision: str

    def read(self, texts: list[str]) -> list[list[int]]:
        """Return the token ids that the model reads of each text."""
        ...

    def facts(self) -> dict[str, Any]:
        """Return ``device``, ``precision`` and similar facts for the record of an artifact."""
        ...


class Encoder(Reader, Protocol[Vectors]):
    """A model that encodes documents and queries.

    Attributes:
        dimension: dimensions of a vector (terms of the vocabulary for sparse models).
        precision: format of the model's matrix products: ``float32``, ``bfloat16`` or ``float16``.
    """

    dimension: int

    def encode_documents(self, texts: list[str], *, progress: Progress | None = None) -> Vectors:
        """Encode documents, in the order of the texts.

        Args:
            texts: title and text of each document, joined.
            progress: counts each text as one.
        """
        ...

    def encode_blocks(self, blocks: Iterable[list[str]], *, progress: Progress | None = None) -> Iterator[Vectors]:
        """Encode documents block by block.

        Another thread reads and tokenizes blocks ahead. Each block is sorted by length separately.

        Args:
            blocks: titles and texts of some documents, joined; about ``engine.WINDOW`` documents each.
            progress: counts each text as one.
        """
        ...

    def encode_queries(self, texts: list[str], *, progress: Progress | None = None) -> Vectors:
        """Encode queries, in the order of the texts.

        Args:
            progress: counts each text as one.
        """
        ...


class Scorer(Reader, Protocol):
    """A model that scores pairs of query and document. A higher score is a better match.

    Long texts are truncated before tokenization: ``begin`` truncates each text once, and ``score_beginnings`` scores
    pairs of the results.
    """

    def begin(self, text: str, *, counted: bool = True) -> Beginning:
        """Truncate a query or document to what the model can read.

        Args:
            counted: whether to count the tokens of the whole text. Documents need it unless no query of their pairs has
                a ``shorter`` beginning.
        """
        ...

    def score_beginnings(
        self, queries: list[Beginning], documents: list[Beginning], *, progress: Progress | None = None
    ) -> np.ndarray:
        """Return the score of each pair (queries[i], documents[i]): float32 [pairs].

        Args:
            progress: counts each pair as one.
        """
        ...

    def score(self, queries: list[str], documents: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the score of each pair (queries[i], documents[i]): float32 [pairs].

        Args:
            progress: counts each pair as one.
        """
        ...


class TextsAlone:
    """An encoder whose library gets a list of texts at a time: one vector per text, float32 [texts, dimension]."""

    dimension: int

    def vectors(self, texts: list[str], role: str, progress: Progress | None) -> np.ndarray:
        """Return the vectors of texts. The role is ``query`` or ``document``."""
        found = [np.empty((0, self.dimension), np.float32)]
        for part in parts(texts, _TEXTS):
            found.append(self.encoded(part, role))
            if progress:
                progress.add(len(part))
        return np.concatenate(found)

    def encoded(self, texts: list[str], role: str) -> np.ndarray:
        """Return the vectors of a part of the texts, for which one call of the library is enough."""
        raise NotImplementedError

    def encode_documents(self, texts: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the vectors of documents, in the order of the texts."""
        return self.vectors(texts, "document", progress)

    def encode_queries(self, texts: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the vectors of queries, in the order of the texts."""
        return self.vectors(texts, "query", progress)

    def encode_blocks(self, blocks: Iterable[list[str]], *, progress: Progress | None = None) -> Iterator[np.ndarray]:
        """Yield the vectors of each block of documents."""
        for texts in blocks:
            yield self.encode_documents(texts, progress=progress)


class TextScorer:
    """Base of scorers. By default whoever reads a text, such as a server or a library, cuts it."""

    def begin(self, text: str, *, counted: bool = True) -> Beginning:
        """Truncate a query or document to what the model can read; by default, return the whole text."""
        return Beginning(text)

    def score_beginnings(
        self, queries: list[Beginning], documents: list[Beginning], *, progress: Progress | None = None
    ) -> np.ndarray:
        """Return the score of each pair (queries[i], documents[i]): float32 [pairs]."""
        raise NotImplementedError

    def score(self, queries: list[str], documents: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the score of each pair (queries[i], documents[i]): float32 [pairs], higher is better."""
        asked = {text: self.begin(text) for text in set(queries)}
        counted = any(beginning.shorter for beginning in asked.values())
        read = {text: self.begin(text, counted=counted) for text in set(documents)}
        pairs = [asked[text] for text in queries], [read[text] for text in documents]
        return self.score_beginnings(*pairs, progress=progress)
