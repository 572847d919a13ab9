"""Show the state of a grid's jobs: ``beirgrid status``, and the screen of a run for Snakemake's logger plugin."""

from __future__ import annotations

import datetime
import logging
import os
import re
import time
from collections import Counter
from collections.abc import Iterator
from logging import LogRecord
from pathlib import Path
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text
from snakemake_interface_logger_plugins.common import LogEvent

from ..core.errors import column_lines, printable, quantity, show, table_lines, wrapped
from ..execution.events import EVENTS, Execution, RunningJob, read, tail
from ..results import results_folder
from .why import outdated

# Most lines of a failed job's log on a screen.
_LINES = 5
# Most failed or running jobs on a screen.
_JOBS = 12
# The most of a running job that counts as done: it may take longer than expected.
_BEGUN = 0.9


def status(*, directory: results_folder.Directory = Path()) -> None:
    """Print the state of a grid's jobs. To watch a run: ``watch beirgrid status``."""
    os.chdir(results_folder.working_folder(directory)[0])
    show(*screen(read(EVENTS)), *outdated(Path()))


def screen(current: Execution) -> Iterator[str]:
    """Yield the lines of the screen of a run."""
    rate = f", {speed(current)}" if current.jobs else ""
    yield from (_headline(current), f"{counts(current)}{rate}", *_stages(current), *warnings(current))
    if at_work := current.in_state("running"):
        yield from ("", f"{'Running' if current.alive is not False else 'Running when it died'}, {len(at_work)}:")
        rows = [[f"  {job.name}", clock(time.time() - job.since), job.work] for job in at_work[:_JOBS]]
        rows += [[f"  and {len(at_work) - _JOBS} more", "", ""]] * (len(at_work) > _JOBS)
        yield from column_lines(rows, [True, True, True])
    if failed := current.in_state("failed"):
        yield from ("", f"Failed, {len(failed)}:", *(line for job in failed[:_JOBS] for line in failure(job)))


def failure(job: RunningJob) -> Iterator[str]:
    """Yield a failed job with the reason, if Snakemake gives one, and its logs with their last lines."""
    yield from f"  {job.name}: {job.reason or ', '.join(job.logs) or 'no log'}".splitlines()
    yield from (f"    {line}" for log in job.logs for line in tail(Path(log), _LINES))


def _headline(current: Execution) -> str:
    facts = current.facts
    over = current.over
    started = datetime.datetime.fromtimestamp(facts["time"]).astimezone().isoformat(" ", "seconds")
    where = f"process {facts['pid']} on {facts['host']}, started {started}"
    since = clock(current.until - facts["time"])
    if over:
        return f"{'finished' if over['succeeded'] else 'ended unfinished'} after {since} ({where})"
    if current.alive is False:
        return f"died after {since} ({where}). Run it again: finished files stay"
    return f"running for {since} ({where})" + ("" if current.alive else ", which cannot be checked from here")


def _stages(current: Execution) -> Iterator[str]:
    """Yield a table of the jobs of each stage that has more to do, by their state, below an empty line."""
    states = ["done", "running", "failed"]
    total = Counter[str](current.facts["jobs"])
    begun = Counter((job.rule, job.state) for job in list(current.jobs.values()))
    rows = []
    for rule in dict.fromkeys([*total, *(rule for rule, _ in begun)]):
        counts = [begun[rule, state] for state in states]
        of = max(total[rule], sum(counts))
        if counts[0] < of:
            rows.append([rule, *(str(count or "") for count in [*counts, of])])
    if rows:
        yield from ("", *table_lines(["stage", *states, "of"], rows, ruled=False))


def speed(current: Execution) -> str:
    """Return the time left: the rest of the work, as plan expects it, at the rate so far; else the rate of jobs."""
    elapsed = max(current.until - current.facts["time"], 1.0)
    done = current.in_state("done")
    rate = f"{len(done) / elapsed * 60:,.1f} per minute"
    expected = current.facts.get("seconds", {})  # none in events of earlier versions
    finished = sum(expected.get(job.name, 0.0) for job in done)
    left = sum(expected.values()) - finished
    if current.alive is False or not finished or left <= 0:
        return rate
    ages = ((job, current.until - job.since) for job in current.in_state("running"))
    begun = sum(min(age, _BEGUN * expected.get(job.name, 0.0)) for job, age in ages)
    return f"about {clock((left - begun) * elapsed / (finished + begun))} left"


def warnings(current: Execution) -> Iterator[str]:
    """Count the warnings in the logs of finished jobs, and name the first of these logs; nothing if there are none."""
    logs = [Path(log) for job in current.in_state("done") for log in job.logs]
    numbers = {log: (b"\n" + log.read_bytes()).count(b"\nwarning: ") for log in logs if log.is_file()}
    if warned := [str(log) for log, number in numbers.items() if number]:
        more = f" and {len(warned) - 3} more" if warned[3:] else ""
        yield f"{quantity(sum(numbers.values()), 'warning')}: {', '.join(warned[:3])}{more}"


def counts(current: Execution) -> str:
    """Return how many jobs are done, running and failed."""
    done = len(current.in_state("done"))
    total = sum(current.facts["jobs"].values())
    words = [f"{done:,} of " * (done < total) + quantity(total, "job") + " done"]
    others = ("running", "failed", "stopped")
    words += [f"{number} {state}" for state in others if (number := len(current.in_state(state)))]
    return ", ".join(words)


def clock(seconds: float) -> str:
    """Format a duration, 0 or more even if the machine's clock was set back."""
    return str(datetime.timedelta(seconds=round(max(seconds, 0))))


# The screen of a run, in place of Snakemake's own lines, which are in its log file

