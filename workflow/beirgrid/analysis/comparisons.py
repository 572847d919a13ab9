"""The statistics of a grid: each dataset's tables, kept in files until a score of the dataset changes."""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..core import files
from ..core.stages import VERSIONS
from ..data.answers import SIGNIFICANCE_COLUMNS, from_csv, to_csv, typed
from ..data.cells import Cells
from ..data.summary import GridSummary
from . import tables
from .tables import Dataset


class Statistics(NamedTuple):
    """The tables of a grid's statistics, as in ``data.answers``, and the intervals of all cells.

    ``intervals`` has the columns system, dataset, metric, low and high. It covers parts of means and single seeds.
    """

    significance: pd.DataFrame
    pairs: pd.DataFrame
    groups: pd.DataFrame
    across: pd.DataFrame
    zero_shot: pd.DataFrame
    intervals: pd.DataFrame


def compare_grid(grid: GridSummary, cells: Cells, folder: Path) -> Statistics:
    """Return the statistics of the cells that are done.

    Args:
        grid: summary of the grid.
        cells: what each cell is, with its values per query.
        folder: where computed tables are kept. What changes none of their scores computes none of them again.
    """
    measured = {name: dataset for name in grid.datasets if (dataset := _dataset(grid, cells, name, grid.systems))}
    of_seeds = [dataset for name in grid.datasets if (dataset := _dataset(grid, cells, name, grid.members))]
    rows = {name: measured[name] for name in grid.rows if name in measured}
    kept = _Kept(folder)
    compared = [kept.compared(dataset, grid) for dataset in rows.values()]
    parts = [kept.intervals(dataset, grid, "intervals") for name, dataset in measured.items() if name not in rows]
    parts += [kept.intervals(dataset, grid, "seeds") for dataset in of_seeds]
    columns = [pd.concat([pd.DataFrame(), *tables], ignore_index=True) for tables in zip(*compared, strict=True)]
    significance, pairs, groups = columns or [pd.DataFrame()] * 3
    counted = [rows[name] for name in grid.counted_once if name in rows]
    across = kept.across(counted, grid) if counted else pd.DataFrame()
    kept.forget_others()
    return Statistics(
        typed("significance", significance),
        typed("pairs", pairs),
        typed("groups", groups),
        typed("across", across),
        typed("zero_shot", _zero_shot(grid, counted)),
        typed("significance", pd.concat([pd.DataFrame(), significance, *parts], ignore_index=True))[
            ["system", "dataset", "metric", "low", "high"]
        ],
    )


def _zero_shot(grid: GridSummary, datasets: list[Dataset]) -> pd.DataFrame:
    return tables.zero_shot_pairs(
        datasets, systems=grid.systems, trained_on=grid.trained_on, unknown=grid.training_unknown
    )


def _dataset(grid: GridSummary, cells: Cells, name: str, systems: Iterable[str]) -> Dataset | None:
    """Return the scores of a dataset or of a mean of datasets, of those systems that have all of them, if any."""
    parts = grid.datasets[name].mean_of or (name,)
    measured = []
    for part in parts:
        found = {system: cells[system, part].per_query for system in systems if (system, part) in cells}
        done = {system: table for system, table in found.items() if table is not None}
        if not done:
            return None
        measured.append(tables.stack(part, done))
    if not grid.datasets[name].mean_of:
        return measured[0]
    whole = tables.mean_of(name, measured)
    return whole if whole.systems else None


class _Kept:
    """Tables in files, each with a digest of all that they are computed from."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.used: set[Path] = set()

    def compared(self, dataset: Dataset, grid: GridSummary) -> tables.Comparison:
        """Return the comparisons of a dataset."""
        baseline, seed = grid.baseline or None, grid.seed
        names = ("significance", "pairs", "groups")
        found = self._get(
            f"compared-{dataset.name}",
            names,
            _digest([dataset], baseline, seed),
            lambda: tables.compare(dataset, baseline=baseline, seed=seed),
        )
        return tables.Comparison(*found)

    def intervals(self, dataset: Dataset, grid: GridSummary, kind: str) -> pd.DataFrame:
        """Return the intervals of systems on a dataset that are not compared there: parts of means, single seeds."""
        return self._get(
            f"{kind}-{dataset.name}",
            ("significance",),
            _digest([dataset], grid.seed),
            lambda: [tables.intervals(dataset, seed=grid.seed).reindex(columns=SIGNIFICANCE_COLUMNS)],
        )[0]

    def across(self, datasets: list[Dataset], grid: GridSummary) -> pd.DataFrame:
        """Return the comparison over datasets."""
        systems, baseline, seed = grid.systems, grid.baseline or None, grid.seed

        def compute() -> list[pd.DataFrame]:
            return [
                tables.compare_across(
                    datasets,
                    systems=systems,
                    baseline=baseline,
                    trained_on=grid.trained_on,
                    unknown=grid.training_unknown,
                    seed=seed,
                )
            ]

        digest = _digest(datasets, systems, baseline, grid.trained_on, grid.training_unknown, seed)
        return self._get("across", ("across",), digest, compute)[0]

    def _get(
        self, name: str, kinds: tuple[str, ...], digest: str, compute: Callable[[], Iterable[pd.DataFrame]]
    ) -> list[pd.DataFrame]:
        """Return tables from the file of a name if it has the digest; otherwise compute and keep them."""
        path = self.folder / f"{name}.json"
        self.used.add(path)
        kept = _read(path)
        if kept.get("digest") != digest or not kept.keys() >= set(kinds):
            kept = {"digest": digest}
            kept |= {kind: to_csv(kind, table) for kind, table in zip(kinds, compute(), strict=True)}
            files.write_text(path, json.dumps(kept))
        return [from_csv(kind, io.StringIO(kept[kind])) for kind in kinds]

    def forget_others(self) -> None:
        """Remove the files of datasets that the grid no longer has."""
        for path in self.folder.glob("*.json"):
            if path not in self.used:
                path.unlink(missing_ok=True)


def _digest(datasets: Iterable[Dataset], *options: Any) -> str:
    """Return a digest of scores and of how they are compared."""
    found = hashlib.sha256(json.dumps([VERSIONS["aggregate"], *options]).encode())
    for dataset in datasets:
        found.update(json.dumps([dataset.name, dataset.systems, dataset.metrics, dataset.parts]).encode())
        found.update(np.ascontiguousarray(dataset.scores).tobytes())
    return found.hexdigest()


def _read(path: Path) -> dict[str, str]:
    """Return what a file keeps: nothing, if it is missing or damaged."""
    try:
        found = files.read_json(path)
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}
