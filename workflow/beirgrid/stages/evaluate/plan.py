"""The plan: compute the metrics of a run."""

from __future__ import annotations

from ...core import paths
from ...graph import artifacts
from ...graph.grid import Grid
from ...graph.stage import Cost, Inputs, Settings, Stage
from ...measures import MAIN


class Evaluate(Stage):
    """Scores of a cell, and its values per query."""

    version = 3
    packages = ("ir-measures", "pytrec-eval-terrier")
    kind = "evaluate"
    group = "cell"
    wildcards_passed = ("system", "dataset")
    outputs = {"scores": paths.METRICS, "per_query": paths.PER_QUERY}
    main = "scores"
    costs = {
        "job": Cost(seconds=1, memory=150),  # libraries; fitted when ranx computed the metrics
        "queries": Cost(seconds=0.005, disk=1e-4),  # fitted; measured
        "hits": Cost(memory=240e-6),  # fitted
    }

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        return {"run": artifacts.run(grid, system, dataset), "qrels": artifacts.qrels(dataset)}

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        metrics = grid.config.metrics
        return {"metrics": list(metrics), "main": grid.config.datasets[dataset].metric if MAIN in metrics else None}
