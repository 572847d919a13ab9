"""Read lines of text files, plain or gzipped, and rows of tables, each with its place for messages."""

from __future__ import annotations

import csv
import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..core import files
from ..core.errors import DataError, quoted

# A text may be longer than Python's limit of 131,072 characters for a column.
csv.field_size_limit(2**31 - 1)


def read(path: Path, blank: bool = False, returns: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (line, "file:number"), without line ends (LF or CRLF) and byte order mark.

    Args:
        blank: whether to yield blank lines too.
        returns: whether lines may have carriage returns.

    Raises:
        DataError: the file is a device or a named pipe, is not UTF-8, is truncated, or has carriage returns within a
            line. The message names the file and the line.
    """
    number = 0
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        files.refuse_endless(path)
        with files.named(path), opener(path, "rb") as stream:
            for number, raw in enumerate(stream, start=1):
                text = raw.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if not returns and "\r" in text.strip():
                    raise DataError(f"{path}:{number}: a carriage return within a line; lines end in LF or in CRLF")
                if blank or text.strip():
                    yield text, f"{path}:{number}"
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8 (byte {error.object[error.start]:#04x})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: truncated or corrupt after line {number} ({error})") from None


def table(path: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Yield each row of a CSV file, or of a TSV file, by the names of its header, with its place. Short rows lack keys.

    Raises:
        DataError: the file is no such table, or a row has more columns than the header.
    """
    delimiter = "\t" if path.suffix.lower() == ".tsv" else ","
    rows = csv.DictReader((f"{line}\n" for line, _ in read(path, blank=True, returns=True)), delimiter=delimiter)
    number = 0
    try:
        if twice := next((name for name in rows.fieldnames or () if list(rows.fieldnames or ()).count(name) > 1), None):
            raise DataError(f"{path}: two columns are named {quoted(twice)}")
        for number, row in enumerate(rows, start=1):
            place = f"{path} row {number}"
            if None in row:
                raise DataError(
                    f"{place} has more columns than the header: put texts with {quoted(delimiter)} in quotes"
                )
            yield {name: value for name, value in row.items() if value is not None}, place
    except csv.Error as error:
        raise DataError(f"{path} row {number + 1}: {error}") from None
