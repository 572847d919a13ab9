"""Stage report: one self-contained HTML page of a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..core import files, provenance
from ..models.arguments import from_json
from ..page.render import render
from ..results.answers import Answers, read_answers
from ..results.summary import GridSummary

__all__ = ["page", "render"]


def page(
    *,
    grid: Annotated[GridSummary, from_json(GridSummary), "summary of the grid, JSON"],
    tables: Annotated[Path, "folder of the tables that aggregate wrote"],
    output: Annotated[Path, "HTML page to write"],
    record: Annotated[Path, "record to write, .json"],
) -> None:
    """Write the page of a grid.

    Raises:
        DataError: a table is missing or damaged.
    """
    with provenance.record("report", record, {}, [output]) as facts:
        for name in Answers._fields:
            provenance.artifact(tables / f"{name}.csv")
        files.write_text(output, render(grid, read_answers(tables)))
        facts["bytes"] = files.size(output)
