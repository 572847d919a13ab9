"""The page's other tables. All cells are texts; the template escapes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from ..collections import collection
from ..config.metric_names import written
from ..core import paths
from ..results.answers import LEAST_DATASETS, Answers
from ..results.summary import GridSummary
from ..results.table_files import VERDICTS
from . import texts
from .texts import Columns, Rows, Shown

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


def baseline_of(answers: Answers) -> str:
    """Return the baseline of the tests, or an empty string where there is none."""
    return next((name for name in answers.significance["baseline"] if name), "")


def against_baseline(grid: GridSummary, answers: Answers) -> Shown:
    """Tabulate the tests of each system against the baseline."""
    columns: Columns = {
        **{"system": "system", "dataset": "dataset", "queries": "queries", "value": "mean"},
        "interval": ("low", "high"),
        f"difference to {baseline_of(answers)}": "difference",
        "interval of the difference": ("difference_low", "difference_high"),
        **{"p (randomisation)": "p_randomisation", "p (Holm)": "p_holm"},
        **{"p (t test)": "p_t", "p (t test, Holm)": "p_t_holm", "effect size": "effect", "note": "note"},
    }
    tests = answers.significance[answers.significance["baseline"] != ""]
    return _by_metric("baseline", grid, tests, columns, 2, ("note",))


def over_datasets(grid: GridSummary, answers: Answers) -> Shown:
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
    name: str, grid: GridSummary, table: pd.DataFrame, columns: Columns, headers: int, words: tuple[str, ...]
) -> Shown:
    """Show the rows of the grid's datasets and systems by metric, in the order of the grid."""
    table = table[table["system"].isin(list(grid.systems))]
    if "dataset" in table:
        table = table[table["dataset"].isin(list(grid.rows))]
    places = {name: place for place, name in enumerate([*grid.rows, *grid.systems])}
    by = [column for column in ("dataset", "over", "system") if column in table]
    table = table.sort_values(by, key=lambda of: of.map(lambda x: places.get(x, x)), kind="stable")
    rows = {metric: texts.shown(table[table["metric"] == metric], columns) for metric in grid.metrics}
    return Shown(name, list(columns), headers, words, rows).filled()


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
    by_pair: dict[str, dict[str, list[list[Any]]]] = {}
    for row in texts.rows(table):
        numbers = [_short(row, name) for name in ("difference", "difference_low", "difference_high")]
        numbers += [_short(row, name, ".2g") for name in ("p_holm", "p_tukey", "p_randomisation")]
        tests = [grid.rows.index(row.dataset), *numbers, _short(row, "effect", ".2f"), int(row.queries)]
        by_pair.setdefault(row.metric, {}).setdefault(_key(grid, row), []).append(tests)
    return by_pair, whole


def zero_shot_means(grid: GridSummary, answers: Answers) -> dict[str, dict[str, list[Any]]]:
    """Return the means of each pair over the datasets that are zero-shot for both, keyed as in ``pairs``.

    Each has the number of datasets, the means of both systems, the difference with its 95 % interval, and p.
    """
    by_pair: dict[str, dict[str, list[Any]]] = {metric: {} for metric in grid.metrics}
    for row in texts.rows(answers.zero_shot):
        numbers = [_short(row, name) for name in ("mean", "other_mean", "difference", "low", "high")]
        by_pair[row.metric][_key(grid, row)] = [int(row.datasets), *numbers, _short(row, "p_t", ".2g")]
    return by_pair


def _key(grid: GridSummary, row: Any) -> str:
    return f"{grid.systems.index(row.system)}-{grid.systems.index(row.other)}"


def _short(row: Any, name: str, form: str = ".4f") -> float | None:
    """Return a rounded number for the page's script, or None."""
    number = getattr(row, name)
    return None if pd.isna(number) else float(format(number, form))


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


def verdicts(answers: Answers) -> Shown:
    """Tabulate the scores with a reference value, deviations first."""
    table = answers.verdicts[answers.verdicts["published"].notna()]
    table = table.sort_values("verdict", key=lambda names: names.map(VERDICTS.index), kind="stable")
    table = table.assign(
        metric=table["metric"].map(written),
        value=table["value"].map(texts.number).where(table["value"].notna(), table["status"]),
        tolerance=table["tolerance"].where(table["protocol"] == ""),
    )
    words = ("precision", "verdict", "source", "note", "protocol", "commit")
    rows: Rows = texts.shown(table, VERDICT_COLUMNS)
    return Shown("verdicts", list(VERDICT_COLUMNS), 3, words, {"": rows}).filled()
