"""The page's main tables: systems × datasets, one table per metric, each value with its interval as a bar."""

from __future__ import annotations

import math
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
    "",
    NOT_SUPPLIED,
    NOT_JUDGED,
    PENDING,
    FAILED,
    "no reference",
    SCORE_IS_PUBLISHED,
    OTHER_PROTOCOL,
    OTHER_COMMIT,
    "reproduced",
    "close",
    "deviates",
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
    """The content of a cell. ``text`` is its value or the reason that it has none, explained by ``detail``.

    ``flaw`` is a warning about the value. ``exact`` has six decimals. ``deviation`` is over the system's seeds.
    ``to_baseline`` and ``to_published`` are differences, or empty; a star marks a significant one. ``marks`` are the
    signs behind the value: a circle for a system that is not distinguishable from the best, a double dagger for one
    that was trained on the dataset (a question mark if that is not known), a section sign for a flaw, and the verdict.
    """

    text: str
    detail: str
    exact: str
    interval: str
    to_baseline: str
    to_published: str
    verdict: str
    best: bool
    marks: str
    deviation: str
    flaw: str
    bar: Markup


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
        """The signs that some cell has."""
        return {mark for row in self.rows for cell in row.cells for mark in cell.marks}


class CellFacts(NamedTuple):
    """The data of a cell."""

    value: float = math.nan
    low: float = math.nan
    high: float = math.nan
    status: str = PENDING
    detail: str = ""
    to_baseline: str = ""
    among_best: bool = False


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
    deviations = _deviations(answers, metric)

    def cells(column: Column) -> list[GridCell]:
        of_column = {system: facts.get((system, column.key), CellFacts()) for system in grid.systems}
        values = [fact.value for fact in of_column.values() if not math.isnan(fact.value)]
        best = texts.value((min if lower else max)(values)) if len(values) > 1 else ""
        ends = [end for fact in of_column.values() for end in fact[:3] if not math.isnan(end)]
        made = []
        for system, fact in of_column.items():
            verdict, difference = verdicts.get((system, column.key, metric), ("", math.nan))
            is_best = texts.value(fact.value) == best != ""  # as are all values that round to the best one
            flaw = "" if math.isnan(fact.value) else _flaw(facts, system, column)
            circle = "°" if fact.among_best and not is_best else ""
            trained = TRAINING[NO if column.names else grid.trained(system, column.key)]
            made.append(
                GridCell(
                    text=texts.value(fact.value) or fact.status,
                    detail="" if texts.value(fact.value) else fact.detail,
                    exact="" if math.isnan(fact.value) else f"{fact.value:.6f}",
                    interval=texts.interval(fact.low, fact.high),
                    to_baseline=fact.to_baseline,
                    to_published=texts.difference(difference),
                    verdict=verdict,
                    best=is_best,
                    marks=circle + trained + (FLAW if flaw else "") + MARKS.get(verdict, ""),
                    deviation=deviations.get((system, column.names or column.key), ""),
                    flaw=flaw,
                    bar=bar(fact, min(ends), max(ends)) if ends else Markup(),
                )
            )
        return made

    leading = columns[0].key
    first = pd.Series([facts.get((system, leading), CellFacts()).value for system in grid.systems], dtype="float64")
    ranks = map(texts.count, first.rank(method="min", ascending=lower))
    rows = zip(grid.systems, ranks, zip(*map(cells, columns), strict=True), strict=True)
    return MetricTable(metric, lower, columns, [Row(s, rank, list(of)) for s, rank, of in rows], _meant(grid, metric))


def bar(fact: CellFacts, least: float, most: float) -> Markup:
    """Draw a value as a tick on its interval, as SVG, between the lowest and the highest end of its column."""
    if math.isnan(fact.value) or most == least:
        return Markup()
    low, value, high = (f"{100 * (end - least) / (most - least):.1f}" for end in (fact.low, fact.value, fact.high))
    line = "" if math.isnan(fact.low) else f'<path d="M{low} 3H{high}"/>'
    svg = f'<svg viewBox="0 0 100 6" preserveAspectRatio="none" aria-hidden="true">{line}<path d="M{value} 0v6"/></svg>'
    return Markup(svg)  # noqa: S704, numbers alone


