"""``beirgrid report``: write tables and page of a grid from its finished cells, also during and after each run."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..core import files, paths, provenance
from ..core.checkout import MODULES
from ..core.errors import BeirgridError, DataError, show
from ..pipeline.summaries import PUBLISHED
from ..results import results_folder, summary
from ..results.summary import GridSummary
from . import events

if TYPE_CHECKING:
    from ..results.answers import Answers

# Seconds of a run before its first refresh, and minimum seconds between two refreshes.
SECONDS = 60.0
LOG = Path("logs/refresh.log")
# Packages needed for tables and page.
LIBRARIES = ("jinja2", "matplotlib", "numba", "pandas", "pyarrow", "scipy")


def report(
    *,
    grid: Annotated[str, "name of the grid; without it, all grids of the folder"] = "",
    directory: Annotated[Path, results_folder.PLACE] = Path(),
    background: Annotated[bool, "print no summary, and run with the lowest priority"] = False,
    written: Annotated[bool, "print the summary of the tables that a run has written, and write nothing"] = False,
) -> None:
    """Write the tables and the page of a grid from its finished cells, and print a summary.

    Raises:
        BeirgridError: no such grid was run in the folder.
    """
    directory, grid = results_folder.working_folder(directory, grid)
    os.chdir(directory)
    if background:
        os.nice(19)
    names = [path.parent.name for path in sorted(Path(paths.GRID_FOLDER.format(grid="")).glob("*/grid.json"))]
    if not grid and not names:
        raise BeirgridError("no grid was run in this folder (--directory names another)")
    for name in [grid] if grid else names:
        lines = _of_tables(_read(name)) if written else refresh(_read(name))
        if not background:
            show(*lines)


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


class Refresher:
    """Refreshes a grid during a run, in a separate process that cannot disturb the run."""

    def __init__(self, grid: str) -> None:
        """Take the name of the grid.

        A Snakemake whose jobs have their libraries in conda environments refreshes nothing: its Python lacks them.
        """
        self.grid = grid
        self.on = all(map(importlib.util.find_spec, LIBRARIES))
        self.process: subprocess.Popen[bytes] | None = None
        self.next = time.monotonic() + SECONDS

    def end(self, *, written: bool, quiet: bool = False) -> None:
        """Refresh once more after the last job, and print the summary.

        Args:
            written: whether the last job wrote the page, so that the tables and the page need no refresh.
            quiet: print no summary.
        """
        if not self.on:
            return
        if self.process and self.process.poll() is None:
            written = False  # the refresh may have begun before the last cell was done
            self.process.terminate()
            self.process.wait()
        if written and quiet:
            return
        sys.stdout.flush()
        with contextlib.suppress(OSError):  # in a group of its own, a Ctrl-C reaches this process alone, which ends it
            command = self._command(*["--background"] * quiet or ["--written"] * written)
            subprocess.run(command, env=_environment(), stdin=subprocess.DEVNULL, check=False, process_group=0)

    def refresh(self) -> None:
        """Start a refresh, unless one is running or has just started."""
        now = time.monotonic()
        if not self.on or now < self.next or (self.process and self.process.poll() is None):
            return
        self.next = now + SECONDS
        with contextlib.suppress(OSError):
            LOG.parent.mkdir(parents=True, exist_ok=True)
            with LOG.open("wb") as log:
                self.process = subprocess.Popen(
                    self._command("--background"),
                    env=_environment(),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )

    def _command(self, *options: str) -> list[str]:
        return [sys.executable, "-m", "beirgrid", "report", "--grid", self.grid, *options]


def _environment() -> dict[str, str]:
    """Return the environment of a refresh: this checkout's package, and no modules from the working directory."""
    return {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(MODULES), "OMP_NUM_THREADS": "1"}
