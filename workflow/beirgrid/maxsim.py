"""Late interaction: token vectors on disk, an index that finds candidate documents, exact MaxSim.

A document's score is the sum over query tokens of the largest dot product with a token of the document
(Khattab and Zaharia, 2020). The token vectors of a shard are a folder with ``vectors.npy`` (float16
[tokens, dimension], documents one after another) and ``offsets.npy`` (int64 [documents + 1]: document i has
the rows offsets[i] to offsets[i + 1]); both are mapped, so memory does not grow with the corpus.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from .errors import DataError
from .progress import Progress

# Below so many token vectors, a shard's nearest tokens are found exactly: k-means would have too few points to
# learn from, and comparing them all is fast.
FLAT_TOKENS = 2**17
# Lists of an inverted file that are read for a query token, and training points per list (faiss wants 39 to 256).
PROBES = 32
POINTS = 64
# Token vectors in memory at a time (64 MB in float32 at 128 dimensions), and queries searched together.
BLOCK = 2**17
QUERIES = 256
# Queries scored together against everything: their token scores with a block are 512 MB.
EXHAUSTIVE_QUERIES = 32


class TokenVectors(NamedTuple):
    """Vectors of texts' tokens: ``vectors`` float32 [tokens, dimension], ``counts`` int64 [texts]."""

    vectors: np.ndarray
    counts: np.ndarray

    def sums(self) -> np.ndarray:
        """Return the sum of each text's vectors, which is finite if they are: float32 [texts]."""
        parts = np.split(self.vectors, np.cumsum(self.counts)[:-1])
        return np.fromiter((part.sum() for part in parts), np.float32, len(self.counts))


