"""Exact maximum inner product search: products in float32 find the documents, scores in float64 order them.

The proof. Let s be the score of a query q and a document x in float64, p their product in float32, and D their
dimension. In any order of summation, p is off by at most 2^-24 D |q| |x|, up to terms of second order, and s by 2^-53
of that factor. A product, a sum or a component below 2^-126 may be taken for 0. So |p - s| is less than

    error = 2^-23 D |q| |x| + 2^-125 D (1 + |q| + |x|),

for which |x| is the largest norm of the shard. Where products may overflow, the error is infinite. Let floor be the
lowest of ``depth`` scores. A document with p < floor - error has s < floor, so it is not among the best.

faiss finds the documents with the largest products, ``SLACK`` more than ``depth``, and their scores are computed. If
the smallest of these products is below floor - error, so are the products that faiss left out. Otherwise the scores of
all documents with p >= floor - error are computed: of documents with equal vectors, or of the whole shard where the
error is infinite.

On a GPU, PyTorch or faiss multiplies. PyTorch is told to round no factor. faiss calls cuBLAS's ``SgemmEx`` for float32,
with a handle in the default mode, which rounds no factor to TF32 (``gpu/utils/MatrixMult-inl.cuh`` and
``gpu/StandardGpuResources.cpp`` of faiss 1.15.0). cuVS, which another build of faiss may use, is switched off.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import Any, NamedTuple

import numpy as np

from ..core.compute import GpuSearch
from ..core.errors import DataError

# Documents that the first pass finds beyond the depth. About 30 lie within the error at 4,096 dimensions.
SLACK = 100
# Queries searched for together.
QUERIES = 8192
# Numbers in a block of their products (128 MB).
PRODUCTS = 2**25
# Documents and queries whose products faiss computes together (64 MB). In its own blocks, of 1,024 documents, threads
# wait for each other longer than they multiply.
BLOCK = 2**14, 2**10
# Components of documents that are converted to float64 at a time (2 MB).
COMPONENTS = 2**18
# Documents that faiss can find on a GPU (its GPU_MAX_SELECTION_K), and bytes of a shard that it sends there at a time.
FAISS_DEPTH = 2048
FAISS_BYTES = 2**30

# Finds the largest products of queries and a shard: float32 in descending order, and rows, both [queries, most].
Nearest = Callable[[np.ndarray, np.ndarray, int], tuple[np.ndarray, np.ndarray]]


class TopK(NamedTuple):
    """The best documents so far: float64 scores, best first, and int64 rows, both [queries, depth].

    Scores of places that are not filled are -inf, and their rows are -1.
    """

    scores: np.ndarray
    rows: np.ndarray

    def add(self, number: int, rows: np.ndarray, scores: np.ndarray) -> None:
        """Merge documents of later rows, in ascending order, into the best of a query."""
        scores = np.concatenate([self.scores[number], scores])
        order = np.argsort(-scores, kind="stable")[: self.scores.shape[1]]  # equal scores stay in the order of rows
        self.rows[number] = np.concatenate([self.rows[number], rows])[order]
        self.scores[number] = scores[order]


def empty(queries: int, depth: int) -> TopK:
    """Return room for the best documents."""
    return TopK(np.full((queries, depth), -np.inf), np.full((queries, depth), -1))


def search(
    shards: Iterable[np.ndarray],
    queries: np.ndarray,
    depth: int,
    device: str = "cpu",
    gpu_search: GpuSearch = "torch",
) -> TopK:
    """Find the documents with the highest inner products.

    Args:
        shards: float32 [documents, dimension] each.
        queries: float32 [queries, dimension].
        depth: documents per query.
        device: PyTorch's name of the device of the products in float32.
        gpu_search: library that computes them on a GPU, if it can.

    Returns:
        [queries, min(depth, documents)], ties in row order. Scores and rows do not depend on the division into shards,
        nor on the device.

    Raises:
        DataError: a vector has a component that is not finite.
    """
    import faiss

    best = empty(len(queries), depth)
    first = 0
    nearest = first_pass(device, gpu_search, depth + SLACK)
    with ThreadPoolExecutor(faiss.omp_get_max_threads()) as pool:
        for shard in shards:
            length = lengths(shard).max(initial=0)
            for start in range(0, len(queries) if len(shard) else 0, QUERIES):
                part = slice(start, start + QUERIES)
                of_part = TopK(best.scores[part], best.rows[part])
                _search_shard(shard, first, length, queries[part], of_part, nearest, pool)
            first += len(shard)
            del shard  # so that it is unmapped before the next one is mapped
    return TopK(best.scores[:, :first], best.rows[:, :first])


def lengths(vectors: np.ndarray) -> np.ndarray:
    """Return upper bounds of the norms of float32 vectors, float64 [vectors]."""
    dimension = vectors.shape[1]
    squares = np.einsum("ij,ij->i", vectors, vectors).astype(np.float64)
    bounds: np.ndarray = np.sqrt(squares * (1 + dimension * 2.0**-22) + dimension * 2.0**-124)
    return bounds


def errors(lengths: np.ndarray, longest: float, dimension: int) -> np.ndarray:
    """Return the error of products in float32 for queries of these lengths, float64 [queries]."""
    largest = lengths * longest
    error = dimension * (2.0**-23 * largest + 2.0**-125 * (1 + lengths + longest))
    return np.where(largest < 2.0**125, error, np.inf)


def _search_shard(
    shard: np.ndarray,
    first: int,
    longest: float,
    queries: np.ndarray,
    best: TopK,
    nearest: Nearest,
    pool: ThreadPoolExecutor,
) -> None:
    """Merge a shard's documents, from corpus row ``first`` on, into the best of all queries."""
    depth = best.scores.shape[1]
    most = min(best.scores.shape[1] + SLACK, len(shard))
    error = errors(lengths(queries), longest, shard.shape[1])
    products, rows = nearest(queries, shard, most)

    def add(number: int, near: np.ndarray) -> None:
        best.add(number, near + first, scores(queries[number], shard, near))

    def is_proven(number: int) -> bool:
        if not np.isfinite(error[number]):
            return False
        known = np.concatenate([best.scores[number], products[number] - error[number]])
        floor = np.partition(known, -depth)[-depth]
        add(number, np.sort(rows[number, products[number] >= floor - error[number]]))
        return most == len(shard) or bool(products[number, -1] < best.scores[number, -1] - error[number])

    rest = np.flatnonzero(~np.fromiter(pool.map(is_proven, range(len(queries))), bool, len(queries)))
    least = best.scores[rest, -1] - error[rest]
    best.scores[rest] = np.where(best.rows[rest] < first, best.scores[rest], -np.inf)  # they are added again
    size = PRODUCTS // max(1, len(rest))
    for start in range(0, len(shard) if len(rest) else 0, size):
        with np.errstate(all="ignore"):  # what overflows is near
            near = ~(queries[rest] @ shard[start : start + size].T < least[:, None])
        list(pool.map(add, rest, (np.flatnonzero(row) + start for row in near)))


