"""The page's main tables: systems × datasets, one table per metric, each value with its interval as a bar."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..config.metric_names import MAIN, lower_is_better
from ..results.answers import DONE, FAILED, PENDING, ZERO_SHOT, Answers
from ..results.summary import GridSummary
from ..results.table_files import cell_facts, shown_scores
from . import texts

MARKS = {"reproduced": "✓", "close": "≈", "deviates": "✗"}
# Significance level for corrected p values.
SIGNIFICANT = 0.05


class Column(NamedTuple):
    """A dataset, or a mean over the datasets ``names``; ``key`` is its name, or that of the set in across.csv."""

    key: str
    title: str
    names: str = ""


class Row(NamedTuple):
    """A system, its rank in the first column, and its cells in the order of the columns, rows of ``_cells``."""

    system: str
    rank: str
    cells: list[Any]


class MetricTable(NamedTuple):
    """The table of one metric. ``meant`` names the metric that ``main`` is in each column; ``marks`` are all signs."""

    metric: str
    lower_is_better: bool
    columns: list[Column]
    rows: list[Row]
    meant: str
    marks: str


def tables(grid: GridSummary, answers: Answers) -> list[MetricTable]:
    """Return the table of each metric of a grid."""
    return [_table(grid, answers, metric) for metric in grid.metrics]


def _table(grid: GridSummary, answers: Answers, metric: str) -> MetricTable:
    columns = [*means(answers.across[answers.across["metric"] == metric]), *(Column(name, name) for name in grid.rows)]
    facts, lower = cell_facts(answers, grid, metric), lower_is_better(metric)
    keys = [f"{column.key}: {column.names}" if column.names else column.key for column in columns]
    places = pd.MultiIndex.from_product([grid.systems, keys]).swaplevel()
    cells = _cells(facts).reindex(places, fill_value="").replace({"text": {"": PENDING}})
    values = facts["value"].xs(keys[0]).reindex(list(grid.systems))
    ranks = [texts.number(rank, ".0f") for rank in values.rank(method="min", ascending=lower)]
    of_systems = (list(texts.rows(of)) for _, of in cells.groupby(level=1, sort=False))
    rows = [Row(*row) for row in zip(grid.systems, ranks, of_systems, strict=True)]
    return MetricTable(metric, lower, columns, rows, _main_metrics(grid, metric), "".join(cells["marks"]))


def _cells(facts: pd.DataFrame) -> pd.DataFrame:
    """Return what a reader sees of each cell as texts, from ``cell_facts``.

    A star marks a significant difference. ``marks`` are the signs of the facts, with a circle in place of the dagger,
    and that of the verdict. ``bar`` has the places of low, value and high in percent between the lowest and the highest
    end of the column, or nothing.
    """
    ends, of_column = facts[["low", "value", "high"]], facts["dataset"].to_numpy()
    least, most = (getattr(ends, end)(axis=1).groupby(of_column).transform(end) for end in ("min", "max"))
    places = ends.sub(least, axis=0).div((most - least).replace(0, np.nan), axis=0) * 100
    bars = pd.Series([tuple(texts.number(end, ".1f") for end in row) for row in places.to_numpy()], facts.index)
    return facts[["text", "detail", "best"]].assign(
        exact=[texts.number(value, ".6f") for value in facts["value"]],
        interval=list(map(texts.interval, facts["low"], facts["high"])),
        to_baseline=facts["difference"].map(texts.difference) + np.where(facts["p"] <= SIGNIFICANT, "*", ""),
        to_published=facts["to_published"].map(texts.difference),
        marks=facts["signs"].str.replace("†", "°") + facts["verdict"].map(MARKS).fillna(""),
        deviation=facts["deviation"].map(texts.number),
        bar=bars.where(facts["value"].notna() & (least < most), ""),
    )


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


def failures(grid: GridSummary, answers: Answers) -> list[Any]:
    """Return the failed cells, each once, with the log's path and last line. For seeds, lists those that failed."""
    failed = answers.scores[(answers.scores["status"] == FAILED) & ~answers.scores["system"].isin(list(grid.seeds))]
    return list(texts.rows(failed[["system", "dataset", "detail"]].drop_duplicates()))
