"""Read a fetched collection: corpus.parquet by rows, queries and exclusions."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core import files
from ..core.errors import DataError, quoted

CORPUS_SCHEMA = pa.schema([("_id", pa.string()), ("title", pa.string()), ("text", pa.string())])
QUERIES_SCHEMA = pa.schema([("_id", pa.string()), ("text", pa.string())])
# Column of queries.parquet with the documents that are excluded for a query: by the benchmark (BRIGHT), or because the
# document is the query itself (ArguAna).
EXCLUDED = pa.field("excluded", pa.list_(pa.string()))
# A column of queries.parquet where each query ranks candidates of its own alone (tasks of reranking): their ids.
CANDIDATES = pa.field("candidates", pa.list_(pa.string()))
ROW_GROUP = 8192
# Characters of text per group of documents in memory, so that a group holds fewer long documents.
GROUP_TEXT = 100_000_000
# Documents converted to Python strings at a time.
PICKED = 64
# Schema of expansions, by model family: queries to append, or terms to index instead.
EXPANSION_SCHEMAS = {
    "query-generator": pa.schema([("queries", pa.list_(pa.string()))]),
    "term-weights": pa.schema([("terms", pa.list_(pa.string())), ("frequencies", pa.list_(pa.int32()))]),
}


class Document(NamedTuple):
    """One row of a corpus. In a source, ``place`` is its file and line."""

    id: str
    title: str
    text: str
    place: str = ""

    @property
    def full_text(self) -> str:
        """Title and text as neural models read them (beir's concatenation)."""
        return self.join(" ")

    def join(self, separator: str) -> str:
        """Return title and text, joined by ``separator`` (DPR's differs)."""
        return f"{self.title}{separator}{self.text}".strip()


def groups(documents: Iterable[Document], most: int) -> Iterator[list[Document]]:
    """Group documents into lists of limited number (``most``) and text length."""
    group: list[Document] = []
    text = 0
    for document in documents:
        group.append(document)
        text += len(document.title) + len(document.text)
        if len(group) >= most or text >= GROUP_TEXT:
            yield group
            group = []
            text = 0
    if group:
        yield group


def count(corpus: str | Path) -> int:
    """Count the documents of a corpus.parquet or of a shard's expansions."""
    with files.reading(corpus):
        return int(pq.read_metadata(corpus).num_rows)


def read_documents(
    corpus: str | Path, start: int = 0, stop: int | None = None, size: int = ROW_GROUP
) -> Iterator[list[Document]]:
    """Yield documents ``start`` to ``stop`` (exclusive) in row order, at most ``size`` of a row group at a time."""
    with files.reading(corpus), pq.ParquetFile(corpus, page_checksum_verification=True) as file:
        stop = file.metadata.num_rows if stop is None else stop
        first = 0
        for group in range(file.num_row_groups):
            rows = file.metadata.row_group(group).num_rows
            if first < stop and first + rows > start:
                table = file.read_row_group(group)
                part = table.slice(max(start - first, 0), min(stop, first + rows) - max(start, first))
                columns = [part[name].to_pylist() for name in CORPUS_SCHEMA.names]
                documents = [Document(*row) for row in zip(*columns, strict=True)]
                yield from (documents[row : row + size] for row in range(0, len(documents), size))
            first += rows


def write_jsonl(blocks: Iterable[list[Document]], output: Path) -> None:
    """Write documents in BEIR's layout: a JSON object per line, with ``_id``, ``title`` and ``text``."""
    with output.open("w", encoding="utf-8") as stream:
        for documents in blocks:
            for document in documents:
                row = {"_id": document.id, "title": document.title, "text": document.text}
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def shard_rows(corpus: str | Path, shard: int, size: int, last: bool) -> tuple[int, int]:
    """Return the first row of a shard and the one after its last; the last shard must end with the corpus."""
    total = count(corpus)
    start = shard * size
    stop = min((shard + 1) * size, total)
    if start >= total or (last and stop != total):
        raise DataError(
            f"{corpus} has {total:,} documents, which do not match the planned shards of {size:,}: set the corpus's "
            "'documents' in the registry to the real number"
        )
    return start, stop


def read_expanded(corpus: str | Path, expansions: Sequence[str | Path]) -> Iterator[list[Document]]:
    """Yield a corpus's expanded documents. ``expansions`` has a file per shard, in order."""
    if (expanded := sum(map(count, expansions))) != (total := count(corpus)):
        raise DataError(f"{corpus} has {total:,} documents, but {', '.join(map(str, expansions))} expand {expanded:,}")
    documents = chain.from_iterable(read_documents(corpus))
    for path in expansions:
        with files.reading(path), pq.ParquetFile(path, page_checksum_verification=True) as file:
            rows = (row for batch in file.iter_batches(ROW_GROUP) for row in batch.to_pylist())
            yield from groups((_expanded(next(documents), row) for row in rows), ROW_GROUP)


def _expanded(document: Document, row: dict[str, Any]) -> Document:
    """Append queries to a document's text, or replace title and text by weighted terms."""
    if "queries" in row:
        return document._replace(text=" ".join([document.text, *row["queries"]]))
    terms = zip(row["terms"], row["frequencies"], strict=True)
    return Document(document.id, "", " ".join(term for term, frequency in terms for _ in range(frequency)))


class Ids(NamedTuple):
    """Ids of some rows of a corpus: ``rows`` int64, ascending and unique, with their ``names``."""

    rows: np.ndarray
    names: pa.Array

    def take(self, rows: np.ndarray) -> pa.Array:
        """Return the ids of rows, all of which must be in ``self.rows``."""
        return self.names.take(np.searchsorted(self.rows, rows))


def read_ids(corpus: str | Path, retrieved: Sequence[np.ndarray] | np.ndarray) -> Ids:
    """Read the ids of retrieved rows (int64, negative for no document), one row group of the corpus at a time.

    Raises:
        DataError: a row is beyond the corpus.
    """
    rows = np.unique(np.concatenate(list(retrieved)))
    rows = rows[rows >= 0]
    if len(rows) and rows[-1] >= (total := count(corpus)):
        raise DataError(
            f"{corpus} has {total:,} documents, but the search found document {rows[-1] + 1:,}: "
            "name the indexes of this corpus"
        )
    names = [pa.array([], pa.string())]
    for first, ids in id_groups(corpus):
        low, high = np.searchsorted(rows, (first, first + len(ids)))
        if low < high:
            names.append(ids.take(rows[low:high] - first))
    return Ids(rows, pa.concat_arrays(names))


def known_ids(corpus: str | Path, ids: set[str]) -> set[str]:
    """Return the subset of ``ids`` that the corpus contains."""
    chosen = pa.array(sorted(ids), pa.string())
    return {name for _, group in id_groups(corpus) for name in group.filter(pc.is_in(group, chosen)).to_pylist()}


def read_rows(corpus: str | Path, ids: set[str]) -> dict[str, int]:
    """Return the rows of documents by their ids, of which the corpus may lack some."""
    chosen = pa.array(sorted(ids), pa.string())
    rows: dict[str, int] = {}
    for first, group in id_groups(corpus):
        found = np.flatnonzero(pc.is_in(group, chosen))
        rows |= zip(group.take(found).to_pylist(), (first + found).tolist(), strict=True)
    return rows


def id_groups(corpus: str | Path) -> Iterator[tuple[int, pa.Array]]:
    """Yield each row group's first row with its ids."""
    first = 0
    with files.reading(corpus), pq.ParquetFile(corpus, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            ids = file.read_row_group(group, columns=["_id"])["_id"].combine_chunks()
            yield first, ids
            first += len(ids)


def pick_documents(corpus: str | Path, ids: set[str]) -> Iterator[Document]:
    """Yield the documents with the given ids, in row order, in one scan of the corpus."""
    chosen = pa.array(sorted(ids), pa.string())
    with files.reading(corpus), pq.ParquetFile(corpus, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            mask = pc.is_in(file.read_row_group(group, columns=["_id"])["_id"], chosen)
            if pc.any(mask).as_py():
                table = file.read_row_group(group).filter(mask)
                for batch in table.select(CORPUS_SCHEMA.names).to_batches(PICKED):
                    yield from (Document(*row.values()) for row in batch.to_pylist())


def refuse_unknown(place: str | Path, kind: str, asked: Iterable[str], known: Container[str]) -> None:
    """Raise DataError if a corpus or a queries file lacks an id that another input contains."""
    if (unknown := next((name for name in asked if name not in known), None)) is not None:
        raise DataError(f"{place} has no {kind} {quoted(unknown)}, which another input of the command names")


def read_queries(path: str | Path) -> dict[str, str]:
    """Return query id to text, in file order."""
    with files.reading(path), pq.ParquetFile(path) as file:
        table = file.read(["_id", "text"])
    return dict(zip(table["_id"].to_pylist(), table["text"].to_pylist(), strict=True))


def read_restrictions(path: str | Path) -> tuple[dict[str, set[str]], dict[str, set[str]]]:
    """Return query id to the documents that are not ranked for it, of the queries that have such, and query id to the
    only documents that are; the second is empty where all of the corpus are.
    """
    with files.reading(path), pq.ParquetFile(path) as file:
        columns = {"_id", EXCLUDED.name, CANDIDATES.name} & {*file.schema_arrow.names}
        rows = file.read(sorted(columns)).to_pylist()
    excluded = {row["_id"]: set(row[EXCLUDED.name]) for row in rows if row.get(EXCLUDED.name)}
    return excluded, {row["_id"]: set(row[CANDIDATES.name]) for row in rows if CANDIDATES.name in row}
