"""Import runs of other software: check them against the collection, and convert them to the grid's form."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from ..collections import collection
from ..core.errors import DataError, quoted
from . import runs


class ImportedRun(NamedTuple):
    """A run, with counts for its record and notices for the log."""

    run: runs.Run
    facts: dict[str, Any]
    warnings: list[str]


def read(
    path: Path,
    queries: Mapping[str, str],
    excluded: Mapping[str, set[str]],
    corpus: Path,
    depth: int,
    allow: Collection[str] = (),
    candidates: Mapping[str, set[str]] = MappingProxyType({}),
) -> ImportedRun:
    """Read a run under the rules for the workflow's own runs.

    Queries without qrels are dropped. So are documents that the dataset excludes for a query, before the cut at
    ``depth``. A run that lacks a query with qrels may be truncated, so it is refused unless ``allow`` permits it; the
    query then counts 0 in each mean.

    Args:
        path: TREC run, plain or gzipped.
        queries: query id to text, for the queries with qrels.
        excluded: query id to the documents that the dataset excludes for the query.
        corpus: corpus.parquet.
        depth: documents per query to keep.
        allow: flaws to accept: ``missing-queries``.
        candidates: query id to the only documents that are ranked for it, where not all are.

    Raises:
        DataError: a line cannot be read, a document is not in the corpus, or a query with qrels is missing.
    """
    found = runs.read(path)
    known = [query for query in queries if query in found]
    if not known:
        examples = ", ".join(quoted(query) for query in list(found)[:3]) or "nothing"
        raise DataError(
            f"{path} has none of the {len(queries):,} queries of the dataset that have qrels "
            f"({quoted(next(iter(queries)))}, say). It has {examples}. Is it the run of another dataset?"
        )
    if (lacking := [query for query in queries if query not in found]) and "missing-queries" not in allow:
        raise DataError(
            f"{path} lacks {len(lacking):,} of the {len(queries):,} queries of the dataset that have qrels "
            f"({quoted(lacking[0])}, say). Was it cut short? If the system found nothing for them, set "
            "allow: [missing-queries] in the entry of the system: they then count 0."
        )
    _check_documents(path, found, corpus)
    kept = {
        query: runs.canonical(query, *found[query], depth, excluded.get(query, ()), candidates.get(query))
        if query in found
        else runs.EMPTY
        for query in queries
    }
    facts = {
        "queries": len(queries),
        "queries_lacking": len(lacking),
        "queries_without_documents": sum(not ranking.ids for ranking in kept.values()),
        "queries_without_qrels": len(found) - len(known),
        "excluded_documents": sum(len(excluded.get(query, set()).intersection(found[query].ids)) for query in known),
    }
    return ImportedRun(kept, facts, _warnings(facts))


def _check_documents(path: Path, found: runs.Run, corpus: Path) -> None:
    """Raise DataError, naming the line, if the run ranks a document that the corpus lacks."""
    ranked = {document for ranking in found.values() for document in ranking.ids}
    if unknown := ranked - collection.known_ids(corpus, ranked):
        line = next(line for line in runs.lines(path) if line.document in unknown)
        raise DataError(
            f"{path}:{line.number}: the corpus has no document {quoted(line.document)}. It lacks {len(unknown):,} of "
            f"the run's {len(ranked):,} documents. Was the run made over another version of the collection?"
        )


def _warnings(facts: Mapping[str, int]) -> list[str]:
    warnings = []
    if facts["queries_without_qrels"]:
        warnings.append(f"{facts['queries_without_qrels']:,} queries of the run have no qrels and are left out")
    if facts["queries_without_documents"]:
        count = f"{facts['queries_without_documents']:,} of {facts['queries']:,}"
        warnings.append(f"the run has no documents for {count} queries that have qrels; they count 0")
    return warnings
