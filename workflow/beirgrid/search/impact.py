"""Exact search with learned sparse vectors: inverted indexes with impact scores, on disk, shard by shard.

A shard's index is a folder with the matrix [documents, vocabulary] by columns: ``starts.npy`` int64 [vocabulary + 1],
``documents.npy`` int32 and ``impacts.npy`` float32 [postings], and ``shape.npy``. Scores are exact float32 dot
products. Lucene's impact index would round weights to integers, and is slower (``make bench``, part sparse).
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from ..core import files
from ..core.compute import Compute
from ..core.errors import DataError
from . import exact

if TYPE_CHECKING:
    import scipy.sparse

# Scores that a thread computes at a time, of as many queries as fit (32 MB).
SCORES = 2**22


def write_vectors(
    path: Path, blocks: Iterable[scipy.sparse.csr_matrix], documents: int, dimension: int
) -> dict[str, int]:
    """Write the weights of a shard as a float32 CSR matrix [documents, vocabulary], .npz."""
    import scipy.sparse

    weights = scipy.sparse.vstack(list(blocks), format="csr")
    with path.open("wb") as stream:
        scipy.sparse.save_npz(stream, weights, compressed=False)
    return {"weights": int(weights.nnz)}


def index_vectors(vectors: Path, path: Path) -> tuple[dict[str, str], dict[str, int]]:
    """Invert the weights of a shard into postings with exact float32 impacts."""
    import scipy.sparse

    with files.reading(vectors):
        weights = scipy.sparse.load_npz(vectors)
    write_index(weights, path)
    counts = {"documents": weights.shape[0], "dimension": weights.shape[1], "postings": int(weights.nnz)}
    return {"index": "impact postings", "weights": "float32"}, counts


def write_index(weights: scipy.sparse.csr_matrix, folder: Path) -> None:
    """Write float32 [documents, vocabulary] as postings per term into an empty folder."""
    postings = weights.tocsc()
    postings.sort_indices()
    np.save(folder / "shape.npy", np.array(weights.shape, np.int64))
    np.save(folder / "starts.npy", postings.indptr.astype(np.int64))
    np.save(folder / "documents.npy", postings.indices.astype(np.int32, copy=False))
    np.save(folder / "impacts.npy", postings.data.astype(np.float32, copy=False))


def search_shards(
    shards: Iterable[Path], queries: scipy.sparse.csr_matrix, depth: int, threads: int = 1
) -> tuple[np.ndarray, np.ndarray]:
    """Search the folders of shards, in corpus order, for ``queries``, float32 [queries, vocabulary], and merge.

    One shard is mapped at a time, and only the postings of the queries' terms are read.

    Returns:
        float32 scores and int64 corpus rows, both [queries, depth], best first; ties in row order. Documents without a
        term of the query are not found, so remaining rows are -1.
    """
    import scipy.sparse

    best = exact.empty(queries.shape[0], depth)
    first = 0
    for folder in shards:
        with files.reading(folder):
            size, vocabulary = np.load(folder / "shape.npy")
            starts, documents, impacts = (
                np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("starts", "documents", "impacts")
            )
            if not len(starts) - 1 == vocabulary or not starts[-1] == len(documents) == len(impacts):
                raise ValueError(f"{vocabulary:,} terms have {starts[-1]:,} postings; there are {len(documents):,}")
        if vocabulary != queries.shape[1]:
            raise DataError(
                f"{folder} has a vocabulary of {vocabulary:,} terms, but the model has {queries.shape[1]:,}: "
                "the checkpoint changed since the corpus was indexed"
            )
        postings = scipy.sparse.csr_matrix((impacts, documents, starts), (vocabulary, size), copy=False)
        _search(queries, postings, first, best, threads)
        first += size
        del starts, documents, impacts, postings  # so that they are unmapped before the next ones are mapped
    return best.scores.astype(np.float32), best.rows


def find(
    shards: Iterable[Path], queries: scipy.sparse.csr_matrix, depth: int, compute: Compute
) -> tuple[np.ndarray, np.ndarray]:
    """Search shards on the CPU, whatever device ``compute`` names, with PyTorch's threads."""
    import torch  # loaded already, to encode the queries

    return search_shards(shards, queries, depth, torch.get_num_threads())


def _search(
    queries: scipy.sparse.csr_matrix, postings: scipy.sparse.csr_matrix, first: int, best: exact.TopK, threads: int
) -> None:
    """Merge a shard's documents, from corpus row ``first`` on, with float32 ``postings`` [vocabulary, documents]."""
    depth = best.rows.shape[1]
    size = max(1, SCORES // max(1, postings.shape[1]))

    def add(start: int) -> None:
        scores = queries[start : start + size] @ postings
        scores.eliminate_zeros()
        for number, (begin, end) in enumerate(pairwise(scores.indptr), start):
            values = scores.data[begin:end]
            rows = scores.indices[begin:end]
            if len(values) > depth:
                near = values >= np.partition(values, -depth)[-depth]
                values = values[near]
                rows = rows[near]
            order = np.argsort(rows)
            best.add(number, rows[order] + first, values[order])

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(add, range(0, queries.shape[0], size)))
