"""Format numbers, tables and lists of names for the page.

Numbers have an ASCII minus and no commas, so that they sort.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import pandas as pd
from pandas.api.types import is_numeric_dtype

# Maximum names listed in a sentence.
NAMED = 3
# A difference has its sign; zero is +0.0000.
DIFFERENCE = "+z.4f"
# Formats of numbers by column; the others have four decimals.
FORMATS = {
    **dict.fromkeys(("queries", "documents", "datasets", "wins", "ties", "losses", "rank"), ".0f"),
    **dict.fromkeys(("p", "p_t", "p_sign"), ".2g"),
    **dict.fromkeys(("effect", "mean_rank"), ".2f"),
    **dict.fromkeys(("published", "tolerance"), "g"),
    **dict.fromkeys(("parameters", "dimensions", "max_length"), ",g"),
    **{"difference": DIFFERENCE, "borda": ".1f", "change": "+.1%", "relevant": ".1f", "in the paper": "g"},
}
# Titles of columns; those of the others are their names. A column called low is shown with its high one.
TITLES = {
    "low": "interval",
    "low_queries": "interval (queries)",
    "low_datasets": "interval (datasets and queries)",
    "difference_low": "interval of the difference",
    "said": "verdict",
    "p_t": "p (t test)",
    "p_sign": "p (sign test)",
    "effect": "effect size",
    "borda": "Borda count",
    "parameters": "parameters (M)",
    "max_length": "length",
    "relevant": "relevant / query",
}


class Shown(NamedTuple):
    """A table of texts. The first ``headers`` columns identify a row, ``texts`` are the columns without numbers.

    ``rows`` are by metric, or under an empty name; the page shows one metric at a time.
    """

    name: str
    columns: list[str]
    headers: int
    texts: list[str]
    rows: dict[str, list[list[str]]]


def number(number: float | None, form: str = ".4f") -> str:
    """Format a number; empty without one."""
    return "" if pd.isna(number) else format(number, form)


def difference(size: float) -> str:
    """Format a difference; empty without one."""
    return number(size, DIFFERENCE)


def interval(low: float, high: float) -> str:
    """Format an interval; empty without one."""
    return "" if pd.isna(low) or pd.isna(high) else f"[{low:.4f}, {high:.4f}]"


def shown(
    name: str,
    tables: Mapping[str, pd.DataFrame],
    columns: Sequence[str],
    headers: int = 1,
    default: Callable[[float], str] = number,
) -> Shown:
    """Show columns of the tables of each metric as texts, but for columns that are empty in all of them.

    ``default`` formats the numbers of a column that is not in ``FORMATS``.
    """
    texts = {
        metric: pd.DataFrame({column: _texts(table, column, default) for column in columns})
        for metric, table in tables.items()
    }
    whole = pd.concat(texts.values())
    filled = [column for n, column in enumerate(columns) if n < headers or whole.empty or (whole[column] != "").any()]
    words = [column for column in filled if not any(is_numeric_dtype(table[column]) for table in tables.values())]
    rows = {metric: of_metric[filled].to_numpy().tolist() for metric, of_metric in texts.items()}
    titles = {key: TITLES.get(key, key.replace("_", " ").replace("pool@", "pool to depth ")) for key in filled}
    return Shown(name, list(titles.values()), headers, [titles[column] for column in words], rows)


def _texts(table: pd.DataFrame, column: str, default: Callable[[float], str]) -> list[str]:
    """Return the cells of a column as texts."""
    if column.removeprefix("difference_").startswith("low"):
        return list(map(interval, table[column], table[column.replace("low", "high")]))
    if not is_numeric_dtype(table[column]):
        return ["" if pd.isna(value) else str(value) for value in table[column]]
    return [number(value, FORMATS[column]) if column in FORMATS else default(value) for value in table[column]]


def rows(table: pd.DataFrame) -> Iterable[Any]:
    """Iterate over a table's rows, with the columns as attributes."""
    return table.itertuples()


def few(names: Sequence[str]) -> str:
    """Join names for a sentence: at most three, and the number of the others."""
    listed = [*names[:NAMED], f"{len(names) - NAMED} more"] if len(names) > NAMED else list(names)
    return " and ".join(filter(None, [", ".join(listed[:-1]), listed[-1]]))
