"""The plan: combine several runs into one."""

from __future__ import annotations

import json

from ...config import entries
from ...core import paths
from ...graph import artifacts
from ...graph.grid import Grid
from ...graph.stage import Cost, Inputs, Settings, Stage


class Fuse(Stage):
    """Run of a fusion."""

    version = 2
    kind = "fuse"
    group = "cell"
    wildcards_passed = ("system",)
    systems = ("fusion",)
    outputs = {"run": paths.RUN, "record": paths.RUN_RECORD}
    main = "run"
    costs = {
        "job": Cost(memory=60),  # measured
        "hits": Cost(seconds=5e-6, memory=400e-6, disk=15e-6),  # measured on SciFact and Cranfield; two or three runs
    }

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        return {"runs": [artifacts.run(grid, part, dataset) for part in grid.system(system).parts]}

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        depth = {"depth": grid.config.retrieve.depth}
        if isinstance(rrf := grid.system(system), entries.Rrf):
            return depth | {"method": "rrf", "k": rrf.k}
        entry = grid.system_as(entries.WeightedSum, system)
        weights = json.dumps(entry.weights) if entry.weights is not None else None
        return {**depth, "method": "wsum", "norm": entry.norm, "weights": weights}
