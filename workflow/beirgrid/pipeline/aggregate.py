"""Stages of a whole grid: its tables, its page, and the BEIR paper's analyses."""

from __future__ import annotations

from ..core import paths
from ..core.provenance import Stamp
from ..results.permutations import permutations_of
from .grid import Grid
from .sizes import Amounts, Sizes
from .stage import Cost, Settings, Stage
from .summaries import PUBLISHED


class Aggregate(Stage):
    """Tables of a grid, with verdicts."""

    rule, run = "aggregate", "stages.aggregate:aggregate"
    stamp, of_grid = Stamp("aggregate", 19), True
    outputs = {"record": paths.TABLES_RECORD}
    costs = {
        "job": Cost(seconds=5, memory=250, disk=1),  # libraries and the tables of the demo grid; measured
        "shuffled_scores": Cost(seconds=9e-9),  # Tukey's test; measured on 2 busy cores, as the next
        "compared_scores": Cost(seconds=3e-5),  # sign patterns, resamples of datasets and queries
        "pairs_at_once": Cost(memory=0.4),  # 10,000 resamples of each pair and metric
        "paired_queries": Cost(memory=5e-5),  # differences of the largest dataset
    }

    def options(self, grid: Grid) -> Settings:
        """Name the files of published values, whose content is in the state of the summary."""
        published = list(map(str, PUBLISHED))
        return {"grid": grid.own(paths.GRID_SUMMARY), "output": grid.own(paths.TABLES), "published": published}

    def work(self, sizes: Sizes) -> Amounts:
        grid, config = sizes.grid, sizes.config
        systems, metrics = len(config.grid.systems), len(config.metrics)
        supplied = [[part for part in grid.parts(row) if part not in grid.not_supplied] for row in config.grid.datasets]
        rows = [sum(map(sizes.queries, parts)) for parts in supplied]
        pairs = metrics * systems * (systems - 1) // 2
        return {
            "compared_scores": systems * metrics * sum(rows),
            "shuffled_scores": systems * sum(queries * permutations_of(int(queries)) for queries in rows if queries),
            "pairs_at_once": pairs,
            "paired_queries": pairs * max(rows, default=0),
        }


class Report(Stage):
    """Page of a grid whose cells are all finished."""

    rule, run = "report", "stages.report:page"
    stamp, of_grid = Stamp("report", 22, ("matplotlib",)), True
    outputs, main = {"report": paths.REPORT, "record": paths.REPORT_RECORD}, "report"
    costs = {"job": Cost(seconds=2, memory=100, disk=1)}  # measured on the demo grid

    def options(self, grid: Grid) -> Settings:
        return {"grid": grid.own(paths.GRID_SUMMARY), "tables": grid.own(paths.TABLES)}


class Analyse(Stage):
    """Figures and tables of the paper's analyses, from the runs of a grid."""

    rule, run = "analyses", "paper.analyse:analyse"
    stamp = Stamp("analyse", 10, ("ir-measures", "pytrec-eval-terrier", "matplotlib"))
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
