"""A grid with a gate: small datasets first, then its own, without the systems that deviate from published values."""

from __future__ import annotations

import csv
import json
import os
from pathlib import Path

from ..config import entries
from ..core import files, paths
from ..measures import written
from .dag import output
from .grid import Grid
from .rules import Rules

# The grid of this run and what it leaves out (null: it is a gate), for its jobs, which read the configuration again.
_RUNNING = "BEIRGRID_GRID"


def grids(config: entries.Config) -> list[Grid]:
    """Return the grids of a configuration in the order in which they run: its gate, if it has one, and its own."""
    if not config.gate:
        return [Grid(config)]
    gate = Grid(config.gate)
    left_out = _deviating(gate) if _is_done(gate) else {}
    return [gate, Grid(config, left_out)]


def current(config: entries.Config) -> Grid:
    """Return the grid that a run makes: the first that is not done. A job's is that of its run."""
    if not config.gate:
        return Grid(config)
    name, left_out = _running()
    if name == config.grid.name and left_out is not None:
        return Grid(config, left_out)
    if name == config.gate.grid.name and left_out is None:
        return Grid(config.gate)
    gate = Grid(config.gate)
    return Grid(config, _deviating(gate)) if _is_done(gate) else gate


def announce(config: entries.Config, grid: Grid) -> None:
    """Tell the jobs of a run which grid it makes."""
    if config.gate:
        os.environ[_RUNNING] = json.dumps([grid.config.grid.name, grid.left_out if grid.config.gate else None])


def forget() -> bool:
    """Withdraw what ``announce`` told; return whether it was a gate."""
    _, left_out = _running()
    return os.environ.pop(_RUNNING, None) is not None and left_out is None


def notice(config: entries.Config, grid: Grid) -> str:
    """Return which part of a grid with a gate a run makes, to print before it starts; empty without a gate."""
    if config.gate and not grid.config.gate:
        then = "beirgrid run then goes on with the other datasets; after snakemake, the same command does"
        return f"The gate of {config.grid.name} first, {', '.join(grid.config.grid.datasets)}: {then}"
    return "\n".join(f"{system} {reason}" for system, reason in grid.left_out.items())


def _running() -> tuple[str, dict[str, str] | None]:
    name, left_out = json.loads(os.environ.get(_RUNNING, '["", {}]'))
    return name, left_out


def _is_done(gate: Grid) -> bool:
    """Tell whether tables and page of a gate are those that its configuration asks for."""
    rules = Rules(gate, own_python=True)
    jobs = [output(pattern).job for pattern in (paths.TABLES_RECORD, paths.REPORT_RECORD)]
    return all(Path(gate.own(job.record)).is_file() for job in jobs) and not any(map(rules.reason_of, jobs))


def _deviating(gate: Grid) -> dict[str, str]:
    """Return why systems do not pass a gate that is done: their largest deviation from a published value."""
    path = Path(gate.own(paths.ANSWER, answer="verdicts"))
    with files.reading(path), path.open(encoding="utf-8", newline="") as stream:
        rows = list(csv.DictReader(stream))
    deviating = [row for row in rows if row["verdict"] == "deviates" and row["recorded"] == "False"]
    found: dict[str, str] = {}
    for row in sorted(deviating, key=lambda row: abs(float(row["difference"]))):
        values = f"{written(row['metric'])} {float(row['value']):.3f}, published {float(row['published']):.3f}"
        reason = f"deviates from its published value on {row['dataset']} ({values}), so it is not run"
        found |= dict.fromkeys(gate.members(row["system"]), reason)
    return found
