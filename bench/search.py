"""Contenders of the bench's part ``search``.

Usage: search.py NAMES FOLDER. NAMES are some of make, ours, faiss, memory, torch and limit, with commas between them.

``make`` writes random shards as faiss indexes, and queries. The others print the seconds of a search, and the MB that
it took beyond what the process had before. ``limit`` only multiplies, in float32.
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

SMALL = os.environ.get("BENCH") == "small"
DOCUMENTS, QUERIES, DIMENSION, DEPTH, SHARDS = (10_000 if SMALL else 1_000_000), (50 if SMALL else 1000), 384, 1000, 2
# Documents that torch multiplies at a time.
BLOCK = 4096


def shards(folder: Path) -> list[Path]:
    """List the files of the shards."""
    return [folder / f"{number}.faiss" for number in range(SHARDS)]


def make(folder: Path) -> None:
    """Write the shards and the queries."""
    from beirgrid.search.flat import write_index

    rng = np.random.default_rng(0)
    for path in shards(folder):
        write_index(rng.standard_normal((DOCUMENTS // SHARDS, DIMENSION), np.float32), path)
    np.save(folder / "queries.npy", rng.standard_normal((QUERIES, DIMENSION), np.float32))


def corpus(folder: Path) -> np.ndarray:
    """Return all vectors in one array."""
    import faiss

    indexes: list[Any] = [faiss.read_index(str(path)) for path in shards(folder)]
    return np.concatenate(
        [faiss.rev_swig_ptr(index.get_xb(), index.ntotal * index.d).reshape(-1, index.d) for index in indexes]
    )


def ours(folder: Path, queries: np.ndarray) -> Callable[[], Any]:
    """Search the shards from their files, as the stage ``retrieve`` does."""
    from beirgrid.search import exact, flat

    exact.search([queries[:10]], queries[:10], 5)  # imports the libraries
    return lambda: flat.search_shards(shards(folder), queries, DEPTH)


def faiss(folder: Path, queries: np.ndarray) -> Callable[[], Any]:
    """Search the same files with faiss, as one does without beirgrid: read them, and search them together."""
    import faiss

    def search() -> None:
        together = faiss.IndexShards(DIMENSION)  # one shard after the other, on all cores
        indexes = [faiss.read_index(str(path)) for path in shards(folder)]
        for index in indexes:
            together.add_shard(index)
        together.search(queries, DEPTH)

    return search


def memory(folder: Path, queries: np.ndarray) -> Callable[[], Any]:
    """Search in memory with faiss.knn."""
    from faiss import METRIC_INNER_PRODUCT, knn

    vectors = corpus(folder)
    knn(queries[:10], vectors, 10, METRIC_INNER_PRODUCT)
    return lambda: knn(queries, vectors, DEPTH, METRIC_INNER_PRODUCT)


def torch(folder: Path, queries: np.ndarray) -> Callable[[], Any]:
    """Search in memory with float32 products and PyTorch's topk."""
    vectors = corpus(folder)
    return lambda: search_by_topk(vectors, queries, DEPTH, 16 * BLOCK)


def search_by_topk(vectors: np.ndarray, queries: np.ndarray, depth: int, block: int, device: str = "cpu") -> np.ndarray:
    """Search a block of vectors at a time; return the rows of the best, int64 [queries, depth]."""
    from torch import cat, from_numpy

    asked = from_numpy(queries).to(device)
    scores = asked.new_zeros(len(asked), 0)
    rows = scores.long()
    for start in range(0, len(vectors), block):
        products = asked @ from_numpy(vectors[start : start + block]).to(device).T
        found = products.topk(min(depth, products.shape[1]))
        scores = cat([scores, found.values], 1)
        rows = cat([rows, found.indices + start], 1)
        best = scores.topk(min(depth, scores.shape[1]))
        scores = best.values
        rows = rows.gather(1, best.indices)
    return np.asarray(rows.cpu())


def limit(folder: Path, queries: np.ndarray) -> Callable[[], Any]:
    """Multiply the same queries and documents in memory, and do nothing else."""
    from torch import from_numpy

    vectors, asked = from_numpy(corpus(folder)), from_numpy(queries)

    def multiply() -> None:
        for start in range(0, len(vectors), BLOCK):
            asked @ vectors[start : start + BLOCK].T

    return multiply


def main() -> None:
    """Run contenders; print seconds and MB of each."""
    names, folder = sys.argv[1].split(","), Path(sys.argv[2])
    for name in names:
        if name == "make":
            make(folder)
        else:
            contend(name, folder)


def contend(name: str, folder: Path) -> None:
    """Run a contender; print seconds and MB."""
    search = {"ours": ours, "faiss": faiss, "memory": memory, "torch": torch, "limit": limit}[name](
        folder, np.load(folder / "queries.npy")
    )
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    started = time.monotonic()
    search()
    seconds = time.monotonic() - started
    print(seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024)


if __name__ == "__main__":
    main()
