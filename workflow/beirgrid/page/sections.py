"""The page's other tables. All cells are texts; the template escapes them."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ..collections import collection
from ..config.metric_names import lower_is_better, written
from ..config.registry import mteb_models
from ..core import paths
from ..results import table_files
from ..results.answers import Answers
from ..results.published import OTHER_PROTOCOL
from ..results.summary import GridSummary
from . import texts
from .answer import Difference, mean_difference
from .matrix import VERDICTS, means

Rows = list[list[str]]
# Maximum pairs on the page. If there are more, only those of the first metric are included, up to this number.
MOST_PAIRS = 20_000
# Maximum per-query values on the page, and the range of queries listed per dataset.
MOST_VALUES, LISTED = 60_000, range(20, 500)
# Characters of a query in a list.
MOST_CHARACTERS = 100
# Label of a system with published values only.
NOT_RUN = "published, not run here"
# Cost columns of models behind an endpoint.
SPENT = ["tokens", "price", "price of 1,000 queries"]
# Stages whose artifact sizes are shown.
SIZED = ("index", "index_program", "fetch", "train")


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
        kept = filled([row for rows in self.rows.values() for row in rows], self.columns, self.headers)
        rows = {metric: [[row[n] for n in kept] for row in of_metric] for metric, of_metric in self.rows.items()}
        return self._replace(columns=[self.columns[n] for n in kept], rows=rows)


def filled(rows: Rows, columns: list[str], headers: int) -> list[int]:
    """Return the numbers of the columns to show: those with a text in some row, and the first ``headers``."""
    return [n for n in range(len(columns)) if n < headers or not rows or any(row[n] for row in rows)]


class Verdict(NamedTuple):
    """A score beside a reference value."""

    system: str
    dataset: str
    metric: str
    value: str
    precision: str
    published: str
    difference: str
    tolerance: str
    verdict: str
    recorded: bool
    source: str


def baseline_of(answers: Answers) -> str:
    """Return the baseline of the tests, or an empty string where there is none."""
    return next((name for name in answers.significance["baseline"] if name), "")


def against_baseline(grid: GridSummary, answers: Answers) -> ByMetric:
    """Tabulate the tests of each system against the baseline."""
    columns = ["system", "dataset", "queries", "value", "interval", f"difference to {baseline_of(answers)}"]
    columns += ["interval of the difference"]
    columns += ["p (randomisation)", "p (Holm)", "p (t test)", "p (t test, Holm)", "effect size", "note"]
    tests = answers.significance[answers.significance["baseline"] != ""]
    rows: dict[str, Rows] = {metric: [] for metric in grid.metrics}
    for row in _in_order(tests, grid):
        rows[row.metric].append(
            [
                row.system,
                row.dataset,
                texts.count(row.queries),
                texts.value(row.mean),
                texts.interval(row.low, row.high),
                texts.difference(row.difference),
                texts.interval(row.difference_low, row.difference_high),
                texts.probability(row.p_randomisation),
                texts.probability(row.p_holm),
                texts.probability(row.p_t),
                texts.probability(row.p_t_holm),
                texts.short(row.effect),
                row.note,
            ]
        )
    return ByMetric("baseline", columns, 2, ("note",), rows)


def best_groups(grid: GridSummary, answers: Answers) -> ByMetric:
    """Tabulate each dataset's best system and the systems that are not distinguishable from it."""
    rows: dict[str, Rows] = {metric: [] for metric in grid.metrics}
    shown = answers.groups[answers.groups["dataset"].isin(list(grid.rows))]
    for metric in grid.metrics:
        of_metric = shown[shown["metric"] == metric]
        for dataset in grid.rows:
            group = of_metric[of_metric["dataset"] == dataset]
            if group.empty:
                continue
            best = str(group["best"].iloc[0])
            others = group[group["in_best_group"] & (group["system"] != best)].sort_values("p_tukey", ascending=False)
            named = [f"{row.system} (p {texts.probability(row.p_tukey)})" for row in texts.rows(others)]
            mean = texts.value(group.loc[group["system"] == best, "mean"].iloc[0])
            rows[metric].append([dataset, best, mean, ", ".join(named) or "none", f"{len(group)}"])
    columns = ["dataset", "best", "value", "not distinguishable from the best", "systems compared"]
    return ByMetric("groups", columns, 1, ("best", "not distinguishable from the best"), rows)


