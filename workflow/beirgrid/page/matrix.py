"""The page's main tables: systems × datasets, one table per metric, each value with its interval as a bar."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import pandas as pd
from markupsafe import Markup

from ..config.metric_names import MAIN, lower_is_better
from ..results.answers import DONE, FAILED, NOT_JUDGED, NOT_SUPPLIED, PENDING, ZERO_SHOT, Answers
from ..results.published import OTHER_COMMIT, OTHER_PROTOCOL, SCORE_IS_PUBLISHED
from ..results.summary import NO, GridSummary
from ..results.table_files import FLAW, INCOMPLETE, TRAINING, shown_scores
from . import texts

# Verdicts in ascending priority: a cell with several references shows the last one.
VERDICTS = (
    *("", NOT_SUPPLIED, NOT_JUDGED, PENDING, FAILED, "no reference"),
    *(SCORE_IS_PUBLISHED, OTHER_PROTOCOL, OTHER_COMMIT, "reproduced", "close", "deviates"),
)
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
    over the system's seeds. ``among_best``: not distinguishable from the best. ``marks`` are the signs behind the
    value: a circle for a system among the best, a double dagger for one that was trained on the dataset (a question
    mark if that is not known), a section sign for a warning, and the verdict.
    """

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    status: str = PENDING
    detail: str = ""
    to_baseline: str = ""
    among_best: bool = False
    to_published: str = ""
    verdict: str = ""
    best: bool = False
    marks: str = ""
    deviation: str = ""
    bar: Markup = Markup()

    @property
    def text(self) -> str:
        """The value, or the reason that it has none."""
        return texts.value(self.value) or self.status

    @property
    def exact(self) -> str:
        """The value with six decimals."""
        return "" if math.isnan(self.value) else f"{self.value:.6f}"

    @property
    def interval(self) -> str:
        """The ends of the interval."""
        return texts.interval(self.low, self.high)


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
    def marks(self) -> list[str]:
        """The signs of all cells."""
        return [mark for row in self.rows for cell in row.cells for mark in cell.marks]


# Cells by system and key of the column.
Facts = dict[tuple[str, str], GridCell]


def tables(grid: GridSummary, answers: Answers) -> list[MetricTable]:
    """Return the table of each metric of a grid."""
    verdicts = _verdicts(answers.verdicts)
    return [_table(grid, answers, metric, verdicts) for metric in grid.metrics]


def _table(
    grid: GridSummary, answers: Answers, metric: str, verdicts: dict[tuple[str, str, str], tuple[str, float]]
) -> MetricTable:
    lower = lower_is_better(metric)
    across = answers.across[answers.across["metric"] == metric]
    columns = [*means(across), *(Column(name, name) for name in grid.rows)]
    facts = {**_means_of(across), **_scores_of(answers, metric)}
    done = answers.seeds[(answers.seeds["metric"] == metric) & (answers.seeds["status"] == DONE)]
    deviations = {(row.system, row.mean_of or row.dataset): texts.value(row.deviation) for row in texts.rows(done)}

    def cells(column: Column) -> list[GridCell]:
        of_column = {system: facts.get((system, column.key), GridCell()) for system in grid.systems}
        values = [cell.value for cell in of_column.values() if not math.isnan(cell.value)]
        best = texts.value((min if lower else max)(values)) if len(values) > 1 else ""
        ends = [end for cell in of_column.values() for end in cell[:3] if not math.isnan(end)]
        drawn = []
        for system, cell in of_column.items():
            verdict, difference = verdicts.get((system, column.key, metric), ("", math.nan))
            is_best = texts.value(cell.value) == best != ""  # as are all values that round to the best one
            detail = _detail(facts, system, column, cell)
            trained = TRAINING[NO if column.names else grid.trained(system, column.key)]
            flaw = FLAW if detail and not math.isnan(cell.value) else ""
            drawn.append(
                cell._replace(
                    detail=detail,
                    to_published=texts.difference(difference),
                    verdict=verdict,
                    best=is_best,
                    marks="°" * (cell.among_best and not is_best) + trained + flaw + MARKS.get(verdict, ""),
                    deviation=deviations.get((system, column.names or column.key), ""),
                    bar=bar(cell, ends),
                )
            )
        return drawn

    of_columns = [*map(cells, columns)]
    first = pd.Series([cell.value for cell in of_columns[0]], dtype="float64")
    ranks = map(texts.count, first.rank(method="min", ascending=lower))
    rows = [Row(*of) for of in zip(grid.systems, ranks, map(list, zip(*of_columns, strict=True)), strict=True)]
    return MetricTable(metric, lower, columns, rows, _main_metrics(grid, metric))


def bar(cell: GridCell, ends: Sequence[float]) -> Markup:
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


def _detail(facts: Facts, system: str, column: Column, cell: GridCell) -> str:
    """Return the detail of a cell. A mean that has a value has the warnings of its datasets."""
    if not column.names or math.isnan(cell.value):
        return cell.detail
    details = ((name, facts.get((system, name), GridCell()).detail) for name in column.names.split(", "))
    return "; ".join(f"{name}: {detail}" for name, detail in details if detail)


def means(across: pd.DataFrame) -> list[Column]:
    """Return a column for each averaged set of at least two datasets. One set alone needs no name."""
    sets = across[across["datasets"] > 1].drop_duplicates("over")
    named = (sets["over"] == ZERO_SHOT).any()
    return [
        Column(over, f"mean of {count}" + (f" ({over})" if named else ""), names)
        for over, count, names in zip(sets["over"], sets["datasets"], sets["names"], strict=True)
    ]


def _means_of(across: pd.DataFrame) -> Facts:
    """Return the means over datasets."""
    return {
        (row.system, row.over): GridCell(
            row.mean,
            row.low_queries,
            row.high_queries,
            INCOMPLETE if math.isnan(row.mean) else DONE,
            row.note,
            texts.difference(row.difference) if row.system != row.baseline else "",
        )
        for row in texts.rows(across)
    }


def _scores_of(answers: Answers, metric: str) -> Facts:
    """Return the scores of one metric by system and dataset, including the parts of averaged datasets."""
    tests = answers.significance[answers.significance["metric"] == metric]
    differences = {
        (row.system, row.dataset): texts.difference(row.difference) + ("*" if row.p_holm <= SIGNIFICANT else "")
        for row in texts.rows(tests)
    }
    groups = answers.groups[(answers.groups["metric"] == metric) & answers.groups["in_best_group"]]
    among_best = set(zip(groups["system"], groups["dataset"], strict=True))
    return {
        (key := (row.system, row.dataset)): GridCell(
            row.value, row.low, row.high, row.status, row.detail, differences.get(key, ""), key in among_best
        )
        for row in texts.rows(answers.scores[answers.scores["metric"] == metric])
    }


def _verdicts(verdicts: pd.DataFrame) -> dict[tuple[str, str, str], tuple[str, float]]:
    """Return the verdict of highest priority of each (system, dataset, metric), with its difference."""
    first: dict[tuple[str, str, str], tuple[str, float]] = {}
    for row in texts.rows(verdicts):
        key = (row.system, row.dataset, row.metric)
        if VERDICTS.index(row.verdict) > VERDICTS.index(first.get(key, ("",))[0]):
            first[key] = (row.verdict, row.difference)
    return first


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
