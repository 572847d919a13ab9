"""The plan: combine several runs into one."""

from __future__ import annotations

import json

from ...config import entries
from ...config.fusions import METHODS, NORMS
from ...core import paths
from ...graph import artifacts
from ...graph.grid import Grid
from ...graph.sizes import Amounts, Sizes
from ...graph.stage import Cost, Inputs, Settings, Stage


class Fuse(Stage):
    """Run of a fusion."""

    version = 2
    packages = ("ranx",)
    kind = "fuse"
    group = "cell"
    wildcards_passed = ("system",)
    systems = ("fusion",)
    outputs = {"run": paths.RUN, "record": paths.RUN_RECORD}
    main = "run"
    costs = {
        "job": Cost(memory=60),  # measured
        "hits": Cost(seconds=5e-6, memory=400e-6, disk=15e-6),  # measured on SciFact and Cranfield; two or three runs
        "ranx_job": Cost(seconds=6, memory=250),  # its import
        "ranx_hits": Cost(memory=400e-6),
        "dev_hits": Cost(memory=400e-6),
        "tried_hits": Cost(seconds=5e-6),
    }

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        entry = grid.system_as(entries.Fused, system)
        inputs: Inputs = {"runs": [artifacts.run(grid, part, dataset) for part in entry.parts]}
        if entry.learns and entry.tuned == "folds":
            return {**inputs, "qrels": artifacts.qrels(dataset)}
        if entry.learns:
            dev = str(grid.config.datasets[dataset].dev)
            of_dev = [artifacts.run(grid, part, dev) for part in entry.parts]
            return {**inputs, "dev_runs": of_dev, "dev_qrels": artifacts.qrels(dev)}
        return inputs

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        entry = grid.system_as(entries.Fused, system)
        method = METHODS[entry.fusion]
        settings: Settings = {"depth": grid.config.retrieve.depth, "method": entry.fusion}
        if method.norms:
            settings["norm"] = entry.norm or NORMS[0]
        if method.parameter and entry.parameter_value is not None:
            settings[method.parameter] = (
                json.dumps(entry.parameter_value) if method.parameter == "weights" else entry.parameter_value
            )
        return settings | ({"metric": entry.metric or grid.config.datasets[dataset].metric} if entry.learns else {})

    def work(self, sizes: Sizes, system: str, dataset: str) -> Amounts:
        entry = sizes.grid.system_as(entries.Fused, system)
        ranx = float(entry.fusion not in ("rrf", "wsum"))
        work = {"ranx_job": ranx, "ranx_hits": ranx * sizes.hits(dataset), "dev_hits": 0.0, "tried_hits": 0.0}
        if not entry.learns:
            return work
        tries = 1 if entry.parameter_value is not None else len(METHODS[entry.fusion].candidates(len(entry.of)))
        dev = dataset if entry.tuned == "folds" else str(sizes.config.datasets[dataset].dev)
        return work | {"dev_hits": sizes.hits(dev), "tried_hits": tries * sizes.hits(dev)}