def over_datasets(grid: GridSummary, answers: Answers) -> ByMetric:
    """Tabulate means over datasets, ranks, and comparisons with the baseline."""
    baseline = baseline_of(answers)
    columns = ["system", "over", "datasets", "mean", "interval (queries)", "interval (datasets and queries)"]
    change = f"change against {baseline} (%)" if baseline else "change (%)"
    columns += ["mean rank", "Borda count", change, "wins", "ties", "losses", "p (t test)", "p (sign test)"]
    columns += ["own zero-shot mean", "trained on", "not known", "note"]
    rows: dict[str, Rows] = {metric: [] for metric in grid.metrics}
    for row in _in_order(answers.across, grid):
        own = texts.value(row.own_zero_shot_mean)
        rows[row.metric].append(
            [
                row.system,
                row.over,
                texts.count(row.datasets),
                texts.value(row.mean),
                texts.interval(row.low_queries, row.high_queries),
                texts.interval(row.low_datasets, row.high_datasets),
                texts.short(row.mean_rank),
                texts.short(row.borda, 1),
                texts.percent(row.change),
                texts.count(row.wins),
                texts.count(row.ties),
                texts.count(row.losses),
                texts.probability(row.p_t),
                texts.probability(row.p_sign),
                f"{own} ({row.own_zero_shot_datasets})" if own else "",
                row.trained_on,
                row.training_unknown,
                row.note,
            ]
        )
    words = ("over", "own zero-shot mean", "trained on", "not known", "note")
    return ByMetric("across", columns, 1, words, rows)


def over_seeds(grid: GridSummary, answers: Answers) -> ByMetric:
    """Tabulate mean and standard deviation of each system with seeds, with the value of each seed."""
    columns = ["system", "dataset", "mean", "standard deviation", "seeds", "each seed", "status"]
    rows: dict[str, Rows] = {metric: [] for metric in grid.metrics}
    titles = {table_files.joined(table_files.averaged_rows(grid)): table_files.mean_name(grid)}
    titles |= {column.names: column.title for column in means(answers.across)}
    named = answers.seeds["dataset"].where(answers.seeds["mean_of"] == "", answers.seeds["mean_of"].map(titles))
    for row in _in_order(answers.seeds.assign(dataset=named), grid, titles.values()):
        number = f"{row.seeds}" if row.seeds == row.of else f"{row.seeds} of {row.of}"
        numbers = [texts.value(row.mean), texts.value(row.deviation), number]
        rows[row.metric].append([row.system, row.dataset, *numbers, row.values, row.status])
    return ByMetric("seeds", columns, 2, ("seeds", "each seed", "status"), rows)


def _in_order(table: pd.DataFrame, grid: GridSummary, means: Iterable[str] = ()) -> Iterable[Any]:
    """Select the rows of the grid's metrics and datasets, sorted by dataset and system in grid order.

    Rows of the averages named ``means`` come first.
    """
    table = table[table["metric"].isin(list(grid.metrics)) & table["system"].isin(list(grid.systems))]
    datasets = [*means, *grid.rows]
    if "dataset" in table:
        table = table[table["dataset"].isin(datasets)]
    places = {name: place for place, name in enumerate([*datasets, *grid.systems])}
    by = [column for column in ("dataset", "over", "system") if column in table]
    return table.sort_values(
        by, key=lambda names: names.map(lambda name: places.get(name, name)), kind="stable"
    ).itertuples()


