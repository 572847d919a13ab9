"""Read lines of text files, plain or gzipped, and rows of tables, each with its place for messages; check their ids."""

from __future__ import annotations

import csv
import gzip
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ..core import files
from ..core.errors import DataError, quoted, warn

# A text may be longer than Python's limit of 131,072 characters for a column.
csv.field_size_limit(2**31 - 1)
# A text as CSV has one with quotes in it: in quotes, and each within it twice.
_QUOTED = re.compile('"(?=.*"")(?:[^"]|"")*"')
_LATE_QUOTE = "Does a text begin with a quote that closes in a later row? All rows between are part of it"


def kind(path: Path) -> str:
    """Return the ending of a file in lower case, for a gzipped file the one before .gz: ``.csv`` for log.CSV.gz."""
    return Path(path.name.lower().removesuffix(".gz")).suffix


def read(path: Path, raw: bool = False) -> Iterator[tuple[str, str]]:
    """Yield (line, "file:number"), without line ends (LF or CRLF) and byte order mark.

    Args:
        raw: whether to yield blank lines, and lines with carriage returns, too.

    Raises:
        DataError: the file is not UTF-8, is truncated, or has carriage returns within a line. The message names the
            file and the line.
    """
    number = 0
    opener: Any = gzip.open if path.suffix == ".gz" else open
    try:
        with files.errors_with_name(path), opener(path, "rb") as stream:
            for number, line in enumerate(stream, start=1):
                text = line.decode("utf-8-sig" if number == 1 else "utf-8").rstrip("\r\n")
                if "\r" in text.strip() and not raw:
                    raise DataError(f"{path}:{number}: a carriage return within a line; lines end in LF or in CRLF")
                if raw or text.strip():
                    yield text, f"{path}:{number}"
    except UnicodeDecodeError as error:
        raise DataError(f"{path}:{number}: not UTF-8 (byte {error.object[error.start]:#04x})") from None
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise DataError(f"{path}: truncated or corrupt after line {number} ({error})") from None


def table(path: Path) -> Iterator[tuple[dict[str, str], str]]:
    """Yield each row of a CSV or TSV file by the names of its header, with its place. Short rows of CSV lack keys.

    In a CSV file, quotes around a field are none of its characters. In a TSV file, a line is a row, and quotes are
    characters. Warns of rows over several lines: a quote that closes too late makes several rows one.

    Raises:
        DataError: the file is no such table, a row has more columns than the header, its quotes do not close, or a TSV
            file is quoted as CSV is.
    """
    tabbed = kind(path) in (".tsv", ".tab")
    rows: Iterator[list[str]]
    if tabbed:
        rows = (line.split("\t") for line, _ in read(path))
    else:
        rows = filter(None, csv.reader((f"{line}\n" for line, _ in read(path, raw=True)), strict=True))
    number = 0
    broken: list[int] = []
    try:
        names = next(rows, [])
        check_columns(names, str(path))
        if tabbed and '"' in "".join(names):
            raise DataError(f"{path}: a name of a column is in quotes, which are characters in TSV: save it as CSV")
        for number, row in enumerate(rows, start=1):
            place = f"{path} row {number}"
            _check_row(row, len(names), tabbed, place)
            if any("\n" in cell for cell in row):
                broken.append(number)
            yield dict(zip(names, row, strict=False)), place
    except csv.Error as error:
        raise DataError(
            f"{path} row {number + 1}: {error}. A text that begins with a quote must end with one, and each quote "
            "within it must be written twice"
        ) from None
    if broken:
        warn(f"{path}: rows with a text over several lines: {len(broken):,}, row {broken[0]:,} first. {_LATE_QUOTE}")


def _check_row(row: list[str], columns: int, tabbed: bool, place: str) -> None:
    """Raise DataError if a row does not fit the columns of a table, or a row of TSV is quoted as CSV is."""
    if len(row) > columns or (tabbed and len(row) < columns):
        remedy = "save texts with line breaks or tabs as CSV" if tabbed else "put texts with ',' in quotes"
        raise DataError(f"{place} has {len(row)} columns, the header {columns}: {remedy}")
    if tabbed and any(map(_QUOTED.fullmatch, row)):
        twice = "a text in quotes, and each quote within it twice"
        raise DataError(f"{place}: {twice}, as in CSV. In TSV, quotes are characters: save it as CSV")


def check_line(text: str, what: str, place: str) -> None:
    """Refuse a text with a line break where none belongs: it may be several rows of a CSV file."""
    if "\n" in text or "\r" in text:
        raise DataError(f"{place}: a line break within the {what}. {_LATE_QUOTE}")


def check_columns(names: Iterable[str], place: str) -> None:
    """Raise DataError if two columns of a table have the same name."""
    if twice := [name for name, number in Counter(names).items() if number > 1]:
        raise DataError(f"{place}: two columns are named {quoted(twice[0])}")


def check_id(identifier: str, place: str) -> None:
    """Refuse ids that a TREC run file, whose columns are separated by white space, cannot hold."""
    if identifier.split() != [identifier]:
        raise DataError(f"{place}: the id {quoted(identifier)} has white space in it, which run files cannot hold")
    if identifier.startswith("\ufeff"):
        raise DataError(f"{place}: the id {quoted(identifier)} begins with a byte order mark, which runs cannot hold")
