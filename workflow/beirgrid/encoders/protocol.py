"""Base classes of the models: encoders of documents and queries, and scorers of pairs.

``open_encoder`` and ``open_scorer`` return them. ``Vectors`` is the family's type of vectors:

- dense: ``np.ndarray``, float32 [texts, dimension]
- sparse: ``scipy.sparse.csr_matrix``, float32 [texts, vocabulary]
- late interaction: ``search.maxsim.TokenVectors``, float32 [tokens, dimension] with the tokens of each text
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np

from ..core.progress import Progress
from .cutting import Beginning
from .engine import windows

Vectors = TypeVar("Vectors")


class OpenModel:
    """A model that is open.

    Attributes:
        precision: format of the model's matrix products: ``float32``, ``bfloat16`` or ``float16``.
    """

    precision: str

    def facts(self) -> dict[str, Any]:
        """Return ``device``, ``precision`` and similar facts for the record of an artifact."""
        raise NotImplementedError


class Encoder(OpenModel, Generic[Vectors]):
    """A model that encodes documents and queries. A progress counts each text as one.

    Attributes:
        dimension: dimensions of a vector (terms of the vocabulary for sparse models).
    """

    dimension: int

    def encode_documents(self, texts: list[str], *, progress: Progress | None = None) -> Vectors:
        """Encode documents (title and text of each, joined), in the order of the texts."""
        return self.concatenation(list(self.vectors(windows(texts), "document", progress)))

    def encode_queries(self, texts: list[str], *, progress: Progress | None = None) -> Vectors:
        """Encode queries, in the order of the texts."""
        return self.concatenation(list(self.vectors(windows(texts), "query", progress)))

    def encode_blocks(self, blocks: Iterable[list[str]], *, progress: Progress | None = None) -> Iterator[Vectors]:
        """Encode documents block by block, about ``engine.WINDOW`` of them each.

        Another thread reads and tokenizes blocks ahead. Each block is sorted by length separately.
        """
        return self.vectors(blocks, "document", progress)

    def vectors(self, blocks: Iterable[list[str]], role: str, progress: Progress | None) -> Iterator[Vectors]:
        """Yield the vectors of each block of texts. The role is ``query`` or ``document``."""
        raise NotImplementedError

    def concatenation(self, blocks: list[Vectors]) -> Vectors:
        """Concatenate the vectors of all blocks."""
        raise NotImplementedError


class DenseVectors(Encoder[np.ndarray]):
    """An encoder of one vector per text: float32 [texts, dimension]."""

    def concatenation(self, blocks: list[np.ndarray]) -> np.ndarray:
        """Concatenate the vectors of all blocks."""
        return np.concatenate([np.empty((0, self.dimension), np.float32), *blocks])


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to length 1, float32 [texts, dimension]; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: np.ndarray = vectors / np.where(lengths > 0, lengths, 1)
    return scaled


class TextsAlone(DenseVectors):
    """An encoder whose library gets a list of texts at a time."""

    def vectors(self, blocks: Iterable[list[str]], role: str, progress: Progress | None) -> Iterator[np.ndarray]:
        """Yield the vectors of each block of texts."""
        for texts in blocks:
            vectors = self.encoded(texts, role)
            if progress:
                progress.add(len(texts))
            yield vectors

    def encoded(self, texts: list[str], role: str) -> np.ndarray:
        """Return the vectors of one block, from the library."""
        raise NotImplementedError


class Scorer(OpenModel):
    """A model that scores pairs of query and document. A higher score is a better match.

    Long texts are truncated before tokenization: ``begin`` truncates each text once, and ``score_beginnings`` scores
    pairs of the results.
    """

    def begin(self, text: str, *, counted: bool = True) -> Beginning:
        """Truncate a query or document to what the model can read.

        By default, return the whole text: whoever reads it, such as a server or a library, cuts it.

        Args:
            counted: whether to count the tokens of the whole text. Documents need it unless no query of their pairs has
                a ``shorter`` beginning.
        """
        return Beginning(text)

    def score_beginnings(
        self, queries: list[Beginning], documents: list[Beginning], *, progress: Progress | None = None
    ) -> np.ndarray:
        """Score each pair (queries[i], documents[i]): float32 [pairs]. A progress counts each pair as one."""
        raise NotImplementedError

    def score(self, queries: list[str], documents: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Score each pair (queries[i], documents[i]): float32 [pairs]. A progress counts each pair as one."""
        shortened = {text: self.begin(text) for text in set(queries)}
        counted = any(beginning.shorter for beginning in shortened.values())
        read = {text: self.begin(text, counted=counted) for text in set(documents)}
        pairs = [shortened[text] for text in queries], [read[text] for text in documents]
        return self.score_beginnings(*pairs, progress=progress)

    def spent(self) -> Mapping[str, float]:
        """Return what the scorer has counted so far: requests of a server, windows of a listwise order, chunks."""
        return {}