def two_systems(grid: GridSummary) -> ByMetric:
    """Return the header of the table that compares two chosen systems. The page's script fills in the rows."""
    columns = ["dataset", "first", "second", "difference", "interval", "p", "p (Holm)", "p (Tukey HSD)", "effect size"]
    return ByMetric("pair", columns, 1, (), {metric: [] for metric in grid.metrics})


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
    found: dict[str, dict[str, list[list[Any]]]] = {}
    for row in texts.rows(table):
        of_pair = found.setdefault(row.metric, {}).setdefault(f"{systems[row.system]}-{systems[row.other]}", [])
        tests = (row.p_holm, row.p_tukey, row.p_randomisation)
        differences = (row.difference, row.difference_low, row.difference_high)
        tested = [_rounded(number, 4) for number in differences]
        tested += [None if pd.isna(p) else float(texts.probability(p)) for p in tests]
        of_pair.append([datasets[row.dataset], *tested, _rounded(row.effect, 2), int(row.queries)])
    return found, whole


def zero_shot_means(grid: GridSummary, answers: Answers) -> dict[str, dict[str, list[Any]]]:
    """Return the means of each pair over the datasets that are zero-shot for both, keyed as in ``pairs``.

    Each has the number of datasets, the means of both systems, the difference with its 95 % interval, and p.
    """
    of_datasets: dict[tuple[str, str, str], dict[str, Difference]] = {}
    for row in texts.rows(answers.pairs):
        low, high = row.difference_low, row.difference_high
        for pair, ends in (((row.system, row.other), (1, low, high)), ((row.other, row.system), (-1, -high, -low))):
            known = of_datasets.setdefault((row.metric, *pair), {})
            known[row.dataset] = Difference(ends[0] * row.difference, *ends[1:])
    systems = {name: number for number, name in enumerate(grid.systems)}
    found: dict[str, dict[str, list[Any]]] = {metric: {} for metric in grid.metrics}
    for row in texts.rows(answers.zero_shot[answers.zero_shot["datasets"] > 0]):
        known = of_datasets.get((row.metric, row.system, row.other), {})
        differences = [known[name] for name in row.names.split(", ") if name in known]
        means = [_rounded(number, 4) for number in (row.mean, row.other_mean, row.difference)]
        over = mean_difference(differences) if len(differences) == row.datasets else Difference(*[math.nan] * 3)
        p = None if pd.isna(over.p) else float(texts.probability(over.p))
        numbers = [*means, _rounded(over.low, 4), _rounded(over.high, 4), p]
        found[row.metric][f"{systems[row.system]}-{systems[row.other]}"] = [int(row.datasets), *numbers]
    return found


