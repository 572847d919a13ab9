"""Exact search with dense vectors in faiss's flat index files. ``search.exact`` contains the method and its proof."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from ..core import files
from ..core.compute import Compute, GpuSearch
from ..core.errors import DataError
from . import exact

# Vectors copied into an index at a time.
_BLOCK = 8192
# Vectors found at a time, for all queries together, where documents have several: about 800 MB.
_FOUND = 2**24
# faiss's classes of indexes of documents with one vector, and with several, whose ids are numbers of documents.
_KINDS = ("IndexFlatIP", "IndexIDMap")


def write_vectors(
    path: Path, blocks: Iterable[np.ndarray | tuple[np.ndarray, np.ndarray]], documents: int, dimension: int
) -> dict[str, int]:
    """Write the vectors of a shard as float32 .npy [documents, dimension].

    If documents have several vectors, blocks are vectors and their counts by document. The file is then float32
    [vectors, dimension], and a second array follows: the counts, int64 [documents].
    """
    counts: list[np.ndarray] = []
    header: dict[str, Any] = {"descr": "<f4", "fortran_order": False, "shape": (documents, dimension)}
    with path.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        begin = stream.tell()
        for block in blocks:
            vectors = block
            if isinstance(block, tuple):
                vectors = block[0]
                counts.append(block[1])
            stream.write(np.ascontiguousarray(vectors, "<f4").data)
        if counts:
            np.save(stream, np.concatenate(counts))
            stream.seek(0)  # numpy's header has spare room for a larger row count
            header["shape"] = (int(sum(part.sum() for part in counts)), dimension)
            np.lib.format.write_array_header_1_0(stream, header)
            assert stream.tell() == begin
    return {}


def index_vectors(vectors: Path, path: Path) -> tuple[dict[str, str], dict[str, int]]:
    """Build a shard's flat index; vectors for cosine already have length 1."""
    with files.reading(vectors):
        rows = np.load(vectors, mmap_mode="r")
        if rows.ndim != 2 or not rows.size:
            raise ValueError(f"it holds an array of shape {rows.shape}, not vectors of documents")
        counts = _counts(vectors, rows)
    write_index(rows, path, counts)
    documents = {"documents": len(rows)} if counts is None else {"documents": len(counts), "chunks": len(rows)}
    return {"index": "Flat", "metric": "inner product"}, {**documents, "dimension": rows.shape[1]}


def _counts(path: Path, rows: Any) -> np.ndarray | None:
    """Return how many of the mapped vectors of a file each document has, int64 [documents]; None if each has one."""
    with path.open("rb") as stream:
        stream.seek(rows.offset + rows.nbytes)
        counts: np.ndarray | None = np.load(stream) if stream.peek(1) else None
    if counts is not None and (counts.min(initial=1) < 1 or counts.sum() != len(rows)):
        raise ValueError(f"it holds {len(rows):,} vectors, and counts of {counts.sum():,}")
    return counts


def write_index(vectors: np.ndarray, path: Path, counts: np.ndarray | None = None) -> None:
    """Write a flat index of float32 [vectors, dimension] to a file. Cosine requires vectors of length 1.

    Args:
        vectors: vectors of documents, in the order of the documents.
        counts: vectors of each document, if it has several: the index then has the document's number as their id.
    """
    import faiss

    index: Any = faiss.IndexFlatIP(vectors.shape[1])
    if counts is not None:
        index = faiss.IndexIDMap(index)
        ids = np.repeat(np.arange(len(counts)), counts)
    for start in range(0, len(vectors), _BLOCK):
        block = np.ascontiguousarray(vectors[start : start + _BLOCK])
        index.add(block) if counts is None else index.add_with_ids(block, ids[start : start + _BLOCK])
    faiss.write_index(index, str(path))


