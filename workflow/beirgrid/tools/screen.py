"""Show a run in place of Snakemake's own lines, which are in its log file (``snakemake_logger_plugin_beirgrid``)."""

from __future__ import annotations

import logging
import time
from logging import LogRecord
from typing import TextIO

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text
from snakemake_interface_logger_plugins.common import LogEvent

from . import status
from .events import Event, Execution

# Seconds between two lines where the output is no terminal.
_PAUSE = 10.0
# What is shown of what Snakemake tells without a warning: lines of these modules, and lines that begin so.
_MODULES = ("apptainer", "conda", "reruns")
_STARTS = ("Complete log", "Nothing to be done", "Terminating processes", "Trying to restart job", "Will exit")
# Warnings that each run has: the SLURM plugin guesses an account, and a run that failed has written tables.
_USUAL = (
    "No SLURM account given",
    "No account was given",
    "Unable to guess SLURM account",
    "Guessed SLURM account",
    "Warning: the following output files of rule",
)


class Screen:
    """Draws the jobs of a run on a terminal; elsewhere, writes a line at ends of jobs, every ten seconds at most."""

    def __init__(self, stream: TextIO, nocolor: bool) -> None:
        self.console = status.terminal(file=stream, no_color=nocolor or None)
        self.run, self.next = Execution(), 0.0
        self.live: Live | None = None

    def show(self, record: LogRecord) -> None:
        """Show a record of Snakemake's log if it matters."""
        said, kind = record.getMessage(), getattr(record, "event", None)
        if event := self.run.follow(record):
            self._change(event)
        elif kind in (None, LogEvent.ERROR) and not said.startswith(_USUAL):
            style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else ""
            if style or record.module in _MODULES or said.startswith(_STARTS):
                self._print(status.text(said, style))

    def _print(self, *lines: Text) -> None:
        for line in lines:
            self.console.print(line, soft_wrap=True)

    def _change(self, event: Event) -> None:
        """Show a run after an event."""
        job = self.run.jobs.get(event.get("id", -1))
        if event["event"] == "run" and self.console.is_terminal and not self.console.is_dumb_terminal:
            self.live = Live(console=self.console, get_renderable=self._drawing, refresh_per_second=2, transient=True)
            self.live.start()
        elif event["event"] == "failed" and job:
            self._print(*status.failure(job))
        elif event["event"] == "finished" and job and not self.live and time.monotonic() >= self.next:
            self.next = time.monotonic() + _PAUSE
            self._print(status.text(f"{status.counts(self.run)}, {status.speed(self.run)}; last: {job.name}"))

    def _drawing(self) -> RenderableType:
        run = self.run
        head, took = Table.grid(padding=(0, 1)), status.clock(time.time() - run.facts["time"])
        bar = ProgressBar(sum(run.facts["jobs"].values()), len(run.in_state("done")), width=20)
        head.add_row(status.counts(run), bar, took, status.speed(run))
        return Group(head, *map(status.running, filter(None, [run.in_state("running")])))

    def close(self) -> None:
        """Stop drawing, and print the last state."""
        if self.live:
            self.live.stop()
        if self.run.facts:
            took = status.clock(time.time() - self.run.facts["time"])
            advice = "" if self.run.succeeded else ". The same command continues the run: finished files stay"
            self._print(status.text(f"{status.counts(self.run)}, {took}{advice}"))
            if warned := status.warnings(self.run):
                self._print(status.text(warned, "yellow"))
