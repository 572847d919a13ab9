"""Check the documents of a corpus, and write them as parquet."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..config.datasets import Corpus, LocalCorpus
from ..core.errors import DataError, quoted, warn
from ..core.progress import Progress
from . import collection, lines
from .collection import Document
from .sources import Source


def write(name: str, entry: Corpus, source: Source, path: Path) -> dict[str, int]:
    """Write the documents of a corpus in row groups; return counts for its record.

    Args:
        name: name of the corpus, for messages.
        entry: its registry entry.
        source: the source of its documents.
        path: parquet to write.

    Raises:
        DataError: there are duplicates that the entry does not allow, no texts, or another number of documents than in
            the entry.
    """
    counts = Counter(documents=0, duplicates_dropped=0, empty_documents=0)
    progress = Progress(f"fetch {name}", entry.documents, "documents")
    with pq.ParquetWriter(path, collection.CORPUS_SCHEMA) as writer:
        for batch in collection.groups(_distinct(name, entry, source, counts), collection.ROW_GROUP):
            columns = [[getattr(document, key) for document in batch] for key in ("id", "title", "text")]
            writer.write_table(pa.table(columns, schema=collection.CORPUS_SCHEMA))
            counts["documents"] += len(batch)
            counts["empty_documents"] += sum(not (one.title.strip() or one.text.strip()) for one in batch)
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
            f"corpus {name!r} has {documents:,} documents; the registry says {entry.documents:,}. Either this is "
            f"another version of the collection, or corpora.{name}.documents is wrong."
        )
    if empty:
        warn(f"{empty} documents have neither title nor text")
    return dict(counts)


def _distinct(name: str, entry: Corpus, source: Source, counts: Counter[str]) -> Iterator[Document]:
    """Yield the first document of each id. The ids in memory take about 110 bytes each."""
    seen: set[str] = set()
    for document in source.documents():
        lines.check_id(document.id, document.place)
        if document.id not in seen:
            seen.add(document.id)
            yield document
        elif "duplicate-documents" in entry.allow:
            counts["duplicates_dropped"] += 1
        else:
            first = next(one.place for one in source.documents() if one.id == document.id)
            raise DataError(
                f"duplicate document id {quoted(document.id)}: {first} and {document.place}. To keep the first of "
                f"each, add allow: [duplicate-documents] to corpora.{name}."
            )
