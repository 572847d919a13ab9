"""Exact search with dense vectors: inner products with every document, a shard at a time (faiss's flat index)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np

from ..core import files
from ..core.errors import DataError

# Vectors that are copied into an index at a time.
_BLOCK = 8192


def write_index(vectors: np.ndarray, path: Path) -> None:
    """Write an exact index of float32 [documents, dimension] to a file. Cosine needs vectors of length 1."""
    import faiss

    index = faiss.IndexFlatIP(vectors.shape[1])
    for start in range(0, len(vectors), _BLOCK):
        index.add(np.ascontiguousarray(vectors[start : start + _BLOCK]))
    faiss.write_index(index, str(path))


def search_shards(shards: Iterable[Path], queries: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Search the indexes of shards one after another and merge the results.

    Only one shard is mapped at a time, so memory does not grow with the corpus.

    Args:
        shards: files that ``write_index`` wrote. Their rows, one shard after another, are the rows of the corpus.
        queries: float32 [queries, dimension].
        depth: documents per query.

    Returns:
        float32 scores and int64 corpus rows, both [queries, min(depth, documents)], best first.

    Raises:
        DataError: an index is damaged, or has another dimension than the queries.
    """
    import faiss

    best = faiss.ResultHeap(len(queries), depth, keep_max=True)
    start = 0
    for path in shards:
        with files.reading(path):
            index = faiss.read_index(str(path), faiss.IO_FLAG_MMAP_IFC)
        if index.d != queries.shape[1]:
            raise DataError(
                f"{path} holds vectors of dimension {index.d}, but the model gives {queries.shape[1]}: "
                "the checkpoint changed since the corpus was indexed"
            )
        scores, rows = index.search(queries, min(depth, index.ntotal))
        best.add_result(scores, rows + start)
        start += index.ntotal
        del index  # unmapped before the next shard is mapped
    best.finalize()
    kept = min(depth, start)
    return best.D[:, :kept], best.I[:, :kept]


def search_exact(documents: np.ndarray, queries: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the documents with the highest inner products, exactly, in memory.

    Args:
        documents: float32 [documents, dimension].
        queries: float32 [queries, dimension].
        depth: documents per query.

    Returns:
        float32 scores and int64 rows of ``documents``, both [queries, min(depth, documents)], best first.

    Example:
        >>> import numpy as np
        >>> documents = np.array([[1, 0], [0, 1], [0.6, 0.8]], np.float32)
        >>> scores, rows = search_exact(documents, np.array([[1, 0]], np.float32), depth=2)
        >>> rows.tolist()
        [[0, 2]]
    """
    import faiss

    scores, rows = faiss.knn(
        np.ascontiguousarray(queries, np.float32),
        np.ascontiguousarray(documents, np.float32),
        min(depth, len(documents)),
        metric=faiss.METRIC_INNER_PRODUCT,
    )
    return scores, rows