def search_shards(
    shards: Iterable[Path], queries: np.ndarray, depth: int, device: str = "cpu", gpu_search: GpuSearch = "torch"
) -> tuple[np.ndarray, np.ndarray]:
    """Search the indexes of shards one after another, exactly. Memory does not grow with the corpus.

    Args:
        shards: files of ``write_index``, in corpus order.
        queries: float32 [queries, dimension].
        depth: documents per query.
        device: PyTorch's device name: ``cpu``, ``cuda:1``, …
        gpu_search: library of the first pass on a GPU.

    Returns:
        float32 scores and int64 corpus rows, both [queries, min(depth, documents)], best first by float64 scores; ties
        in row order. The score of a document with several vectors is the highest of them.

    Raises:
        DataError: an index is damaged, or has another dimension than the queries, or documents have several vectors in
            some shards only.
    """
    shards = list(shards)
    queries = np.ascontiguousarray(queries, np.float32)

    def search(queries: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
        scores, rows = exact.search(_mapped(shards, queries.shape[1]), queries, depth, device, gpu_search)
        return scores.astype(np.float32), rows

    owners = _owners(shards)
    return search(queries, depth) if owners is None else _of_documents(search, queries, depth, owners)


def _owners(shards: Iterable[Path]) -> np.ndarray | None:
    """Return the corpus row of the document of each vector, int64 [vectors]; None if each document has one vector."""
    ids_of: dict[Path, np.ndarray | None] = {}
    for path in shards:
        with opened(path) as (_, ids):
            ids_of[path] = ids
    several = [ids for ids in ids_of.values() if ids is not None]
    if several and len(several) < len(ids_of):
        single = next(path for path, ids in ids_of.items() if ids is None)
        raise DataError(f"{single} has one vector of each document, and other shards have several: index them alike")
    firsts = np.cumsum([0, *(ids[-1] + 1 for ids in several)])
    return np.concatenate([ids + first for ids, first in zip(several, firsts, strict=False)]) if several else None


def _of_documents(
    search: Callable[[np.ndarray, int], tuple[np.ndarray, np.ndarray]],
    queries: np.ndarray,
    depth: int,
    owners: np.ndarray,
) -> tuple[np.ndarray, np.ndarray]:
    """Find the best documents by their best vectors: more vectors are found until they are of enough documents.

    Args:
        search: finds the best vectors of all shards, best first.
        queries: float32 [queries, dimension].
        depth: documents per query.
        owners: int64 [vectors], the documents' corpus rows, ascending.
    """
    documents = int(owners[-1]) + 1
    vectors = depth * (len(owners) // documents)
    depth = min(depth, documents)
    scores = np.empty((len(queries), depth), np.float32)
    rows = np.empty((len(queries), depth), np.int64)
    left = np.arange(len(queries))
    while len(left):
        vectors = min(2 * vectors, len(owners))
        short = []
        for part in np.array_split(left, math.ceil(len(left) * vectors / _FOUND)):
            for query, of_query, nearest in zip(part, *search(queries[part], vectors), strict=True):
                best = np.sort(np.unique(owners[nearest], return_index=True)[1])[:depth]
                if len(best) < depth:
                    short.append(query)
                else:
                    scores[query] = of_query[best]
                    rows[query] = owners[nearest[best]]
        left = np.array(short, np.int64)
    return scores, rows


def find(shards: Iterable[Path], queries: np.ndarray, depth: int, compute: Compute) -> tuple[np.ndarray, np.ndarray]:
    """Search the indexes of shards on the device that ``compute`` chooses."""
    runtime = compute.start()
    return search_shards(shards, queries, depth, runtime.device, runtime.gpu_search)


def vectors_of(shards: Iterable[Path], rows: np.ndarray) -> np.ndarray:
    """Read the vectors of documents by their rows in the corpus, int64: float32 [rows, dimension].

    Args:
        shards: files of ``write_index``, in corpus order.

    Raises:
        DataError: an index is damaged, has several vectors of each document, or the shards have fewer documents.
    """
    wanted = np.unique(rows)
    parts: list[np.ndarray] = []
    first = 0
    for path in shards:
        with opened(path) as (vectors, ids):
            if ids is not None:
                raise DataError(f"{path} has several vectors of each document")
            here = wanted[(wanted >= first) & (wanted < first + len(vectors))]
            parts.append(vectors[here - first])
            first += len(vectors)
    if len(wanted) and wanted[-1] >= first:
        raise DataError(f"the indexes have {first:,} documents, and not document {wanted[-1] + 1:,}")
    return np.concatenate(parts)[np.searchsorted(wanted, rows)]


def read_index(path: Path, *kinds: str, flags: int = 0, binary: bool = False) -> Any:
    """Read a faiss index.

    Args:
        kinds: names of the allowed faiss classes.
        flags: faiss's IO flags.
        binary: whether the index has bits, which are compared by how many differ.

    Raises:
        DataError: the index is damaged, of another kind, or not for inner products.
    """
    import faiss

    with files.reading(path):
        index: Any = (faiss.read_index_binary if binary else faiss.read_index)(str(path), flags)
    _check_kind(path, index, *kinds)
    if not binary and index.metric_type != faiss.METRIC_INNER_PRODUCT:
        raise DataError(f"{path} does not compare vectors by inner product. {files.REMEDY}")
    return index


def _check_kind(path: Path, index: Any, *kinds: str) -> None:
    """Raise DataError unless a faiss index has one of these classes."""
    if (name := type(index).__name__) not in kinds:
        raise DataError(f"{path} is an index of another kind ({name}, not {' or '.join(kinds)}). {files.REMEDY}")


@contextmanager
def opened(path: Path, dimension: int | None = None) -> Iterator[tuple[np.ndarray, np.ndarray | None]]:
    """Map an index for the block.

    Yields:
        its vectors, float32 [vectors, dimension], and the document of each vector, int64 [vectors]; None if each
        document has one vector.

    Raises:
        DataError: the index is damaged, of another kind, or has another dimension.
    """
    import faiss

    index = inner = read_index(path, *_KINDS, flags=faiss.IO_FLAG_MMAP_IFC)
    ids: np.ndarray | None = None
    if type(index).__name__ != _KINDS[0]:
        inner = faiss.downcast_index(index.index)
        ids = faiss.vector_to_array(index.id_map)
        _check_kind(path, inner, _KINDS[0])
        with files.reading(path):
            if not len(ids) or len(ids) != index.ntotal or ids[0] or not np.isin(np.diff(ids), (0, 1)).all():
                raise ValueError("its ids are not those of consecutive documents")
    if dimension is not None and index.d != dimension:
        raise DataError(
            f"{path} holds vectors of dimension {index.d}, but the model gives {dimension}: "
            "the checkpoint changed since the corpus was indexed"
        )
    yield faiss.rev_swig_ptr(inner.get_xb(), index.ntotal * index.d).reshape(-1, index.d), ids


def _mapped(shards: Iterable[Path], dimension: int) -> Iterator[np.ndarray]:
    """Yield the vectors of shards; each is unmapped when the next one is requested."""
    for path in shards:
        with opened(path, dimension) as (vectors, _):
            yield vectors
            del vectors  # so that it is unmapped before the next one is mapped
