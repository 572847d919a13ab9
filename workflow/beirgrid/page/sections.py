"""The page's other tables. All cells are texts; the template escapes them."""

from __future__ import annotations

from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ..collections import collection
from ..config.metric_names import written
from ..core import paths
from ..results.answers import LEAST_DATASETS, Answers
from ..results.summary import GridSummary
from . import texts
from .answer import Difference, differences, mean_difference
from .matrix import VERDICTS

Rows = list[list[str]]
# The column of a table that stands under each title, or the two ends of an interval.
Columns = dict[str, str | tuple[str, str]]
# Formats of numbers by column; the others have four decimals.
FORMATS = {
    **dict.fromkeys(("queries", "datasets", "wins", "ties", "losses"), ".0f"),
    **dict.fromkeys(("p_randomisation", "p_holm", "p_t", "p_t_holm", "p_sign"), ".2g"),
    **dict.fromkeys(("effect", "mean_rank"), ".2f"),
    **{"borda": ".1f", "change": "+.1%", "published": "g", "tolerance": "g"},
}
# Maximum pairs on the page. If there are more, only those of the first metric are included, up to this number.
MOST_PAIRS = 20_000
# Maximum per-query values on the page, and the range of queries listed per dataset.
MOST_VALUES, LISTED = 60_000, range(20, 500)
# Characters of a query in a list.
MOST_CHARACTERS = 100
VERDICT_COLUMNS: Columns = {
    **{name: name for name in ("system", "dataset", "metric", "value", "precision")},
    "reference": "published",
    **{name: name for name in ("difference", "tolerance", "verdict", "source", "note", "protocol", "commit")},
}
# Columns of the table that compares two chosen systems. The page's script fills in the rows.
PAIR_COLUMNS = ["dataset", "first", "second", "difference", "interval", "p", "p (Holm)", "p (Tukey HSD)", "effect size"]


class ByMetric(NamedTuple):
    """A table of which the page shows one metric at a time.

    The first ``headers`` columns identify a row. ``texts`` names other columns that are not numeric.
    """

    name: str
    columns: list[str]
    headers: int
    texts: tuple[str, ...]
    rows: dict[str, Rows]

    def without_empty(self) -> ByMetric:
        """Return the table without the columns that are empty for each metric."""
        kept = filled_columns([row for rows in self.rows.values() for row in rows], self.columns, self.headers)
        rows = {metric: [[row[n] for n in kept] for row in of_metric] for metric, of_metric in self.rows.items()}
        return self._replace(columns=[self.columns[n] for n in kept], rows=rows)


def filled_columns(rows: Rows, columns: list[str], headers: int) -> list[int]:
    """Return the numbers of the columns to show: those with a text in some row, and the first ``headers``."""
    return [n for n in range(len(columns)) if n < headers or not rows or any(row[n] for row in rows)]


def baseline_of(answers: Answers) -> str:
    """Return the baseline of the tests, or an empty string where there is none."""
    return next((name for name in answers.significance["baseline"] if name), "")


def against_baseline(grid: GridSummary, answers: Answers) -> ByMetric:
    """Tabulate the tests of each system against the baseline."""
    columns: Columns = {
        **{
            "system": "system",
            "dataset": "dataset",
            "queries": "queries",
            "value": "mean",
            "interval": ("low", "high"),
        },
        f"difference to {baseline_of(answers)}": "difference",
        "interval of the difference": ("difference_low", "difference_high"),
        **{"p (randomisation)": "p_randomisation", "p (Holm)": "p_holm"},
        **{"p (t test)": "p_t", "p (t test, Holm)": "p_t_holm", "effect size": "effect", "note": "note"},
    }
    tests = answers.significance[answers.significance["baseline"] != ""]
    return _by_metric("baseline", grid, tests, columns, 2, ("note",))


def over_datasets(grid: GridSummary, answers: Answers) -> ByMetric:
    """Tabulate means over datasets, ranks, and comparisons with the baseline."""
    baseline, table = baseline_of(answers), answers.across.copy()
    tested = ["low_datasets", "high_datasets", "p_t", "p_sign"]
    table[tested] = table[tested].where(table["datasets"] >= LEAST_DATASETS)  # fewer say nothing about others
    columns: Columns = {
        **{"system": "system", "over": "over", "datasets": "datasets", "mean": "mean"},
        "interval (queries)": ("low_queries", "high_queries"),
        "interval (datasets and queries)": ("low_datasets", "high_datasets"),
        **{"mean rank": "mean_rank", "Borda count": "borda"},
        f"change against {baseline}" if baseline else "change": "change",
        **{"wins": "wins", "ties": "ties", "losses": "losses", "p (t test)": "p_t", "p (sign test)": "p_sign"},
        "note": "note",
    }
    return _by_metric("across", grid, table, columns, 1, ("over", "note"))


def _by_metric(
    name: str,
    grid: GridSummary,
    table: pd.DataFrame,
    columns: Columns,
    headers: int,
    words: tuple[str, ...],
) -> ByMetric:
    """Format the rows of the grid's metrics, datasets and systems by metric, in the order of the grid."""
    rows: dict[str, Rows] = {metric: [] for metric in grid.metrics}
    table = table[table["metric"].isin(list(grid.metrics)) & table["system"].isin(list(grid.systems))]
    if "dataset" in table:
        table = table[table["dataset"].isin(list(grid.rows))]
    places = {name: place for place, name in enumerate([*grid.rows, *grid.systems])}
    by = [column for column in ("dataset", "over", "system") if column in table]
    for row in texts.rows(table.sort_values(by, key=lambda of: of.map(lambda x: places.get(x, x)), kind="stable")):
        rows[row.metric].append(_row_texts(row, columns))
    return ByMetric(name, list(columns), headers, words, rows)


