"""Which documents are ranked for each query of a dataset, and how many of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ..collections import collection
from . import runs


class Limits:
    """The excluded documents and the candidates of a dataset's queries, and the depth of a run."""

    def __init__(self, queries: Path, depth: int) -> None:
        self.depth = depth
        self.excluded, self.candidates = collection.read_excluded(queries), collection.read_candidates(queries)

    def searched(self, documents: int) -> int:
        """Return how many documents to search for: excluded ones may be the best, and candidates the last of all."""
        return documents if self.candidates else self.depth + max(map(len, self.excluded.values()), default=0)

    def blocks(self, queries: int, size: int) -> Iterator[tuple[int, int]]:
        """Yield the first query, and the one after the last, of each search: all, or few where each finds all."""
        size = size if self.candidates else max(queries, 1)
        yield from ((start, min(start + size, queries)) for start in range(0, queries, size))

    def ranking(self, query: str, ids: Iterable[str], scores: np.ndarray | list[float]) -> runs.Ranking:
        """Return the canonical ranking of a query."""
        return runs.canonical(query, ids, scores, self.depth, self.excluded.get(query, ()), self.candidates.get(query))
