"""The grid of the page: systems × datasets, one table per metric."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd

from ..config.metric_names import lower_is_better
from ..results.answers import DONE, FAILED, NOT_JUDGED, NOT_SUPPLIED, PENDING, Answers
from ..results.published import OTHER_COMMIT, OTHER_PROTOCOL, SCORE_IS_PUBLISHED
from ..results.summary import NO, GridSummary
from ..results.table_files import FLAW, TRAINING, shown_scores
from . import texts

# Shades of the heat: a column's worst value has none, its best value has this one.
SHADES = 8
# From the least to the most telling: a cell with several references has the verdict that comes last.
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
# Corrected p values of at most this are significant.
SIGNIFICANT = 0.05
# What a mean reads that lacks a dataset.
INCOMPLETE = "incomplete"


class Column(NamedTuple):
    """A column: a dataset, or a mean over datasets.

    ``key`` is the dataset's name; of a mean, what it is over, as the table ``across`` has it. ``names`` are the
    datasets of a mean.
    """

    key: str
    title: str
    mean: bool = False
    names: str = ""


class GridCell(NamedTuple):
    """What a cell shows: ``text`` is its value, or why it has none; ``detail`` says more of the latter.

    ``flaw`` says what is wrong with a value. ``exact`` has six decimals. ``deviation`` is over the seeds of the system.
    ``to_baseline`` and ``to_published`` are differences, empty where there is none; a star marks a significant one.
    """

    text: str
    detail: str
    exact: str
    interval: str
    to_baseline: str
    to_published: str
    verdict: str
    shade: int
    best: bool
    among_best: bool
    deviation: str = ""
    trained: str = NO
    flaw: str = ""

    @property
    def marks(self) -> str:
        """Signs behind the value: a circle for a system that is not distinguishable from the best, a double dagger for
        one that was trained on the dataset (a question mark if that is not known), a section sign for a flaw, and the
        verdict.
        """
        signs = ("°" if self.among_best and not self.best else "") + TRAINING[self.trained]
        return signs + (FLAW if self.flaw else "") + MARKS.get(self.verdict, "")


class MetricTable(NamedTuple):
    """The table of one metric: ``rows`` has a system and its cells, in the order of the columns."""

    metric: str
    lower_is_better: bool
    columns: list[Column]
    rows: list[tuple[str, list[GridCell]]]


class Facts(NamedTuple):
    """What a column's cells are made from, by system."""

    value: float
    low: float
    high: float
    status: str
    detail: str
    to_baseline: str
    among_best: bool


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
    cells = {
        column: _column([facts.get((system, column.key), _NOTHING) for system in grid.systems], lower)
        for column in columns
    }
    deviations, rows = _deviations(answers, metric), []
    for number, system in enumerate(grid.systems):
        row = []
        for column in columns:
            cell = cells[column][number]._replace(deviation=deviations.get((system, column.names or column.key), ""))
            if not column.mean:
                verdict, difference = verdicts.get((system, column.key, metric), ("", math.nan))
                trained = grid.trained(system, column.key)
                cell = cell._replace(verdict=verdict, to_published=texts.difference(difference), trained=trained)
            if cell.exact:
                cell = cell._replace(flaw=_flaw(facts, system, column))
            row.append(cell)
        rows.append((system, row))
    return MetricTable(metric, lower, columns, rows)


def _flaw(facts: dict[tuple[str, str], Facts], system: str, column: Column) -> str:
    """Return what is wrong with the value of a cell. A mean has the flaws of its datasets."""
    if not column.mean:
        return facts[system, column.key].detail
    found = ((name, facts.get((system, name), _NOTHING).detail) for name in column.names.split(", "))
    return "; ".join(f"{name}: {detail}" for name, detail in found if detail)


def means(across: pd.DataFrame) -> list[Column]:
    """Return a column for each set of at least two datasets that means are over."""
    sets = across.drop_duplicates("over")
    return [
        Column(over, f"mean of {count} ({over})", True, names)
        for over, count, names in zip(sets["over"], sets["datasets"], sets["names"], strict=True)
        if count > 1
    ]


def _means_of(across: pd.DataFrame) -> dict[tuple[str, str], Facts]:
    """Return the means over datasets, by system and by what they are over."""
    return {
        (row.system, row.over): Facts(
            row.mean,
            row.low_queries,
            row.high_queries,
            INCOMPLETE if math.isnan(row.mean) else DONE,
            row.note,
            texts.difference(row.difference) if row.system != row.baseline else "",
            False,
        )
        for row in texts.rows(across)
    }