def _row_texts(row: Any, columns: Columns) -> list[str]:
    """Return the texts of a row of a table in these columns."""
    cells = []
    for column in columns.values():
        value = [getattr(row, end) for end in column] if isinstance(column, tuple) else getattr(row, column)
        if isinstance(value, list):
            cells.append(texts.interval(*value))
        elif column == "difference":
            cells.append(texts.difference(value))
        else:
            cells.append(value if isinstance(value, str) else texts.number(value, FORMATS.get(str(column), ".4f")))
    return cells


def pairs(grid: GridSummary, answers: Answers) -> tuple[dict[str, dict[str, list[list[Any]]]], bool]:
    """Return the pairwise tests, and whether they cover all metrics.

    The tests are keyed by metric and by the numbers of the two systems ("3-5": 3 minus 5). Each has the number of the
    dataset, the difference with its interval, p (Holm), p (Tukey HSD), p without a correction, the effect size and the
    number of queries.
    """
    table = answers.pairs[answers.pairs["dataset"].isin(list(grid.rows))]
    whole = len(table) <= MOST_PAIRS
    if not whole:
        table = table[table["metric"] == grid.metrics[0]].head(MOST_PAIRS)
    systems = {name: number for number, name in enumerate(grid.systems)}
    datasets = {name: number for number, name in enumerate(grid.rows)}
    by_pair: dict[str, dict[str, list[list[Any]]]] = {}
    for row in texts.rows(table):
        of_pair = by_pair.setdefault(row.metric, {}).setdefault(f"{systems[row.system]}-{systems[row.other]}", [])
        tests = (row.p_holm, row.p_tukey, row.p_randomisation)
        differences = (row.difference, row.difference_low, row.difference_high)
        tested = [_decimal(number, 4) for number in differences]
        tested += [None if pd.isna(p) else float(texts.probability(p)) for p in tests]
        of_pair.append([datasets[row.dataset], *tested, _decimal(row.effect, 2), int(row.queries)])
    return by_pair, whole


def zero_shot_means(grid: GridSummary, answers: Answers) -> dict[str, dict[str, list[Any]]]:
    """Return the means of each pair over the datasets that are zero-shot for both, keyed as in ``pairs``.

    Each has the number of datasets, the means of both systems, the difference with its 95 % interval, and p.
    """
    of_datasets = differences(answers.pairs)
    systems = {name: number for number, name in enumerate(grid.systems)}
    by_pair: dict[str, dict[str, list[Any]]] = {metric: {} for metric in grid.metrics}
    for row in texts.rows(answers.zero_shot[answers.zero_shot["datasets"] > 0]):
        known = of_datasets.get((row.metric, row.system, row.other), {})
        shared = [known[name] for name in row.names.split(", ") if name in known]
        means = [_decimal(number, 4) for number in (row.mean, row.other_mean, row.difference)]
        over = mean_difference(shared) if len(shared) == row.datasets else Difference(nan, nan, nan)
        p = None if pd.isna(over.p) else float(texts.probability(over.p))
        numbers = [*means, _decimal(over.low, 4), _decimal(over.high, 4), p]
        by_pair[row.metric][f"{systems[row.system]}-{systems[row.other]}"] = [int(row.datasets), *numbers]
    return by_pair


def per_query(grid: GridSummary, answers: Answers) -> dict[str, dict[str, Any]]:
    """Return the per-query values of each dataset in the grid's first metric, for the page's script.

    Includes the queries on which the systems differ most, or on which a single system is worst, with the beginnings of
    their texts. ``above`` counts, over all queries, those on which the row's system scores higher than the column's.
    """
    listed = max(LISTED.start, min(LISTED.stop, MOST_VALUES // (len(grid.systems) * len(grid.rows))))
    by_dataset = {}
    for dataset in grid.rows:
        values = answers.of_queries(dataset)
        if values.empty:
            continue
        spread = values.max(axis=1) - values.min(axis=1) if len(values.columns) > 1 else -values.iloc[:, 0]
        shown = values.loc[spread.sort_values(ascending=False, kind="stable").index[:listed]]
        path = Path(paths.QUERIES.format(dataset=dataset))
        queries = collection.read_queries(path) if path.is_file() and grid.datasets[dataset].show_text else {}
        by_dataset[dataset] = {
            "count": len(values),
            "ids": list(map(str, shown.index)),
            "texts": [queries.get(str(query), "")[:MOST_CHARACTERS] for query in shown.index],
            "values": {system: shown[system].round(4).tolist() for system in shown},
            "above": {system: values.lt(values[system], axis=0).sum().to_dict() for system in values},
        }
    return by_dataset


def _decimal(number: float, digits: int) -> float | None:
    return None if pd.isna(number) else round(number, digits)


def verdicts(answers: Answers) -> Rows:
    """Return the scores with a reference value in the columns ``VERDICT_COLUMNS``, deviations first."""
    order = {name: number for number, name in enumerate(reversed(VERDICTS))}
    table = answers.verdicts[answers.verdicts["published"].notna()]
    table = table.sort_values("verdict", key=lambda column: column.map(order), kind="stable")
    table = table.assign(
        metric=table["metric"].map(written),
        value=table["value"].map(texts.value).where(table["value"].notna(), table["status"]),
        tolerance=table["tolerance"].where(table["protocol"] == ""),
    )
    return [_row_texts(row, VERDICT_COLUMNS) for row in texts.rows(table)]
