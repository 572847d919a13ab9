"""Stage fetch: bring a corpus, a dataset or a model's checkpoint under results/, checked."""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..config import Corpus, Dataset
from ..core import files, provenance
from ..core.errors import DataError, quoted
from ..core.progress import Progress
from ..data import checkpoints, collection, saved
from ..data.sources import MAX_GRADE, Document, Exclusion, Judgement, Query, Source, open_source

# Text of one row group, in characters: of long documents a group holds fewer.
_GROUP_TEXT = 100_000_000
# Bytes of one term, as which Lucene indexes an id.
_LONGEST_ID = 32_766


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid fetch``."""
    kinds = parser.add_subparsers(dest="kind", required=True)

    corpus = kinds.add_parser("corpus", help="fetch the documents of a corpus")
    corpus.add_argument("--name", required=True, help="name of the corpus")
    corpus.add_argument("--corpus", required=True, type=json.loads, help="its registry entry, as JSON")
    corpus.add_argument("--output", required=True, type=Path, help="corpus.parquet to write")
    corpus.set_defaults(run=lambda args: fetch_corpus(args.name, args.corpus, args.output, args.made))

    dataset = kinds.add_parser("dataset", help="fetch the queries and qrels of a dataset")
    dataset.add_argument("--name", required=True, help="name of the dataset")
    dataset.add_argument("--dataset", required=True, type=json.loads, help="its registry entry, as JSON")
    dataset.add_argument("--corpus", required=True, type=json.loads, help="the registry entry of its corpus, as JSON")
    dataset.add_argument("--documents", required=True, type=provenance.artifact, help="the fetched corpus.parquet")
    dataset.add_argument("--queries", required=True, type=Path, help="queries.parquet to write")
    dataset.add_argument("--qrels", required=True, type=Path, help="qrels.tsv to write")
    dataset.set_defaults(
        run=lambda args: fetch_dataset(
            args.name, args.dataset, args.corpus, args.documents, args.queries, args.qrels, args.made
        )
    )

    model = kinds.add_parser("model", help="fetch the checkpoint of a model")
    model.add_argument("--name", required=True, help="name of the model")
    model.add_argument("--model", required=True, type=json.loads, help="its registry entry, as JSON")
    model.add_argument("--output", required=True, type=Path, help="folder to write")
    model.set_defaults(run=lambda args: fetch_model(args.name, args.model, args.output, args.made))

    for kind in (corpus, dataset, model):
        kind.add_argument("--made", required=True, type=Path, help="where to record what made it")


def fetch_corpus(name: str, entry: dict[str, Any], output: Path, made: Path) -> None:
    """Stream a corpus into parquet (``_id``, ``title``, ``text``), in the source's order."""
    corpus = Corpus(name, **entry)
    with provenance.record("fetch", made, entry, [output]) as facts:
        with files.atomic(output) as temporary:
            facts.update(_write_corpus(corpus, temporary))
        facts["bytes"] = files.size(output)
        facts["sha256"] = files.sha256(output)


def _write_corpus(corpus: Corpus, path: Path) -> dict[str, int]:
    """Write the documents and return counts; refuse duplicates, empty corpora and wrong counts."""
    source = open_source(corpus)
    hashes, empty = _write_documents(corpus, source.documents(), path)
    if not hashes:
        raise DataError(f"corpus {corpus.name!r} is empty: {corpus.path or corpus.id} has no documents")
    if empty == len(hashes):
        raise DataError(
            f"no document of corpus {corpus.name!r} has text: are 'title' and 'text' the keys of its lines?"
        )
    repeated = _repeated_ids(hashes, source)
    if repeated and "duplicate-documents" not in corpus.allow:
        identifier, places = next(iter(repeated.items()))
        raise DataError(
            f"duplicate document id {quoted(identifier)}: {places[0]} and {places[1]} ({len(repeated)} such ids). "
            f"To keep the first of each, add allow: [duplicate-documents] to corpora.{corpus.name}."
        )
    dropped = 0
    if repeated:
        dropped = sum(len(places) - 1 for places in repeated.values())
        _warn(f"{dropped} duplicate documents are dropped (the first of each id is kept)")
        hashes, empty = _write_documents(corpus, _first_of_each(source, set(repeated)), path)
    if corpus.documents is not None and len(hashes) != corpus.documents:
        raise DataError(
            f"corpus {corpus.name!r} has {len(hashes):,} documents; the registry says {corpus.documents:,}. "
            "Either the collection is not the one that was registered, or "
            f"corpora.{corpus.name}.documents is wrong."
        )
    if empty:
        _warn(f"{empty} documents have neither title nor text")
    return {"documents": len(hashes), "duplicates_dropped": dropped, "empty_documents": empty}