def _deviations(answers: Answers, metric: str) -> dict[tuple[str, str], str]:
    """Return standard deviations over seeds that are all done, by system and by what ``Column`` calls key or names."""
    done = answers.seeds[(answers.seeds["metric"] == metric) & (answers.seeds["status"] == DONE)]
    return {(row.system, row.mean_of or row.dataset): texts.value(row.deviation) for row in texts.rows(done)}


def _scores_of(answers: Answers, metric: str) -> dict[tuple[str, str], Facts]:
    """Return the scores of one metric by system and dataset, those of parts of means among them."""
    tests = answers.significance[answers.significance["metric"] == metric]
    differences = {
        (row.system, row.dataset): texts.difference(row.difference) + ("*" if row.p_holm <= SIGNIFICANT else "")
        for row in texts.rows(tests)
    }
    groups = answers.groups[(answers.groups["metric"] == metric) & answers.groups["in_best_group"]]
    among_best = set(zip(groups["system"], groups["dataset"], strict=True))
    scores = answers.scores[answers.scores["metric"] == metric]
    found = {}
    for row in texts.rows(scores):
        key = (row.system, row.dataset)
        difference = differences.get(key, "")
        found[key] = Facts(row.value, row.low, row.high, row.status, row.detail, difference, key in among_best)
    return found


_NOTHING = Facts(math.nan, math.nan, math.nan, PENDING, "", "", False)


def _verdicts(verdicts: pd.DataFrame) -> dict[tuple[str, str, str], tuple[str, float]]:
    """Return the most telling verdict of each (system, dataset, metric), with its difference."""
    found: dict[tuple[str, str, str], tuple[str, float]] = {}
    for row in texts.rows(verdicts):
        key = (row.system, row.dataset, row.metric)
        known = found.get(key, ("", math.nan))[0]
        if VERDICTS.index(row.verdict) > VERDICTS.index(known):
            found[key] = (row.verdict, row.difference)
    return found


def _column(facts: list[Facts], lower_is_better: bool) -> list[GridCell]:
    """Return the cells of a column, one per system; verdicts are not filled in."""
    values = [fact.value for fact in facts if not math.isnan(fact.value)]
    worst, best = _ends(values, lower_is_better)
    return [
        GridCell(
            text=texts.value(fact.value) or fact.status,
            detail="" if texts.value(fact.value) else fact.detail,
            exact="" if math.isnan(fact.value) else f"{fact.value:.6f}",
            interval=texts.interval(fact.low, fact.high),
            to_baseline=fact.to_baseline,
            to_published="",
            verdict="",
            shade=_shade(fact.value, worst, best),
            # All that show as equal to the best are the best.
            best=len(values) > 1 and texts.value(fact.value) == texts.value(best),
            among_best=fact.among_best,
        )
        for fact in facts
    ]


def _ends(values: Iterable[float], lower_is_better: bool) -> tuple[float, float]:
    """Return the worst and the best of a column."""
    ordered = sorted(values, reverse=lower_is_better)
    return (ordered[0], ordered[-1]) if ordered else (math.nan, math.nan)


def _shade(value: float, worst: float, best: float) -> int:
    """Return how dark a value's cell is: 0 for the worst of its column, ``SHADES`` for the best."""
    if math.isnan(value) or best == worst:
        return 0
    return round(SHADES * (value - worst) / (best - worst))


def counts(grid: GridSummary, answers: Answers) -> dict[str, int]:
    """Return how many cells of the grid have each status. A cell is done when all of its metrics are."""
    statuses = (
        shown_scores(answers.scores, grid)
        .groupby(["system", "dataset"], sort=False)["status"]
        .agg(lambda found: next((status for status in found if status != DONE), DONE))
    )
    return {str(status): int(number) for status, number in statuses.value_counts().items()}


def failures(grid: GridSummary, answers: Answers) -> list[dict[str, Any]]:
    """Return the cells that failed, each once, with the log's path and last line; of seeds, those that failed."""
    failed = answers.scores[answers.scores["status"] == FAILED].drop_duplicates(["system", "dataset"])
    failed = failed[~failed["system"].isin(list(grid.seeds))]
    return [{"system": row.system, "dataset": row.dataset, "detail": row.detail} for row in texts.rows(failed)]
