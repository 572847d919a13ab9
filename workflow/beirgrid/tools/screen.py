"""Show a run in place of Snakemake's own lines, which are in its log file (``snakemake_logger_plugin_beirgrid``)."""

from __future__ import annotations

import logging
import re
import time
from logging import LogRecord
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text
from snakemake_interface_logger_plugins.common import LogEvent

from ..core.errors import printable
from . import status
from .events import Execution, RunningJob

# Seconds between two lines where the output is no terminal.
_PAUSE = 10.0
# What is shown of what Snakemake tells without a warning: lines of these modules, and lines that begin so.
_MODULES = ("apptainer", "conda")
_STARTS = ("Complete log", "Nothing to be done", "Terminating processes", "Trying to restart job", "Will exit")
# Warnings that each run has: the SLURM plugin guesses an account, and a run that failed has written tables.
_USUAL = re.compile("SLURM account|Warning: the following output files of rule")


class _Work(ProgressColumn):
    """What a job does, by its log; in the line of all jobs, their speed."""

    max_refresh = 1.0

    def render(self, task: Task) -> Text:
        return Text(printable(task.fields["work"]()))


class Screen:
    """Draws the jobs of a run on a terminal; elsewhere, writes a line at ends of jobs, every ten seconds at most."""

    def __init__(self, stream: TextIO, nocolor: bool) -> None:
        self.console = Console(file=stream, no_color=nocolor or None, highlight=False, markup=False, emoji=False)
        self.run, self.next = Execution(), 0.0
        columns = (TextColumn("{task.description}", markup=False), BarColumn(20), TimeElapsedColumn(), _Work())
        plain = not self.console.is_terminal or self.console.is_dumb_terminal
        self.bars = Progress(*columns, console=self.console, refresh_per_second=2, transient=True, disable=plain)
        self.tasks: dict[int, TaskID] = {}

    def show(self, record: LogRecord) -> None:
        """Show a record of Snakemake's log if it matters."""
        said, kind = record.getMessage(), getattr(record, "event", None)
        if event := self.run.follow(record):
            self._change(self.run.jobs.get(event.get("id", -1)))
        elif kind in (None, LogEvent.ERROR) and not _USUAL.search(said):
            style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else ""
            if style or record.module in _MODULES or said.startswith(_STARTS):
                self._print(*said.split("\n"), style=style)

    def _print(self, *lines: str, style: str = "") -> None:
        for line in lines:
            self.console.print(printable(line), style=style, soft_wrap=True)

    def _change(self, job: RunningJob | None) -> None:
        """Show a run that begins, or whose job has another state."""
        if job is None:
            total = sum(self.run.facts["jobs"].values())
            self.bars.add_task("", total=total, work=lambda: status.speed(self.run))
            self.bars.start()
        elif job.state == "running":
            name = printable(job.name)
            self.tasks[job.id] = self.bars.add_task(f"  {name}", total=None, work=lambda: job.work)
        elif job.id in self.tasks:  # not of a job that failed twice
            self.bars.remove_task(self.tasks.pop(job.id))
        done = len(self.run.in_state("done"))
        self.bars.update(self.bars.task_ids[0], description=status.counts(self.run), completed=done)
        if job and job.state == "failed":
            self._print(*status.failure(job), style="red")
        elif job and job.state == "done" and self.bars.disable and time.monotonic() >= self.next:
            self.next = time.monotonic() + _PAUSE
            self._print(f"{status.counts(self.run)}, {status.speed(self.run)}; last: {job.name}")

    def close(self) -> None:
        """Stop drawing, and print the last state."""
        self.bars.stop()
        if self.run.facts:
            took = status.clock(time.time() - self.run.facts["time"])
            advice = "" if self.run.succeeded else ". The same command continues the run: finished files stay"
            self._print(f"{status.counts(self.run)}, {took}{advice}")
            self._print(*status.warnings(self.run), style="yellow")
