"""``beirgrid report``: write tables and page of a grid from its finished cells, at any time and after each run."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..core import files, paths
from ..core.errors import BeirgridError, DataError, show, warn
from ..pipeline.summaries import PUBLISHED
from ..results import results_folder, summary
from ..results.summary import GridSummary
from . import events

if TYPE_CHECKING:
    from ..results.answers import Answers


def report(
    *,
    grid: Annotated[str, "name of the grid; without it, all grids of the folder"] = "",
    directory: Annotated[Path, results_folder.PLACE] = Path(),
    written: Annotated[bool, "print the summary of the tables that a run has written, and write nothing"] = False,
) -> None:
    """Write the tables and the page of a grid from its finished cells, and print a summary.

    Raises:
        BeirgridError: no such grid was run in the folder.
    """
    from ..results import table_files
    from .outline import outline

    directory, grid = results_folder.working_folder(directory, grid)
    os.chdir(directory)
    names = [path.parent.name for path in sorted(Path(paths.GRID_FOLDER.format(grid="")).glob("*/grid.json"))]
    if not grid and not names:
        raise BeirgridError("no grid was run in this folder (--directory names another)")
    for name in [grid] if grid else names:
        try:
            summarised = _read(name)
            tables = Path(paths.TABLES.format(grid=name))
            answers = table_files.read(summarised, tables) if written else refresh(summarised)
            page = Path(paths.REPORT.format(grid=name)).absolute()
            show(*outline(summarised, answers, page, shutil.get_terminal_size((120, 24)).columns))
        except DataError as error:
            if grid or names == [name]:
                raise
            warn(f"the grid {name} is left out: {error}")


def _read(name: str) -> GridSummary:
    path = Path(paths.GRID_SUMMARY.format(grid=name))
    if not path.is_file():
        raise BeirgridError(f"there is no {path}: no grid {name!r} was run in this folder (--directory names another)")
    grid = summary.read(path)
    if grid.name != name:  # a copied folder: the other grid's tables and page would be overwritten
        raise DataError(f"{path} is of the grid {grid.name!r}: only the grid {name!r} may have this folder")
    return grid


def refresh(grid: GridSummary) -> Answers:
    """Write the tables and the page of a grid, and return what the tables have.

    Tables or a page that change are no longer those of the run's own record, so the record goes: the next run makes it
    again.
    """
    from ..results import table_files
    from ..stages import aggregate
    from ..stages.report import illustrated

    folder, page = Path(paths.GRID_FOLDER.format(grid=grid.name)), Path(paths.REPORT.format(grid=grid.name))
    failures, running = _last_run()
    with files.locked(folder / aggregate.LOCK):
        answers = aggregate.compute(grid, aggregate.load(grid, PUBLISHED, failures, running=running))
        of_tables, of_page = (Path(path.format(grid=grid.name)) for path in (paths.TABLES_RECORD, paths.REPORT_RECORD))
        if table_files.write(answers, grid, of_tables.parent):
            of_tables.unlink(missing_ok=True)
        if files.replace_text(page, illustrated(grid, answers)):
            of_page.unlink(missing_ok=True)
    return answers


def _last_run() -> tuple[dict[str, str], bool]:
    """Return the failure messages of the last run by missing output, and whether the run is still active."""
    try:
        run = events.read(events.EVENTS)
    except BeirgridError:
        return {}, False
    return {file: job.failure for job in run.in_state("failed") for file in job.outputs}, run.alive is not False
