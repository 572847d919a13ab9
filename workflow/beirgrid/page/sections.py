"""The tables of the page, and the data of its script. All cells are texts; the template escapes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..collections import collection
from ..core import paths, provenance
from ..core.errors import DataError
from ..measures import MAIN, lower_is_better, written
from ..results import comparisons, table_files
from ..results.answers import (
    ALL,
    DONE,
    FAILED,
    LEAST_DATASETS,
    PENDING,
    REPLACED,
    STATUSES,
    Answers,
    both_ways,
    main_comparison,
)
from ..results.published import OTHER_PROTOCOL
from ..results.summary import DatasetSummary, GridSummary
from ..results.table_files import VERDICTS, cell_facts, shown_scores
from . import texts
from .texts import Shown

# Maximum pairs on the page. If there are more, only those of the first metric are included, up to this number.
MOST_PAIRS = 20_000
# Maximum per-query values on the page, and the range of queries listed per dataset.
MOST_VALUES = 60_000
LISTED = range(20, 500)
# Characters of a query in a list.
MOST_CHARACTERS = 100
# Columns of the tests of pairs, and of the means of pairs over datasets, that the page's script reads in this order.
PAIRS = [
    *("metric", "system", "other", "dataset", "difference", "difference_low", "difference_high"),
    *("p", "said", "planned", "effect"),
]
ZERO_SHOT_COLUMNS = ["metric", "system", "other", "datasets", "mean", "other_mean", "low", "high", "p_t"]
# Columns of the table that compares two chosen systems. The page's script fills in the rows.
PAIR_COLUMNS = ["dataset", "first", "second", "difference", "interval", "p", "verdict", "effect size"]
# Label of a system with published values only.
NOT_RUN = "published, not run here"
_SIZES = ["parameters", "dimensions", "max_length"]
_MODEL = ["model", *_SIZES, "licence", "source"]
# Counts by fetch that a reader should know: of the corpus, and of the dataset.
CORPUS_COUNTS = {"empty_documents": "documents without text", "duplicates_dropped": "duplicate documents dropped"}
DATASET_COUNTS = {
    "duplicates_dropped": "duplicate queries dropped",
    "unknown_documents": "judged documents not in the corpus",
    "queries_without_relevant": "queries without relevant documents",
    "overruled_judgements": "judgements overruled",
    "own_documents_dropped": "queries that are documents and do not retrieve themselves",
    "same_ids_kept": "queries with the id of another document",
}
MARKS = {"reproduced": "✓", "close": "≈", "deviates": "✗"}


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


def metric_tables(grid: GridSummary, answers: Answers) -> list[MetricTable]:
    """Return the table of each metric of a grid."""
    return [_table(grid, answers, metric) for metric in grid.metrics]


def _table(grid: GridSummary, answers: Answers, metric: str) -> MetricTable:
    columns = [
        *_mean_columns(answers.across[answers.across["metric"] == metric]),
        *(Column(name, name) for name in grid.rows),
    ]
    facts = cell_facts(answers, grid, metric)
    lower = lower_is_better(metric)
    keys = [f"{column.key}: {column.names}" if column.names else column.key for column in columns]
    places = pd.MultiIndex.from_product([grid.systems, keys]).swaplevel()
    cells = _cells(facts).reindex(places, fill_value="").replace({"text": {"": PENDING}})
    values = facts["value"].xs(keys[0]).reindex(list(grid.systems))
    ranks = [texts.number(rank, ".0f") for rank in values.rank(method="min", ascending=lower)]
    of_systems = (list(texts.rows(of_system)) for _, of_system in cells.groupby(level=1, sort=False))
    rows = [Row(*row) for row in zip(grid.systems, ranks, of_systems, strict=True)]
    return MetricTable(metric, lower, columns, rows, _main_metrics(grid, metric), "".join(cells["marks"]))


def _cells(facts: pd.DataFrame) -> pd.DataFrame:
    """Return what a reader sees of each cell as texts, from ``cell_facts``.

    A star marks a difference that a test shows. ``marks`` are the signs of the facts, with a circle in place of the
    dagger, and that of the verdict. ``bar`` has the places of low, value and high in percent between the lowest and
    the highest end of the column, or nothing.
    """
    ends = facts[["low", "value", "high"]]
    of_column = facts["dataset"].to_numpy()
    least, most = (getattr(ends, end)(axis=1).groupby(of_column).transform(end) for end in ("min", "max"))
    places = ends.sub(least, axis=0).div((most - least).replace(0, np.nan), axis=0) * 100
    bars = pd.Series([tuple(texts.number(end, ".1f") for end in row) for row in places.to_numpy()], facts.index)
    return facts[["text", "detail", "best"]].assign(
        exact=[texts.number(value, ".6f") for value in facts["value"]],
        interval=list(map(texts.interval, facts["low"], facts["high"])),
        to_baseline=facts["difference"].map(texts.difference) + np.where(facts["certain"], "*", ""),
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
    return "; ".join(f"{name} of {', '.join(datasets)}" for name, datasets in rows.items())


def _mean_columns(across: pd.DataFrame) -> list[Column]:
    """Return a column for each averaged set of at least two datasets, that which orders the systems first.

    One set alone needs no name.
    """
    sets = pd.concat([main_comparison(across), across]).drop_duplicates("over")
    sets = sets[sets["datasets"] > 1]
    named = (sets["over"] != ALL).any()
    return [
        Column(over, f"mean of {count}" + (f" ({over})" if named else ""), names)
        for over, count, names in zip(sets["over"], sets["datasets"], sets["names"], strict=True)
    ]


def counts(grid: GridSummary, answers: Answers) -> dict[str, int]:
    """Count the cells by status, in the order of ``STATUSES``. A cell is done when all of its metrics are."""
    statuses = shown_scores(answers.scores, grid).sort_values("status", key=lambda names: names == DONE, kind="stable")
    numbers = statuses.drop_duplicates(["system", "dataset"])["status"].value_counts()
    return {status: int(numbers[status]) for status in STATUSES if status in numbers}


def failures(grid: GridSummary, answers: Answers) -> list[Any]:
    """Return the cells that failed or were replaced, each once, with the reason. For seeds, lists the single ones."""
    lost = answers.scores["status"].isin([FAILED, REPLACED])
    failed = answers.scores[lost & ~answers.scores["system"].isin(list(grid.seeds))]
    return list(texts.rows(failed[["system", "dataset", "status", "detail"]].drop_duplicates()))


def baseline_of(answers: Answers) -> str:
    """Return the baseline of the tests, or an empty string where there is none."""
    return next((name for name in answers.significance["baseline"] if name), "")


def against_baseline(grid: GridSummary, answers: Answers) -> Shown:
    """Tabulate the difference of each system to the baseline, with the verdict on it."""
    names = ["metric", "dataset", "system", "baseline"]
    means = answers.significance[[*names, "queries", "mean", "low", "high", "note"]]
    pairs = both_ways(_verdicts(grid, answers.pairs)).rename(columns={"other": "baseline"})
    compared = ["difference", "difference_low", "difference_high", "p", "said", "effect"]
    table = means[means["baseline"] != ""].merge(pairs[[*names, *compared]], "left", names)
    columns = ["system", "dataset", "queries", "mean", "low", "difference", "difference_low"]
    return texts.shown("baseline", _by_metric(grid, table), [*columns, "p", "said", "effect", "note"], 2)


def _verdicts(grid: GridSummary, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return ``comparisons.verdicts`` with each verdict in words, as ``said``."""
    table = comparisons.verdicts(grid, pairs)
    return table.assign(said=[comparisons.said(row, lower_is_better(row.metric)) for row in texts.rows(table)])


