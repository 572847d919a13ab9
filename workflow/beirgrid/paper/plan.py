"""The plan: figures and tables of the paper's analyses."""

from __future__ import annotations

from ..core import paths
from ..graph.grid import Grid
from ..graph.sizes import Amounts, Sizes
from ..graph.stage import Cost, Settings, Stage


class Analyse(Stage):
    """Figures and tables of the paper's analyses, from the runs of a grid."""

    rule = "analyses"
    name = "analyse"
    version = 11
    packages = ("ir-measures", "pytrec-eval-terrier", "matplotlib")
    kind = "report"
    of_grid = True
    outputs = {"record": paths.ANALYSES_RECORD}
    costs = {
        # Figures of 17 systems and 14 datasets, and the words of corpora: 4.5 million different ones; measured.
        "job": Cost(seconds=60, memory=1800, disk=10),
        "hits_of_all": Cost(seconds=4e-6),  # fitted
        "text_mb": Cost(seconds=0.1),  # words are counted and documents picked; fitted
        "hits": Cost(memory=400e-6),  # fitted
    }

    def options(self, grid: Grid) -> Settings:
        return {"grid": grid.own(paths.GRID_SUMMARY), "output": grid.own(paths.GRID_FOLDER)}

    def work(self, sizes: Sizes) -> Amounts:
        grid = sizes.grid
        hits = [sizes.hits(dataset) for _, dataset in grid.cells]
        text = sum(sizes.text_mb(corpus) for corpus in {grid.corpus(dataset) for dataset in grid.datasets})
        return {"hits": max(hits, default=0), "hits_of_all": sum(hits), "text_mb": text}
