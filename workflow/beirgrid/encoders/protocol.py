"""Base classes of the models: encoders of documents and queries, and scorers of pairs.

``open_encoder`` and ``open_model`` return them. ``Vectors`` is the family's type of vectors:

- dense: ``np.ndarray``, float32 [texts, dimension]
- sparse: ``scipy.sparse.csr_matrix``, float32 [texts, vocabulary]
- late interaction: ``search.maxsim.TokenVectors``, float32 [tokens, dimension] with the tokens of each text
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, TypeVar

import numpy as np
import scipy.sparse

from ..core.progress import Progress
from ..search.maxsim import TokenVectors

# Texts (or pairs) that are tokenized and sorted together.
WINDOW = 2048
ItemT = TypeVar("ItemT")
Vectors = TypeVar("Vectors")


def parts(items: Sequence[ItemT], size: int = WINDOW) -> Iterator[list[ItemT]]:
    """Yield the items in order, ``size`` at a time."""
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def digest_of(seed: int | str, text: str) -> bytes:
    """Return 32 bytes for the random numbers of a text. They depend on the seed and the text alone."""
    return hashlib.sha256(f"{seed}\n{text}".encode()).digest()


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
        return self.concatenation(list(self.vectors(parts(texts), "document", progress)))

    def encode_queries(self, texts: list[str], *, progress: Progress | None = None) -> Vectors:
        """Encode queries, in the order of the texts."""
        return self.concatenation(list(self.vectors(parts(texts), "query", progress)))

    def truncated(self, texts: list[str], role: str) -> int | None:
        """Count the texts of which the model reads only the beginning; None if its tokens are not known here."""
        return None

    def vectors(self, blocks: Iterable[list[str]], role: str, progress: Progress | None = None) -> Iterator[Vectors]:
        """Yield the vectors of each block of texts, about ``WINDOW`` of them. The role is ``query`` or ``document``.

        By default, a library gets a block at a time. Our engine reads and tokenizes blocks ahead, in another thread.
        """
        for texts in blocks:
            vectors = self.encoded(texts, role)
            if progress:
                progress.add(len(texts))
            yield vectors

    def encoded(self, texts: list[str], role: str) -> Vectors:
        """Return the vectors of one block, from the library."""
        raise NotImplementedError

    def concatenation(self, blocks: list[Vectors]) -> Vectors:
        """Concatenate the vectors of all blocks."""
        raise NotImplementedError


class DenseVectors(Encoder[np.ndarray]):
    """An encoder of one vector per text: float32 [texts, dimension]."""

    def concatenation(self, blocks: list[np.ndarray]) -> np.ndarray:
        """Concatenate the vectors of all blocks."""
        return np.concatenate([np.empty((0, self.dimension), np.float32), *blocks])


class SparseRows(Encoder[scipy.sparse.csr_matrix]):
    """An encoder of one sparse vector per text: float32 [texts, vocabulary]."""

    def concatenation(self, blocks: list[scipy.sparse.csr_matrix]) -> scipy.sparse.csr_matrix:
        """Concatenate the weights of all blocks."""
        none = scipy.sparse.csr_matrix((0, self.dimension), dtype=np.float32)
        return scipy.sparse.vstack([none, *blocks], format="csr")


def unit_length(vectors: np.ndarray) -> np.ndarray:
    """Scale vectors to length 1, float32 [texts, dimension]; a vector of zeros stays."""
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    scaled: np.ndarray = vectors / np.where(lengths > 0, lengths, 1)
    return scaled


class Scorer(OpenModel):
    """A model that scores pairs of query and document. A higher score is a better match."""

    def score(self, queries: list[str], documents: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Score each pair (queries[i], documents[i]): float32 [pairs]. A progress counts each pair as one."""
        raise NotImplementedError

    def spent(self) -> Mapping[str, float]:
        """Return what the scorer has counted so far: requests of a server, windows of a listwise order, chunks."""
        return {}


class TokenRows(Encoder[TokenVectors], Scorer):
    """An encoder of one vector per token, which may also score pairs."""

    def concatenation(self, blocks: list[TokenVectors]) -> TokenVectors:
        """Concatenate the vectors of all blocks."""
        none = TokenVectors(np.zeros((0, self.dimension), np.float32), np.zeros(0, np.int64))
        return TokenVectors.concatenated([none, *blocks])

    def score(self, queries: list[str], documents: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the score of each pair: float32 [pairs], the sum over the query's tokens of the best product (MaxSim).

        Each text is encoded once, documents a window at a time. Vectors are in float32, where a search of stored ones
        reads float16.
        """
        scores = np.empty(len(queries), np.float32)
        asked = _apart(self.encode_queries, list(dict.fromkeys(queries)))
        rows: dict[str, list[int]] = {}
        for row, document in enumerate(documents):
            rows.setdefault(document, []).append(row)
        for texts in parts(list(rows)):
            for text, vectors in _apart(self.encode_documents, texts).items():
                for row in rows[text]:
                    scores[row] = (asked[queries[row]] @ vectors.T).max(axis=1).sum() if len(vectors) else 0
                if progress:
                    progress.add(len(rows[text]))
        return scores


def _apart(encode: Callable[[list[str]], TokenVectors], texts: list[str]) -> dict[str, np.ndarray]:
    """Return the vectors of each text's tokens."""
    return dict(zip(texts, encode(texts).by_text(), strict=True))