def over_datasets(grid: GridSummary, answers: Answers) -> Shown:
    """Tabulate means over datasets, ranks, and comparisons with the baseline."""
    table = answers.across.copy()
    tested = ["low_datasets", "high_datasets", "p_t", "p_sign"]
    table[tested] = table[tested].where(table["datasets"] >= LEAST_DATASETS)  # fewer say nothing about others
    table.loc[_is_planned(grid, table, "baseline"), ["p_t", "p_sign"]] = np.nan  # the answer has that of the plan
    columns = ["system", "over", "datasets", "mean", "low_queries", "low_datasets", "mean_rank", "borda"]
    columns += ["change", "wins", "ties", "losses", "p_t", "p_sign", "note"]
    return texts.shown("across", _by_metric(grid, table), columns)


def _by_metric(grid: GridSummary, table: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the rows of the grid's datasets and systems by metric, in the order of the grid."""
    places = {name: place for place, name in enumerate([*grid.rows, *grid.systems])}
    by = [column for column in ("dataset", "over", "system") if column in table]
    for column, names in (("system", grid.systems), ("dataset", grid.rows)):
        table = table[table[column].isin(list(names))] if column in table else table
    table = table.sort_values(by, key=lambda values: values.map(lambda x: places.get(x, x)), kind="stable")
    return {metric: table[table["metric"] == metric] for metric in grid.metrics}


def verdicts(answers: Answers) -> Shown:
    """Tabulate the scores with a reference value, deviations first."""
    table = answers.verdicts[answers.verdicts["published"].notna()]
    table = table.sort_values("verdict", key=lambda names: names.map(VERDICTS.index), kind="stable")
    table = table.assign(
        metric=table["metric"].map(written), tolerance=table["tolerance"].where(table["protocol"] == "")
    )
    columns = ["system", "dataset", "metric", "value", "precision", "published", "difference", "tolerance"]
    columns += ["verdict", "source", "note", "protocol", "commit"]
    return texts.shown("verdicts", {"": table}, columns, 3)


def systems(grid: GridSummary, answers: Answers) -> Shown:
    """Rank the systems by their means, with means per task and the facts of their models.

    Systems of which the grid shows published values stand among them. A system that lacks a dataset has no mean.
    """
    tasks: dict[str, list[str]] = {}
    for row in grid.counted_once:
        tasks.setdefault(grid.datasets[row].task or "other", []).append(row)
    sets = {"mean": table_files.averaged_rows(grid) or list(grid.rows)}
    sets |= {f"{task} ({len(names)})": names for task, names in tasks.items() if len(names) > 1}
    models = {name: facts.model_dump() for name, facts in grid.models.items()}
    families = {name: f"{family}{_queries(grid, name)}" for name, family in grid.families.items()}
    here = [{"system": name, "family": families.get(name, ""), **models.get(name, {})} for name in grid.systems]
    about = pd.DataFrame([*here, *_not_run_here(answers.published)]).set_index("system", drop=False)
    about = about.reindex(columns=["system", "measured", "family", *_MODEL])
    about[_SIZES] = about[_SIZES].astype("float64")  # numeric also without a value
    scores = pd.concat([shown_scores(answers.scores, grid), answers.published], ignore_index=True)
    tables = {}
    for metric in grid.metrics:
        values = scores[scores["metric"] == metric].pivot(index="system", columns="dataset", values="value")
        values = values.reindex(index=about.index, columns=list(grid.rows))
        means = pd.DataFrame({name: values[names].mean(axis=1, skipna=False) for name, names in sets.items()})
        means.insert(0, "rank", means["mean"].rank(method="min", ascending=lower_is_better(metric)))
        tables[metric] = about.join(means).sort_values("rank", kind="stable")
    return texts.shown("systems", tables, [*about, "rank", *sets])


def _queries(grid: GridSummary, system: str) -> str:
    return f", queries: {grid.rewritten[system]}" if system in grid.rewritten else ""


def _not_run_here(published: pd.DataFrame) -> list[dict[str, Any]]:
    """Return what is known of systems with published values alone."""
    rows = []
    for system, values in published.groupby("system", sort=False):
        classes = set(values["class"].where(values["protocol"] == "", OTHER_PROTOCOL))
        marks = ", ".join(mark for mark in ("card", OTHER_PROTOCOL) if mark in classes)
        rows.append({"system": system, "measured": f"{NOT_RUN} ({marks})" if marks else NOT_RUN})
    return rows


def datasets(grid: GridSummary, answers: Answers) -> Shown:
    """Tabulate the registered facts and fetch's counts of each dataset."""
    queries = answers.scores.dropna(subset="queries").groupby("dataset")["queries"].first()
    rows = []
    for name in grid.rows:
        entry = grid.datasets[name]
        corpus = _facts(entry.corpus_record)
        dataset = _facts(entry.dataset_record)
        row = entry.model_dump(include={"task", "domain", "relevance", "licence"})
        row |= {"dataset": name, "documents": corpus.get("documents"), "queries": queries.get(name)}
        row["source"] = f"mean of {', '.join(entry.mean_of)}" if entry.mean_of else entry.source
        row["relevant"] = dataset["relevant"] / dataset["queries"] if dataset else None
        row |= {"in the paper": entry.statistics.relevant, "notes": _note(entry, corpus, dataset)}
        rows.append(row)
    columns = ["dataset", "source", "documents", "queries", "relevant", "in the paper", "task", "domain", "relevance"]
    return texts.shown("datasets", {"": pd.DataFrame(rows)}, [*columns, "licence", "notes"])


def _facts(record: str) -> dict[str, Any]:
    """Return fetch's counts; empty if it has not run or its record is damaged."""
    try:
        return dict(provenance.read_record(record)["facts"]) if record else {}
    except DataError:
        return {}


def _note(entry: DatasetSummary, corpus: dict[str, Any], dataset: dict[str, Any]) -> str:
    if entry.not_supplied:
        return f"not supplied: there is no folder {', '.join(entry.not_supplied)}"
    counted = [(corpus.get(key), what) for key, what in CORPUS_COUNTS.items()]
    counted += [(dataset.get(key), what) for key, what in DATASET_COUNTS.items()]
    return ", ".join(f"{count} {what}" for count, what in counted if count)


def pairs(grid: GridSummary, answers: Answers) -> tuple[list[list[Any]], bool]:
    """Return the columns ``PAIRS`` of the pairwise tests for the page's script, and whether they cover all metrics."""
    table = answers.pairs[answers.pairs["dataset"].isin(list(grid.rows))]
    whole = len(table) <= MOST_PAIRS
    if not whole:
        table = table[table["metric"] == grid.metrics[0]].head(MOST_PAIRS)
    table = _verdicts(grid, table)
    return values(table[PAIRS].round(4).assign(p=table["p"].map("{:.2g}".format).astype(float))), whole


def zero_shot(grid: GridSummary, answers: Answers) -> list[list[Any]]:
    """Return the columns ``ZERO_SHOT_COLUMNS`` of the means of pairs over datasets, for the page's script.

    Planned means are left out: the answer has them, with the interval of the plan.
    """
    table = answers.zero_shot
    return values(table.loc[~_is_planned(grid, table, "other"), ZERO_SHOT_COLUMNS])


def _is_planned(grid: GridSummary, table: pd.DataFrame, other: str) -> np.ndarray:
    """Tell of each row whether the grid plans to compare its system with that in the column ``other``, bool [rows]."""
    of_metric = table["metric"] == grid.metrics[0]
    pairs = zip(table["system"], table[other], strict=True)
    planned = [comparisons.is_planned(grid, pair) for pair in pairs]
    both: np.ndarray = of_metric.to_numpy() & np.array(planned, bool)
    return both


def values(table: pd.DataFrame) -> list[list[Any]]:
    """Return the columns of a table for JSON, with None for what is missing."""
    return [[None if pd.isna(value) else value for value in table[column].tolist()] for column in table]


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
        path = Path(paths.QUERIES.format(dataset=grid.slices.get(dataset, dataset)))
        queries = collection.read_queries(path) if path.is_file() and grid.datasets[dataset].show_text else {}
        by_dataset[dataset] = {
            "count": len(values),
            "ids": list(map(str, shown.index)),
            "texts": [queries.get(str(query), "")[:MOST_CHARACTERS] for query in shown.index],
            "values": {system: shown[system].round(4).tolist() for system in shown},
            "above": {system: values.lt(values[system], axis=0).sum().to_dict() for system in values},
        }
    return by_dataset
