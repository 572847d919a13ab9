"""Numbers as the page shows them, and lists of names. Numbers sort: they have an ASCII minus, and no commas."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

# The most names of a list in a sentence.
NAMED = 3


def rows(table: pd.DataFrame) -> Iterable[Any]:
    """Return the rows of a table; each has the columns as attributes."""
    return table.itertuples()


def value(number: float) -> str:
    """Return a score with four decimals, or an empty string where there is none."""
    return "" if pd.isna(number) else f"{number:.4f}"


def difference(number: float) -> str:
    """Return a difference with its sign and four decimals, or an empty string. What rounds to zero is +0.0000."""
    return "" if pd.isna(number) else f"{round(number, 4) + 0.0:+.4f}"


def interval(low: float, high: float) -> str:
    """Return an interval, or an empty string."""
    return "" if pd.isna(low) or pd.isna(high) else f"[{low:.4f}, {high:.4f}]"


def probability(p: float) -> str:
    """Return a p value with two significant digits, or an empty string."""
    return "" if pd.isna(p) else f"{p:.2g}"


def short(number: float, digits: int = 2) -> str:
    """Return a number with a fixed number of decimals, or an empty string."""
    return "" if pd.isna(number) else f"{number:.{digits}f}"


def percent(share: float) -> str:
    """Return a relative change in percent, or an empty string."""
    return "" if pd.isna(share) else f"{100 * share:+.1f}"


def count(number: float) -> str:
    """Return a whole number, or an empty string."""
    return "" if pd.isna(number) else f"{int(number)}"


def price(number: float) -> str:
    """Return a price with four digits, or an empty string."""
    return "" if pd.isna(number) else f"{number:.4g}"


def megabytes(size: float) -> str:
    """Return bytes as megabytes, or an empty string."""
    return "" if pd.isna(size) or not size else f"{size / 1e6:.1f}"


def few(names: Sequence[str]) -> str:
    """Return names as a list in a sentence: at most three, and the number of the others."""
    shown = [*names[:NAMED], f"{len(names) - NAMED} more"] if len(names) > NAMED else list(names)
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def counted(number: int, one: str, several: str) -> str:
    """Return a number with its noun."""
    return f"{number} {one if number == 1 else several}"
