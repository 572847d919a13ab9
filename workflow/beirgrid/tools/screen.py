"""Show a run in place of Snakemake's own lines, which are in its log file (``snakemake_logger_plugin_beirgrid``)."""

from __future__ import annotations

import logging
import time
from logging import LogRecord
from typing import TextIO

from rich.progress import Progress, TaskID
from rich.text import Text
from snakemake_interface_logger_plugins.common import LogEvent

from . import status
from .events import Event, Follower

# Seconds between two lines where the output is no terminal, and most running jobs on a terminal.
_PAUSE, _JOBS = 10.0, 12
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
        self.follower = Follower()
        self.progress: Progress | None = None
        self.tasks: dict[int, TaskID] = {}
        self.next = 0.0

    def show(self, record: LogRecord) -> None:
        """Show a record of Snakemake's log if it matters."""
        said, kind = record.getMessage(), getattr(record, "event", None)
        if (event := self.follower.follow(record)) is not None:
            self._change(event)
        elif kind in (None, LogEvent.ERROR) and not said.startswith(_USUAL):
            style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else ""
            if style or record.module in _MODULES or said.startswith(_STARTS):
                self._print(*(status.text(line, style) for line in said.splitlines()))

    def _print(self, *lines: Text) -> None:
        for line in lines:
            self.console.print(line, soft_wrap=True)

    def _change(self, event: Event) -> None:
        """Show a run after an event."""
        run = self.follower.run
        assert run
        job = run.jobs.get(event.get("id", -1))
        if event["event"] == "run" and self.console.is_terminal and not self.console.is_dumb_terminal:
            self.progress = status.progress(self.console)
            self.progress.start()
            self.tasks[-1] = self.progress.add_task(
                "", total=sum(event["jobs"].values()), said=lambda: status.speed(run)
            )
        if job and event["event"] == "failed":
            self._print(*status.failure(job))
        if self.progress:
            if job and event["event"] == "started":
                self.tasks[event["id"]] = self.progress.add_task(job.name, total=None, said=lambda: status.working(job))
            elif job and event["id"] in self.tasks:
                self.progress.remove_task(self.tasks.pop(event["id"]))
            for number, task in enumerate(self.tasks.values()):
                self.progress.update(task, visible=number <= _JOBS)
            self.progress.update(self.tasks[-1], description=status.counts(run), completed=len(run.in_state("done")))
        elif job and event["event"] == "finished" and time.monotonic() >= self.next:
            self.next = time.monotonic() + _PAUSE
            self._print(status.text(f"{status.counts(run)}, {status.speed(run)}; last: {job.name}"))

    def close(self) -> None:
        """Stop drawing, and print the last state."""
        if self.progress:
            self.progress.stop()
        if run := self.follower.run:
            took = status.clock(time.time() - run.facts["time"])
            advice = "" if self.follower.succeeded else ". The same command continues the run: finished files stay"
            self._print(status.text(f"{status.counts(run)}, {took}{advice}"))
            if warned := status.warnings(run):
                self._print(status.text(warned, "yellow"))
