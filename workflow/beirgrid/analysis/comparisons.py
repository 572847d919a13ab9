"""Compute the statistics of a grid: tables per dataset, and tables over datasets."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..config.metric_names import MAIN
from ..pipeline.aggregate import AGGREGATE
from ..results.answers import columns, typed
from ..results.cells import Cells
from ..results.kept import Kept
from ..results.summary import GridSummary
from . import tables
from .tables import EvaluatedDataset


class Comparisons(NamedTuple):
    """The tables of a grid's statistics, as in ``results.answers``, and the intervals of all cells.

    ``intervals`` has the columns system, dataset, metric, low and high. It includes parts of averaged datasets and
    single seeds. ``kept`` has the slow results, for the cache.
    """

    significance: pd.DataFrame
    pairs: pd.DataFrame
    groups: pd.DataFrame
    across: pd.DataFrame
    zero_shot: pd.DataFrame
    intervals: pd.DataFrame
    kept: Mapping[str, Kept]


class _Task(NamedTuple):
    """Tables of these kinds to compute, with the digest of their inputs."""

    name: str
    kinds: tuple[str, ...]
    digest: str
    compute: Callable[[], Iterable[pd.DataFrame]]

    def tables(self, known: Kept | None) -> Kept:
        """Return the cached tables if their digest matches; otherwise compute them."""
        if known and known.digest == self.digest and known.tables.keys() == set(self.kinds):
            return known
        computed = zip(self.kinds, self.compute(), strict=True)
        return Kept(self.digest, {kind: typed(kind, table) for kind, table in computed})


def compare_grid(grid: GridSummary, cells: Cells, known: Mapping[str, Kept]) -> Comparisons:
    """Compute the statistics of the finished cells.

    Args:
        cells: state of each cell, with its values per query.
        known: cached statistics by name, which are reused for unchanged scores.
    """
    measured = {name: dataset for name in grid.datasets if (dataset := _dataset(grid, cells, name, grid.systems))}
    of_seeds = [dataset for name in grid.datasets if (dataset := _dataset(grid, cells, name, grid.members))]
    rows = {name: measured[name] for name in grid.rows if name in measured}
    counted = [rows[name] for name in grid.counted_once if name in rows]
    compared = [_comparison(dataset, grid) for dataset in rows.values()]
    others = [_intervals(dataset, grid, "intervals") for name, dataset in measured.items() if name not in rows]
    others += [_intervals(dataset, grid, "seeds") for dataset in of_seeds]
    across = [_across(counted, grid)] if counted else []
    kept = {task.name: task.tables(known.get(task.name)) for task in (*compared, *others, *across)}

    def joined(kind: str, tasks: Iterable[_Task]) -> pd.DataFrame:
        found = [kept[task.name].tables[kind] for task in tasks]
        return typed(kind, pd.concat([pd.DataFrame(), *found], ignore_index=True))

    training = {"trained_on": grid.trained_on, "unknown": grid.training_unknown}
    return Comparisons(
        significance=joined("significance", compared),
        pairs=joined("pairs", compared),
        groups=joined("groups", compared),
        across=joined("across", across),
        zero_shot=typed("zero_shot", tables.zero_shot_pairs(counted, systems=grid.systems, **training)),
        intervals=joined("significance", [*compared, *others])[["system", "dataset", "metric", "low", "high"]],
        kept=kept,
    )


def _comparison(dataset: EvaluatedDataset, grid: GridSummary) -> _Task:
    baseline, seed = grid.baseline or None, grid.seed
    digest = _digest([dataset], baseline, seed)
    kinds = ("significance", "pairs", "groups")
    return _Task(
        f"compared-{dataset.name}", kinds, digest, lambda: tables.compare(dataset, baseline=baseline, seed=seed)
    )


def _intervals(dataset: EvaluatedDataset, grid: GridSummary, kind: str) -> _Task:
    """Return intervals for systems that are not compared on a dataset: parts of averaged datasets, single seeds."""

    def compute() -> list[pd.DataFrame]:
        return [tables.intervals(dataset, seed=grid.seed).reindex(columns=columns("significance"))]

    return _Task(f"{kind}-{dataset.name}", ("significance",), _digest([dataset], grid.seed), compute)


def _across(datasets: list[EvaluatedDataset], grid: GridSummary) -> _Task:
    options: dict[str, Any] = {
        "systems": grid.systems,
        "baseline": grid.baseline or None,
        "trained_on": grid.trained_on,
        "unknown": grid.training_unknown,
        "seed": grid.seed,
    }
    digest = _digest(datasets, *options.values())
    return _Task("across", ("across",), digest, lambda: [tables.compare_across(datasets, **options)])


def _dataset(grid: GridSummary, cells: Cells, name: str, systems: Iterable[str]) -> EvaluatedDataset | None:
    """Return the scores of a dataset, or of an averaged one, for systems with all of them, if any."""
    parts = grid.datasets[name].mean_of or (name,)
    measured = []
    for part in parts:
        found = {system: cells[system, part].per_query for system in systems if (system, part) in cells}
        done = {system: table for system, table in found.items() if table is not None}
        if not done:
            return None
        measured.append(tables.stack(part, done, grid.meant(MAIN, part)))
    if not grid.datasets[name].mean_of:
        return measured[0]
    whole = tables.mean_of(name, measured)
    return whole if whole.systems else None


def _digest(datasets: Iterable[EvaluatedDataset], *options: Any) -> str:
    found = hashlib.sha256(json.dumps([AGGREGATE.version, *options]).encode())
    for dataset in datasets:
        found.update(json.dumps([dataset.name, dataset.systems, dataset.metrics, dataset.parts]).encode())
        found.update(np.ascontiguousarray(dataset.scores).tobytes())
    return found.hexdigest()
