"""Stage rerank: reorder the top of a run by stored pair scores."""

from __future__ import annotations

from ..config import entries
from ..core import paths
from ..core.provenance import Stamp
from . import artifacts
from .grid import Grid
from .sizes import Amounts, Sizes
from .stage import Cost, Inputs, Settings, Stage, output

RERANK = Stamp("rerank", 1)


class Rerank(Stage):
    """Run of a reranked system."""

    rule, run = "rerank", "stages.rerank:rerank"
    stamp, group, named, systems = RERANK, "cell", ("system",), ("rerank",)
    outputs, main = {"run": paths.RUN, "record": paths.RUN_RECORD}, "run"
    costs = {
        "queries": Cost(seconds=0.002),  # fitted
        "hits": Cost(memory=240e-6, kept=15e-6),  # two runs; gzip
        "pairs": Cost(memory=6e-4),  # scores
    }

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        entry = grid.system_as(entries.Reranked, system)
        pair = {"reranker": entry.reranker, "dataset": dataset, "first": entry.first_stage}
        return {
            "first_stage": artifacts.run(grid, entry.first_stage, dataset),
            "scores": output("score", "record", **pair),
        }

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        return {"depth": grid.depth(grid.system_as(entries.Reranked, system))}

    def work(self, sizes: Sizes, system: str, dataset: str) -> Amounts:
        depth = sizes.grid.depth(sizes.grid.system_as(entries.Reranked, system))
        return {"pairs": sizes.queries(dataset) * depth}


STAGES = (Rerank(),)
