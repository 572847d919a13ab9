"""Check a collection as its source has it: its documents, and the judged queries and qrels of its datasets."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from ..config.datasets import Corpus, Dataset, LocalCorpus, is_unjudged
from ..core.errors import DataError, quantity, quoted, warn
from ..core.progress import Progress
from . import collection, qrels
from .collection import Document
from .qrels import MAX_GRADE, Changes, Judgement, Qrels
from .sources import Query, Restriction, Source

_Row = TypeVar("_Row", Document, Query)
# What the entry of a corpus says to allow several documents, or queries, of one id.
_DUPLICATES = {"document": "duplicate-documents", "query": "duplicate-queries"}


def write_corpus(name: str, entry: Corpus, source: Source, path: Path) -> dict[str, int]:
    """Write the documents of a corpus as parquet, in row groups; return counts for its record.

    Raises:
        DataError: there are duplicates that the entry does not allow, no texts, or another number of documents than in
            the entry.
    """
    counts = Counter(documents=0, duplicates_dropped=0, empty_documents=0)
    distinct = _distinct("document", source.documents, name, entry, counts)
    progress = Progress(f"fetch {name}", entry.documents, "documents")
    with pq.ParquetWriter(path, collection.CORPUS_SCHEMA, write_page_checksum=True) as writer:
        for batch in collection.groups(distinct, collection.ROW_GROUP):
            columns = [[getattr(document, key) for document in batch] for key in ("id", "title", "text")]
            writer.write_table(pa.table(columns, schema=collection.CORPUS_SCHEMA))
            counts["documents"] += len(batch)
            counts["empty_documents"] += sum(
                not (document.title.strip() or document.text.strip()) for document in batch
            )
            progress.add(len(batch))
    documents, dropped, empty = counts.values()
    if not documents:
        place = entry.path if isinstance(entry, LocalCorpus) else entry.id
        raise DataError(f"corpus {name!r} is empty: {place} has no documents")
    if empty == documents:
        raise DataError(f"no document of corpus {name!r} has text: are 'title' and 'text' the keys of its lines?")
    if dropped:
        warn(f"{dropped} duplicate documents are dropped (the first of each id is kept)")
    if entry.documents not in (None, documents):
        raise DataError(
            f"corpus {name!r} has {quantity(documents, 'document')}; the registry says {entry.documents:,}. Either "
            f"this is another version of the collection, or corpora.{name}.documents is wrong."
        )
    if empty:
        warn(f"{quantity(empty, 'document')} without title and text")
    return dict(counts)


def _distinct(
    kind: str, read: Callable[[], Iterator[_Row]], name: str, corpus: Corpus, counts: Counter[str]
) -> Iterator[_Row]:
    """Yield the first document or query of each id; count the others, if the corpus's entry allows them.

    The ids in memory take about 110 bytes each.
    """
    allowed = _DUPLICATES[kind]
    seen: set[str] = set()
    for row in read():
        if row.id not in seen:
            seen.add(row.id)
            yield row
        elif allowed in corpus.allow:
            counts["duplicates_dropped"] += 1
        else:
            first = next(earlier.place for earlier in read() if earlier.id == row.id)
            raise DataError(
                f"duplicate {kind} id {quoted(row.id)}: {first} and {row.place}. To keep the first of each, add "
                f"allow: [{allowed}] to corpora.{name}."
            )


@dataclass
class Judged:
    """The queries and qrels of a dataset.

    Attributes:
        texts: query id to text, for queries with qrels, in the source's order. Without qrels, all queries.
        excluded: query id to the documents that are not ranked for the query.
        candidates: query id to the only documents that are ranked for it; empty where all are.
        facts: counts for the record.
    """

    texts: dict[str, str]
    grades: Qrels
    changes: Changes
    excluded: dict[str, list[str]]
    candidates: dict[str, list[str]]
    facts: dict[str, Any] = field(default_factory=dict)

    @cached_property
    def in_qrels(self) -> set[str]:
        """The judged documents."""
        return {document for of_query in self.grades.values() for document in of_query}

    @cached_property
    def in_candidates(self) -> set[str]:
        """The candidates of the judged queries."""
        return {document for query in self.texts for document in self.candidates.get(query, ())}


def read_judged(name: str, dataset: Dataset, corpus: Corpus, source: Source, documents: Path) -> Judged:
    """Read the judged queries and the qrels of a dataset over the fetched corpus.parquet, ``documents``.

    Raises:
        DataError: queries, qrels and corpus do not match each other or the dataset's entry.
    """
    by_query, excluded, candidates = _read_qrels(source.judgements(dataset))
    counts: Counter[str] = Counter()
    queries = [*_judged_queries(dataset, corpus, source, by_query.grades, counts)]
    texts = {query.id: query.text for query in queries}
    judged = Judged(texts, by_query.grades, by_query.changes, excluded, candidates)
    if problem := next(_mismatches(judged, dataset, corpus), ""):
        raise DataError(f"dataset {name!r}: {problem}")
    known = collection.known_ids(documents, judged.in_qrels | judged.in_candidates | texts.keys())
    if problem := next(_unknown_documents(judged, dataset, known), ""):
        raise DataError(f"dataset {name!r}: {problem}")
    missing = sorted(judged.in_qrels - known)
    same_ids = known & texts.keys()
    own = _own_documents(name, dataset, documents, same_ids, judged)
    synthetic = sum(query.synthetic for query in queries)
    marks = [f"synthetic: {synthetic:,} of {quantity(len(texts), 'query')}"] * bool(synthetic)
    marks += filter(None, [source.version(dataset)])
    judged.facts = {
        "queries": len(texts),
        "judgements": sum(map(len, judged.grades.values())),
        "relevant": sum(grade > 0 for query in judged.grades.values() for grade in query.values()),
        "queries_without_relevant": sum(max(query.values()) <= 0 for query in judged.grades.values()),
        "duplicates_dropped": counts["duplicates_dropped"],
        "unknown_documents": len(missing),
        "overruled_judgements": by_query.overruled,
        "excluded": sum(map(len, excluded.values())),
        "own_documents_dropped": len(own),
        "same_ids_kept": len(same_ids - own),
        **({"changed": sum(map(len, judged.changes.values()))} if judged.changes else {}),
        **({"candidates": sum(map(len, candidates.values()))} if candidates else {}),
        **({"marks": marks} if marks else {}),
    }
    _warn(name, dataset, judged.facts, missing)
    judged.excluded = {query: [*excluded.get(query, ()), *({query} & own)] for query in texts}
    return judged


def _read_qrels(
    rows: Iterable[Judgement | Restriction],
) -> tuple[qrels.ByQuery, dict[str, list[str]], dict[str, list[str]]]:
    """Return the judgements by query, and by query the excluded documents and the candidates."""
    judged = qrels.ByQuery()
    excluded: dict[str, list[str]] = {}
    candidates: dict[str, list[str]] = {}
    for row in rows:
        if isinstance(row, Judgement):
            judged.add(row)
        else:
            (candidates if row.alone else excluded).setdefault(row.query, []).append(row.document)
    return judged, excluded, candidates


def _warn(name: str, dataset: Dataset, facts: Mapping[str, Any], missing: Sequence[str]) -> None:
    """Warn of what may be a fault of a dataset, such as documents that the corpus lacks (``missing``)."""
    if not facts["judgements"]:
        warn(f"dataset {name!r} has no qrels: its runs will have no scores")
    if dropped := facts["duplicates_dropped"]:
        warn(f"{dropped} duplicate queries are dropped (the first of each id is kept)")
    if missing:
        some = ", ".join(map(quoted, missing[:5]))
        warn(f"qrels name {quantity(len(missing), 'document')} that the corpus lacks, [{some}]; they are kept")
    if pairs := facts["overruled_judgements"]:
        warn(qrels.overruling(pairs))
    if (kept := facts["same_ids_kept"]) and dataset.queries_are_documents == "auto":
        warn(
            f"{quantity(kept, 'query has', 'queries have')} the id of a document with another text, and these "
            f"documents are ranked. If the queries are documents, set datasets.{name}.queries_are_documents: true."
        )


def _mismatches(judged: Judged, dataset: Dataset, corpus: Corpus) -> Iterator[str]:
    """Yield what does not match between queries, qrels, and documents that are not, or alone, ranked."""
    texts = judged.texts
    grades = judged.grades
    if not grades and not is_unjudged(corpus):
        yield f"it has no qrels (split {dataset.qrels(corpus)[1]!r} is empty)"
    if unknown := [query for query in grades if query not in texts]:
        yield f"the qrels judge {quantity(len(unknown), 'unknown query')}, {quoted(unknown[0])} first"
    if dataset.queries not in (None, len(texts)):
        yield f"it has {quantity(len(texts), 'query')} with qrels; the registry says {dataset.queries:,}"
    if not texts:
        yield "it has no queries"
    yield from _restriction_mismatches(judged)
    if grades and not any(grade > 0 for of_query in grades.values() for grade in of_query.values()):
        yield (
            f"of its {quantity(sum(map(len, grades.values())), 'judgement')}, none is relevant (a grade above 0), so "
            f"that every score would be 0 (split {dataset.qrels(corpus)[1]!r}). Is another column the grade?"
        )


def _restriction_mismatches(judged: Judged) -> Iterator[str]:
    """Yield relevant documents that are not ranked, and queries without candidates where others have some."""
    for query, documents in judged.excluded.items():
        grades = judged.grades.get(query, {})
        if relevant := [document for document in documents if grades.get(document, 0) > 0]:
            yield f"query {quoted(query)} excludes the relevant document {quoted(relevant[0])}"
    if judged.candidates and (lacking := [query for query in judged.texts if query not in judged.candidates]):
        yield f"{quantity(len(lacking), 'query has', 'queries have')} no candidates, {quoted(lacking[0])} first"


def _unknown_documents(judged: Judged, dataset: Dataset, known: Collection[str]) -> Iterator[str]:
    """Yield that qrels and corpus have no document in common, or that the corpus lacks a candidate."""
    if judged.in_qrels and judged.in_qrels.isdisjoint(known):
        yield (
            f"the corpus {dataset.corpus!r} has none of the {quantity(len(judged.in_qrels), 'document')} that the "
            f"qrels judge ({quoted(min(judged.in_qrels))}, say). Do the ids of qrels and corpus agree?"
        )
    if lacking := judged.in_candidates.difference(known):
        yield f"the corpus lacks the candidate {quoted(min(lacking))} of a query"


def _own_documents(name: str, dataset: Dataset, documents: Path, same_ids: set[str], judged: Judged) -> set[str]:
    """Return the queries that are themselves the document of the same id, which is then excluded for them.

    ``auto`` compares the query's words with those of the document's text, and of title and text together.
    """
    own = same_ids if dataset.queries_are_documents is True else set()
    texts = judged.texts
    if dataset.queries_are_documents == "auto" and same_ids:
        own = {
            document.id
            for document in collection.pick_documents(documents, same_ids)
            if texts[document.id].split() in (document.text.split(), document.full_text.split())
        }
    # With "true", the query's own document may be judged not relevant. It is dropped, as in beir.
    least = 1 if dataset.queries_are_documents is True else -MAX_GRADE
    if wrong := [
        query for query in texts if query in own and judged.grades.get(query, {}).get(query, least - 1) >= least
    ]:
        raise DataError(
            f"dataset {name!r}: {quantity(len(wrong), 'query is a document', 'queries are documents')} of the same id, "
            f"not ranked for them, but the qrels judge these documents, {quoted(wrong[0])} first. To rank them, "
            f"set datasets.{name}.queries_are_documents: false."
        )
    return own


def _judged_queries(
    dataset: Dataset, corpus: Corpus, source: Source, grades: Qrels, counts: Counter[str]
) -> Iterator[Query]:
    """Yield the judged queries (all queries without qrels), in the source's order."""
    for query in _distinct("query", partial(source.queries, dataset), str(dataset.corpus), corpus, counts):
        if grades and query.id not in grades:
            continue
        if not query.text.strip() and "empty-queries" not in corpus.allow:
            raise DataError(
                f"{query.place}: query {quoted(query.id)} is empty. To keep it, add allow: [empty-queries] to "
                f"corpora.{dataset.corpus}."
            )
        yield query