def write(folder: Path, blocks: Iterable[TokenVectors], dimension: int) -> int:
    """Write the token vectors of a shard, a block at a time, in half the bytes; return the number of tokens.

    Rounding to float16 moves the dot product of two vectors of length 1 by at most 2^-11, so the score of a query
    of 32 tokens by at most 0.016. On abstracts of SciFact 0.0015 was the most that was seen.
    """
    header = {"descr": "<f2", "fortran_order": False}
    counts, tokens = [np.zeros(1, np.int64)], 0
    with (folder / "vectors.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {**header, "shape": (0, dimension)})
        begin = stream.tell()
        for block in blocks:
            stream.write(np.ascontiguousarray(block.vectors, "<f2").data)
            counts.append(block.counts)
            tokens += len(block.vectors)
        stream.seek(0)  # numpy leaves room in a header for the number of rows to grow
        np.lib.format.write_array_header_1_0(stream, {**header, "shape": (tokens, dimension)})
        assert stream.tell() == begin
    np.save(folder / "offsets.npy", np.cumsum(np.concatenate(counts)))
    return tokens


def index_name(tokens: int, dimension: int) -> str:
    """Return what indexes so many token vectors, as faiss names it.

    Flat for few; else, as in the paper, an inverted file with product quantisation: 2 √tokens lists, rounded to a
    power of two, and a byte per 4 dimensions (32 bytes of 256 for 128 dimensions).
    """
    if tokens < FLAT_TOKENS:
        return "Flat"
    lists = 2 ** round(math.log2(2 * math.sqrt(tokens)))
    pieces = max(piece for piece in range(1, max(dimension // 4, 1) + 1) if dimension % piece == 0)
    return f"IVF{lists},PQ{pieces}x8"


def build_index(vectors: np.ndarray, seed: int = 0) -> Any:
    """Return a faiss index of a shard's token vectors, trained on a seeded sample and filled in blocks.

    Args:
        vectors: float16 [tokens, dimension], may be mapped.
        seed: of the training sample.
    """
    import faiss

    tokens, dimension = vectors.shape
    index: Any = faiss.index_factory(dimension, index_name(tokens, dimension), faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        points = min(tokens, POINTS * index.nlist)
        sample = np.random.default_rng(seed).choice(tokens, points, replace=False, shuffle=False)
        index.train(vectors[np.sort(sample)].astype(np.float32))
        index.nprobe = PROBES  # faiss stores it with the index
    for start in range(0, tokens, BLOCK):
        index.add(vectors[start : start + BLOCK].astype(np.float32))
    return index


class TokenShards:
    """The token vectors of a corpus, mapped: its documents and tokens are numbered through all shards."""

    def __init__(self, folders: Iterable[Path]) -> None:
        self.folders = list(folders)
        self.vectors = [np.load(folder / "vectors.npy", mmap_mode="r") for folder in self.folders]
        self.starts = np.cumsum([0, *map(len, self.vectors)])
        offsets = [np.load(folder / "offsets.npy") for folder in self.folders]
        within = [rows[:-1] + start for rows, start in zip(offsets, self.starts, strict=False)]
        self.offsets = np.concatenate([*within, self.starts[-1:]])

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    def check_dimension(self, dimension: int) -> None:
        """Raise DataError if the model gives vectors of another dimension than those on disk."""
        for folder, vectors in zip(self.folders, self.vectors, strict=True):
            if vectors.shape[1] != dimension:
                raise DataError(
                    f"{folder} holds vectors of dimension {vectors.shape[1]}, but the model gives {dimension}: "
                    "the checkpoint changed since the corpus was indexed"
                )

    def documents_of(self, tokens: np.ndarray) -> np.ndarray:
        """Return the documents that have the given tokens, ascending, each once; tokens below 0 are none."""
        return np.unique(np.searchsorted(self.offsets, tokens[tokens >= 0], side="right") - 1)

    def blocks(self, documents: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield ``documents`` (ascending), those without tokens left out, with their vectors, BLOCK tokens at a time.

        Yields:
            the documents, their token vectors (float32 [tokens, dimension]), and where each begins in these.
        """
        counts = self.offsets[documents + 1] - self.offsets[documents]
        documents, counts = documents[counts > 0], counts[counts > 0]
        cuts = np.flatnonzero(np.diff(np.cumsum(counts) // BLOCK)) + 1
        for part, sizes in zip(np.split(documents, cuts), np.split(counts, cuts), strict=True):
            if len(part):
                first = np.cumsum(sizes) - sizes
                tokens = np.repeat(self.offsets[part] - first, sizes) + np.arange(sizes.sum())
                yield part, self._read(tokens), first

    def _read(self, tokens: np.ndarray) -> np.ndarray:
        vectors = np.empty((len(tokens), self.vectors[0].shape[1]), np.float32)
        for shard, (start, stop) in enumerate(pairwise(self.starts)):
            low, high = np.searchsorted(tokens, (start, stop))
            vectors[low:high] = self.vectors[shard][tokens[low:high] - start]
        return vectors


def maxsim(queries: TokenVectors, vectors: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Return MaxSim, computed and summed in float32: [queries, documents].

    Args:
        queries: token vectors, at least one per query.
        vectors: float32 [tokens, dimension], the documents' tokens.
        first: the row at which each document begins; each has at least one.
    """
    best = np.maximum.reduceat(queries.vectors @ vectors.T, first, axis=1)
    return np.add.reduceat(best, np.cumsum(queries.counts) - queries.counts, axis=0)


def _batches(queries: TokenVectors, size: int) -> Iterator[TokenVectors]:
    ends = np.concatenate([[0], np.cumsum(queries.counts)])
    for start in range(0, len(queries.counts), size):
        counts = queries.counts[start : start + size]
        yield TokenVectors(queries.vectors[ends[start] : ends[start + len(counts)]], counts)


def search(
    shards: TokenShards, indexes: list[Path], queries: TokenVectors, candidates: int, progress: Progress | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Score the documents of the nearest tokens of each query token.

    Args:
        shards: the corpus's token vectors.
        indexes: the faiss index of each shard.
        queries: token vectors of the queries.
        candidates: nearest tokens per query token, over all shards.

    Returns:
        per query, float32 scores and int64 rows of its candidates, in the corpus's order.
    """
    shards.check_dimension(queries.vectors.shape[1])
    opened = [_open_index(path, vectors) for path, vectors in zip(indexes, shards.vectors, strict=True)]
    scores, rows = [], []
    for batch in _batches(queries, QUERIES):
        nearest = _nearest_tokens(opened, batch.vectors, candidates)
        for query, tokens in zip(_batches(batch, 1), np.split(nearest, np.cumsum(batch.counts)[:-1]), strict=True):
            found = list(shards.blocks(shards.documents_of(tokens)))
            rows.append(np.concatenate([np.zeros(0, np.int64), *(documents for documents, _, _ in found)]))
            values = [maxsim(query, vectors, first)[0] for _, vectors, first in found]
            scores.append(np.concatenate([np.zeros(0, np.float32), *values]))
        if progress:
            progress.add(len(batch.counts))
    return scores, rows


def _open_index(path: Path, vectors: np.ndarray) -> Any:
    import faiss

    index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP)
    if (index.ntotal, index.d) != vectors.shape:
        shape = f"{len(vectors):,} of dimension {vectors.shape[1]}"
        raise DataError(f"{path} indexes {index.ntotal:,} token vectors of dimension {index.d}, its shard has {shape}")
    return index


def _nearest_tokens(indexes: list[Any], vectors: np.ndarray, candidates: int) -> np.ndarray:
    """Return the tokens nearest to each query token: int64 [query tokens, candidates], -1 where there are fewer."""
    import faiss

    heap = faiss.ResultHeap(len(vectors), candidates, keep_max=True)
    start = 0
    for index in indexes:
        if index.ntotal:
            scores, tokens = index.search(vectors, min(candidates, index.ntotal))
            heap.add_result(scores, np.where(tokens < 0, -1, tokens + start))
        start += index.ntotal
    heap.finalize()
    return np.asarray(heap.I)


def search_exhaustively(
    shards: TokenShards, queries: TokenVectors, depth: int, progress: Progress | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Score every document of the corpus for each query.

    Returns:
        per query, float32 scores and int64 rows of the best ``depth`` documents, best first.
    """
    import faiss

    shards.check_dimension(queries.vectors.shape[1])
    scores, rows = [], []
    for batch in _batches(queries, EXHAUSTIVE_QUERIES):
        heap = faiss.ResultHeap(len(batch.counts), depth, keep_max=True)
        for documents, vectors, first in shards.blocks(np.arange(len(shards))):
            values = maxsim(batch, vectors, first)
            heap.add_result(values, np.broadcast_to(documents, values.shape).copy())
        heap.finalize()
        scores += [values[found >= 0] for values, found in zip(heap.D, heap.I, strict=True)]
        rows += [found[found >= 0] for found in heap.I]
        if progress:
            progress.add(len(batch.counts))
    return scores, rows
