"""Format numbers and lists of names for the page. Numbers have an ASCII minus and no commas, so that they sort."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import pandas as pd

# Maximum names listed in a sentence.
NAMED = 3


def rows(table: pd.DataFrame) -> Iterable[Any]:
    """Iterate over a table's rows, with the columns as attributes."""
    return table.itertuples()


def number(number: float, form: str) -> str:
    """Format a number; empty without one."""
    return "" if pd.isna(number) else format(number, form)


def value(number: float) -> str:
    """Format a score with four decimals; empty without one."""
    return "" if pd.isna(number) else f"{number:.4f}"


def difference(number: float) -> str:
    """Format a difference with its sign and four decimals; empty without one. Zero is +0.0000."""
    return "" if pd.isna(number) else f"{round(number, 4) + 0.0:+.4f}"


def interval(low: float, high: float) -> str:
    """Format an interval; empty without one."""
    return "" if pd.isna(low) or pd.isna(high) else f"[{low:.4f}, {high:.4f}]"


def probability(p: float) -> str:
    """Format a p value with two significant digits; empty without one."""
    return "" if pd.isna(p) else f"{p:.2g}"


def count(number: float) -> str:
    """Format a whole number; empty without one."""
    return "" if pd.isna(number) else f"{int(number)}"


def few(names: Sequence[str]) -> str:
    """Join names for a sentence: at most three, and the number of the others."""
    shown = [*names[:NAMED], f"{len(names) - NAMED} more"] if len(names) > NAMED else list(names)
    return " and ".join(filter(None, [", ".join(shown[:-1]), shown[-1]]))


def quantity(number: int, one: str, several: str) -> str:
    """Join a number with its noun."""
    return f"{number} {one if number == 1 else several}"
