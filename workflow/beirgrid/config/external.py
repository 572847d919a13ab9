"""Checks of the files that external systems name: runs that other software made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import checks
from .entries import Config, External
from .places import run_file


def problems(config: Config) -> Iterator[str]:
    """Yield missing run files, and run files in wrong places, of the external systems behind the grid's systems."""
    datasets = _datasets(config)
    for name in checks.with_parts(config.systems, config.grid.systems):
        system, where = config.systems[name], f"systems.{name}.run"
        if not isinstance(system, External):
            continue
        if "{dataset}" not in system.run and len(datasets) > 1:
            yield f"{where}: {system.run!r} names one file for {len(datasets)} datasets; put {{dataset}} in it"
            continue
        for dataset in datasets:
            file = run_file(system.run, dataset)
            if _is_file(file):
                yield from checks.place_problems(where, file)
            else:
                yield f"{where}: there is no file {file}, which should hold the run of dataset {dataset!r}"


def _datasets(config: Config) -> list[str]:
    """Return the grid's datasets with queries of their own whose collections are supplied."""
    rows = [part for row in config.grid.datasets for part in config.datasets[row].mean_of or (row,)]
    corpora = {row: config.corpora[config.datasets[row].corpus or ""] for row in rows}
    return [row for row, corpus in corpora.items() if not checks.absent_folder(corpus)]


def _is_file(path: Path) -> bool:
    """Tell whether a path is a file; a path that cannot be looked up (a name of 300 characters) is none."""
    try:
        return path.is_file()
    except OSError:
        return False
