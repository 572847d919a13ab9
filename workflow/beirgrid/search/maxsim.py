"""Late interaction: token vectors on disk, an index for candidate generation, and exact MaxSim.

A document's score is the sum over query tokens of the largest dot product with a token of the document (Khattab and
Zaharia, 2020). The token vectors of a shard are a folder with ``vectors.npy`` (float16 [tokens, dimension], documents
one after another) and ``offsets.npy`` (int64 [documents + 1]: document i has the rows offsets[i] to offsets[i + 1]).
Vectors are read from disk on demand, and indexes are mapped one at a time, so memory is bounded by one shard's index.

A query without tokens finds nothing, and a document without tokens is never found.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..core import files
from ..core.errors import DataError
from ..core.progress import Progress
from . import flat

# Shards with fewer token vectors are searched exactly: k-means would have too few points, and exact search is fast.
FLAT_TOKENS = 2**17
# Lists probed per query token, and training points per list (faiss asks for 39 to 256).
PROBES = 32
POINTS = 64
# Token vectors in memory at a time (64 MB in float32 at 128 dimensions).
BLOCK = 2**17
# Query tokens searched together: with 100 candidates each, 79 MB of nearest tokens.
QUERY_TOKENS = 2**15
# Query tokens scored together in an exhaustive search: their scores for one block are 512 MB.
EXHAUSTIVE_TOKENS = 2**10


class TokenVectors(NamedTuple):
    """Token vectors of texts: ``vectors`` float32 [tokens, dimension]; tokens per text, ``counts`` int64 [texts]."""

    vectors: np.ndarray
    counts: np.ndarray

    @classmethod
    def concatenated(cls, blocks: Iterable[TokenVectors]) -> TokenVectors:
        """Concatenate the texts of blocks, of which there is at least one."""
        vectors, counts = zip(*blocks, strict=True)
        return cls(np.concatenate(vectors), np.concatenate(counts))

    def by_text(self) -> list[np.ndarray]:
        """Split into the vectors of each text, float32 [tokens, dimension]."""
        return np.split(self.vectors, np.cumsum(self.counts)[:-1]) if len(self.counts) else []

    def texts(self, rows: Iterable[int]) -> TokenVectors:
        """Select texts by their rows, in the order of the rows."""
        parts = self.by_text()
        chosen = list(rows)
        return TokenVectors(np.concatenate([self.vectors[:0], *(parts[row] for row in chosen)]), self.counts[chosen])

    def sums(self) -> np.ndarray:
        """Sum each text's vectors to one number, which is finite if they are: float32 [texts]."""
        return np.fromiter((part.sum() for part in self.by_text()), np.float32, len(self.counts))


def write_vectors(path: Path, blocks: Iterable[TokenVectors], documents: int, dimension: int) -> dict[str, int]:
    """Write the token vectors of a shard into a folder as float16, block by block.

    Rounding to float16 changes the dot product of two unit vectors by at most 2^-11, so the score of a query of 32
    tokens by at most 0.016.
    """
    header = {"descr": "<f2", "fortran_order": False}
    counts = [np.zeros(1, np.int64)]
    tokens = 0
    with (path / "vectors.npy").open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, {**header, "shape": (0, dimension)})
        begin = stream.tell()
        for block in blocks:
            stream.write(np.ascontiguousarray(block.vectors, "<f2").data)
            counts.append(block.counts)
            tokens += len(block.vectors)
        stream.seek(0)  # numpy's header has spare room for a larger row count
        np.lib.format.write_array_header_1_0(stream, {**header, "shape": (tokens, dimension)})
        assert stream.tell() == begin
    np.save(path / "offsets.npy", np.cumsum(np.concatenate(counts)))
    return {"tokens": tokens}


def index_vectors(vectors: Path, path: Path) -> tuple[dict[str, str], dict[str, int]]:
    """Index the token vectors of a shard for candidate generation."""
    import faiss

    shard = TokenShard(vectors)
    faiss.write_index(build_index(shard), str(path))
    settings = {"index": index_name(shard.tokens, shard.dimension), "metric": "inner product"}
    return settings, {"tokens": shard.tokens, "dimension": shard.dimension}


