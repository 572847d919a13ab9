"""Read documents in chunks: a model encodes or scores each chunk, and the results are joined by document."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from ..config.models import Chunks, DenseModel
from ..core.errors import DataError
from ..core.progress import Progress
from ..search.maxsim import TokenVectors
from . import cutting
from .base import LoadedModel, PairScorer, TextEncoder
from .engine import ahead
from .protocol import Encoder, OpenModel, Scorer, parts, unit_length

# Pairs of a query and a document whose chunks are scored together.
PAIRS = 256


class Chunked(OpenModel):
    """The chunks of a model that is open. ``count`` is the number of chunks that it has read."""

    def __init__(self, chunks: Chunks, model: LoadedModel[Any], most: int | None) -> None:
        """Set up for a model with room for at most ``most`` tokens of a document; None for any number."""
        if most is not None and chunks.tokens > most:
            raise DataError(
                f"chunks.tokens is {chunks.tokens}, but beside prompt, special tokens and a query that it reads with a "
                f"document, the model has room for {most} tokens: set chunks.tokens to {most} or less"
            )
        self.chunks = chunks
        self.count = 0
        self.precision = model.precision
        self.open: Any = model

    def facts(self) -> dict[str, Any]:
        """Return the facts of the model for the record of an artifact."""
        return dict(self.open.facts())

    def cut(self, text: str) -> list[str]:
        """Return the chunks of a document."""
        tokenizer = self.open.tokenizer
        tokens = self.chunks.tokens
        with self.open.reading:
            if self.chunks.aggregate == "first":
                return cutting.windows(tokenizer, cutting.cut(tokenizer, text, tokens), tokens, tokens)[:1]
            return cutting.windows(tokenizer, text, tokens, self.chunks.stride)

    def aggregated(self, results: np.ndarray, counts: np.ndarray) -> np.ndarray:
        """Return the mean or maximum of the results of each document's chunks, which are as many as ``counts`` says."""
        starts = np.cumsum(counts) - counts
        if self.chunks.aggregate == "max":
            best: np.ndarray = np.maximum.reduceat(results, starts)
            return best
        means: np.ndarray = (np.add.reduceat(results, starts, dtype=np.float64).T / counts).T
        return means.astype(np.float32)


class ChunkedEncoder(Chunked, Encoder[np.ndarray | TokenVectors]):
    """Encodes the chunks of documents, and queries as they are.

    With ``aggregate: max``, documents have several vectors each (``TokenVectors``), otherwise one vector.
    """

    def __init__(self, encoder: Encoder[np.ndarray], entry: DenseModel, folder: Path) -> None:
        assert entry.chunks is not None
        if not isinstance(encoder, TextEncoder):
            raise DataError(f"{folder} is a table of token vectors, which averages whole texts: leave chunks out")
        limit = encoder.model.max_seq_length
        around = int(encoder.tokenized([""], "document").lengths[0])
        super().__init__(entry.chunks, encoder, limit and limit - around)
        self.dimension = encoder.dimension
        self.unit = entry.similarity == "cosine"

    def facts(self) -> dict[str, Any]:
        """Return the facts of the model, and the number of chunks, for the record of an artifact."""
        return {**super().facts(), "chunks": self.count}

    def encode_documents(self, texts: list[str], *, progress: Progress | None = None) -> np.ndarray | TokenVectors:
        """Return the vectors of documents, in the order of the texts."""
        return next(self.vectors([texts], progress=progress))

    def encode_queries(self, texts: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the vectors of queries, in the order of the texts."""
        vectors: np.ndarray = self.open.encode_queries(texts, progress=progress)
        return vectors

    def vectors(
        self, blocks: Iterable[list[str]], role: str = "document", progress: Progress | None = None
    ) -> Iterator[np.ndarray | TokenVectors]:
        """Yield the vectors of each block of documents."""
        for cut in ahead([self.cut(text) for text in texts] for texts in blocks):
            counts = np.array([*map(len, cut)], np.int64)
            vectors = self.open.encode_documents([chunk for of_text in cut for chunk in of_text])
            self.count += len(vectors)
            if progress:
                progress.add(len(cut))
            if self.chunks.aggregate == "mean":
                means = self.aggregated(vectors, counts)
                yield unit_length(means) if self.unit else means
            else:
                yield TokenVectors(vectors, counts) if self.chunks.aggregate == "max" else vectors

    def concatenation(self, blocks: list[np.ndarray | TokenVectors]) -> np.ndarray | TokenVectors:
        """Concatenate the vectors of blocks of documents, of which there is at least one."""
        of_chunks = [block for block in blocks if isinstance(block, TokenVectors)]
        return TokenVectors.concatenated(of_chunks) if of_chunks else np.concatenate(blocks)


class ChunkedScorer(Chunked, Scorer):
    """Scores each chunk of a document with the query."""

    def __init__(self, scorer: PairScorer[Any], chunks: Chunks) -> None:
        limit = getattr(scorer, "limit", None) or scorer.model.max_seq_length
        around = int(scorer.tokenized([("", "")]).lengths[0])
        super().__init__(chunks, scorer, limit and limit - around - 1)

    def spent(self) -> dict[str, float]:
        """Return the number of pairs of a query and a chunk that were scored."""
        return {"chunk_pairs": self.count}

    def score(self, queries: list[str], documents: list[str], *, progress: Progress | None = None) -> np.ndarray:
        """Return the score of each pair (queries[i], documents[i]): float32 [pairs]."""
        chunks = {text: self.cut(text) for text in set(documents)}
        scores = [np.empty(0, np.float32)]
        for part in parts(list(zip(queries, documents, strict=True)), PAIRS):
            pairs = [(query, chunk) for query, document in part for chunk in chunks[document]]
            counts = np.array([len(chunks[document]) for _, document in part], np.int64)
            scores.append(self.aggregated(self.open.score(*map(list, zip(*pairs, strict=True))), counts))
            self.count += len(pairs)
            if progress:
                progress.add(len(part))
        return np.concatenate(scores)
