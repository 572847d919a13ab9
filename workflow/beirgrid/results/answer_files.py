"""The result tables of a grid as files: CSV, and Parquet for the values of queries.

An empty CSV cell means no value: NaN in a numeric column, an empty string in a text column.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

import pandas as pd

from ..core import files
from .answers import COLUMN_TYPES, TEXT, Answers, typed

# Texts that spreadsheets would run as formulas: all but numbers, with or without the apostrophes of ``guarded``.
_FORMULA = re.compile(r"'*(?![+-](inf|nan|[\d.]+(e[+-]?\d+)?)$)[=+\-@\t\r\n]", re.IGNORECASE)


def write_answers(answers: Answers, folder: Path) -> bool:
    """Write each table to its file in a folder unless unchanged; return whether any was written."""
    changed = []
    for name, table in answers._asdict().items():
        content = table.to_parquet(index=False) if name == "per_query" else to_csv(name, table).encode()
        changed.append(files.replace(folder / file_name(name), content))
    return any(changed)


def read_answers(folder: Path) -> Answers:
    """Read the tables of a grid from its folder ``tables``.

    Raises:
        DataError: a table is missing or damaged.
    """
    return Answers(*(_read(name, folder) for name in Answers._fields))


def file_name(name: str) -> str:
    """Return the name of the named table's file. The only table that grows with the queries is not text."""
    return f"{name}.parquet" if name == "per_query" else f"{name}.csv"


def _read(name: str, folder: Path) -> pd.DataFrame:
    path = folder / file_name(name)
    with files.reading(path):
        return typed(name, pd.read_parquet(path)) if path.suffix == ".parquet" else from_csv(name, path)


def to_csv(name: str, table: pd.DataFrame) -> str:
    """Format the named table as CSV, with the shortest text that restores each number."""
    return guarded(typed(name, table)).to_csv(index=False, lineterminator="\n")


def from_csv(name: str, source: Path | TextIO) -> pd.DataFrame:
    """Parse the named table. Types are explicit, because a dataset may be called 2019 or NA."""
    kinds = COLUMN_TYPES[name]
    absent = {column: [""] for column, kind in kinds.items() if kind != TEXT}
    table = pd.read_csv(source, dtype=kinds, keep_default_na=False, na_values=absent)
    if list(table.columns) != list(kinds):
        raise ValueError(f"its columns must be {','.join(kinds)}")
    return unguarded(table)


def guarded(table: pd.DataFrame) -> pd.DataFrame:
    """Put an apostrophe before each text that a spreadsheet would run as a formula.

    The first characters are those that OWASP lists under CSV injection. Numbers are unchanged.
    """
    return _formulas_changed(table, lambda text: f"'{text}")


def unguarded(table: pd.DataFrame) -> pd.DataFrame:
    """Remove the apostrophes of ``guarded`` from a table read from CSV."""
    return _formulas_changed(table, lambda text: text.removeprefix("'"))


def _formulas_changed(table: pd.DataFrame, change: Callable[[str], str]) -> pd.DataFrame:
    texts = table.select_dtypes(["object", "str"])
    return table.assign(**texts.map(lambda text: change(text) if _FORMULA.match(str(text)) else text))
