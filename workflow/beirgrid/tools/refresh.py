"""``beirgrid report``: write tables and page of a grid from its finished cells, at any time and after each run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..core import files, paths, provenance
from ..core.errors import BeirgridError, DataError, show, warn
from ..pipeline.summaries import PUBLISHED
from ..results import results_folder, summary
from ..results.summary import GridSummary
from . import events

if TYPE_CHECKING:
    from ..results.answers import Answers

# Packages needed for tables and page.
LIBRARIES = ("jinja2", "matplotlib", "numba", "pandas", "pyarrow", "scipy")


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
    directory, grid = results_folder.working_folder(directory, grid)
    os.chdir(directory)
    names = [path.parent.name for path in sorted(Path(paths.GRID_FOLDER.format(grid="")).glob("*/grid.json"))]
    if not grid and not names:
        raise BeirgridError("no grid was run in this folder (--directory names another)")
    for name in [grid] if grid else names:
        try:
            show(*(_of_tables(_read(name)) if written else refresh(_read(name))))
        except DataError as error:
            if grid or names == [name]:
                raise
            warn(f"the grid {name} is left out: {error}")


def _read(name: str) -> GridSummary:
    path = Path(paths.GRID_SUMMARY.format(grid=name))
    if not path.is_file():
        raise BeirgridError(f"there is no {path}: no grid {name!r} was run in this folder (--directory names another)")
    found = summary.read(path)
    if found.name != name:  # a copied folder: the other grid's tables and page would be overwritten
        raise DataError(f"{path} is of the grid {found.name!r}: only the grid {name!r} may have this folder")
    return found


def refresh(grid: GridSummary) -> list[str]:
    """Write the tables and the page of a grid; return a summary of at most 25 lines.

    Tables that change are no longer those of the run's own record, so the record goes: the next run makes it again. A
    page that changes beside tables of the run shows other analyses: it is what the run would make, so its record stays.
    """
    from ..results import kept, table_files
    from ..stages import aggregate
    from ..stages.report import illustrated

    folder, page = Path(paths.GRID_FOLDER.format(grid=grid.name)), Path(paths.REPORT.format(grid=grid.name))
    with files.locked(folder / aggregate.LOCK):
        failures, running = _events()
        loaded = aggregate.load(grid, PUBLISHED, folder, failures, running=running)
        answers, statistics = aggregate.compute(grid, loaded)
        kept.write(folder / aggregate.STATISTICS, statistics, loaded.kept)
        of_tables, of_page = (Path(path.format(grid=grid.name)) for path in (paths.TABLES_RECORD, paths.REPORT_RECORD))
        if table_files.write(answers, grid, of_tables.parent):
            of_tables.unlink(missing_ok=True)
        if files.replace_text(page, illustrated(grid, answers, loaded.cells)):
            if of_tables.is_file():
                provenance.renew(of_page)
            else:
                of_page.unlink(missing_ok=True)
    return _outline(grid, answers)


def _of_tables(grid: GridSummary) -> list[str]:
    """Return the summary of a grid from its tables as they are."""
    from ..results import table_files

    return _outline(grid, table_files.read(grid, Path(paths.TABLES.format(grid=grid.name))))


def _outline(grid: GridSummary, answers: Answers) -> list[str]:
    from .outline import outline

    page = Path(paths.REPORT.format(grid=grid.name)).absolute()
    return list(outline(grid, answers, page, shutil.get_terminal_size((120, 24)).columns))


def _events() -> tuple[dict[str, str], bool]:
    """Return the failure messages of the last run by missing output, and whether the run is still active."""
    with contextlib.suppress(BeirgridError):
        run = events.read(events.EVENTS)
        failures = {file: job.failure for job in run.in_state("failed") for file in job.outputs}
        return failures, run.alive is not False
    return {}, False


def command(grid: str, wrote: bool) -> list[str]:
    """Return the command that prints the results of a run; none where the tables' packages are in conda environments.

    Args:
        wrote: whether the run wrote tables and page, which are then only read.
    """
    words = [sys.executable, "-m", "beirgrid", "report", "--grid", grid, *["--written"] * wrote]
    return words if all(map(importlib.util.find_spec, LIBRARIES)) else []
