"""Compute the statistical tables of a grid, from ``results/metrics/{system}/{dataset}.per-query.parquet``.

Systems are sorted by name before random draws, and random numbers depend only on the seed and the dataset's name. So
the order of systems and datasets changes no number.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .. import measures
from ..results import comparisons
from ..results.answers import ALL, COMMON, LEAST_DATASETS, ZERO_SHOT, both_ways, columns, typed
from ..results.cells import Cells
from ..results.comparisons import ALPHA, ESTIMATE, ROUNDING, Student, student
from ..results.permutations import PERMUTATIONS
from ..results.summary import GridSummary
from . import across as over_datasets
from . import significance
from .dataset_scores import EvaluatedDataset, by_units, mean_of, stack

# Reason why a system has no zero-shot mean.
UNTOLD = "left out: not all training datasets are known"


class Comparison(NamedTuple):
    """The tables of one dataset: each system against the baseline and the best, and all pairs."""

    significance: pd.DataFrame
    pairs: pd.DataFrame


# One dataset ----------------------------------------------------------------------------------------------------------


def compare(
    dataset: EvaluatedDataset,
    *,
    baseline: str | None = None,
    seed: int = 0,
    resamples: int = significance.RESAMPLES,
    permutations: int | None = None,
) -> Comparison:
    """Compute the tables of one dataset with at least one system, for each metric.

    ``significance`` has a row per system: its mean with a BCa bootstrap interval, and the difference to the baseline
    with interval, p values and effect size; empty without a baseline that has scores here. Holm's correction there is
    for the systems of that metric, in ``pairs`` for all pairs of it. ``in_best_group`` says whether the Tukey HSD test
    does not distinguish the system from the best at 0.05.
    """
    pairs = pd.concat([_pairs(units, seed, permutations) for (units,) in by_units([dataset])])
    tests = _tests(intervals(dataset, seed=seed, resamples=resamples), pairs, baseline)
    return Comparison(
        significance=_by_metric(tests, dataset.metrics)[columns("significance")],
        pairs=_by_metric(pairs, dataset.metrics)[columns("pairs")],
    )


def _by_metric(table: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    return table.sort_values("metric", key=lambda names: names.map(metrics.index), kind="stable", ignore_index=True)


def intervals(dataset: EvaluatedDataset, *, seed: int = 0, resamples: int = significance.RESAMPLES) -> pd.DataFrame:
    """Return the mean of each system and metric with its BCa bootstrap interval, as ``compare`` has them.

    The column ``note`` explains a missing interval or one without width.
    """
    tables = []
    for (units,) in by_units([dataset]):
        flat = units.scores.reshape(len(units.scores), -1)
        numbers = significance.generator(seed, dataset.name, "bootstrap")
        interval = significance.mean_intervals(flat, numbers, parts=units.parts, resamples=resamples)
        rows = pd.MultiIndex.from_product([units.systems, units.metrics], names=["system", "metric"]).to_frame(False)
        rows = rows.assign(dataset=dataset.name, queries=len(flat), mean=significance.mean(flat, units.parts))
        rows = rows.assign(low=interval.low, high=interval.high)
        same = np.ptp(flat, axis=0) <= ROUNDING
        rows["note"] = np.where(same, "all values are equal: the interval has no width", "")
        if min(units.parts or (len(flat),)) < 2:
            rows["note"] = "one query: no interval"
        tables.append(rows)
    return pd.concat(tables, ignore_index=True)


def _pairs(dataset: EvaluatedDataset, seed: int, permutations: int | None) -> pd.DataFrame:
    """Return the pairs of a dataset whose rows are the units of all its metrics."""
    scores = dataset.scores
    parts = dataset.parts
    count = len(dataset.metrics)
    flat = scores.reshape(len(scores), -1)
    tukey = significance.generator(seed, dataset.name, "tukey")
    signs = significance.generator(seed, dataset.name, "randomisation")
    p_tukey = significance.tukey(scores, tukey, parts=parts, permutations=permutations)
    p = significance.randomisation(scores, signs, parts=parts, permutations=permutations or PERMUTATIONS)
    first, second = significance.pairs_of_each(len(dataset.systems), count)
    of_queries = flat[:, first] - flat[:, second]
    differences = student(of_queries, parts)
    low, high = differences.interval()
    effects = significance.effect_sizes(of_queries)
    if parts and len(parts) > 1:  # whose queries do not weigh the same: they have no standard deviation
        effects = Student(*np.full((3, len(first)), np.nan))
    effect_low, effect_high = effects.interval()
    table = pd.DataFrame(
        {
            "dataset": dataset.name,
            "metric": np.array(dataset.metrics)[first % count],
            "queries": len(scores),
            "system": np.array(dataset.systems)[first // count],
            "other": np.array(dataset.systems)[second // count],
            "difference": differences.mean,
            "difference_low": low,
            "difference_high": high,
            "p_randomisation": p.ravel(),
            "p_tukey": p_tukey.ravel(),
            "p_t": differences.p(),
            "effect": effects.mean,
            "effect_low": effect_low,
            "effect_high": effect_high,
            "standard_error": differences.error,
            "degrees_of_freedom": differences.freedom,
        }
    )
    return _corrected(table)


def _corrected(tests: pd.DataFrame) -> pd.DataFrame:
    """Return tests with p values corrected for the number of tests of their metric."""
    by_metric = tests.groupby("metric")
    holm = {
        corrected: by_metric[p].transform(lambda values: significance.holm(values.to_numpy(np.float64)))
        for p, corrected in (("p_randomisation", "p_holm"), ("p_t", "p_t_holm"))
    }
    return tests.assign(**holm)


def _tests(means: pd.DataFrame, pairs: pd.DataFrame, baseline: str | None) -> pd.DataFrame:
    """Return the means with the tests of each system against the best and against the baseline."""
    both = both_ways(pairs)
    of_metric = means["metric"]
    better = means["mean"].where(~of_metric.map(measures.lower_is_better), -means["mean"])
    leaders = means.loc[better.groupby(of_metric).idxmax()].set_index("metric")
    table = means.assign(best=of_metric.map(leaders["system"]))
    to_best = both.rename(columns={"other": "best"})[["metric", "system", "best", "p_tukey"]]
    table = table.merge(to_best, "left", ["metric", "system", "best"]).fillna({"p_tukey": 1.0})
    away = (table["mean"] - table["metric"].map(leaders["mean"])).abs()
    table["in_best_group"] = (away <= ROUNDING) | (table["p_tukey"] > ALPHA)
    against = both[both["other"] == baseline].rename(columns={"other": "baseline"})
    against = _corrected(against).drop(columns=["dataset", "queries", "p_tukey", *ESTIMATE[1:]])
    return table.merge(against, "left", ["metric", "system"])


# Several datasets -----------------------------------------------------------------------------------------------------


def compare_across(
    datasets: Sequence[EvaluatedDataset],
    *,
    systems: Sequence[str] | None = None,
    baseline: str | None = None,
    trained_on: Mapping[str, Collection[str]] | None = None,
    unknown: Mapping[str, Collection[str]] | None = None,
) -> pd.DataFrame:
    """Return a row per metric, system and set of datasets: all, and those that no system was trained on (zero-shot).

    If systems with scores lack some datasets, there are rows of the datasets on which all of them have scores (common).

    Only systems with scores on every dataset are compared. A system that lacks some has no mean, and its ``note`` names
    them. A system has no zero-shot mean either if it is not known for some dataset whether it was trained on it: such a
    system decides nothing about the zero-shot datasets of the others. There are no zero-shot rows where they would
    repeat those of all datasets, or where no dataset is left.

    Args:
        datasets: scores; all have the same metrics.
        systems: systems to list; all that any dataset has, if None.
        trained_on, unknown: system to the datasets that it was, or may have been, trained on. ``own_zero_shot_mean`` is
            over the datasets in neither.
    """
    if not datasets:
        return pd.DataFrame(columns=columns("across"))
    datasets = sorted(datasets, key=lambda dataset: dataset.name)
    systems = sorted(systems or {system for dataset in datasets for system in dataset.systems})
    missing = _lacking(datasets, systems)
    complete = [system for system in systems if not missing[system]]
    trained = _among(datasets, systems, trained_on or {})
    untold = _among(datasets, systems, unknown or {})
    own = _own_zero_shot(datasets, {system: {*trained[system], *untold[system]} for system in complete})
    tables = []
    for over, (chosen, compared) in _averaged_sets(datasets, complete, trained, untold).items():
        measures = [_across(units, compared, baseline) for units in by_units(chosen) if compared]
        made = pd.concat([own, *measures]).groupby(["metric", "system"]).first()
        rows = pd.DataFrame(itertools.product(datasets[0].metrics, systems), columns=["metric", "system"])
        rows = rows.merge(made, "left", ["metric", "system"]).reindex(columns=columns("across"))
        names = ", ".join(dataset.name for dataset in chosen)
        rows = rows.assign(over=over, datasets=len(chosen), names=names)
        rows["trained_on"] = rows["system"].map(trained).map(", ".join)
        rows["training_unknown"] = rows["system"].map(untold).map(", ".join)
        reasons = rows["system"].map(missing).map(_reason)
        rows["note"] = rows["note"].where(rows["system"].isin(compared), reasons)
        tables.append(rows)
    return _by_metric(pd.concat(tables, ignore_index=True), datasets[0].metrics)


def _reason(missing: Sequence[str]) -> str:
    """Return why a system has no mean, from the datasets on which it has no scores."""
    return f"no scores on {', '.join(missing)}" if missing else UNTOLD


def _lacking(datasets: Sequence[EvaluatedDataset], systems: Sequence[str]) -> dict[str, list[str]]:
    """Return the datasets on which each system has no scores."""
    return {system: [dataset.name for dataset in datasets if system not in dataset.systems] for system in systems}


def _among(
    datasets: Sequence[EvaluatedDataset], systems: Sequence[str], names: Mapping[str, Collection[str]]
) -> dict[str, list[str]]:
    """Return which of the datasets each system has among its names."""
    known = [dataset.name for dataset in datasets]
    return {system: [name for name in known if name in names.get(system, ())] for system in systems}


def _averaged_sets(
    datasets: Sequence[EvaluatedDataset],
    complete: Sequence[str],
    trained: Mapping[str, Collection[str]],
    untold: Mapping[str, Collection[str]],
) -> dict[str, tuple[Sequence[EvaluatedDataset], Sequence[str]]]:
    """Return the sets of datasets with a mean, and the systems that are compared there."""
    stated = [system for system in complete if not untold[system]]
    seen = {name for system in stated for name in trained[system]}
    zero_shot = [dataset for dataset in datasets if dataset.name not in seen]
    sets = {ALL: (datasets, complete)}
    if stated and zero_shot and (seen or len(stated) < len(complete)):
        sets[ZERO_SHOT] = (zero_shot, stated)
    scored = sorted({system for dataset in datasets for system in dataset.systems})
    whole = len(scored)
    common = [dataset for dataset in datasets if len(dataset.systems) == whole]
    if 1 < len(common) < len(datasets):
        sets[COMMON] = (common, scored)
    return sets


def _across(datasets: Sequence[EvaluatedDataset], systems: Sequence[str], baseline: str | None) -> pd.DataFrame:
    """Return a row per metric and system over datasets with the same units: means, intervals, ranks, tests."""
    metrics = datasets[0].metrics
    reference = systems.index(baseline) if baseline in systems else None
    matrices = []
    for dataset in datasets:
        scores = dataset.scores[:, [dataset.systems.index(system) for system in systems]]
        if reference is not None:
            scores = np.concatenate([scores, scores - scores[:, [reference]]], axis=1)
        flat = scores.swapaxes(1, 2).reshape(len(scores), -1)  # metric by metric
        matrices.append((np.asfortranarray(flat), dataset.parts))  # the order in memory decides how sums round
    intervals = over_datasets.mean_intervals(matrices)
    means = np.stack([significance.mean(*matrix) for matrix in matrices])
    tables = []
    count = len(systems)
    width = len(systems) * (1 if reference is None else 2)
    for start, metric in zip(range(0, means.shape[1], width), metrics, strict=True):
        own = slice(start, start + count)
        differences = slice(start + count, start + width)
        lower = measures.lower_is_better(metric)
        table = summarise(means[:, own], systems, baseline, lower_is_better=lower)
        table["p_best"] = over_datasets.against_best(means[:, own], lower_is_better=lower)
        for resampled, interval in zip(("queries", "datasets"), intervals, strict=True):
            for end, values in zip(("low", "high"), interval, strict=True):
                table[f"{end}_{resampled}"] = values[own]
                if reference is not None:
                    table[f"difference_{end}_{resampled}"] = values[differences]
        tables.append(table.assign(metric=metric))
    return pd.concat(tables, ignore_index=True)


def summarise(
    means: np.ndarray, systems: Sequence[str], baseline: str | None, *, lower_is_better: bool = False
) -> pd.DataFrame:
    """Return a row per system from its means alone, float64 [datasets, systems], as published tables have them."""
    ranks = over_datasets.ranks(means, lower_is_better=lower_is_better)
    table = pd.DataFrame({"system": list(systems), "mean": means.mean(axis=0), **ranks, "note": ""})
    if baseline is None or baseline not in systems:
        return table
    compared = over_datasets.against(means, list(systems).index(baseline), lower_is_better=lower_is_better)
    return table.assign(baseline=baseline, **compared)


def zero_shot_pairs(
    pairs: pd.DataFrame,
    tests: pd.DataFrame,
    *,
    systems: Sequence[str],
    trained_on: Mapping[str, Collection[str]],
    unknown: Mapping[str, Collection[str]],
) -> pd.DataFrame:
    """Return a row per metric and pair of systems: their means over the datasets that are zero-shot for both, if any.

    Args:
        pairs, tests: the tables ``pairs`` and ``significance`` of the datasets.
        systems: the systems, in the order of the pairs.
        trained_on, unknown: as in ``compare_across``.
    """
    means = tests.set_index(["metric", "system", "dataset"])["mean"].to_dict()
    seen = {name: {*trained_on.get(name, ()), *unknown.get(name, ())} for name in systems}
    places = {name: place for place, name in enumerate(systems)}
    table = both_ways(pairs)
    cells = zip(table["system"], table["other"], table["dataset"], strict=True)
    chosen = []
    for system, other, dataset in cells:
        zero_shot = dataset not in seen[system] | seen[other]
        chosen.append(zero_shot and places[system] < places[other])
    table = table.loc[chosen]
    rows = []
    for (metric, system, other), pair in table.groupby(["metric", "system", "other"], sort=False):
        names = sorted(pair["dataset"])
        mean = np.mean([means[metric, system, name] for name in names])
        other_mean = np.mean([means[metric, other, name] for name in names])
        better = -pair["difference"] if measures.lower_is_better(str(metric)) else pair["difference"]
        wins = int((better > ROUNDING).sum())
        losses = int((better < -ROUNDING).sum())
        average = comparisons.over_datasets(pair)
        low, high = average.interval()
        p = average.p()[0] if len(pair) >= LEAST_DATASETS else math.nan
        rows.append(
            {
                "metric": metric,
                "system": system,
                "other": other,
                "datasets": len(pair),
                "names": ", ".join(names),
                "mean": mean,
                "other_mean": other_mean,
                "difference": float(average.mean[0]),
                "low": float(low[0]),
                "high": float(high[0]),
                "p_t": float(p),
                "wins": wins,
                "ties": len(pair) - wins - losses,
                "losses": losses,
            }
        )
    return pd.DataFrame(rows, columns=columns("zero_shot"))


def _own_zero_shot(datasets: Sequence[EvaluatedDataset], known: Mapping[str, Collection[str]]) -> pd.DataFrame:
    """Return each system's mean over the datasets that it is known not to have been trained on, and their number."""
    rows = []
    for metric, system in itertools.product(datasets[0].metrics, known):
        others = [dataset.mean(metric, system) for dataset in datasets if dataset.name not in known[system]]
        rows.append((metric, system, float(np.mean(others)) if others else math.nan, len(others)))
    return pd.DataFrame(rows, columns=["metric", "system", "own_zero_shot_mean", "own_zero_shot_datasets"])


