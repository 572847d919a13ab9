"""Check the documents of a corpus, and write them as parquet."""

from __future__ import annotations

import hashlib
from array import array
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..config.datasets import Corpus, LocalCorpus
from ..core.errors import DataError, quoted, warn
from ..core.progress import Progress
from . import collection, ids
from .sources import Source, SourceDocument


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
    hashes, empty = _write_documents(name, entry, source.documents(), path)
    if not hashes:
        place = entry.path if isinstance(entry, LocalCorpus) else entry.id
        raise DataError(f"corpus {name!r} is empty: {place} has no documents")
    if empty == len(hashes):
        raise DataError(f"no document of corpus {name!r} has text: are 'title' and 'text' the keys of its lines?")
    repeated = _repeated_ids(hashes, source)
    if repeated and "duplicate-documents" not in entry.allow:
        identifier, places = next(iter(repeated.items()))
        raise DataError(
            f"duplicate document id {quoted(identifier)}: {places[0]} and {places[1]} ({len(repeated)} such ids). "
            f"To keep the first of each, add allow: [duplicate-documents] to corpora.{name}."
        )
    dropped = 0
    if repeated:
        dropped = sum(len(places) - 1 for places in repeated.values())
        warn(f"{dropped} duplicate documents are dropped (the first of each id is kept)")
        hashes, empty = _write_documents(name, entry, _first_of_each(source, set(repeated)), path)
    if entry.documents is not None and len(hashes) != entry.documents:
        raise DataError(
            f"corpus {name!r} has {len(hashes):,} documents; the registry says {entry.documents:,}. Either this is "
            f"another version of the collection, or corpora.{name}.documents is wrong."
        )
    if empty:
        warn(f"{empty} documents have neither title nor text")
    return {"documents": len(hashes), "duplicates_dropped": dropped, "empty_documents": empty}


def _write_documents(
    name: str, entry: Corpus, documents: Iterator[SourceDocument], path: Path
) -> tuple[array[int], int]:
    """Write documents in row groups; return the hash of each id and the number of empty documents."""
    hashes = array("Q")
    empty = 0
    progress = Progress(f"fetch {name}", entry.documents, "documents")
    with pq.ParquetWriter(path, collection.CORPUS_SCHEMA) as writer:
        for batch in collection.groups(documents, collection.ROW_GROUP):
            for document in batch:
                ids.check(document.id, document.place)
                hashes.append(hash_of(document.id))
                empty += not (document.title.strip() or document.text.strip())
            columns = [[getattr(document, name) for document in batch] for name in ("id", "title", "text")]
            writer.write_table(pa.table(columns, schema=collection.CORPUS_SCHEMA))
            progress.add(len(batch))
    return hashes, empty


def hash_of(identifier: str) -> int:
    """Return 64 bits of a digest: 15 million ids then take 120 MB instead of several GB."""
    return int.from_bytes(hashlib.blake2b(identifier.encode(), digest_size=8).digest(), "little")


def _repeated_ids(hashes: array[int], source: Source) -> dict[str, list[str]]:
    """Return each duplicate id with its places. Reads the source again only if there are duplicates."""
    values = np.frombuffer(hashes, np.uint64)
    values.sort()  # in place: np.unique's sorted copy would double the memory
    suspects = set(values[1:][values[1:] == values[:-1]].tolist())
    if not suspects:
        return {}
    places: dict[str, list[str]] = {}
    for document in source.documents():
        if hash_of(document.id) in suspects:
            places.setdefault(document.id, []).append(document.place)
    return {identifier: of_id for identifier, of_id in places.items() if len(of_id) > 1}


def _first_of_each(source: Source, repeated: set[str]) -> Iterator[SourceDocument]:
    """Yield the documents without later duplicates of an id."""
    seen: set[str] = set()
    for document in source.documents():
        if document.id in seen:
            continue
        if document.id in repeated:
            seen.add(document.id)
        yield document
