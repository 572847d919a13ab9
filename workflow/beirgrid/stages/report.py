"""Stage report: one self-contained HTML page of a grid."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from ..core import files, provenance
from ..data.answers import read_answers
from ..data.entries import from_json
from ..data.summary import GridSummary
from ..page.render import render


def report(
    *,
    grid: Annotated[GridSummary, from_json(GridSummary), "summary of the grid, JSON"],
    tables: Annotated[Path, "folder of the tables that aggregate wrote"],
    output: Annotated[Path, "HTML page to write"],
    record: Annotated[Path, "record to write, .json"],
) -> None:
    """Write the report of a grid.

    Args:
        grid: summary of the grid, which names the records to read.
        tables: folder of the tables that aggregate wrote. Figures beside it, in ``figures``, go into the report.
        output: HTML page to write.
        record: record to write.

    Raises:
        DataError: a table is missing or damaged.
    """
    with provenance.record("report", record, {}, [output]) as facts:
        page = render(grid, read_answers(tables), tables.parent / "figures")
        with files.atomic(output) as temporary:
            temporary.write_text(page, encoding="utf-8")
        facts["bytes"] = files.size(output)