def _write_documents(corpus: Corpus, documents: Iterator[Document], path: Path) -> tuple[array[int], int]:
    """Write documents in row groups; return the hash of each id and the number of empty documents."""
    hashes = array("Q")
    empty = 0
    progress = Progress(f"fetch {corpus.name}", corpus.documents, "documents")
    with pq.ParquetWriter(path, collection.CORPUS_SCHEMA) as writer:
        for batch in _row_groups(documents):
            for document in batch:
                _check_id(document.id, document.place)
                hashes.append(_hash(document.id))
                empty += not (document.title.strip() or document.text.strip())
            columns = [[getattr(document, name) for document in batch] for name in ("id", "title", "text")]
            writer.write_table(pa.table(columns, schema=collection.CORPUS_SCHEMA))
            progress.add(len(batch))
    return hashes, empty


def _hash(identifier: str) -> int:
    """Return 64 bits of a digest, so that 15 million ids take 120 MB instead of several GB."""
    return int.from_bytes(hashlib.blake2b(identifier.encode(), digest_size=8).digest(), "little")


def _repeated_ids(hashes: array[int], source: Source) -> dict[str, list[str]]:
    """Return each id that occurs more than once, with its places; reads the source only if one does."""
    values = np.frombuffer(hashes, np.uint64)
    values.sort()  # where they stand: a sorted copy, as np.unique makes, would double the memory
    suspects = set(values[1:][values[1:] == values[:-1]].tolist())
    if not suspects:
        return {}
    places: dict[str, list[str]] = {}
    for document in source.documents():
        if _hash(document.id) in suspects:
            places.setdefault(document.id, []).append(document.place)
    return {identifier: found for identifier, found in places.items() if len(found) > 1}


def _first_of_each(source: Source, repeated: set[str]) -> Iterator[Document]:
    """Yield the documents without the later ones of a repeated id."""
    seen: set[str] = set()
    for document in source.documents():
        if document.id in seen:
            continue
        if document.id in repeated:
            seen.add(document.id)
        yield document


def _row_groups(documents: Iterator[Document]) -> Iterator[list[Document]]:
    """Yield lists of documents, which end where they are many or long enough."""
    group: list[Document] = []
    text = 0
    for document in documents:
        group.append(document)
        text += len(document.title) + len(document.text)
        if len(group) >= collection.ROW_GROUP or text >= _GROUP_TEXT:
            yield group
            group, text = [], 0
    if group:
        yield group


def _check_id(identifier: str, place: str) -> None:
    """Refuse ids that a TREC run file, whose columns are separated by white space, or Lucene cannot hold."""
    if len(identifier.encode()) > _LONGEST_ID:
        raise DataError(f"{place}: the id {quoted(identifier)} has more than {_LONGEST_ID:,} bytes, Lucene's limit")
    if len(identifier.split()) != 1 or identifier != identifier.strip():
        raise DataError(f"{place}: the id {quoted(identifier)} has white space in it, which run files cannot hold")
    if identifier.startswith("\ufeff"):
        raise DataError(f"{place}: the id {quoted(identifier)} begins with a byte order mark, which runs cannot hold")


def _warn(message: str) -> None:
    print(f"warning: {message}", file=sys.stderr)


