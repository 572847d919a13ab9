"""Format numbers and lists of names for the page. Numbers have an ASCII minus and no commas, so that they sort."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd

# Maximum names listed in a sentence.
NAMED = 3
# A difference has its sign; zero is +0.0000.
DIFFERENCE = "+z.4f"
# Formats of numbers by column; the others have four decimals.
FORMATS = {
    **dict.fromkeys(("queries", "documents", "datasets", "wins", "ties", "losses", "rank"), ".0f"),
    **dict.fromkeys(("p_randomisation", "p_holm", "p_t", "p_t_holm", "p_sign"), ".2g"),
    **dict.fromkeys(("effect", "mean_rank"), ".2f"),
    **dict.fromkeys(("published", "tolerance"), "g"),
    **dict.fromkeys(("parameters", "dimensions", "max_length"), ",g"),
    **{"difference": DIFFERENCE, "away": DIFFERENCE, "borda": ".1f", "change": "+.1%", "relevant": ".1f"},
}
# The column of a table under each title, or the two ends of an interval.
Columns = Mapping[str, str | tuple[str, str]]
Rows = list[list[str]]


class Shown(NamedTuple):
    """A table of texts.

    The first ``headers`` columns identify a row. ``texts`` names other columns that are not numeric. ``rows`` are by
    metric, or under an empty name; the page shows one metric at a time.
    """

    name: str
    columns: list[str]
    headers: int
    texts: Sequence[str]
    rows: dict[str, Rows]

    def filled(self) -> Shown:
        """Return the table without the columns that are empty for each metric."""
        whole = [row for rows in self.rows.values() for row in rows]
        numbers = [n for n in range(len(self.columns)) if n < self.headers or not whole or any(row[n] for row in whole)]
        rows = {metric: [[row[n] for n in numbers] for row in of_metric] for metric, of_metric in self.rows.items()}
        return self._replace(columns=[self.columns[n] for n in numbers], rows=rows)


def shown(table: pd.DataFrame, columns: Columns) -> Rows:
    """Return the rows of a table as texts."""
    made = [
        list(map(interval, *(table[end] for end in column)))
        if isinstance(column, tuple)
        else [of if isinstance(of, str) else number(of, FORMATS.get(column, ".4f")) for of in table[column]]
        for column in columns.values()
    ]
    return [list(row) for row in zip(*made, strict=True)]


def rows(table: pd.DataFrame) -> Iterable[Any]:
    """Iterate over a table's rows, with the columns as attributes."""
    return table.itertuples()


def number(number: float | None, form: str = ".4f") -> str:
    """Format a number; empty without one."""
    return "" if pd.isna(number) else format(number, form)


def difference(number: float) -> str:
    """Format a difference; empty without one."""
    return "" if pd.isna(number) else format(number, DIFFERENCE)


def interval(low: float, high: float) -> str:
    """Format an interval; empty without one."""
    return "" if pd.isna(low) or pd.isna(high) else f"[{low:.4f}, {high:.4f}]"


def few(names: Sequence[str]) -> str:
    """Join names for a sentence: at most three, and the number of the others."""
    listed = [*names[:NAMED], f"{len(names) - NAMED} more"] if len(names) > NAMED else list(names)
    return " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))


def quantity(number: int, one: str, several: str) -> str:
    """Join a number with its noun."""
    return f"{number} {one if number == 1 else several}"
