"""Checks of the files that systems name: runs and expansions that others made."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from . import checks
from .entries import Bm25, Config, External, LocalExpansion
from .places import is_file, is_folder, resolve_path, run_file


def problems(config: Config) -> Iterator[str]:
    """Yield runs and expansions of the grid's systems, and of their parts, that are missing or in wrong places."""
    datasets = _datasets(config)
    for name in checks.with_parts(config.systems, config.grid.systems):
        system, where = config.systems[name], f"systems.{name}.run"
        if isinstance(system, Bm25) and isinstance(system.expansion, LocalExpansion):
            corpora = dict.fromkeys(config.datasets[dataset].corpus or "" for dataset in datasets)
            for path in dict.fromkeys(system.expansion.path.replace("{corpus}", corpus) for corpus in corpora):
                yield from _expansion_problems(f"systems.{name}.expansion.path", resolve_path(path))
        if not isinstance(system, External):
            continue
        if "{dataset}" not in system.run and len(datasets) > 1:
            yield f"{where}: {system.run!r} names one file for {len(datasets)} datasets; put {{dataset}} in it"
            continue
        for dataset in datasets:
            file = run_file(system.run, dataset)
            if is_file(file):
                yield from checks.place_problems(where, file)
            else:
                yield f"{where}: there is no file {file}, which should hold the run of dataset {dataset!r}"


def _datasets(config: Config) -> list[str]:
    """Return the grid's datasets with queries of their own whose collections are supplied."""
    rows = [part for row in config.grid.datasets for part in config.datasets[row].mean_of or (row,)]
    corpora = {row: config.corpora[config.datasets[row].corpus or ""] for row in rows}
    return [row for row, corpus in corpora.items() if not checks.absent_folder(corpus)]


def _expansion_problems(where: str, path: Path) -> Iterator[str]:
    if is_file(path) or is_folder(path):
        yield from checks.place_problems(where, path)
    else:
        yield f"{where}: there is no file or folder {path}"
