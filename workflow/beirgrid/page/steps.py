"""Arrange the steps behind each cell: command, versions, time and memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
        for paths in _shards([path for path in (*cell.records, cell.scores) if path in records], records):
            if paths not in numbers:
                numbers[paths] = len(steps)
                steps.append(_step(paths, [records[path] for path in paths]))
            of_cell.setdefault((cell.system, cell.dataset), []).append(numbers[paths])
    for system, dataset in product(grid.systems, grid.datasets):
        cells = product(grid.seeds.get(system, (system,)), grid.datasets[dataset].mean_of or (dataset,))
        behind = [number for cell in cells for number in of_cell.get(cell, ())]
        of_cell[system, dataset] = list(dict.fromkeys(behind))
    return Steps(steps, of_cell)


def _shards(paths: Iterable[str], records: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Group records by stage and folder, so that shards are together."""
    together: dict[tuple[str, Path], list[str]] = {}
    for path in paths:
        together.setdefault((records[path].stage, Path(path).parent), []).append(path)
    return [tuple(group) for group in together.values()]


def _step(paths: tuple[str, ...], records: list[Any]) -> ShownStep:
    first = records[0]
    place = Path(paths[0])
    return ShownStep(
        stage=first.stage,
        about=str(place.parent if len(paths) > 1 else place.with_suffix("")),
        shards=len(paths),
        seconds=sum(record.seconds for record in records),
        peak_memory_mb=max(record.peak_memory_mb for record in records),
        finished=max(record.finished for record in records),
        packages=first.packages,
        command=first.command,
    )
