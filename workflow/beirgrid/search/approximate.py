"""Approximate search with dense vectors: smaller or faster indexes than the flat one.

A binary index has the signs of a vector as bits, and is searched in two steps, as sentence-transformers'
``semantic_search_faiss`` does: documents whose bits differ least from the query's, over all shards, are scored by the
product of the query's floats and their bits, 0 or 1. An int8 index with ``oversampling`` is searched so too: its bits
are the signs of its vectors, and the vectors themselves score the documents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from ..config.systems import AnyIndex, Binary, Flat, Hnsw, Int8
from ..core.compute import GpuSearch
from ..core.errors import DataError
from . import exact, flat

# faiss's class for each kind of index.
_CLASSES = {"hnsw": "IndexHNSWFlat", "int8": "IndexScalarQuantizer", "binary": "IndexBinaryFlat"}


class Signed(NamedTuple):
    """An int8 index, and one of the signs of its vectors."""

    codes: Any
    bits: Any
    d: int
    ntotal: int


def truncate(vectors: np.ndarray, dimensions: int | None, similarity: str) -> np.ndarray:
    """Truncate float32 [vectors, dimension] to the first dimensions (Matryoshka), of length 1 again for ``cosine``.

    None keeps all dimensions. Raises DataError if the vectors have fewer.
    """
    if dimensions is None:
        return vectors
    if dimensions > vectors.shape[1]:
        raise DataError(f"the vectors have {vectors.shape[1]} dimensions, fewer than `dimensions: {dimensions}`")
    cut = np.ascontiguousarray(vectors[:, :dimensions], np.float32)
    if similarity == "cosine":
        lengths = np.linalg.norm(cut, axis=1, keepdims=True)
        cut /= np.where(lengths > 0, lengths, 1)
    return cut


def write_index(vectors: np.ndarray, kind: AnyIndex, path: Path) -> None:
    """Write an index of float32 [documents, dimension] to a file, reproducibly."""
    import faiss

    if isinstance(kind, Binary):
        faiss.write_index_binary(_bit_index(vectors), str(path))
        return
    factory = f"HNSW{kind.links},Flat" if isinstance(kind, Hnsw) else {"flat": "Flat", "int8": "SQ8"}[kind.kind]
    index: Any = faiss.index_factory(vectors.shape[1], factory, faiss.METRIC_INNER_PRODUCT)
    threads = faiss.omp_get_max_threads()
    if isinstance(kind, Hnsw):
        index.hnsw.efConstruction = kind.construction
        faiss.omp_set_num_threads(1)  # an HNSW graph depends on the order of insertion
    try:
        index.train(vectors)
        index.add(vectors)
    finally:
        faiss.omp_set_num_threads(threads)
    faiss.write_index(index, str(path))


def _bits(vectors: np.ndarray) -> np.ndarray:
    """Return the signs of vectors, uint8 [vectors, bytes]: a bit is 1 above 0."""
    return np.packbits(vectors > 0, axis=1)


def _bit_index(vectors: np.ndarray) -> Any:
    """Return faiss's index of the signs of vectors."""
    import faiss

    codes = _bits(vectors)
    bits = faiss.IndexBinaryFlat(8 * codes.shape[1])
    bits.add(codes)
    return bits


def read_index(path: Path, kind: AnyIndex) -> Any:
    """Read the index of a shard into memory; of a flat one, return the path, because its search maps it."""
    if isinstance(kind, Flat):
        return path
    index = flat.read_index(path, _CLASSES[kind.kind], binary=isinstance(kind, Binary))
    if isinstance(kind, Int8) and kind.oversampling:
        return Signed(index, _bit_index(index.reconstruct_n(0, index.ntotal)), index.d, index.ntotal)
    return index


def search_shards(
    shards: Sequence[Any],
    queries: np.ndarray,
    depth: int,
    kind: AnyIndex,
    device: str = "cpu",
    gpu_search: GpuSearch = "torch",
) -> tuple[np.ndarray, np.ndarray]:
    """Search the indexes of shards, in row order, for ``queries``, float32 [queries, dimension], and merge the results.

    A flat index is searched on ``device``, other kinds on the CPU. Shards are files, which are read one at a time, or
    what ``read_index`` returns.

    Returns:
        float32 scores and int64 corpus rows, both [queries, at most depth], best first. Where an index finds fewer
        documents, the row is -1.

    Raises:
        DataError: an index is damaged, of another kind, or has another dimension than the queries.
    """
    import faiss

    if isinstance(kind, Flat):
        return flat.search_shards(shards, queries, depth, device, gpu_search)
    if isinstance(kind, Binary | Int8) and kind.oversampling:
        return _search_bits(shards, queries, depth, kind, depth * kind.oversampling)
    best = faiss.ResultHeap(len(queries), depth, keep_max=True)
    first = 0
    for index in _each(shards, kind, queries.shape[1]):
        if isinstance(kind, Hnsw):
            index.hnsw.efSearch = max(kind.search, depth)
        scores, rows = index.search(queries, min(depth, index.ntotal))
        best.add_result(scores, np.where(rows < 0, -1, rows + first))
        first += index.ntotal
    best.finalize()
    kept = min(depth, first)
    return best.D[:, :kept], best.I[:, :kept]


def _each(shards: Sequence[Any], kind: AnyIndex, dimension: int) -> Iterator[Any]:
    """Yield the index of each shard. Raises DataError if one does not fit queries of this dimension."""
    for shard in shards:
        index = read_index(shard, kind) if isinstance(shard, Path) else shard
        if index.d != (8 * math.ceil(dimension / 8) if isinstance(kind, Binary) else dimension):
            raise DataError(f"{shard} holds vectors of dimension {index.d}, but the queries have {dimension}")
        yield index


def _search_bits(
    shards: Sequence[Any], queries: np.ndarray, depth: int, kind: AnyIndex, most: int
) -> tuple[np.ndarray, np.ndarray]:
    """Find at most ``most`` documents by their bits, and score them again by the query's floats."""
    import faiss

    dimension = queries.shape[1]
    asked = _bits(queries)
    nearest = faiss.ResultHeap(len(queries), most)
    first = 0
    for index in _each(shards, kind, dimension):
        bits = index.bits if isinstance(index, Signed) else index
        differing, rows = bits.search(asked, min(most, index.ntotal))
        nearest.add_result(differing.astype(np.float32), rows + first)
        first += index.ntotal
    nearest.finalize()
    best = exact.empty(len(queries), depth)
    first = 0
    for index in _each(shards, kind, dimension):
        vectors = _vectors(index, dimension)
        for number, query in enumerate(queries.astype(np.float64)):
            found = nearest.I[number]
            rows = np.sort(found[(found >= first) & (found < first + index.ntotal)])
            # Equal vectors have equal sums, other than of a product.
            best.add(number, rows, (vectors(rows - first) * query).sum(axis=1))
        first += index.ntotal
    kept = min(depth, first)
    return best.scores[:, :kept].astype(np.float32), best.rows[:, :kept]


def _vectors(index: Any, dimension: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function of rows that returns the vectors by which an index scores them, [rows, dimension]."""
    import faiss

    if isinstance(index, Signed):
        return lambda rows: index.codes.reconstruct_batch(rows)
    codes = faiss.vector_to_array(index.xb).reshape(index.ntotal, -1)
    return lambda rows: np.unpackbits(codes[rows], axis=1, count=dimension)
