"""Compare two cells of one dataset: a reference and another cell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..config.metric_names import USUAL
from . import significance
from .reproducibility import delta_relative_improvement, effect_ratio, root_mean_square_error
from .tables import EvaluatedDataset, by_units, read_dataset

# Columns of the comparison, one row per metric. Differences are second minus first.
COLUMNS = [
    *("system", "other", "dataset", "metric", "queries", "first_seeds", "second_seeds", "first", "second"),
    *("difference", "low", "high"),
    *("p", "p_holm", "rmse", "kendall_tau_union", "rank_biased_overlap", "effect_ratio", "relative_improvement_delta"),
    "same",
]


class Sides(NamedTuple):
    """The per-query files of the two cells, or of the baselines on both sides: one each, or one of every seed."""

    first: Sequence[Path]
    second: Sequence[Path]


def compare(
    dataset: str,
    sides: Sides,
    metrics: Sequence[str],
    *,
    main: str = USUAL,
    baselines: Sides | None = None,
    tolerance: float = 0.0,
    seed: int = 0,
) -> pd.DataFrame:
    """Compare two cells query by query. A query's score is its mean over the seeds.

    Args:
        sides: per-query files of the reference and of the other cell.
        metrics: metrics that both files have.
        main: the dataset's main metric.
        baselines: per-query files of a baseline on both sides, for the effect ratio and the delta relative improvement.
        tolerance: largest difference of means that counts as equal.
        seed: seed of the random numbers.

    Returns:
        a row per metric with the columns ``metric``, ``queries``, ``first_seeds``, ``second_seeds``, ``first``,
        ``second``, ``difference`` with its BCa interval ``low`` and ``high``, ``p`` of the paired randomisation test,
        ``rmse`` and ``same``; with baselines also ``effect_ratio`` and ``relative_improvement_delta``.

    Raises:
        DataError: a file cannot be read, or the files have different queries.
    """
    measured = [_read(dataset, of, metrics, main) for of in (sides, baselines) if of]
    tables = [_compare(*of_units, tolerance=tolerance, seed=seed) for of_units in by_units(measured)]
    table = pd.concat(tables, ignore_index=True)
    return table.assign(first_seeds=len(sides.first), second_seeds=len(sides.second))


def _read(dataset: str, sides: Sides, metrics: Sequence[str], main: str) -> EvaluatedDataset:
    """Return the scores of both sides, as two systems."""
    named = {f"{i:06}": path for i, path in enumerate([*sides.first, *sides.second])}  # read_dataset sorts the names
    found = read_dataset(dataset, named, metrics, main)
    parts = np.split(found.scores, [len(sides.first)], axis=1)
    return found._replace(systems=("first", "second"), scores=np.stack([part.mean(axis=1) for part in parts], axis=1))


def _compare(
    sides: EvaluatedDataset, baselines: EvaluatedDataset | None = None, *, tolerance: float, seed: int
) -> pd.DataFrame:
    """Return a row per metric of two sides whose rows are the units of all metrics."""
    first, second = sides.scores[:, 0], sides.scores[:, 1]
    low, high, p = _tests(sides.name, second - first, seed)
    difference = (second - first).mean(axis=0)
    count = len(sides.metrics)
    table = pd.DataFrame(
        {
            "metric": sides.metrics,
            "queries": len(first),
            "first": first.mean(axis=0),
            "second": second.mean(axis=0),
            "difference": difference,
            "low": low,
            "high": high,
            "p": p,
            "rmse": [root_mean_square_error(first[:, i], second[:, i]) for i in range(count)],
            "same": np.abs(difference) <= tolerance + significance.ROUNDING,
        }
    )
    if baselines is not None:
        base = baselines.scores
        columns = [(first[:, i], base[:, 0, i], second[:, i], base[:, 1, i]) for i in range(count)]
        table["effect_ratio"] = [effect_ratio(*of_metric) for of_metric in columns]
        table["relative_improvement_delta"] = [delta_relative_improvement(*of_metric) for of_metric in columns]
    return table


def _tests(dataset: str, differences: np.ndarray, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return intervals and p values of float64 [queries, metrics], without random draws for columns of zeros."""
    count = differences.shape[1]
    low, high, p = np.zeros(count), np.zeros(count), np.ones(count)
    changed = (np.abs(differences) > significance.ROUNDING).any(axis=0)
    if changed.any():
        numbers = significance.generator(seed, dataset, "bootstrap")
        low[changed], high[changed] = significance.mean_intervals(differences[:, changed], numbers)
        numbers = significance.generator(seed, dataset, "randomisation")
        both = np.stack([differences[:, changed], np.zeros_like(differences[:, changed])], axis=1)
        p[changed] = significance.randomisation(both, numbers).p[0]
    return low, high, p


def corrected(p: pd.Series, metrics: pd.Series) -> pd.Series:
    """Return p values with Holm's correction for the cells of each metric."""
    return p.groupby(metrics).transform(lambda values: significance.holm(values.to_numpy(np.float64)))
