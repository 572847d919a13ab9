"""Search engines: BM25, inner product, impact scores, MaxSim.

A module here stores, indexes and searches the vectors of a model family:

- ``write_vectors(path, blocks, documents, dimension)`` writes the vectors of a shard, block by block as the family's
  encoder yields them, to a file or into an empty folder. It returns facts for their record.
- ``index_vectors(vectors, path)`` indexes what ``write_vectors`` wrote. It returns settings and facts for the record of
  the index, and raises DataError if the vectors are damaged.
- ``find(shards, queries, depth, compute)`` searches the indexes of a corpus, in row order, for ``depth`` documents per
  query, and merges the results. It raises DataError if an index is damaged, or does not fit the queries. Late
  interaction has none: its search takes options.
"""

from __future__ import annotations

import importlib
from typing import Any

from ..core.families import FAMILIES


def module(family: str) -> Any:
    """Return the search module of a family."""
    return importlib.import_module(f".{FAMILIES[family].search}", __name__)
