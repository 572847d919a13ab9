"""The page's main tables: systems × datasets, one table per metric, each value with its interval as a bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from ..config.metric_names import MAIN, lower_is_better
from ..results.answers import DONE, FAILED, PENDING, ZERO_SHOT, Answers
from ..results.summary import GridSummary
from ..results.table_files import cell_facts, shown_scores
from . import texts

MARKS = {"reproduced": "✓", "close": "≈", "deviates": "✗"}
# Significance level for corrected p values.
SIGNIFICANT = 0.05


class Column(NamedTuple):
    """A column: a dataset, or a mean over datasets.

    ``key``: dataset name, or the value of ``over`` in across.csv for an average. ``names``: the datasets of an average.
    """

    key: str
    title: str
    names: str = ""


class GridCell(NamedTuple):
    """The content of a cell.

    ``detail`` is the reason for a missing value, or a warning about the value; that of a mean names the datasets.
    ``to_baseline`` and ``to_published`` are differences, or empty; a star marks a significant one. ``deviation`` is
    over the system's seeds. ``marks`` are the signs behind the value: a circle for a system that is not distinguishable
    from the best, a double dagger for one that was trained on the dataset (a question mark if that is not known), a
    section sign for a warning, and the verdict.
    """

    text: str = PENDING
    exact: str = ""
    interval: str = ""
    detail: str = ""
    to_baseline: str = ""
    to_published: str = ""
    best: bool = False
    marks: str = ""
    deviation: str = ""
    bar: Markup = Markup()


class Row(NamedTuple):
    """A system, its rank in the first column, and its cells in the order of the columns."""

    system: str
    rank: str
    cells: list[GridCell]


class MetricTable(NamedTuple):
    """The table of one metric. ``meant`` names the metric that ``main`` is in each column."""

    metric: str
    lower_is_better: bool
    columns: list[Column]
    rows: list[Row]
    meant: str = ""

    @property
    def marks(self) -> set[str]:
        """The signs of all cells."""
        return {mark for row in self.rows for cell in row.cells for mark in cell.marks}


def tables(grid: GridSummary, answers: Answers) -> list[MetricTable]:
    """Return the table of each metric of a grid."""
    return [_table(grid, answers, metric) for metric in grid.metrics]


def _table(grid: GridSummary, answers: Answers, metric: str) -> MetricTable:
    columns = [*means(answers.across[answers.across["metric"] == metric]), *(Column(name, name) for name in grid.rows)]
    facts = cell_facts(answers, grid, metric)
    known = dict(zip(facts.index, texts.rows(facts), strict=True))
    keys = [f"{column.key}: {column.names}" if column.names else column.key for column in columns]
    of_columns = [_cells([known.get((key, system)) for system in grid.systems]) for key in keys]
    first = pd.Series([float(cell.exact or math.nan) for cell in of_columns[0]], dtype="float64")
    ranks = (texts.number(rank, ".0f") for rank in first.rank(method="min", ascending=lower_is_better(metric)))
    rows = [Row(*of) for of in zip(grid.systems, ranks, map(list, zip(*of_columns, strict=True)), strict=True)]
    return MetricTable(metric, lower_is_better(metric), columns, rows, _main_metrics(grid, metric))


def _cells(rows: Sequence[Any]) -> list[GridCell]:
    """Return the cells of a column from what is known of each system; None for nothing."""
    ends = [end for row in rows if row for end in (row.value, row.low, row.high) if not math.isnan(end)]
    return [
        GridCell(
            text=row.text,
            exact=texts.number(row.value, ".6f"),
            interval=texts.interval(row.low, row.high),
            detail=row.detail,
            to_baseline=texts.difference(row.difference) + ("*" if row.p <= SIGNIFICANT else ""),
            to_published=texts.difference(row.to_published),
            best=row.best,
            marks=row.signs.replace("†", "°") + MARKS.get(row.verdict, ""),
            deviation=texts.number(row.deviation),
            bar=bar(row, ends),
        )
        if row
        else GridCell()
        for row in rows
    ]


def bar(cell: Any, ends: Sequence[float]) -> Markup:
    """Draw a value as a tick on its interval, as SVG, between the lowest and the highest end of its column."""
    if math.isnan(cell.value) or (least := min(ends)) == (most := max(ends)):
        return Markup()
    low, value, high = (f"{100 * (end - least) / (most - least):.1f}" for end in (cell.low, cell.value, cell.high))
    line = "" if math.isnan(cell.low) else f'<path d="M{low} 3H{high}"/>'
    svg = f'<svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">{line}<path d="M{value} 0v6"/></svg>'
    return Markup(svg)  # noqa: S704, numbers alone


def _main_metrics(grid: GridSummary, metric: str) -> str:
    """Return which metric the main one of each row is; empty for another metric."""
    rows: dict[str, list[str]] = {}
    for row in grid.rows if metric == MAIN else ():
        rows.setdefault(grid.meant(metric, row), []).append(row)
    return "; ".join(f"{name} of {', '.join(of)}" for name, of in rows.items())


def means(across: pd.DataFrame) -> list[Column]:
    """Return a column for each averaged set of at least two datasets. One set alone needs no name."""
    sets = across[across["datasets"] > 1].drop_duplicates("over")
    named = (sets["over"] == ZERO_SHOT).any()
    return [
        Column(over, f"mean of {count}" + (f" ({over})" if named else ""), names)
        for over, count, names in zip(sets["over"], sets["datasets"], sets["names"], strict=True)
    ]


def counts(grid: GridSummary, answers: Answers) -> dict[str, int]:
    """Count the cells by status. A cell is done when all of its metrics are."""
    statuses = shown_scores(answers.scores, grid).sort_values("status", key=lambda names: names == DONE, kind="stable")
    numbers = statuses.drop_duplicates(["system", "dataset"])["status"].value_counts()
    return {str(status): int(number) for status, number in numbers.items()}


def failures(grid: GridSummary, answers: Answers) -> list[dict[str, Any]]:
    """Return the failed cells, each once, with the log's path and last line. For seeds, lists those that failed."""
    failed = answers.scores[answers.scores["status"] == FAILED].drop_duplicates(["system", "dataset"])
    failed = failed[~failed["system"].isin(list(grid.seeds))]
    return [{"system": row.system, "dataset": row.dataset, "detail": row.detail} for row in texts.rows(failed)]
