"""Exact search with learned sparse vectors: inverted indexes with impact scores, on disk, shard by shard.

A shard's index is a folder with the matrix [documents, vocabulary] by columns: ``starts.npy`` int64 [vocabulary + 1],
``documents.npy`` int32 and ``impacts.npy`` float32 [postings], and ``shape.npy``. Scores are exact float32 dot
products. Lucene's impact index would round weights to integers, and is slower (``make bench``, part sparse).
"""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ..core import files
from ..core.compiled import once
from ..core.compute import Compute
from ..core.environment import prepare_libraries
from ..core.errors import DataError

if TYPE_CHECKING:
    import scipy.sparse


def write_vectors(
    path: Path, blocks: Iterable[scipy.sparse.csr_matrix], documents: int, dimension: int
) -> dict[str, int]:
    """Write the weights of a shard as a float32 CSR matrix [documents, vocabulary], .npz (``search.Store``)."""
    import scipy.sparse

    weights = scipy.sparse.vstack(list(blocks), format="csr")
    with path.open("wb") as stream:
        scipy.sparse.save_npz(stream, weights, compressed=False)
    return {"weights": int(weights.nnz)}


def index_vectors(vectors: Path, path: Path) -> tuple[dict[str, str], dict[str, int]]:
    """Invert the weights of a shard into postings with exact float32 impacts (``search.Store``)."""
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
    """Search shards one after another and merge.

    Reads only the postings of the queries' terms, and maps one shard at a time.

    Args:
        shards: folders of ``write_index``, in corpus order.
        queries: float32 [queries, vocabulary].
        depth: documents per query.
        threads: threads for the queries. numba's own threads would use all cores, not only the job's.

    Returns:
        float32 scores and int64 corpus rows, both [queries, depth], best first; documents without a term of the query
        are not found, so remaining rows are -1.
    """
    import faiss

    best = faiss.ResultHeap(queries.shape[0], depth, keep_max=True)
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
        scores, rows = _search(queries, starts, documents, impacts, size, depth, threads)
        best.add_result(scores, np.where(rows < 0, -1, rows + first))
        first += size
        del starts, documents, impacts  # so that they are unmapped before the next ones are mapped
    best.finalize()
    return best.D, best.I


def find(
    shards: Iterable[Path], queries: scipy.sparse.csr_matrix, depth: int, compute: Compute
) -> tuple[np.ndarray, np.ndarray]:
    """Search shards on the CPU, whatever device ``compute`` names (``search.Engine``), with PyTorch's threads."""
    import torch  # loaded already, to encode the queries

    return search_shards(shards, queries, depth, torch.get_num_threads())


def _search(
    queries: scipy.sparse.csr_matrix,
    starts: np.ndarray,
    documents: np.ndarray,
    impacts: np.ndarray,
    size: int,
    depth: int,
    threads: int,
) -> tuple[np.ndarray, np.ndarray]:
    """Search one shard: scores and rows, both [queries, depth]."""
    scores = np.full((queries.shape[0], depth), -np.inf, np.float32)
    rows = np.full((queries.shape[0], depth), -1, np.int64)
    asked = queries.indptr.astype(np.int64), queries.indices, queries.data
    blocks = np.linspace(
        0, queries.shape[0], 8 * threads + 1, dtype=np.int64
    )  # several per thread, because queries differ in length

    def search(first: int, end: int) -> None:
        _kernel()(first, end, *asked, starts, documents, impacts, size, scores, rows)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(search, blocks[:-1], blocks[1:]))
    return scores, rows


@once
def _kernel() -> Any:
    """Compile the search of one shard for a block of queries."""
    prepare_libraries()
    import numba

    @numba.njit(nogil=True, cache=True)
    def search(first, end, begins, terms, weights, starts, documents, impacts, size, scores, rows):  # type: ignore[no-untyped-def]
        """Add up impact × weight over each query's terms; keep the best documents above 0."""
        depth = scores.shape[1]
        for query in range(first, end):
            total = np.zeros(size, np.float32)
            for at in range(begins[query], begins[query + 1]):
                for posting in range(starts[terms[at]], starts[terms[at] + 1]):
                    total[documents[posting]] += weights[at] * impacts[posting]
            found = np.nonzero(total)[0]
            if len(found) > depth:
                values = total[found]
                cut = np.partition(values, len(found) - depth)[len(found) - depth]
                above = found[values > cut]
                found = np.concatenate((above, found[values == cut][: depth - len(above)]))
            scores[query, : len(found)] = total[found]
            rows[query, : len(found)] = found

    return search