# Seconds between two lines where the output is no terminal.
_PAUSE = 30.0
# What is shown of what Snakemake tells without a warning: lines of these modules, and lines that begin so.
_MODULES = ("apptainer", "conda")
_STARTS = ("Nothing to be done", "Terminating processes", "Trying to restart job", "Will exit")
# What Snakemake adds to that nothing is to be done.
_OF_NOTHING = " (all requested files are present and up to date)"
# What each run is told: the SLURM plugin guesses an account, a run that failed has written tables, and the command of
# a failed job, which stands beside its log.
_USUAL = re.compile("SLURM account|Warning: the following output files of rule|^RuleException:\nCalledProcessError in")


class _Work(ProgressColumn):
    """What a job does, by its log; in the line of all jobs, their speed."""

    max_refresh = 1.0

    def render(self, task: Task) -> Text:
        return Text(printable(task.fields["work"]()))


class _Printer:
    """Prints lines on a stream, without styles of their own and without control sequences."""

    def __init__(self, stream: TextIO, nocolor: bool) -> None:
        self.console = Console(file=stream, no_color=nocolor or None, highlight=False, markup=False, emoji=False)

    def _print(self, *lines: str, style: str = "") -> None:
        for line in lines:
            self.console.print(printable(line), style=style, soft_wrap=True)


class Screen(_Printer):
    """Draws the jobs of a run on a terminal; elsewhere, writes a line at ends of jobs, every 30 seconds at most."""

    def __init__(self, stream: TextIO, nocolor: bool) -> None:
        super().__init__(stream, nocolor)
        self.run = Execution()
        self.next = 0.0
        columns = (TextColumn("{task.description}", markup=False), BarColumn(20), TimeElapsedColumn(), _Work())
        plain = not self.console.is_terminal or self.console.is_dumb_terminal
        self.bars = Progress(*columns, console=self.console, refresh_per_second=2, transient=True, disable=plain)
        self.tasks: dict[int, TaskID] = {}

    def show(self, record: LogRecord) -> None:
        """Show a record of Snakemake's log if it matters."""
        said = record.getMessage().replace(_OF_NOTHING, "")
        kind = getattr(record, "event", None)
        shown = said.startswith(_STARTS) and not self.run.stopped  # a stop is told once
        if event := self.run.follow(record):
            self._change(self.run.jobs.get(event.get("id", -1)))
        elif kind in (None, LogEvent.ERROR) and not _USUAL.search(said):
            style = "red" if record.levelno >= logging.ERROR else "yellow" if record.levelno >= logging.WARNING else ""
            is_log = said.startswith("Complete log") and not self.run.succeeded
            if style or record.module in _MODULES or shown or is_log:
                self._print(*said.split("\n"), style=style)

    def _change(self, job: RunningJob | None) -> None:
        """Show a run that begins, or whose job has another state."""
        if job is None:
            total = sum(self.run.facts["jobs"].values())
            self.bars.add_task("", total=total, work=lambda: speed(self.run))
            self.bars.start()
        elif job.state == "running":
            name = printable(job.name)
            self.tasks[job.id] = self.bars.add_task(f"  {name}", total=None, work=lambda: job.work)
        elif job.id in self.tasks:  # not of a job that failed twice
            self.bars.remove_task(self.tasks.pop(job.id))
        done = len(self.run.in_state("done"))
        self.bars.update(self.bars.task_ids[0], description=counts(self.run), completed=done)
        finished = self.bars.finished  # ``close`` prints the last line
        if job and job.state == "failed":
            self._print(*failure(job), style="red")
        elif job and job.state == "done" and self.bars.disable and not finished and time.monotonic() >= self.next:
            self.next = time.monotonic() + _PAUSE
            self._print(f"{counts(self.run)}, {speed(self.run)}; last: {job.name}")

    def close(self) -> None:
        """Stop drawing, and print the last state."""
        self.bars.stop()
        if self.run.facts:
            took = clock(time.time() - self.run.facts["time"])
            advice = "" if self.run.succeeded else ". The same command continues the run: finished files stay"
            self._print(f"{counts(self.run)}, {took}{advice}")
            self._print(*warnings(self.run), style="yellow")


# Words of Snakemake's reasons, and what they mean. The first that a job has counts.
_REASONS = {
    "Missing output files": "new",
    "Set of input files": "with other inputs",
    "Params": "with changed settings",
    "Forced execution": "made again",
    "Updated input files": "with newer inputs",
    "Input files updated": "with inputs that are made again",
}


class DryRun(_Printer):
    """Prints the jobs of a dry run: for each reason to run, the number of jobs of each rule."""

    def __init__(self, stream: TextIO, nocolor: bool) -> None:
        super().__init__(stream, nocolor)
        self.reasons: dict[str, Counter[str]] = {}

    def show(self, record: LogRecord) -> None:
        """Count a job, or show a warning."""
        fields = vars(record)
        if fields.get("event") == LogEvent.JOB_INFO and fields["rule_name"] != "all":
            self.reasons.setdefault(_why(fields["reason"]), Counter())[fields["rule_name"]] += 1
        elif record.levelno >= logging.WARNING or record.getMessage().startswith("Nothing to be done"):
            self._print(*record.getMessage().replace(_OF_NOTHING, "").split("\n"))

    def close(self) -> None:
        """Print the reasons, with their jobs."""
        if self.reasons:
            self._print("Dry run (-v lists each job):")
        for reason, rules in self.reasons.items():
            jobs = [f"{number:,}×{rule}" if number > 1 else rule for rule, number in rules.items()]
            line = f"{rules.total():,} {reason}: {', '.join(jobs)}"
            self._print(*wrapped(line, self.console.width))


def _why(reason: str) -> str:
    """Return a reason of Snakemake's in a few words."""
    return next((meaning for words, meaning in _REASONS.items() if words in reason), reason)
