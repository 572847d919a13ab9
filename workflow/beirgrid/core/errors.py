"""Errors that a user can act on: the message says what is wrong, where, and what to change. And how text is printed."""

from __future__ import annotations

import difflib
import logging
import reprlib
import sys
from collections.abc import Iterable
from typing import Any


class BeirgridError(Exception):
    """Something that the user's input, disk or configuration got wrong; shown without a traceback."""

    exit_status = 1  # of the command that it ends


class ConfigError(BeirgridError):
    """The configuration cannot be run; raised before any job starts."""


class DataError(BeirgridError):
    """A collection, run or model on disk is not what it should be."""


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 100


def quoted(value: Any) -> str:
    """Return a value from a user's file as a message shows it: text in quotes, cut in the middle if it is long."""
    return _SHORT.repr(value)


def printable(text: str) -> str:
    """Return a line with escapes in place of characters that a terminal acts on or does not show."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


def show(*lines: str) -> None:
    """Print lines on standard output, as ``printable`` returns them."""
    if lines:
        print(*map(printable, lines), sep="\n", flush=True)


class _OnStandardError(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        level = "warning: " if record.levelno == logging.WARNING else ""
        print(*map(printable, f"{level}{record.getMessage()}".split("\n")), sep="\n", file=sys.stderr, flush=True)


# What commands and stages say beside their output. A script that imports the package decides where it goes.
_LOG, _ON_STANDARD_ERROR = logging.getLogger("beirgrid"), _OnStandardError()
say, warn = _LOG.info, _LOG.warning


def log_to_standard_error() -> None:
    """Print what the package logs on standard error from now on, as ``printable`` returns it; once, if called twice."""
    _LOG.addHandler(_ON_STANDARD_ERROR)
    _LOG.setLevel(logging.INFO)
    _LOG.propagate = False


def lone_surrogate(text: str) -> str:
    """Return the first half of a surrogate pair in a text, escaped, or an empty string.

    JSON and YAML can escape such a half, but UTF-8 cannot hold it.
    """
    try:
        text.encode()
    except UnicodeEncodeError as error:
        return ascii(text[error.start])
    return ""


def nearest(name: str, known: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the known name closest to ``name``, or an empty string."""
    matches = difflib.get_close_matches(name, list(known), n=1, cutoff=0.6)
    return f"; did you mean {matches[0]!r}?" if matches else ""