# A grid ---------------------------------------------------------------------------------------------------------------


def compare_grid(grid: GridSummary, cells: Cells) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """Return the tables significance, pairs, across and zero_shot of the finished cells of a grid, as in ``answers``;
    and the intervals of all cells, parts of averaged datasets and single seeds too.
    """
    measured = {dataset.name: dataset for dataset in _datasets(grid, cells, grid.systems)}
    of_seeds = _datasets(grid, cells, grid.members)
    rows = {name: measured[name] for name in grid.rows if name in measured}
    baseline = grid.baseline or None
    seed = grid.seed
    counted = [name for name in grid.counted_once if name in rows]
    training: dict[str, Any] = {"trained_on": grid.trained_on, "unknown": grid.training_unknown}
    compared = [compare(dataset, baseline=baseline, seed=seed)._asdict() for dataset in rows.values()]
    made = {}
    for kind in Comparison._fields:
        of_datasets = [tables[kind] for tables in compared]
        made[kind] = typed(kind, pd.concat([pd.DataFrame(), *of_datasets], ignore_index=True))
    over = [table[table["dataset"].isin(counted)] for table in (made["pairs"], made["significance"])]
    chosen = [rows[name] for name in counted]
    across = compare_across(chosen, systems=grid.systems, baseline=baseline, **training)
    made["across"] = typed("across", across)
    made["zero_shot"] = typed("zero_shot", zero_shot_pairs(*over, systems=grid.systems, **training))
    others = [dataset for name, dataset in measured.items() if name not in rows] + of_seeds
    of_cells = [made["significance"], *(intervals(dataset, seed=seed) for dataset in others)]
    return made, pd.concat([table[["system", "dataset", "metric", "low", "high"]] for table in of_cells])


def _datasets(grid: GridSummary, cells: Cells, systems: Sequence[str]) -> list[EvaluatedDataset]:
    """Return the scores of each dataset, averaged ones too, on which systems are finished."""
    return [dataset for name in grid.datasets if (dataset := _dataset(grid, cells, name, systems))]


def _dataset(grid: GridSummary, cells: Cells, name: str, systems: Iterable[str]) -> EvaluatedDataset | None:
    """Return the scores of a dataset, or of an averaged one, for systems with all of them, if any."""
    measured = []
    for part in grid.datasets[name].mean_of or (name,):
        states = {system: cells[system, part] for system in systems if (system, part) in cells}
        done = {system: state.per_query for system, state in states.items() if state.per_query is not None}
        if not done:
            return None
        measured.append(stack(part, done, grid.meant(measures.MAIN, part)))
    if not grid.datasets[name].mean_of:
        return measured[0]
    whole = mean_of(name, measured)
    return whole if whole.systems else None
