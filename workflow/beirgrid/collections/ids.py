"""Ids of queries and documents: what run files, Lucene and trec_eval can hold."""

from __future__ import annotations

from ..core.errors import DataError, quoted

# A byte order mark: the first character of some files, and of a file that was appended to another one.
MARK = "\ufeff"
# Bytes of one term, as which Lucene indexes an id.
_LONGEST = 32_766


def check(identifier: str, place: str) -> None:
    """Refuse ids that a TREC run file, whose columns are separated by white space, or Lucene cannot hold."""
    if len(identifier.encode()) > _LONGEST:
        raise DataError(f"{place}: the id {quoted(identifier)} has more than {_LONGEST:,} bytes, Lucene's limit")
    if len(identifier.split()) != 1 or identifier != identifier.strip():
        raise DataError(f"{place}: the id {quoted(identifier)} has white space in it, which run files cannot hold")
    if identifier.startswith(MARK):
        raise DataError(f"{place}: the id {quoted(identifier)} begins with a byte order mark, which runs cannot hold")