def fetch_dataset(
    name: str,
    entry: dict[str, Any],
    corpus_entry: dict[str, Any],
    documents: Path,
    queries: Path,
    qrels: Path,
    made: Path,
) -> None:
    """Write the judged queries and the qrels of a dataset, checked against each other and the corpus."""
    dataset = Dataset(name, **entry)
    corpus = Corpus(dataset.corpus, **corpus_entry)
    source = open_source(corpus)
    with provenance.record("fetch_dataset", made, {**entry, "source": corpus_entry}, [queries, qrels]) as facts:
        grades, excluded, overruled = _grades(dataset, source.judgements(dataset))
        texts, dropped = _judged_queries(dataset, corpus, source.queries(dataset), grades)
        judged = {document for query in grades.values() for document in query}
        known = collection.known_ids(documents, judged | texts.keys())
        missing = judged - known
        if missing == judged:
            raise DataError(
                f"dataset {name!r}: the corpus {corpus.name!r} has none of the {len(judged):,} documents that the "
                f"qrels judge ({quoted(min(judged))}, say). Do the ids of qrels and corpus agree?"
            )
        named = known & texts.keys()
        own = _own_documents(dataset, documents, named, texts, grades)
        not_ranked = [[*excluded.get(query, ()), *({query} & own)] for query in texts]
        # Both are whole before either gets its name, so that queries never stand beside older qrels.
        with files.atomic(queries) as new_queries, files.atomic(qrels) as new_qrels:
            table = pa.table([list(texts), list(texts.values())], schema=collection.QUERIES_SCHEMA)
            if any(not_ranked):
                table = table.append_column(collection.EXCLUDED, [not_ranked])
            pq.write_table(table, new_queries)
            with new_qrels.open("w", encoding="utf-8") as stream:
                stream.write("query-id\tcorpus-id\tscore\n")
                for query in texts:
                    stream.writelines(f"{query}\t{document}\t{grade}\n" for document, grade in grades[query].items())
        if dropped:
            _warn(f"{dropped} duplicate queries are dropped (the first of each id is kept)")
        if missing:
            some = ", ".join(map(quoted, sorted(missing)[:5]))
            _warn(f"qrels name {len(missing)} documents that the corpus lacks, [{some}]; they are kept")
        if overruled:
            _warn(f"qrels judge {overruled} (query, document) pairs again with another grade; the last one counts")
        if named - own and dataset.queries_are_documents == "auto":
            _warn(
                f"{len(named - own)} queries have the id of a document with another text, which is ranked like any "
                f"other. If the queries are documents, set datasets.{name}.queries_are_documents: true."
            )
        facts.update(
            queries=len(texts),
            judgements=sum(map(len, grades.values())),
            relevant=sum(grade > 0 for query in grades.values() for grade in query.values()),
            queries_without_relevant=sum(max(query.values()) <= 0 for query in grades.values()),
            duplicates_dropped=dropped,
            unknown_documents=len(missing),
            overruled_judgements=overruled,
            excluded=sum(map(len, excluded.values())),
            own_documents_dropped=len(own),
            same_ids_kept=len(named - own),
            sha256={path.name: files.sha256(path) for path in (queries, qrels)},
        )


def _own_documents(
    dataset: Dataset, documents: Path, named: set[str], texts: dict[str, str], grades: dict[str, dict[str, int]]
) -> set[str]:
    """Return those of the queries named as a document is that are that document, which is not ranked for them.

    ``auto`` compares texts word by word: the query's with the document's text, and with title and text together.

    Raises:
        DataError: the qrels judge a document that would not be ranked.
    """
    own = named if dataset.queries_are_documents is True else set()
    if dataset.queries_are_documents == "auto" and named:
        own = {found.id for found in collection.pick_documents(documents, named) if _same_text(texts[found.id], found)}
    # Where the entry says "true", an own document may be judged not relevant: it is dropped, as beir drops it.
    least = 1 if dataset.queries_are_documents is True else -MAX_GRADE
    if judged := [query for query in texts if query in own and grades[query].get(query, least - 1) >= least]:
        raise DataError(
            f"dataset {dataset.name!r}: {len(judged)} queries are documents and so would not find themselves, but the "
            f"qrels judge them for themselves, {quoted(judged[0])} first. To rank documents that have the id of a "
            f"query, set datasets.{dataset.name}.queries_are_documents: false."
        )
    return own


