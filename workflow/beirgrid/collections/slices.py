"""Find the queries to which a key of a slice applies."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ..core.errors import BeirgridError, DataError, nearest, quoted
from . import lines
from .sources import Query

# A text has the language whose probability is at least SURE, and else none: py3langid's word for that is UNSURE.
SURE = 0.5
UNSURE = "und"


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


def languages(key: str, texts: Mapping[str, str], wanted: str) -> dict[str, str]:
    """Return the languages of queries, by py3langid's model, which comes with the package.

    Raises:
        BeirgridError: py3langid is not installed.
        DataError: its model does not know the wanted language.
    """
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise BeirgridError(f"{key}.language: {error}: pip install 'beirgrid[language]'") from None
    identifier = LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True, min_confidence=SURE)
    if wanted not in identifier.labels:
        raise DataError(f"{key}.language: py3langid knows no language {wanted!r}{nearest(wanted, identifier.labels)}")
    return {query: identifier.classify(text)[0] for query, text in texts.items()}
