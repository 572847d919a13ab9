"""The plan: write the tables of a grid."""

from __future__ import annotations

from ...core import paths
from ...graph.grid import Grid
from ...graph.sizes import Amounts, Sizes
from ...graph.stage import Cost, Settings, Stage
from ...graph.summaries import PUBLISHED
from ...results.permutations import permutations_of


class Aggregate(Stage):
    """Tables of a grid, with verdicts."""

    version = 21
    kind = "report"
    of_grid = True
    outputs = {"record": paths.TABLES_RECORD}
    costs = {
        "job": Cost(seconds=5, memory=250, disk=1),  # libraries and the tables of the demo grid; measured
        "shuffled_scores": Cost(seconds=9e-9),  # Tukey's test; measured on 2 busy cores, as the next
        "compared_scores": Cost(seconds=3e-5),  # sign patterns
        "pairs_at_once": Cost(memory=0.4),  # an upper bound, from when each pair was resampled
        "paired_queries": Cost(memory=5e-5),  # differences of the largest dataset
    }

    def options(self, grid: Grid) -> Settings:
        """Name the files of published values, whose content is in the state of the summary."""
        published = list(map(str, PUBLISHED))
        return {"grid": grid.own(paths.GRID_SUMMARY), "output": grid.own(paths.TABLES), "published": published}

    def work(self, sizes: Sizes) -> Amounts:
        grid = sizes.grid
        config = sizes.config
        systems = len(config.grid.systems)
        metrics = len(config.metrics)
        supplied = [[part for part in grid.parts(row) if part not in grid.not_supplied] for row in config.grid.datasets]
        rows = [sum(map(sizes.queries, parts)) for parts in supplied]
        rows += [sizes.queries(dataset) for dataset, _ in grid.slices]  # at most
        pairs = metrics * systems * (systems - 1) // 2
        return {
            "compared_scores": systems * metrics * sum(rows),
            "shuffled_scores": systems * sum(queries * permutations_of(int(queries)) for queries in rows if queries),
            "pairs_at_once": pairs,
            "paired_queries": pairs * max(rows, default=0),
        }
