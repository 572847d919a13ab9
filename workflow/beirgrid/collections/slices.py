"""Choose the queries of a slice of a dataset."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path

from ..config.datasets import Slice
from ..core.checkout import resolve_path
from ..core.errors import DataError, quoted
from . import lines
from .sources import Query


def choose(
    name: str,
    entry: Slice,
    texts: Mapping[str, str],
    source: Iterable[Query],
    others: Mapping[str, str],
    seen: Set[str],
) -> list[str]:
    """Return the ids of the judged queries to which all keys of a slice apply, in their order.

    Args:
        name: key of the slice, for messages.
        texts: query id to text, of the judged queries.
        source: the queries as their source has them, in which a column is looked up.
        others: query id to text, of the dataset that the slice names.
        seen: the queries that were seen in the training set that the slice names.

    Raises:
        DataError: the file names a query that is not judged, no query has the column, or no or every query is chosen.
    """
    conditions = list(_conditions(name, entry, texts, source, others, seen))
    kept = [query for query in texts if all(query in met for met in conditions) != entry.invert]
    place = f"{resolve_path(entry.path)} ({name})" if entry.path else name
    if not kept:
        raise DataError(f"{place}: none of the {len(texts):,} judged queries is in this slice. Change its keys")
    if len(kept) == len(texts):
        raise DataError(f"{place}: all {len(texts):,} judged queries are in this slice. Leave it out")
    return kept


def _conditions(
    name: str,
    entry: Slice,
    texts: Mapping[str, str],
    source: Iterable[Query],
    others: Mapping[str, str],
    seen: Set[str],
) -> Iterator[set[str]]:
    """Yield the queries to which each key of a slice applies."""
    if entry.path:
        yield _listed(resolve_path(entry.path), texts)
    if entry.column:
        yield _of_value(name, entry, source)
    if entry.dataset:
        yield _in_both(f"{name}.dataset", entry.dataset, texts, others)
    if entry.seen_in:
        yield {*seen}
    words = {query: len(text.split()) for query, text in texts.items()}
    if entry.least_words:
        yield {query for query in texts if words[query] >= entry.least_words}
    if entry.most_words:
        yield {query for query in texts if words[query] <= entry.most_words}


def _listed(path: Path, texts: Mapping[str, str]) -> set[str]:
    """Return the ids in a file, one per line."""
    listed = set()
    for line, place in lines.read(path):
        if (query := line.strip()) not in texts:
            raise DataError(f"{place}: the dataset has no judged query {quoted(query)}")
        listed.add(query)
    return listed


def _in_both(place: str, other: str, texts: Mapping[str, str], others: Mapping[str, str]) -> set[str]:
    """Return the queries of another dataset. Ids alone prove nothing, so the texts must be the same."""
    for query, text in others.items():
        if query not in texts:
            raise DataError(f"{place}: {other} has the query {quoted(query)}, which is not judged in this dataset")
        if text.split() != texts[query].split():
            raise DataError(f"{place}: the query {quoted(query)} of {other} has another text: {quoted(text)}")
    return {*others}


def _of_value(name: str, entry: Slice, source: Iterable[Query]) -> set[str]:
    """Return the queries that have a value in a column."""
    found = {query.id: query.columns[entry.column] for query in source if entry.column in query.columns}
    if not found:
        raise DataError(f"{name}.column: no query has a key {entry.column!r} in the source of the dataset")
    return {query for query, value in found.items() if value == entry.value}
