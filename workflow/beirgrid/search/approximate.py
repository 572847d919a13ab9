"""Approximate search with dense vectors: smaller or faster indexes than the flat one."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..config.systems import AnyIndex, Flat, Hnsw
from ..core.errors import DataError
from . import flat

# faiss's class for each kind of index.
_CLASSES = {"hnsw": "IndexHNSWFlat", "int8": "IndexScalarQuantizer"}


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


def search_shards(
    shards: Iterable[Path],
    queries: np.ndarray,
    depth: int,
    kind: AnyIndex,
    device: str = "cpu",
) -> tuple[np.ndarray, np.ndarray]:
    """Search the indexes of shards, in row order, for ``queries``, float32 [queries, dimension], and merge the results.

    A flat index is searched on ``device``, other kinds on the CPU.

    Returns:
        float32 scores and int64 corpus rows, both [queries, at most depth], best first. Where an index finds fewer
        documents, the row is -1.

    Raises:
        DataError: an index is damaged, of another kind, or has another dimension than the queries.
    """
    import faiss

    if isinstance(kind, Flat):
        return flat.search_shards(shards, queries, depth, device)
    best = faiss.ResultHeap(len(queries), depth, keep_max=True)
    first = 0
    for path in shards:
        index = flat.read_index(path, _CLASSES[kind.kind])
        if index.d != queries.shape[1]:
            raise DataError(f"{path} holds vectors of dimension {index.d}, but the queries have {queries.shape[1]}")
        if isinstance(kind, Hnsw):
            index.hnsw.efSearch = max(kind.search, depth)
        scores, rows = index.search(queries, min(depth, index.ntotal))
        best.add_result(scores, np.where(rows < 0, -1, rows + first))
        first += index.ntotal
    best.finalize()
    kept = min(depth, first)
    return best.D[:, :kept], best.I[:, :kept]