def first_pass(device: str, gpu_search: GpuSearch, most: int) -> Nearest:
    """Return what finds the ``most`` largest products: on a GPU PyTorch, or faiss if asked for and able."""
    import faiss

    if device == "cpu":
        return _nearest
    able = most <= FAISS_DEPTH and faiss.get_num_gpus() > 0
    return partial(_nearest_in_faiss if gpu_search == "faiss" and able else _nearest_in_torch, device=device)


def _nearest(queries: np.ndarray, shard: np.ndarray, most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the largest products, float32 in descending order, and their rows, both [queries, most]."""
    import faiss

    faiss.cvar.distance_compute_blas_database_bs, faiss.cvar.distance_compute_blas_query_bs = BLOCK
    products, rows = faiss.knn(queries, shard, most, faiss.METRIC_INNER_PRODUCT)
    return products, rows


@cache
def _gpu_memory() -> Any:
    import faiss

    return faiss.StandardGpuResources()


def _nearest_in_faiss(queries: np.ndarray, shard: np.ndarray, most: int, device: str) -> tuple[np.ndarray, np.ndarray]:
    """Like ``_nearest``, on a GPU that PyTorch names, by faiss's brute force there."""
    import faiss

    products, rows = faiss.knn_gpu(
        _gpu_memory(),
        queries,
        shard,
        most,
        metric=faiss.METRIC_INNER_PRODUCT,
        device=int(device.partition(":")[2] or 0),
        use_cuvs=False,
        vectorsMemoryLimit=FAISS_BYTES,
    )
    return products, rows


def _nearest_in_torch(queries: np.ndarray, shard: np.ndarray, most: int, device: str) -> tuple[np.ndarray, np.ndarray]:
    """Like ``_nearest``, on a device of PyTorch, in blocks of a shard."""
    import torch

    def tensor(vectors: np.ndarray) -> torch.Tensor:
        return torch.from_numpy(np.require(vectors, requirements=["C", "W"])).to(device)

    torch.set_float32_matmul_precision("highest")  # a checkpoint's code may have allowed rounded factors
    products = torch.zeros((len(queries), 0), device=device)
    rows = torch.zeros((len(queries), 0), dtype=torch.int64, device=device)
    size = max(1, PRODUCTS // len(queries))
    of_device = tensor(queries)
    for start in range(0, len(shard), size):
        block = of_device @ tensor(shard[start : start + size]).T
        largest, columns = block.topk(min(most, block.shape[1]))
        both = torch.cat([products, largest], 1)
        products, order = both.topk(min(most, both.shape[1]))
        rows = torch.cat([rows, columns + start], 1).gather(1, order)
    return products.cpu().numpy(), rows.cpu().numpy()


def scores(query: np.ndarray, documents: np.ndarray, rows: np.ndarray) -> np.ndarray:
    """Compute the float64 inner products of a query and documents.

    Products of float32 numbers are exact in float64, and numpy adds up those of each row in the same order. So equal
    vectors get equal scores, which a product of matrices does not guarantee.

    Args:
        query: float32 [dimension].
        documents: float32 [documents, dimension].
        rows: int64 [pairs], rows of ``documents``.

    Raises:
        DataError: a score is not finite.
    """
    wide = query.astype(np.float64)
    size = max(1, COMPONENTS // len(query))
    computed = np.empty(len(rows))
    for start in range(0, len(rows), size):
        part = slice(start, start + size)
        (documents[rows[part]] * wide).sum(axis=1, out=computed[part])
    if not np.isfinite(computed).all():
        raise DataError("a vector has a component that is not a finite number")
    return computed