def _meant(grid: GridSummary, metric: str) -> str:
    """Return which metric the main one of each row is; empty for another metric."""
    rows: dict[str, list[str]] = {}
    for row in grid.rows if metric == MAIN else ():
        rows.setdefault(grid.meant(metric, row), []).append(row)
    return "; ".join(f"{name} of {', '.join(of)}" for name, of in rows.items())


def _flaw(facts: dict[tuple[str, str], CellFacts], system: str, column: Column) -> str:
    """Return the warnings about a cell's value. A mean has those of its datasets."""
    if not column.names:
        return facts[system, column.key].detail
    details = ((name, facts.get((system, name), CellFacts()).detail) for name in column.names.split(", "))
    return "; ".join(f"{name}: {detail}" for name, detail in details if detail)


def means(across: pd.DataFrame) -> list[Column]:
    """Return a column for each averaged set of at least two datasets. One set alone needs no name."""
    sets = across[across["datasets"] > 1].drop_duplicates("over")
    named = (sets["over"] == ZERO_SHOT).any()
    return [
        Column(over, f"mean of {count}" + (f" ({over})" if named else ""), names)
        for over, count, names in zip(sets["over"], sets["datasets"], sets["names"], strict=True)
    ]


def _means_of(across: pd.DataFrame) -> dict[tuple[str, str], CellFacts]:
    """Return the means over datasets, by system and set of datasets."""
    return {
        (row.system, row.over): CellFacts(
            row.mean,
            row.low_queries,
            row.high_queries,
            INCOMPLETE if math.isnan(row.mean) else DONE,
            row.note,
            texts.difference(row.difference) if row.system != row.baseline else "",
        )
        for row in texts.rows(across)
    }


def _deviations(answers: Answers, metric: str) -> dict[tuple[str, str], str]:
    """Return standard deviations over complete sets of seeds, by system and by the column's key or names."""
    done = answers.seeds[(answers.seeds["metric"] == metric) & (answers.seeds["status"] == DONE)]
    return {(row.system, row.mean_of or row.dataset): texts.value(row.deviation) for row in texts.rows(done)}


def _scores_of(answers: Answers, metric: str) -> dict[tuple[str, str], CellFacts]:
    """Return the scores of one metric by system and dataset, including the parts of averaged datasets."""
    tests = answers.significance[answers.significance["metric"] == metric]
    differences = {
        (row.system, row.dataset): texts.difference(row.difference) + ("*" if row.p_holm <= SIGNIFICANT else "")
        for row in texts.rows(tests)
    }
    groups = answers.groups[(answers.groups["metric"] == metric) & answers.groups["in_best_group"]]
    among_best = set(zip(groups["system"], groups["dataset"], strict=True))
    return {
        (key := (row.system, row.dataset)): CellFacts(
            row.value, row.low, row.high, row.status, row.detail, differences.get(key, ""), key in among_best
        )
        for row in texts.rows(answers.scores[answers.scores["metric"] == metric])
    }


def _verdicts(verdicts: pd.DataFrame) -> dict[tuple[str, str, str], tuple[str, float]]:
    """Return the verdict of highest priority of each (system, dataset, metric), with its difference."""
    known: dict[tuple[str, str, str], tuple[str, float]] = {}
    for row in texts.rows(verdicts):
        key = (row.system, row.dataset, row.metric)
        if VERDICTS.index(row.verdict) > VERDICTS.index(known.get(key, ("", math.nan))[0]):
            known[key] = (row.verdict, row.difference)
    return known


def counts(grid: GridSummary, answers: Answers) -> dict[str, int]:
    """Count the cells by status. A cell is done when all of its metrics are."""
    statuses = (
        shown_scores(answers.scores, grid)
        .groupby(["system", "dataset"], sort=False)["status"]
        .agg(lambda found: next((status for status in found if status != DONE), DONE))
    )
    return {str(status): int(number) for status, number in statuses.value_counts().items()}


def failures(grid: GridSummary, answers: Answers) -> list[dict[str, Any]]:
    """Return the failed cells, each once, with the log's path and last line. For seeds, lists those that failed."""
    failed = answers.scores[answers.scores["status"] == FAILED].drop_duplicates(["system", "dataset"])
    failed = failed[~failed["system"].isin(list(grid.seeds))]
    return [{"system": row.system, "dataset": row.dataset, "detail": row.detail} for row in texts.rows(failed)]
