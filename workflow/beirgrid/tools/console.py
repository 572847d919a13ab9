"""Handle Snakemake's log of a run: write the events file, refresh tables, and draw on the terminal."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable
from copy import copy
from logging import CRITICAL, FileHandler, LogRecord
from typing import TYPE_CHECKING, Any

from snakemake.logging import DefaultFormatter
from snakemake.settings.enums import Quietness
from snakemake_interface_logger_plugins.base import LogHandlerBase
from snakemake_interface_logger_plugins.common import LogEvent

from ..core.errors import log_to_standard_error, printable, warn
from ..pipeline.grid import Grid
from .events import EVENTS, Recorder
from .refresh import Refresher

if TYPE_CHECKING:
    from .screen import Screen

# Names of a list to print.
_SHOWN = 3
# Partial tables stand where the rules write the final ones, which Snakemake remarks on.
_REMARK = "Warning: the following output files of rule"


class ShortFormatter(DefaultFormatter):  # type: ignore[misc]
    """Format a record as Snakemake does, with a few files of each list, and without control characters."""

    def format(self, record: LogRecord) -> str:
        """Return the text of a record; it is empty for a remark that misleads."""
        told = vars(short := copy(record))
        if str(record.msg).startswith(_REMARK) and "results/grids/" in str(record.msg):
            return ""
        if "reason" in told:
            # Such as ``Missing output files: a, b, c, d; Params have changed``.
            reasons = str(told["reason"]).split("; ")
            told["reason"] = "; ".join(", ".join(few(reason.split(", "))) for reason in reasons)
        for files in ("input", "output"):
            if isinstance(told.get(files), Iterable):
                told[files] = few(list(map(str, told[files])))
        return "\n".join(printable(line.expandtabs()) for line in str(super().format(short)).split("\n"))


def few(names: list[str]) -> list[str]:
    """Return the first names of a list, and how many more there are."""
    return names if len(names) <= _SHOWN + 1 else [*names[:_SHOWN], f"and {len(names) - _SHOWN} more"]


def end_where_the_disk_is_full(handler: FileHandler) -> None:
    """End Snakemake's log with one warning where it cannot be written; logging prints a traceback for each line."""
    shown = handler.handleError

    def handle(record: LogRecord) -> None:
        if not isinstance(error := sys.exc_info()[1], OSError):
            return shown(record)
        handler.setLevel(CRITICAL + 1)
        return warn(f"the log ends here: {error.strerror} ({handler.baseFilename})")

    handler.handleError = handle  # type: ignore[method-assign]


class RunLog(LogHandlerBase):
    """Dispatch Snakemake's log of a run: to the events file, to the screen, and to the tables of finished cells.

    The class has the interface of Snakemake's logger plugins, but the Snakefile attaches it. If a profile named it as a
    plugin, each Snakemake without the plugin would stop before it reads the workflow.
    """

    writes_to_stream = writes_to_file = needs_rulegraph = False
    has_filter = has_formatter = True

    def __init__(self, workflow: Any) -> None:
        """Attach to the log of a workflow, and shorten its printed lines."""
        super().__init__(workflow.output_settings, None)
        log_to_standard_error()
        self.recorder = Recorder()
        self.refresher: Refresher | None = None
        self.screen: Screen | None = None
        logger = workflow.logger_manager.logger
        for handler in list(logger.handlers):
            if handler.name == "DefaultStreamHandler":
                handler.setFormatter(ShortFormatter(self.common_settings.quiet, self.common_settings.show_failed_logs))
                if workflow.modifier.is_main_snakefile() and self._wants_a_screen(handler):
                    from .screen import Screen

                    self.screen = Screen(handler, workflow.logger_manager.get_logfile())
                    logger.removeHandler(handler)
            elif isinstance(handler, FileHandler):
                end_where_the_disk_is_full(handler)
        logger.addHandler(self)

    def _wants_a_screen(self, handler: Any) -> bool:
        """Tell whether the output is a terminal, and nobody asked for more or less of Snakemake's own lines."""
        settings = self.common_settings
        own = settings.quiet or settings.dryrun or settings.verbose or settings.debug_dag or settings.printshellcmds
        return handler.can_color_tty() and not own and importlib.util.find_spec("rich") is not None

    def start(self, workflow: Any, grid: Grid, config: dict[str, Any]) -> None:
        """Begin the file of events and the screen; from now on, refresh the tables of the grid when a cell is done."""
        self.recorder.start(EVENTS, config)
        self.refresher = Refresher(grid.config.grid.name)
        if self.screen:
            pending = {str(file) for job in workflow.dag.needrun_jobs() for file in job.output}
            self.screen.start(lambda: self.recorder.run, grid, pending)

    def finish(self, succeeded: bool) -> None:
        """Record the end of the run, and print its results."""
        self.recorder.end(succeeded)
        if self.screen:
            self.screen.finish(self.recorder.run)
        if self.refresher:
            last = self.recorder.run.in_state("done")[-1:] if self.recorder.run else []
            written = succeeded and any(job.rule.endswith("report") for job in last)
            self.refresher.end(written=written, quiet=Quietness.ALL in (self.common_settings.quiet or ()))

    def emit(self, record: LogRecord) -> None:
        """Dispatch a record. An error in a handler does not end the run."""
        try:
            self.recorder.hear(record)
            if self.screen:
                self.screen.hear(record, self.recorder.run)
            if self.refresher and self._ends_a_cell(record):
                self.refresher.refresh()
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Restore the terminal."""
        if self.screen:
            self.screen.close()
        super().close()

    def _ends_a_cell(self, record: LogRecord) -> bool:
        event, run = getattr(record, "event", None), self.recorder.run
        if event == LogEvent.JOB_FINISHED and run:
            job = run.jobs.get(vars(record)["job_id"])
            return job is not None and job.rule.endswith("evaluate")
        return event == LogEvent.JOB_ERROR