def _same_text(query: str, document: collection.Document) -> bool:
    words = query.split()
    return words in (document.text.split(), document.joined.split())


def _grades(
    dataset: Dataset, judgements: Iterator[Judgement | Exclusion]
) -> tuple[dict[str, dict[str, int]], dict[str, list[str]], int]:
    """Return the qrels, the documents not ranked per query, and how many judgements were overruled by a later one."""
    grades: dict[str, dict[str, int]] = {}
    excluded: dict[str, list[str]] = {}
    overruled = 0
    for item in judgements:
        _check_id(item.query, item.place)
        _check_id(item.document, item.place)
        if isinstance(item, Exclusion):
            excluded.setdefault(item.query, []).append(item.document)
            continue
        query, document, grade, place = item
        if abs(grade) > MAX_GRADE:
            raise DataError(f"{place}: {grade} is no relevance grade (at most {MAX_GRADE})")
        of_query = grades.setdefault(query, {})
        overruled += of_query.get(document, grade) != grade
        of_query[document] = grade
    if not grades:
        raise DataError(f"dataset {dataset.name!r} has no qrels (split {dataset.split!r} is empty)")
    for query, documents in excluded.items():
        if both := [document for document in documents if grades.get(query, {}).get(document, 0) > 0]:
            raise DataError(
                f"query {quoted(query)} of dataset {dataset.name!r} excludes the relevant document {quoted(both[0])}"
            )
    return grades, excluded, overruled


def _judged_queries(
    dataset: Dataset, corpus: Corpus, queries: Iterator[Query], grades: dict[str, dict[str, int]]
) -> tuple[dict[str, str], int]:
    """Return id to text of the queries that have qrels, in the source's order, and the duplicates dropped."""
    texts: dict[str, str] = {}
    places: dict[str, str] = {}
    dropped = 0
    for query in queries:
        if query.id in places:
            if "duplicate-queries" in corpus.allow:
                dropped += 1
                continue
            raise DataError(
                f"duplicate query id {quoted(query.id)}: {places[query.id]} and {query.place}. To keep the first "
                f"of each, add allow: [duplicate-queries] to corpora.{corpus.name}."
            )
        places[query.id] = query.place
        if query.id not in grades:
            continue
        if not query.text.strip() and "empty-queries" not in corpus.allow:
            raise DataError(
                f"{query.place}: query {quoted(query.id)} is empty. To run it all the same, add "
                f"allow: [empty-queries] to corpora.{corpus.name}."
            )
        texts[query.id] = query.text
    unknown = [query for query in grades if query not in texts]
    if unknown:
        raise DataError(
            f"dataset {dataset.name!r}: the qrels judge {len(unknown)} queries that do not exist, "
            f"{quoted(unknown[0])} first"
        )
    if dataset.queries is not None and len(texts) != dataset.queries:
        raise DataError(
            f"dataset {dataset.name!r} has {len(texts):,} queries with qrels; the registry says {dataset.queries:,}"
        )
    return texts, dropped


def fetch_model(name: str, entry: dict[str, Any], output: Path, made: Path) -> None:
    """Fetch a model's checkpoint into ``output``, verified against the hashes of its entry."""
    with provenance.record("fetch", made, entry, [output]) as facts:
        with files.atomic(output, directory=True) as temporary:
            facts |= checkpoints.fetch(name, entry, temporary)
            pickles = facts.get("converted", {}).get("files", ())
            facts["files"] = checkpoints.verify(name, entry, temporary, pickles)
            saved.check_prompts(name, temporary, entry.get("prompts", ()))
        facts["bytes"] = files.size(output)