def per_query(grid: GridSummary, answers: Answers) -> dict[str, dict[str, Any]]:
    """Return the per-query values of each dataset in the grid's first metric, for the page's script.

    Includes the queries on which the systems differ most, or on which a single system is worst, with the beginnings of
    their texts. ``above`` counts, over all queries, those on which the row's system scores higher than the column's.
    """
    listed = max(LISTED.start, min(LISTED.stop, MOST_VALUES // (len(grid.systems) * len(grid.rows))))
    found = {}
    for dataset in grid.rows:
        values = answers.of_queries(dataset)
        if values.empty:
            continue
        spread = values.max(axis=1) - values.min(axis=1) if len(values.columns) > 1 else -values.iloc[:, 0]
        shown = values.loc[spread.sort_values(ascending=False, kind="stable").index[:listed]]
        path = Path(paths.QUERIES.format(dataset=dataset))
        queries = collection.read_queries(path) if path.is_file() and grid.datasets[dataset].show_text else {}
        found[dataset] = {
            "count": len(values),
            "ids": list(map(str, shown.index)),
            "texts": [queries.get(str(query), "")[:MOST_CHARACTERS] for query in shown.index],
            "values": {system: shown[system].round(4).tolist() for system in shown},
            "above": {system: values.lt(values[system], axis=0).sum().to_dict() for system in values},
        }
    return found


def _rounded(number: float, digits: int) -> float | None:
    return None if pd.isna(number) else round(number, digits)


def not_run_here(grid: GridSummary, answers: Answers) -> ByMetric:
    """Tabulate systems with published values and the grid's systems, by their means over the grid's datasets.

    A system that lacks one of these datasets has no mean and no rank.
    """
    averaged = table_files.averaged_rows(grid)
    own = table_files.shown_scores(answers.scores, grid).assign(own=True)
    both = pd.concat([own, answers.published.assign(own=False)], ignore_index=True)
    columns = ["system", "measured", "parameters (M)", "rank", "mean", "difference to the best run here", *grid.rows]
    sizes = {name: facts.parameters for name, facts in grid.models.items()}
    for name, checkpoint in zip(answers.published["system"], answers.published["checkpoint"], strict=True):
        model = mteb_models().get(checkpoint or name)
        sizes[name] = model.parameters if model else None
    rows: dict[str, Rows] = {}
    for metric in grid.metrics:
        of_metric = both[both["metric"] == metric]
        values = of_metric.pivot(index="system", columns="dataset", values="value").reindex(columns=list(grid.rows))
        means = values[averaged].mean(axis=1, skipna=False)
        lower = lower_is_better(metric)
        ranks = means.rank(method="min", ascending=lower)
        ours = means[means.index.isin(list(grid.systems))]
        best = ours.min() if lower else ours.max()
        marked = [(OTHER_PROTOCOL, of_metric["protocol"].fillna("") != ""), ("card", of_metric["class"] == "card")]
        marks = {
            mark: {*of_metric[rows_of_mark].set_index(["system", "dataset"]).index} for mark, rows_of_mark in marked
        }
        order = ranks.sort_values(kind="stable").index
        rows[metric] = [
            [
                str(system),
                "here" if system in grid.systems else NOT_RUN,
                "" if sizes.get(str(system)) is None else f"{sizes[str(system)]:,g}",
                texts.count(ranks[system]),
                texts.value(means[system]),
                texts.difference(means[system] - best),
                *(
                    texts.value(values.loc[system, name])
                    + next((f" ({mark})" for mark, cells in marks.items() if (system, name) in cells), "")
                    for name in grid.rows
                ),
            ]
            for system in order
        ]
    return ByMetric("published", columns, 2, ("measured",), rows)


def verdicts(answers: Answers) -> list[Verdict]:
    """Return the scores with a reference value, deviations first."""
    order = {name: number for number, name in enumerate(reversed(VERDICTS))}
    judged = answers.verdicts[answers.verdicts["published"].notna()]
    judged = judged.sort_values("verdict", key=lambda column: column.map(order), kind="stable")
    return [
        Verdict(
            row.system,
            row.dataset,
            written(row.metric),
            texts.value(row.value) or row.status,
            row.precision,
            f"{row.published:g}",
            texts.difference(row.difference),
            "" if row.protocol or math.isnan(row.tolerance) else f"{row.tolerance:g}",
            row.verdict,
            bool(row.recorded),
            ". ".join(filter(None, [row.source + (f" ({row.note})" if row.note else ""), row.protocol, row.commit])),
        )
        for row in texts.rows(judged)
    ]


def costs(answers: Answers) -> Rows:
    """Tabulate costs per system and stage, summed over datasets. A shared step counts once for each system."""
    rows: Rows = []
    for (system, stage), steps in answers.costs.groupby(["system", "stage"], sort=False):
        steps = steps.drop_duplicates("record")
        rates = steps.dropna(subset="rate")
        rows.append(
            [
                str(system),
                str(stage),
                f"{len(steps)}",
                f"{steps['seconds'].sum():.1f}",
                f"{rates['rate'].mean():.1f}" if len(rates) else "",
                rates["unit"].iloc[0] if len(rates) else "",
                texts.megabytes(steps["bytes"].sum()) if stage in SIZED else "",
                f"{steps['peak_memory_mb'].max():.0f}",
                ", ".join(sorted(set(steps["device"]))),
                *(_spent(steps) if answers.costs["tokens"].notna().any() else []),
            ]
        )
    return rows


def _spent(steps: pd.DataFrame) -> list[str]:
    """Return the endpoints' usage in some steps, in the columns ``SPENT``."""
    return [
        texts.count(steps["tokens"].sum(min_count=1)),
        texts.price(steps["price"].sum(min_count=1)),
        texts.price(steps["price_per_1000_queries"].mean()),
    ]
