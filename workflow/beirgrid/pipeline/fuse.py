"""Stage fuse: one run of several."""

from __future__ import annotations

import json

from ..config import entries
from ..core import paths
from ..core.provenance import Stamp
from . import artifacts
from .grid import Grid
from .stage import Cost, Inputs, Settings, Stage


def _dev(grid: Grid, system: str, dataset: str) -> str:
    """Return the dataset on which the weights of a fusion are tuned; empty unless they are."""
    entry = grid.system(system)
    tuned = isinstance(entry, entries.WeightedSum) and entry.tuned
    return (grid.config.datasets[dataset].dev or "") if tuned else ""


class Fuse(Stage):
    """Run of a fusion."""

    rule, run = "fuse", "stages.fuse:fuse"
    stamp, group, named, systems = Stamp("fuse", 2), "cell", ("system",), ("fusion",)
    outputs, main = {"run": paths.RUN, "record": paths.RUN_RECORD}, "run"
    costs = {
        "job": Cost(memory=60),  # measured
        "hits": Cost(seconds=5e-6, memory=400e-6, disk=15e-6),  # measured on SciFact and Cranfield; two or three runs
    }

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        parts, dev = grid.system(system).parts, _dev(grid, system, dataset)
        runs = {"runs": [artifacts.run(grid, part, dataset) for part in parts]}
        if not dev:
            return runs
        return runs | {
            "dev_runs": [artifacts.run(grid, part, dev) for part in parts],
            "dev_qrels": [artifacts.qrels(dev)],
            "queries": [artifacts.queries(dataset), artifacts.queries(dev)],
        }

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        depth = {"depth": grid.config.retrieve.depth}
        if isinstance(rrf := grid.system(system), entries.Rrf):
            return depth | {"method": "rrf", "k": rrf.k}
        entry = grid.system_as(entries.WeightedSum, system)
        settings = {**depth, "method": "wsum", "norm": entry.norm}
        if entry.tuned:
            return settings | {"tune": grid.config.datasets[dataset].metric}
        return settings | {"weights": json.dumps(entry.weights) if entry.weights is not None else None}
