"""Draw a run on a terminal: running jobs, cells with their scores, warnings and failures."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Container, Iterator
from logging import LogRecord
from typing import Any

from rich.console import Group, RenderableType
from rich.live import Live
from snakemake_interface_logger_plugins.common import LogEvent

from ..pipeline.grid import Grid
from . import status
from .events import Execution

# Screens per second.
_RATE = 2
# What is shown of what Snakemake tells without a warning: lines of these modules, and lines that begin so.
_MODULES = ("apptainer", "conda", "reruns")
_STARTS = ("Nothing to be done", "Terminating processes", "Trying to restart job", "Will exit")


class Screen:
    """Show a run in place of Snakemake's own lines, which are still in its log file.

    Until it is known whether a run starts, Snakemake's output is held back. If no run starts (``--unlock``,
    ``--lint``), it is printed at the end.
    """

    def __init__(self, handler: Any, logs: list[str]) -> None:
        """Replace Snakemake's terminal handler; ``logs`` are the log files of this run."""
        self.handler, self.logs = handler, logs
        self.console = status.terminal(file=handler.stream, width=None, no_color=handler.nocolor or None)
        self.held: list[LogRecord] | None = []
        self.live: Live | None = None

    def hear(self, record: LogRecord, run: Execution | None) -> None:
        """Show a record of Snakemake's log if it is relevant."""
        event = getattr(record, "event", None)
        if event == LogEvent.WORKFLOW_STARTED:
            self.held = None
            self.console.print(status.text(f"Snakemake's log: {', '.join(self.logs)}", "dim"), soft_wrap=True)
        elif run and event == LogEvent.JOB_ERROR and (job := run.jobs.get(vars(record)["jobid"])):
            for line in status.failure(job):
                self.console.print(line, soft_wrap=True)
        elif record.levelno >= logging.ERROR:
            self.held = None  # so that the error is printed last
            self._print(record)
        elif record.levelno >= logging.WARNING or record.module in _MODULES or str(record.msg).startswith(_STARTS):
            self._print(record)
        elif self.held is not None:
            self.held.append(record)

    def _print(self, record: LogRecord) -> None:
        style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else ""
        for line in self.handler.format(record).splitlines():
            self.console.print(status.text(line, style), soft_wrap=True)

    def start(self, run: Callable[[], Execution | None], grid: Grid, pending: Container[str]) -> None:
        """Show the run from now on."""
        cells = status.Cells(grid, pending)
        drawn: dict[float, list[RenderableType]] = {}

        # The thread of the live display calls this. It waits for no lock of a logger: who logs may wait for its screen.
        def frame() -> RenderableType:
            if (current := run()) is None:
                return ""
            if current.last not in drawn:  # the cells change with the events
                drawn.clear()
                drawn[current.last] = list(status.cells(cells, current, self.console.width))
            return Group(*_jobs(current, self.console.width), "", *drawn[current.last])

        self.live = Live(
            get_renderable=frame,
            console=self.console,
            refresh_per_second=_RATE,
            transient=True,
            redirect_stdout=sys.stdout.isatty(),
            redirect_stderr=sys.stderr.isatty(),
        )
        self.live.start()

    def finish(self, run: Execution | None) -> None:
        """Replace the live display by its last state of all jobs."""
        if self.live:
            self.live.stop()
            self.live = None
        if run:
            self.console.print(status.text(_summary(run)), soft_wrap=True)
            if warned := status.warnings(run):
                self.console.print(status.text(warned, "yellow"), soft_wrap=True)

    def close(self) -> None:
        """Restore the terminal."""
        self.finish(None)
        for record in self.held or ():
            self._print(record)
        self.held = None


def _jobs(run: Execution, width: int) -> Iterator[RenderableType]:
    yield status.text(f"{_summary(run)}; {status.speed(run)}")
    if warned := status.warnings(run):
        yield status.text(warned, "yellow")
    if at_work := run.in_state("running"):
        yield status.running(at_work, width)


def _summary(run: Execution) -> str:
    counts = {state: len(run.in_state(state)) for state in ("done", "running", "failed")}
    said = [f"{counts.pop('done')} of {sum(run.facts['jobs'].values())} jobs done"]
    said += [f"{count} {state}" for state, count in counts.items() if count]
    ended = run.over["time"] if run.over else time.time()
    return f"{', '.join(said)}, {status.clock(ended - run.facts['time'])}"
