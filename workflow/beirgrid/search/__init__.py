"""Search engines: BM25, inner product, impacts, MaxSim."""

from __future__ import annotations

import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, cast

import numpy as np

from ..core.compute import Compute
from ..core.families import FAMILIES

# Per query, float32 scores and int64 corpus rows, best first; -1 stands for no row.
Found = tuple[Sequence[np.ndarray] | np.ndarray, Sequence[np.ndarray] | np.ndarray]


class Store(Protocol):
    """What a module offers that stores and indexes the vectors of a family of models."""

    def write_vectors(self, path: Path, blocks: Iterable[Any], documents: int, dimension: int) -> dict[str, int]:
        """Write the vectors of a shard, block by block, and return facts for their record.

        Args:
            path: file, or empty folder, to write.
            blocks: the vectors of some documents after another, as the family's encoder gives them.
            documents: number of documents.
            dimension: dimensions of a vector.
        """
        ...

    def index_vectors(self, vectors: Path, path: Path) -> tuple[dict[str, str], dict[str, int]]:
        """Index what ``write_vectors`` wrote, and return settings and facts for the record of the index.

        Args:
            vectors: the vectors of a shard.
            path: file, or empty folder, to write.

        Raises:
            DataError: the vectors are damaged.
        """
        ...


class SearchEngine(Store, Protocol):
    """A store whose indexes can be searched without options (late interaction has no such search)."""

    def find(self, shards: Sequence[Path], queries: Any, depth: int, compute: Compute) -> Found:
        """Search indexes and merge the results.

        Args:
            shards: the indexes of a corpus, in row order.
            queries: vectors of the queries, as the family's encoder gives them.
            depth: documents per query.
            compute: where the search runs, if it can run on a GPU.

        Raises:
            DataError: an index is damaged, or does not fit the queries.
        """
        ...


def store(family: str) -> Store:
    """Return the module that a family's row names."""
    return cast(Store, _module(family))


def engine(family: str) -> SearchEngine:
    """Return the module that the row of a family names whose search has no options."""
    return cast(SearchEngine, _module(family))


def _module(family: str) -> ModuleType:
    return importlib.import_module(f".{FAMILIES[family].search}", __name__)
