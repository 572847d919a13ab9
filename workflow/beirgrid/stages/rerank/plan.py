"""The plan: reorder the top of a run by stored pair scores."""

from __future__ import annotations

from ...config import entries
from ...core import paths
from ...graph import artifacts
from ...graph.dag import output
from ...graph.grid import Grid
from ...graph.stage import Cost, Inputs, Settings, Stage


class Rerank(Stage):
    """Run of a reranked system."""

    version = 1
    kind = "rerank"
    group = "cell"
    wildcards_passed = ("system",)
    systems = ("rerank",)
    outputs = {"run": paths.RUN, "record": paths.RUN_RECORD}
    main = "run"
    costs = {
        "hits": Cost(seconds=2e-6, memory=300e-6, disk=15e-6),  # fitted: two runs, and scores of the first 100; gzip
    }

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        entry = grid.system_as(entries.Reranked, system)
        first = entry.first_stage
        return {
            "first_stage": artifacts.run(grid, first, dataset),
            "scores": output(paths.PAIRS_RECORD, grid, reranker=entry.reranker, dataset=dataset, first=first),
        }

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        return {"depth": grid.depth(grid.system_as(entries.Reranked, system))}
