"""Arrange the steps behind each cell: command, versions, time and memory."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from ..results.summary import GridSummary


class Steps(NamedTuple):
    """All steps of a grid, each once, and for each (system, dataset) the numbers of its steps, in order.

    Shards of a step are one row of ``steps``, with the command of the first shard.
    """

    steps: pd.DataFrame
    of_cell: dict[tuple[str, str], list[int]]


def collect(grid: GridSummary, costs: pd.DataFrame) -> Steps:
    """Arrange the steps of a grid by cell. An averaged dataset has the steps of its parts, a system with seeds those of
    its members.

    Args:
        costs: the table ``costs`` of the grid.
    """
    places = [str(Path(record).parent) for record in costs["record"]]
    cells = costs.assign(place=places).groupby(["system", "dataset", "stage", "place"], sort=False)
    steps = cells.agg(
        records=("record", tuple),
        shards=("record", "size"),
        seconds=("seconds", "sum"),
        peak_memory_mb=("peak_memory_mb", "max"),
        finished=("finished", "max"),
        packages=("packages", "first"),
        command=("command", "first"),
    ).reset_index()
    steps["number"] = pd.factorize(steps["records"])[0]
    of_cells: dict[tuple[str, str], list[int]] = {}
    for *cell, number in steps[["system", "dataset", "number"]].itertuples(index=False):
        of_cells.setdefault((cell[0], cell[1]), []).append(number)
    for system, dataset in product(grid.systems, grid.datasets):
        parts = product(grid.seeds.get(system, (system,)), grid.datasets[dataset].mean_of or (dataset,))
        behind = [number for part in parts for number in of_cells.get(part, ())]
        of_cells[system, dataset] = list(dict.fromkeys(behind))
    steps = steps.drop_duplicates("number")
    own = steps["records"].map(lambda paths: str(Path(paths[0]).with_suffix("")))
    return Steps(steps.assign(about=own.where(steps["shards"] == 1, steps["place"])), of_cells)
