"""Stage report: the page of a grid."""

from __future__ import annotations

from ..core import paths
from ..core.provenance import Stamp
from .grid import Grid
from .stage import Cost, Settings, Stage

REPORT = Stamp("report", 19, ("matplotlib",))


class Report(Stage):
    """Page of a grid whose cells are all finished."""

    rule, run = "report", "stages.report:page"
    stamp, of_grid = REPORT, True
    outputs, main = {"report": paths.REPORT, "record": paths.REPORT_RECORD}, "report"
    costs = {"job": Cost(seconds=2, memory=100, disk=1)}  # measured on the demo grid

    def options(self, grid: Grid) -> Settings:
        return {"grid": grid.own(paths.GRID_SUMMARY), "tables": grid.own(paths.TABLES)}


STAGES = (Report(),)
