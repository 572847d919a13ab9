"""Check ids of queries and documents against the limits of run files, Lucene and trec_eval."""

from __future__ import annotations

from ..core.errors import DataError, quoted

# Byte order mark, which begins some files, and also appears where one file was appended to another.
MARK = "\ufeff"
# Lucene indexes an id as one term, which has at most this many bytes.
_LONGEST = 32_766


def check(identifier: str, place: str) -> None:
    """Refuse ids that a TREC run file, whose columns are separated by white space, or Lucene cannot hold."""
    if len(identifier.encode()) > _LONGEST:
        raise DataError(f"{place}: the id {quoted(identifier)} has more than {_LONGEST:,} bytes, Lucene's limit")
    if len(identifier.split()) != 1 or identifier != identifier.strip():
        raise DataError(f"{place}: the id {quoted(identifier)} has white space in it, which run files cannot hold")
    if identifier.startswith(MARK):
        raise DataError(f"{place}: the id {quoted(identifier)} begins with a byte order mark, which runs cannot hold")
