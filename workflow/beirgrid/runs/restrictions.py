"""What a dataset allows a run, also one of other software: which documents are ranked for each query, and how many."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np

from ..collections import collection
from ..core.errors import DataError, quantity, quoted, warn
from . import runs

# Type of the option with the flaws to accept.
Allow = Annotated[
    tuple[Literal["missing-queries"], ...], "flaws to accept: missing-queries allows judged queries that the run lacks"
]

# A search finds all documents for queries that have candidates. It takes so many pairs of query and document at a time:
_PAIRS = 4_000_000
# What a search finds per query: float32 scores and int64 corpus rows, best first; the row -1 means no document.
Found = tuple[Sequence[np.ndarray] | np.ndarray, Sequence[np.ndarray] | np.ndarray]


class Restrictions:
    """The excluded documents and the candidates of a dataset's queries, and the depth of a run."""

    def __init__(self, queries: Path, depth: int) -> None:
        self.depth = depth
        self.excluded, self.candidates = collection.read_restrictions(queries)

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

    def run(
        self,
        queries: Sequence[str],
        documents: int,
        find: Callable[[int, int, int], Found],
        ids_of: Callable[[Any], collection.Ids],
    ) -> runs.Run:
        """Search with all queries, by id, and return their run.

        Args:
            documents: documents of the corpus.
            find: searches with the queries from one number up to another, for so many documents.
            ids_of: returns the ids of rows of the corpus.
        """
        run = dict[str, runs.Ranking]()
        for start, stop in self.blocks(len(queries), max(1, _PAIRS // documents)):
            scores, rows = find(start, stop, self.searched(documents))
            ids = ids_of(rows)
            for number, query in enumerate(queries[start:stop]):
                ranked = rows[number] >= 0
                names = ids.take(rows[number][ranked]).to_pylist()
                run[query] = self.ranking(query, names, scores[number][ranked])
        return run


def adopt(
    path: Path, system: str, queries: Path, corpus: Path, depth: int, allow: Collection[str], output: Path
) -> dict[str, int]:
    """Write a TREC run of other software under the rules for the workflow's own runs; return counts for its record.

    Queries without qrels, which ``queries`` (the dataset's file) lacks, are dropped. So are documents that the dataset
    excludes for a query, before the cut at ``depth``. A run that lacks a query with qrels may be truncated, so it is
    refused unless ``allow`` permits it; the query then counts 0 in each mean.

    Raises:
        DataError: a line cannot be read, a document is not in the corpus, or a query with qrels is missing.
    """
    run = runs.read(path)
    texts = collection.read_queries(queries)
    limits = Restrictions(queries, depth)
    _refuse_other_queries(path, run, texts, allow)
    _refuse_unknown_documents(path, run, corpus)
    kept = {query: limits.ranking(query, *run[query]) if query in run else runs.EMPTY for query in texts}
    known = [query for query in texts if query in run]
    excluded = [limits.excluded.get(query, set()).intersection(run[query].ids) for query in known]
    facts = {
        "queries": len(texts),
        "queries_lacking": len(texts) - len(known),
        "queries_without_documents": sum(not ranking.ids for ranking in kept.values()),
        "queries_without_qrels": len(run) - len(known),
        "excluded_documents": sum(map(len, excluded)),
    }
    runs.write(output, kept, system)
    if facts["queries_without_qrels"]:
        warn(f"left out: {quantity(facts['queries_without_qrels'], 'query')} of the run without qrels")
    if facts["queries_without_documents"]:
        judged = quantity(facts["queries"], "query")
        warn(
            f"the run has no documents for {facts['queries_without_documents']:,} of {judged} with qrels; each counts 0"
        )
    return facts


def _refuse_other_queries(path: Path, run: runs.Run, texts: Collection[str], allow: Collection[str]) -> None:
    """Raise DataError if a run has none of the queries, or lacks some of them."""
    lacking = [query for query in texts if query not in run]
    if len(lacking) == len(texts):
        examples = ", ".join(quoted(query) for query in list(run)[:3]) or "nothing"
        raise DataError(
            f"{path} has none of the {quantity(len(texts), 'query')} of the dataset that have qrels "
            f"({quoted(next(iter(texts)))}, say). It has {examples}. Is it the run of another dataset?"
        )
    if lacking and "missing-queries" not in allow:
        raise DataError(
            f"{path} lacks {len(lacking):,} of the {quantity(len(texts), 'query')} of the dataset that have qrels "
            f"({quoted(lacking[0])}, say). Was it cut short? If the system found nothing for them, set "
            "allow: [missing-queries] in the entry of the system: they then count 0."
        )


def _refuse_unknown_documents(path: Path, run: runs.Run, corpus: Path) -> None:
    """Raise DataError if the corpus lacks a document of a run."""
    ranked = {document for ranking in run.values() for document in ranking.ids}
    if unknown := ranked - collection.known_ids(corpus, ranked):
        document, number = next((name, number) for _, name, _, number in runs.lines(path) if name in unknown)
        raise DataError(
            f"{path}:{number}: the corpus has no document {quoted(document)}. It lacks {len(unknown):,} of "
            f"the run's {quantity(len(ranked), 'document')}. Was the run made over another version of the collection?"
        )
