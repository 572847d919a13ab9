"""What jobs of a grid read and are decided by, by rule and wildcards."""

from __future__ import annotations

from typing import Any

from beirgrid.graph import artifacts
from beirgrid.graph.dag import jobs_behind, stages
from beirgrid.graph.grid import Grid
from beirgrid.graph.stage import Output


def inputs(grid: Grid, rule: str, **wildcards: str) -> dict[str, list[str]]:
    """Return the paths of a job's inputs by option."""
    given = stages()[rule].inputs(grid, **wildcards)
    return {name: [one.path] if isinstance(one, Output) else [each.path for each in one] for name, one in given.items()}


def settings(grid: Grid, rule: str, **wildcards: str) -> dict[str, Any]:
    """Return a job's settings."""
    return stages()[rule].settings(grid, **wildcards)


def records(grid: Grid, system: str, dataset: str) -> list[str]:
    """Return the records of the jobs behind a run."""
    return [job.record for job in jobs_behind(grid, artifacts.run(grid, system, dataset))]


def everything(grid: Grid) -> list[str]:
    """Return the records of all jobs behind a grid's runs, each once."""
    return list(dict.fromkeys(record for cell in grid.runs for record in records(grid, *cell)))
