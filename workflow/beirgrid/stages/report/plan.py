"""The plan: write the page of a grid."""

from __future__ import annotations

from ...core import paths
from ...graph.grid import Grid
from ...graph.stage import Cost, Settings, Stage


class Report(Stage):
    """Page of a grid whose cells are all finished."""

    version = 23
    packages = ("matplotlib",)
    kind = "report"
    of_grid = True
    outputs = {"report": paths.REPORT, "record": paths.REPORT_RECORD}
    main = "report"
    costs = {"job": Cost(seconds=2, memory=100, disk=1)}  # measured on the demo grid

    def options(self, grid: Grid) -> Settings:
        return {"grid": grid.own(paths.GRID_SUMMARY), "tables": grid.own(paths.TABLES)}
