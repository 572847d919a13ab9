"""Collect the steps behind each cell from their records: command, versions, time and memory."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

from ..core import provenance
from ..core.errors import DataError
from ..results.summary import Cell, GridSummary


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


def collect(grid: GridSummary) -> Steps:
    """Return the steps with a record. An averaged dataset has the steps of its parts, a system with seeds those of its
    members.

    A damaged record is skipped: its cell is shown as failed.
    """
    records: dict[str, dict[str, Any] | None] = {}
    steps: list[ShownStep] = []
    numbers: dict[tuple[str, ...], int] = {}
    of_cell: dict[tuple[str, str], list[int]] = {}
    for cell in (*grid.cells, *grid.unjudged):
        found = of_cell.setdefault((cell.system, cell.dataset), [])
        for paths in _shards(cell, records):
            if paths not in numbers:
                numbers[paths] = len(steps)
                steps.append(_step(paths, [record for path in paths if (record := records[path])]))
            found.append(numbers[paths])
    for system, members in grid.seeds.items():
        for dataset in grid.datasets:
            of_seeds = [number for member in members for number in of_cell.get((member, dataset), ())]
            of_cell[system, dataset] = list(dict.fromkeys(of_seeds))
    for system in grid.systems:
        for dataset, entry in grid.datasets.items():
            if entry.mean_of:
                parts = [number for part in entry.mean_of for number in of_cell.get((system, part), ())]
                of_cell[system, dataset] = list(dict.fromkeys(parts))
    return Steps(steps, of_cell)


def _shards(cell: Cell, records: dict[str, dict[str, Any] | None]) -> Iterable[tuple[str, ...]]:
    """Return the readable records of a cell, grouped by stage and folder, so that shards are together."""
    together: dict[tuple[str, Path], list[str]] = {}
    for path in [*cell.records, cell.scores]:
        if path not in records:
            records[path] = _read(path)
        if record := records[path]:
            together.setdefault((record["stage"], Path(path).parent), []).append(path)
    return [tuple(paths) for paths in together.values()]


def _read(path: str) -> dict[str, Any] | None:
    """Return a record, or None if it is missing or damaged."""
    try:
        return provenance.read_record(path)
    except DataError:
        return None


def _step(paths: tuple[str, ...], records: list[dict[str, Any]]) -> ShownStep:
    first = records[0]
    place = Path(paths[0])
    return ShownStep(
        stage=first["stage"],
        about=str(place.parent if len(paths) > 1 else place.with_suffix("")),
        shards=len(paths),
        seconds=sum(record["seconds"] for record in records),
        peak_memory_mb=max(record["peak_memory_mb"] for record in records),
        finished=max(record.get("finished", "") for record in records),
        packages=", ".join(f"{name} {version}" for name, version in first.get("packages", {}).items()),
        command=first.get("command", ""),
    )
