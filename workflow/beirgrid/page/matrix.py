"""The page's main tables: systems × datasets, one table per metric."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import pandas as pd

from ..config.metric_names import MAIN, lower_is_better
from ..results.answers import DONE, FAILED, NOT_JUDGED, NOT_SUPPLIED, PENDING, Answers
from ..results.published import OTHER_COMMIT, OTHER_PROTOCOL, SCORE_IS_PUBLISHED
from ..results.summary import NO, GridSummary
from ..results.table_files import FLAW, INCOMPLETE, TRAINING, shown_scores
from . import texts

# Shades of the heat map: 0 for a column's worst value, this number for its best.
SHADES = 8
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
    mean: bool = False
    names: str = ""


class GridCell(NamedTuple):
    """The content of a cell. ``text`` is its value or the reason that it has none, explained by ``detail``.

    ``flaw`` is a warning about the value. ``exact`` has six decimals. ``deviation`` is over the system's seeds.
    ``to_baseline`` and ``to_published`` are differences, or empty; a star marks a significant one.
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
    """The table of one metric.

    Attributes:
        lower_is_better: whether the lowest value is the best.
        columns: what there is a value of.
        rows: a system and its cells, in the order of the columns.
        meant: which metric ``main`` is in each column.
    """

    metric: str
    lower_is_better: bool
    columns: list[Column]
    rows: list[tuple[str, list[GridCell]]]
    meant: str = ""


class Facts(NamedTuple):
    """The data of a column's cells, by system."""

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
    return MetricTable(metric, lower, columns, rows, _meant(grid, metric))


def _meant(grid: GridSummary, metric: str) -> str:
    """Return which metric the main one of each row is; empty for another metric."""
    rows: dict[str, list[str]] = {}
    for row in grid.rows if metric == MAIN else ():
        rows.setdefault(grid.meant(metric, row), []).append(row)
    return "; ".join(f"{name} of {', '.join(of)}" for name, of in rows.items())


def _flaw(facts: dict[tuple[str, str], Facts], system: str, column: Column) -> str:
    """Return the warnings about a cell's value. A mean has those of its datasets."""
    if not column.mean:
        return facts[system, column.key].detail
    found = ((name, facts.get((system, name), _NOTHING).detail) for name in column.names.split(", "))
    return "; ".join(f"{name}: {detail}" for name, detail in found if detail)


def means(across: pd.DataFrame) -> list[Column]:
    """Return a column for each averaged set of at least two datasets."""
    sets = across.drop_duplicates("over")
    return [
        Column(over, f"mean of {count} ({over})", True, names)
        for over, count, names in zip(sets["over"], sets["datasets"], sets["names"], strict=True)
        if count > 1
    ]


def _means_of(across: pd.DataFrame) -> dict[tuple[str, str], Facts]:
    """Return the means over datasets, by system and set of datasets."""
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
    """Return standard deviations over complete sets of seeds, by system and by the column's key or names."""
    done = answers.seeds[(answers.seeds["metric"] == metric) & (answers.seeds["status"] == DONE)]
    return {(row.system, row.mean_of or row.dataset): texts.value(row.deviation) for row in texts.rows(done)}


def _scores_of(answers: Answers, metric: str) -> dict[tuple[str, str], Facts]:
    """Return the scores of one metric by system and dataset, including the parts of averaged datasets."""
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
    """Return the verdict of highest priority of each (system, dataset, metric), with its difference."""
    found: dict[tuple[str, str, str], tuple[str, float]] = {}
    for row in texts.rows(verdicts):
        key = (row.system, row.dataset, row.metric)
        known = found.get(key, ("", math.nan))[0]
        if VERDICTS.index(row.verdict) > VERDICTS.index(known):
            found[key] = (row.verdict, row.difference)
    return found


def _column(facts: list[Facts], lower_is_better: bool) -> list[GridCell]:
    """Build the cells of a column, one per system, without verdicts."""
    ordered = sorted((fact.value for fact in facts if not math.isnan(fact.value)), reverse=lower_is_better)
    worst, best = (ordered[0], ordered[-1]) if ordered else (math.nan, math.nan)
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
            # All values that round to the best one are marked as best.
            best=len(ordered) > 1 and texts.value(fact.value) == texts.value(best),
            among_best=fact.among_best,
        )
        for fact in facts
    ]


def _shade(value: float, worst: float, best: float) -> int:
    """Return a value's shade: 0 for the worst of its column, ``SHADES`` for the best."""
    if math.isnan(value) or best == worst:
        return 0
    return round(SHADES * (value - worst) / (best - worst))


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
