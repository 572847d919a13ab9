"""Search engines: BM25, inner product, impact scores, MaxSim."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np

from ..core.compute import Compute
from ..core.families import FAMILIES

# Per query: float32 scores and int64 corpus rows, best first; the row -1 means no document.
Found = tuple[Sequence[np.ndarray] | np.ndarray, Sequence[np.ndarray] | np.ndarray]


class Store(Protocol):
    """Storage and indexing of a model family's vectors; implemented by modules."""

    def write_vectors(self, path: Path, blocks: Iterable[Any], documents: int, dimension: int) -> dict[str, int]:
        """Write the vectors of a shard, block by block, and return facts for their record.

        Args:
            path: file, or empty folder, to write.
            blocks: vectors of consecutive documents, from the family's encoder.
        """
        ...

    def index_vectors(self, vectors: Path, path: Path) -> tuple[dict[str, str], dict[str, int]]:
        """Index what ``write_vectors`` wrote, and return settings and facts for the record of the index.

        Args:
            path: file, or empty folder, to write.

        Raises:
            DataError: the vectors are damaged.
        """
        ...


class SearchEngine(Store, Protocol):
    """A store whose search takes no options (late interaction is not one)."""

    def find(self, shards: Sequence[Path], queries: Any, depth: int, compute: Compute) -> Found:
        """Search indexes and merge the results.

        Args:
            shards: the indexes of a corpus, in row order.
            queries: query vectors, from the family's encoder.
            depth: documents per query.
            compute: the device, for a search that can run on a GPU.

        Raises:
            DataError: an index is damaged, or does not fit the queries.
        """
        ...


def store(family: str) -> Store:
    """Return the search module of a family."""
    return cast(Store, importlib.import_module(f".{FAMILIES[family].search}", __name__))


def engine(family: str) -> SearchEngine:
    """Return the search module of a family whose search takes no options."""
    return cast(SearchEngine, store(family))
