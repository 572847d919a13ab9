"""Find the queries to which a key of a slice applies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..core.errors import DataError, quoted
from . import lines
from .sources import Query


def of_length(texts: Mapping[str, str], least: int | None, most: int | None) -> set[str]:
    """Return the queries with at least and at most so many words, cut at white space."""
    words = {query: len(text.split()) for query, text in texts.items()}
    return {query for query, count in words.items() if (least or 0) <= count <= (most or count)}


def listed(path: Path, texts: Mapping[str, str]) -> set[str]:
    """Return the ids in a file, one per line; raise DataError for one that is not judged."""
    ids = set()
    for line, place in lines.read(path):
        if (query := line.strip()) not in texts:
            raise DataError(f"{place}: the dataset has no judged query {quoted(query)}")
        ids.add(query)
    return ids


def of_value(key: str, column: str, value: object, queries: Iterable[Query]) -> set[str]:
    """Return the queries that have a value in a column of their source; raise DataError if none has the column."""
    found = {query.id: query.columns[column] for query in queries if column in query.columns}
    if not found:
        raise DataError(f"{key}.column: no query has a key {column!r} in the source of the dataset")
    return {query for query, of_query in found.items() if of_query == value}


def in_both(place: str, texts: Mapping[str, str], others: Mapping[str, str]) -> set[str]:
    """Return the queries of another dataset; raise DataError if one is not judged here, or has another text."""
    for query, text in others.items():
        if query not in texts:
            raise DataError(f"{place}: it has the query {quoted(query)}, which is not judged here")
        if text.split() != texts[query].split():
            raise DataError(f"{place}: its query {quoted(query)} has another text than here: {quoted(text)}")
    return {*others}
