"""Compute the statistics of a grid: tables per dataset, and tables over datasets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pandas as pd

from ..config.metric_names import MAIN
from ..results.answers import typed
from ..results.cells import Cells
from ..results.summary import GridSummary
from . import tables
from .tables import EvaluatedDataset


def compare_grid(grid: GridSummary, cells: Cells) -> tuple[dict[str, pd.DataFrame], pd.DataFrame]:
    """Compute the statistics of the finished cells.

    Args:
        cells: state of each cell, with its values per query.

    Returns:
        the tables significance, pairs, across and zero_shot, as in ``results.answers``; and the intervals of
        all cells, with parts of averaged datasets and single seeds: columns system, dataset, metric, low and high.
    """
    measured = {name: dataset for name in grid.datasets if (dataset := _dataset(grid, cells, name, grid.systems))}
    of_seeds = [dataset for name in grid.datasets if (dataset := _dataset(grid, cells, name, grid.members))]
    rows = {name: measured[name] for name in grid.rows if name in measured}
    baseline, seed, counted = grid.baseline or None, grid.seed, [name for name in grid.counted_once if name in rows]
    training: dict[str, Any] = {"trained_on": grid.trained_on, "unknown": grid.training_unknown}
    compared = [tables.compare(dataset, baseline=baseline, seed=seed)._asdict() for dataset in rows.values()]
    made = {
        kind: typed(kind, pd.concat([pd.DataFrame(), *(of[kind] for of in compared)], ignore_index=True))
        for kind in tables.Comparison._fields
    }
    over = [table[table["dataset"].isin(counted)] for table in (made["pairs"], made["significance"])]
    across = tables.compare_across(
        [rows[name] for name in counted], systems=grid.systems, baseline=baseline, seed=seed, **training
    )
    zero_shot = tables.zero_shot_pairs(*over, systems=grid.systems, **training)
    made |= {"across": typed("across", across), "zero_shot": typed("zero_shot", zero_shot)}
    others = [dataset for name, dataset in measured.items() if name not in rows] + of_seeds
    intervals = [made["significance"], *(tables.intervals(dataset, seed=seed) for dataset in others)]
    return made, pd.concat([table[["system", "dataset", "metric", "low", "high"]] for table in intervals])


def _dataset(grid: GridSummary, cells: Cells, name: str, systems: Iterable[str]) -> EvaluatedDataset | None:
    """Return the scores of a dataset, or of an averaged one, for systems with all of them, if any."""
    measured = []
    for part in grid.datasets[name].mean_of or (name,):
        states = {system: cells[system, part] for system in systems if (system, part) in cells}
        done = {system: state.per_query for system, state in states.items() if state.per_query is not None}
        if not done:
            return None
        measured.append(tables.stack(part, done, grid.meant(MAIN, part)))
    if not grid.datasets[name].mean_of:
        return measured[0]
    whole = tables.mean_of(name, measured)
    return whole if whole.systems else None
