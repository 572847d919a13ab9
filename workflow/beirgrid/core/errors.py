"""Errors that a user can act on, and safe printing of text. A message says what is wrong, where, and what to change."""

from __future__ import annotations

import difflib
import logging
import re
import reprlib
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any


class BeirgridError(Exception):
    """An error in the user's input, disk or configuration. It is shown without a traceback."""

    exit_status = 1  # exit status of the command


class ConfigError(BeirgridError):
    """The configuration cannot be run. Raised before any job starts."""


class DataError(BeirgridError):
    """A collection, run or model on disk is missing, damaged or of the wrong form."""


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


def quoted(value: Any) -> str:
    """Format a value from a user's file for a message: text in quotes, shortened in the middle if long."""
    return _SHORT.repr(value)


def printable(text: str) -> str:
    """Escape the characters of a line that a terminal would act on or not show."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def quantity(number: int, singular: str, plural: str = "") -> str:
    """Join a number with its noun, which may have a verb: 1 query, 2 queries."""
    plural = plural or re.sub("y$", "ie", singular) + "s"
    return f"{number:,} {singular if number == 1 else plural}"


def show(*lines: str) -> None:
    """Print lines on standard output, escaped by ``printable``."""
    if lines:
        print(*map(printable, lines), sep="\n", flush=True)


def wrapped(text: str, width: int = 0, indent: str = "") -> list[str]:
    """Return a text as lines of this width (that of the terminal), broken between words, indented after the first."""
    width = width or shutil.get_terminal_size((120, 24)).columns
    return textwrap.wrap(text, width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def table_lines(columns: list[str], rows: list[list[str]], *, ruled: bool = True) -> Iterator[str]:
    """Yield the lines of a table: columns of words flush left, those with numbers flush right, empty ones left out."""
    filled = [column for column in zip(columns, *rows, strict=True) if any(column[1:]) or not rows]
    words = [not any(cell.lstrip("+-")[:1].isdigit() for cell in column[1:]) for column in filled]
    head, *below = map(list, zip(*filled, strict=True))
    rule = ["-" * max(map(len, column)) for column in filled]
    yield from column_lines([head, *[rule] * ruled, *below], words)


def column_lines(rows: list[list[str]], words: list[bool]) -> Iterator[str]:
    """Yield rows of cells as lines: columns of ``words`` flush left, the others flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = zip(row, widths, words, strict=True)
        yield "  ".join(cell.ljust(width) if left else cell.rjust(width) for cell, width, left in cells).rstrip()


class _OnStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        level = "warning: " if record.levelno == logging.WARNING else ""
        print(*map(printable, f"{level}{record.getMessage()}".split("\n")), sep="\n", file=sys.stderr, flush=True)


# Logger of commands and stages. A script that imports the package decides where its messages go.
_LOG = logging.getLogger("beirgrid")
_ON_STANDARD_ERROR = _OnStandardError()
say = _LOG.info
warn = _LOG.warning


def log_to_standard_error() -> None:
    """Send the package's log to standard error, escaped by ``printable``. A second call has no effect."""
    _LOG.addHandler(_ON_STANDARD_ERROR)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False


def nearest(name: str, known: Iterable[str], least: float = 0.6) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known name, or an empty string (difflib's ratio)."""
    by_case = {candidate.casefold(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.casefold(), by_case, n=1, cutoff=least)
    return f"; did you mean {by_case[matches[0]]!r}?" if matches else ""


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return the closest known name, as ``nearest``, or all of them if none is close."""
    names = [*known]
    return nearest(name, names) or f" (it has {', '.join(names) or 'none'})"