def index_name(tokens: int, dimension: int) -> str:
    """Return faiss's factory string for an index of ``tokens`` token vectors.

    Large shards have an inverted file of 2 √tokens lists, rounded to a power of two, and product quantisation, as in
    the paper: one byte per 4 dimensions. ``np`` turns off polysemous training, for a filter that is not used.
    """
    if tokens < FLAT_TOKENS:
        return "Flat"
    pieces = max(piece for piece in range(1, max(dimension // 4, 1) + 1) if dimension % piece == 0)
    return f"IVF{1 << round(math.log2(2 * math.sqrt(tokens)))},PQ{pieces}x8np"


class TokenShard:
    """The token vectors of one shard, whose documents and tokens are numbered from 0.

    The file is read, not mapped: the touched pages of a mapped file count as a job's memory, and a search touches
    nearly all of them.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with files.reading(folder):
            self.offsets: np.ndarray = np.load(folder / "offsets.npy")
            vectors: Any = np.load(folder / "vectors.npy", mmap_mode="r")
            self.tokens, self.dimension = vectors.shape
            self.dtype = vectors.dtype
            self.begin = vectors.offset
            if self.offsets[0] or self.offsets[-1] != self.tokens or (np.diff(self.offsets) < 0).any():
                raise ValueError(f"offsets.npy counts {self.offsets[-1]:,} tokens, and vectors.npy has {self.tokens:,}")
        self._room = self._new_room(BLOCK + np.diff(self.offsets).max(initial=0))

    def _new_room(self, tokens: int) -> tuple[np.ndarray, np.ndarray]:
        """Return room for tokens as they are stored, and in float32. Memory is taken when it is filled."""
        return np.empty((tokens, self.dimension), self.dtype), np.empty((tokens, self.dimension), np.float32)

    def __len__(self) -> int:
        """Return the number of documents."""
        return len(self.offsets) - 1

    def documents_of(self, tokens: np.ndarray) -> np.ndarray:
        """Return the documents of the given tokens, ascending and unique; tokens of other shards are ignored."""
        within = tokens[(tokens >= 0) & (tokens < self.tokens)]
        return np.unique(np.searchsorted(self.offsets, within, side="right") - 1)

    def blocks(self, documents: np.ndarray) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
        """Yield the non-empty ``documents`` (ascending), BLOCK tokens at a time, with their token vectors (float32
        [tokens, dimension]) and each document's first row in these. The next block overwrites the vectors.
        """
        counts = self.offsets[documents + 1] - self.offsets[documents]
        documents = documents[counts > 0]
        counts = counts[counts > 0]
        cuts = np.flatnonzero(np.diff(np.cumsum(counts) // BLOCK)) + 1
        for part, sizes in zip(np.split(documents, cuts), np.split(counts, cuts), strict=True):
            if len(part):
                first = np.cumsum(sizes) - sizes
                tokens = np.repeat(self.offsets[part] - first, sizes) + np.arange(sizes.sum())
                yield part, self.read(tokens), first

    def read(self, tokens: np.ndarray) -> np.ndarray:
        """Read the vectors of tokens (ascending and unique): float32 [tokens, dimension].

        A block has the room of those read before: fresh memory, and numpy's conversion from float16, would
        take most of the time of a search.
        """
        import torch

        room = self._room if len(tokens) <= len(self._room[0]) else self._new_room(len(tokens))
        rows, vectors = (part[: len(tokens)] for part in room)
        cuts = (np.flatnonzero(np.diff(tokens) != 1) + 1).tolist()  # consecutive tokens are read at once
        width = self.dimension * self.dtype.itemsize
        with (self.folder / "vectors.npy").open("rb") as stream:
            for low, high in pairwise([0, *cuts, len(tokens)]):
                stream.seek(self.begin + int(tokens[low]) * width)
                if stream.readinto(rows[low:high].data) != (high - low) * width:
                    raise DataError(f"{stream.name} is truncated: delete its folder and run again")
        torch.from_numpy(vectors).copy_(torch.from_numpy(rows))
        return vectors


def build_index(shard: TokenShard, seed: int = 0) -> Any:
    """Build a faiss index of a shard's token vectors, trained on a seeded sample and filled in blocks."""
    import faiss

    tokens = shard.tokens
    name = index_name(shard.tokens, shard.dimension)
    index: Any = faiss.index_factory(shard.dimension, name, faiss.METRIC_INNER_PRODUCT)
    if not index.is_trained:
        points = min(tokens, POINTS * index.nlist)
        sample = np.random.default_rng(seed).choice(tokens, points, replace=False, shuffle=False)
        index.train(shard.read(np.sort(sample)))
        index.nprobe = PROBES  # faiss stores it with the index
    for start in range(0, tokens, BLOCK):
        index.add(shard.read(np.arange(start, min(start + BLOCK, tokens))))
    return index


def _opened(folders: Sequence[Path], dimension: int) -> Iterator[tuple[TokenShard, int, int]]:
    """Yield each shard with the corpus numbers of its first document and first token."""
    document = token = 0
    for folder in folders:
        shard = TokenShard(folder)
        if shard.dimension != dimension:
            raise DataError(
                f"{folder} holds vectors of dimension {shard.dimension}, but the model gives {dimension}: "
                "the checkpoint changed since the corpus was indexed"
            )
        yield shard, document, token
        document += len(shard)
        token += shard.tokens


def maxsim(queries: TokenVectors, vectors: np.ndarray, first: np.ndarray) -> np.ndarray:
    """Compute MaxSim in float32: [queries, documents].

    The documents' tokens are ``vectors``, float32 [tokens, dimension], from the row ``first`` of each document on.
    Each document has at least one token. A query without tokens scores 0 with each document: its sum is empty.
    """
    best = np.maximum.reduceat(queries.vectors @ vectors.T, first, axis=1)
    scores = np.zeros((len(queries.counts), len(first)), np.float32)
    asked = queries.counts > 0
    scores[asked] = np.add.reduceat(best, (np.cumsum(queries.counts) - queries.counts)[asked], axis=0)
    return scores


def _batches(queries: TokenVectors, tokens: int) -> Iterator[TokenVectors]:
    """Divide queries into batches of at most ``tokens`` tokens, with at least one query each."""
    size = max(1, tokens // queries.counts.max(initial=1))
    ends = np.concatenate([[0], np.cumsum(queries.counts)])
    for start in range(0, len(queries.counts), size):
        counts = queries.counts[start : start + size]
        yield TokenVectors(queries.vectors[ends[start] : ends[start + len(counts)]], counts)


def search(
    folders: Sequence[Path],
    indexes: Sequence[Path],
    queries: TokenVectors,
    candidates: int,
    progress: Progress | None = None,
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Score the documents that own one of the ``candidates`` nearest tokens of a query token, over all shards.

    A progress counts a query in a shard as one.

    Returns:
        per query, float32 scores and int64 rows of its candidates, in the corpus's order.
    """
    dimension = queries.vectors.shape[1]
    scores: list[np.ndarray] = []
    rows: list[np.ndarray] = []
    for batch in _batches(queries, QUERY_TOKENS):
        nearest = _nearest_tokens(folders, indexes, batch.vectors, candidates)
        tokens = np.split(nearest, np.cumsum(batch.counts)[:-1])
        scored: list[list[tuple[np.ndarray, np.ndarray]]] = [[] for _ in tokens]
        for shard, first_document, first_token in _opened(folders, dimension):
            for number, query in enumerate(_batches(batch, 1)):
                for documents, vectors, first in shard.blocks(shard.documents_of(tokens[number] - first_token)):
                    scored[number].append((maxsim(query, vectors, first)[0], documents + first_document))
                if progress:
                    progress.add(1)
        for parts in scored:
            scores.append(np.concatenate([np.zeros(0, np.float32), *(values for values, _ in parts)]))
            rows.append(np.concatenate([np.zeros(0, np.int64), *(documents for _, documents in parts)]))
    return scores, rows


def _open_index(path: Path, shard: TokenShard) -> Any:
    import faiss

    index = flat.read_index(path, "IndexFlatIP", "IndexIVFPQ", flags=faiss.IO_FLAG_MMAP)
    if (index.ntotal, index.d) != (shard.tokens, shard.dimension):
        shape = f"{shard.tokens:,} of dimension {shard.dimension}"
        raise DataError(f"{path} indexes {index.ntotal:,} token vectors of dimension {index.d}, its shard has {shape}")
    return index


def _nearest_tokens(
    folders: Sequence[Path], indexes: Sequence[Path], vectors: np.ndarray, candidates: int
) -> np.ndarray:
    """Find the nearest tokens of each query token: int64 [query tokens, candidates], -1 if there are fewer."""
    import faiss

    heap = faiss.ResultHeap(len(vectors), candidates, keep_max=True)
    for path, (shard, _, first) in zip(indexes, _opened(folders, vectors.shape[1]), strict=True):
        index = _open_index(path, shard)
        if index.ntotal:
            scores, tokens = index.search(vectors, min(candidates, index.ntotal))
            heap.add_result(scores, np.where(tokens < 0, -1, tokens + first))
        del index  # so that it is unmapped before the next one is mapped
    heap.finalize()
    return np.asarray(heap.I)


def search_exhaustively(
    folders: Sequence[Path], queries: TokenVectors, depth: int, progress: Progress | None = None
) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Score every document of the corpus for each query. A progress counts a query in a shard as one.

    Returns:
        per query, float32 scores and int64 rows of the best ``depth`` documents, best first.
    """
    import faiss

    scores = []
    rows = []
    for batch in _batches(queries, EXHAUSTIVE_TOKENS):
        heap = faiss.ResultHeap(len(batch.counts), depth, keep_max=True)
        for shard, first_document, _ in _opened(folders, queries.vectors.shape[1]):
            for documents, vectors, first in shard.blocks(np.arange(len(shard))):
                values = maxsim(batch, vectors, first)
                heap.add_result(values, np.broadcast_to(documents + first_document, values.shape).copy())
            if progress:
                progress.add(len(batch.counts))
        heap.finalize()
        found = (heap.I >= 0) & (batch.counts > 0)[:, None]
        scores += [values[of_query] for values, of_query in zip(heap.D, found, strict=True)]
        rows += [ranked[of_query] for ranked, of_query in zip(heap.I, found, strict=True)]
    return scores, rows
