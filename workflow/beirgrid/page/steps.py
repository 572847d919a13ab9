"""Arrange the steps behind each cell: command, versions, time and memory."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from ..results.summary import GridSummary
from . import texts


class ShownStep(NamedTuple):
    """One step, or the same step on several shards. ``command`` is that of the first shard."""

    stage: str
    about: str
    shards: int
    seconds: float
    peak_memory_mb: float
    finished: str
    packages: str
    command: str


class Steps(NamedTuple):
    """All steps of a grid, each once, and for each (system, dataset) the indices of its steps, in order."""

    steps: list[ShownStep]
    of_cell: dict[tuple[str, str], list[int]]


def collect(grid: GridSummary, table: pd.DataFrame) -> Steps:
    """Arrange the steps of a grid by cell. An averaged dataset has the steps of its parts, a system with seeds those of
    its members.

    Args:
        table: the table ``steps`` of the grid.
    """
    records = {row.record: row for row in texts.rows(table)}
    steps: list[ShownStep] = []
    numbers: dict[tuple[str, ...], int] = {}
    of_cell: dict[tuple[str, str], list[int]] = {}
    for cell in (*grid.cells, *grid.unjudged):
        shards: dict[tuple[str, Path], list[Any]] = {}
        for path in (*cell.records, cell.scores):
            if path in records:
                shards.setdefault((records[path].stage, Path(path).parent), []).append(records[path])
        for rows in shards.values():
            key = tuple(row.record for row in rows)
            if key not in numbers:
                numbers[key] = len(steps)
                steps.append(_step(rows))
            of_cell.setdefault((cell.system, cell.dataset), []).append(numbers[key])
    for system, dataset in product(grid.systems, grid.datasets):
        cells = product(grid.seeds.get(system, (system,)), grid.datasets[dataset].mean_of or (dataset,))
        behind = [number for cell in cells for number in of_cell.get(cell, ())]
        of_cell[system, dataset] = list(dict.fromkeys(behind))
    return Steps(steps, of_cell)


def _step(shards: list[Any]) -> ShownStep:
    first = shards[0]
    place = Path(first.record)
    return ShownStep(
        stage=first.stage,
        about=str(place.parent if len(shards) > 1 else place.with_suffix("")),
        shards=len(shards),
        seconds=sum(shard.seconds for shard in shards),
        peak_memory_mb=max(shard.peak_memory_mb for shard in shards),
        finished=max(shard.finished for shard in shards),
        packages=first.packages,
        command=first.command,
    )
