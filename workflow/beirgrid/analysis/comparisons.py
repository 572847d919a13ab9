"""Compute the statistics of a grid: tables per dataset, and tables over datasets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import pandas as pd

from ..config.metric_names import MAIN
from ..results.answers import typed
from ..results.cells import Cells
from ..results.summary import GridSummary
from . import tables
from .tables import EvaluatedDataset


class Comparisons(NamedTuple):
    """The tables of a grid's statistics, as in ``results.answers``, and the intervals of all cells.

    ``intervals`` has the columns system, dataset, metric, low and high. It includes parts of averaged datasets and
    single seeds.
    """

    significance: pd.DataFrame
    pairs: pd.DataFrame
    groups: pd.DataFrame
    across: pd.DataFrame
    zero_shot: pd.DataFrame
    intervals: pd.DataFrame


def compare_grid(grid: GridSummary, cells: Cells) -> Comparisons:
    """Compute the statistics of the finished cells.

    Args:
        cells: state of each cell, with its values per query.
    """
    measured = {name: dataset for name in grid.datasets if (dataset := _dataset(grid, cells, name, grid.systems))}
    of_seeds = [dataset for name in grid.datasets if (dataset := _dataset(grid, cells, name, grid.members))]
    rows = {name: measured[name] for name in grid.rows if name in measured}
    counted = [rows[name] for name in grid.counted_once if name in rows]
    compared = [
        tables.compare(dataset, baseline=grid.baseline or None, seed=grid.seed)._asdict() for dataset in rows.values()
    ]
    others = [dataset for name, dataset in measured.items() if name not in rows] + of_seeds
    significance, pairs, groups = (
        typed(kind, pd.concat([pd.DataFrame(), *(of[kind] for of in compared)], ignore_index=True))
        for kind in tables.Comparison._fields
    )
    intervals = [significance, *(tables.intervals(dataset, seed=grid.seed) for dataset in others)]
    options: dict[str, Any] = {
        "systems": grid.systems,
        "trained_on": grid.trained_on,
        "unknown": grid.training_unknown,
    }
    across = tables.compare_across(counted, baseline=grid.baseline or None, seed=grid.seed, **options)
    return Comparisons(
        significance=significance,
        pairs=pairs,
        groups=groups,
        across=typed("across", across),
        zero_shot=typed("zero_shot", tables.zero_shot_pairs(counted, **options)),
        intervals=pd.concat([table[["system", "dataset", "metric", "low", "high"]] for table in intervals]),
    )


def _dataset(grid: GridSummary, cells: Cells, name: str, systems: Iterable[str]) -> EvaluatedDataset | None:
    """Return the scores of a dataset, or of an averaged one, for systems with all of them, if any."""
    parts = grid.datasets[name].mean_of or (name,)
    measured = []
    for part in parts:
        values = {system: cells[system, part].per_query for system in systems if (system, part) in cells}
        done = {system: table for system, table in values.items() if table is not None}
        if not done:
            return None
        measured.append(tables.stack(part, done, grid.meant(MAIN, part)))
    if not grid.datasets[name].mean_of:
        return measured[0]
    whole = tables.mean_of(name, measured)
    return whole if whole.systems else None
