"""``beirgrid status``: show the state of a grid's jobs and cells, from the events of its run."""

from __future__ import annotations

import argparse
import datetime
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from statistics import fmean
from typing import Any

from rich.console import Console, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from ..config import load
from ..config.metric_names import written
from ..core import paths
from ..core.errors import BeirgridError, ConfigError, DataError, printable
from ..models.arguments import size
from ..pipeline.artifacts import cell_records
from ..pipeline.grid import Grid
from ..results import results_folder, scores
from . import cluster, processes
from .events import EVENTS, Execution, RunningJob, read, tail

# Marks of cells by job state, highest priority first. A finished cell shows its score.
_MARKS = {"failed": "x", "running": ">", "done": "#", "waiting": ".", "not supplied": "-"}
_STYLES = {"failed": "red", "running": "yellow", "done": "green"}
# Limits of a screen: lines of a failed job's log, and failed or running jobs.
_LINES, _JOBS = 5, 12


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid status``."""
    parser.add_argument("--directory", default=Path(), type=Path, help=results_folder.PLACE)
    parser.add_argument("--watch", type=size, metavar="SECONDS", help="refresh the screen until the run ends")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print the screen once, or repeatedly."""
    os.chdir(results_folder.working_folder(args.directory)[0])
    console = terminal()
    while True:
        current = read(EVENTS)
        if args.watch:
            console.clear()
        for part in screen(current, console.width):
            console.print(part, soft_wrap=isinstance(part, Text))
        if not args.watch or current.alive is False:
            return
        time.sleep(args.watch)


def terminal(**settings: Any) -> Console:
    """Return a console that prints text unchanged. If standard output is not a terminal, it has 200 columns."""
    settings = {"width": None if sys.stdout.isatty() else int(os.environ.get("COLUMNS") or 200), **settings}
    return Console(highlight=False, markup=False, emoji=False, **settings)


def screen(current: Execution, width: int) -> Iterator[RenderableType]:
    """Yield the parts of the screen of a run, for a terminal of ``width`` columns."""
    yield text(f"{_headline(current)}\n")
    yield _stages(current)
    yield text(speed(current))
    if warned := warnings(current):
        yield text(warned, "yellow")
    yield text("")
    try:
        yield from cells(Grid(load(current.facts["config"])), current, width)
    except ConfigError as error:  # for example, a corpus folder was deleted since the run began
        yield text(f"The cells are not shown: {error}")
    if at_work := current.in_state("running"):
        yield text(f"\n{'Running' if current.alive is not False else 'Running when it died'}, {len(at_work)}:")
        yield running(at_work)
    if failed := current.in_state("failed"):
        yield text(f"\nFailed, {len(failed)}:")
        for job in failed[:_JOBS]:
            yield from failure(job)


def text(lines: str, style: str = "") -> Text:
    """Return lines to print, without control characters."""
    return Text("\n".join(map(printable, lines.split("\n"))), style)


def _table(rows: list[list[Any]], justify: JustifyMethod = "right") -> Table:
    """Return rows as a table, of which the first column is flush left. Zeros are left out."""
    table = Table.grid(padding=(0, 2, 0, 0))
    for column in range(len(rows[0])):
        table.add_column(justify=justify if column else "left", no_wrap=True)
    for row in rows:
        table.add_row(*(cell if isinstance(cell, Text) else text(str(cell or "")) for cell in row))
    return table


def failure(job: RunningJob) -> Iterator[Text]:
    """Yield a failed job with the reason, and the last lines of its logs."""
    logs = {log: lines for log in job.logs if (lines := tail(Path(log), _LINES))}
    if job.reason or not logs:
        yield text(f"  {f'{job.name}: {job.reason}' if job.reason else job.failure}", "red")
    for log, lines in logs.items():
        yield text(f"  {job.name}: {log}", "red")
        yield from (text(f"    {line}") for line in lines)


def _headline(current: Execution) -> str:
    facts, over = current.facts, current.over
    started = datetime.datetime.fromtimestamp(facts["time"]).astimezone().isoformat(" ", "seconds")
    where = f"process {facts['pid']} on {facts['host']}, started {started}"
    since = clock(current.until - facts["time"])
    if over:
        return f"{'finished' if over['succeeded'] else 'ended unfinished'} after {since} ({where})"
    if current.alive is False:
        return f"died after {since} ({where}). {_advice()}"
    return f"running for {since} ({where})" + ("" if current.alive else ", which cannot be checked from here")


def _advice() -> str:
    """Advise what to do after a run has died: what a new one would say."""
    try:
        processes.refuse_beside_others()
        cluster.refuse_beside_orphans(Path.cwd(), "local")
    except BeirgridError as error:
        return str(error)
    return "Run it again: finished files stay"


def _stages(current: Execution) -> Table:
    total = current.facts["jobs"]
    states = {state: Counter(job.rule for job in current.in_state(state)) for state in ("done", "running", "failed")}
    rows: list[list[Any]] = []
    for rule in dict.fromkeys([*total, *(job.rule for job in current.jobs.values())]):
        counts = [count[rule] for count in states.values()]
        of = max(total.get(rule, 0), sum(counts))
        rows.append([rule, *counts, of - sum(counts), of])
    sums = [sum(column) for column in list(zip(*rows, strict=True))[1:]] or [0] * 5
    return _table([["stage", *states, "waiting", "of"], *rows, ["total", *sums]])


def speed(current: Execution) -> str:
    """Estimate the rate of jobs and the time left, from the mean time of each rule's jobs and their concurrency."""
    done = current.in_state("done")
    elapsed = max(current.until - current.facts["time"], 1.0)
    rate = f"{len(done) / elapsed * 60:,.1f} jobs per minute"
    if current.alive is False:
        return rate
    times: dict[str, list[float]] = {}
    for job in done:
        times.setdefault(job.rule, []).append(job.seconds)
    means = {rule: fmean(seconds) for rule, seconds in times.items()}
    waiting: Counter[str] = Counter(current.facts["jobs"])
    waiting -= Counter(job.rule for job in list(current.jobs.values()))
    lasting = [_rest(job, means.get(job.rule)) for job in current.in_state("running")]
    lasting += [means.get(rule) for rule in waiting.elements()]
    known = [seconds for seconds in lasting if seconds is not None]
    left = []
    if known:
        at_once = max(1.0, sum(job.seconds for job in done) / elapsed)
        left.append(f"about {clock(max(sum(known) / at_once, *known))}")
    if unknown := len(lasting) - len(known):
        left.append(f"{unknown} jobs of unknown length")
    failed = " (including jobs that depend on a failed job and will not run)" if current.in_state("failed") else ""
    return f"{rate}; left: {', and '.join(left)}{failed}" if left else rate


def warnings(current: Execution) -> str:
    """Count the warnings in the logs of jobs, and name the first of these logs; empty if there are none."""
    warned = [job for job in list(current.jobs.values()) if job.warnings]
    logs = ", ".join(job.logs[0] for job in warned[:3]) + (f" and {len(warned) - 3} more" if warned[3:] else "")
    number = sum(job.warnings for job in warned)
    return f"{number} warning{'s' if number > 1 else ''}: {logs}" if warned else ""


def counts(current: Execution) -> str:
    """Return how many jobs are done, running and failed."""
    words = [f"{len(current.in_state('done'))} of {sum(current.facts['jobs'].values())} jobs done"]
    words += [f"{number} {state}" for state in ("running", "failed") if (number := len(current.in_state(state)))]
    return ", ".join(words)


def _rest(job: RunningJob, mean: float | None) -> float | None:
    """Estimate the seconds left of a running job, from its log or from the mean of its stage's jobs."""
    progress = job.progress
    if mean is None or (progress and progress.seconds_left is not None):
        return progress.seconds_left if progress else None
    rest = mean - (time.time() - job.since)
    return rest if rest > 0 else None  # longer than the mean: unknown


def cells(whole: Grid, current: Execution, width: int) -> Iterator[RenderableType]:
    """Yield a matrix of datasets × systems, with scores of finished cells if they fit, and a legend of its marks."""
    grid = whole.config.grid
    made = {file: job.state for job in current.jobs.values() for file in job.outputs}
    states = {(s, d): _state(whole, made, s, d) for d in grid.datasets for s in grid.systems}
    marks = {cell: _MARKS[state] for cell, state in states.items()}
    scored = {cell: (states[cell] == "done" and _score(whole, *cell)) or mark for cell, mark in marks.items()}
    numbers = [str(number) for number in range(1, len(grid.systems) + 1)]
    for names, told in ((grid.systems, scored), (numbers, scored), (numbers, marks)):
        head = [written(whole.config.metrics[0]) if told is scored else "", *names]
        rows = [[d, *(text(told[s, d], _STYLES.get(states[s, d], "")) for s in grid.systems)] for d in grid.datasets]
        if sum(max(map(len, column)) + 2 for column in zip(head, *rows, strict=True)) - 2 <= width:
            break
    yield _table([head, *rows])
    if shown_marks := [state for state, mark in _MARKS.items() if mark in {*told.values()}]:
        yield text("  ".join(f"{_MARKS[state]} {state}" for state in shown_marks))
    if names is numbers:
        yield text(", ".join(f"{number} {name}" for number, name in zip(numbers, grid.systems, strict=True)))


def _state(grid: Grid, made: dict[str, str], system: str, dataset: str) -> str:
    """Return the state of a cell: that of the jobs behind it, or whether its files are there."""
    parts = [part for part in grid.parts(dataset) if part not in grid.not_supplied]
    files = [file for part in parts for file in cell_records(grid, system, part)]
    states = {made[file] for file in files if file in made}
    if not parts:
        return "not supplied"
    if "failed" in states or "running" in states:
        return "failed" if "failed" in states else "running"
    return "done" if all(Path(file).is_file() for file in files) else "waiting"


def _score(grid: Grid, system: str, dataset: str) -> str:
    """Return the score of a finished cell in the first metric; empty if it is not judged or lacks a part."""
    parts = grid.parts(dataset)
    files = [paths.METRICS.format(system=member, dataset=part) for part in parts for member in grid.members(system)]
    try:
        return f"{fmean(scores.read(file).means[grid.config.metrics[0]] for file in files):.4f}"
    except (DataError, KeyError):
        return ""


def _working(job: RunningJob) -> str:
    """Return what a running job does, as its log has it."""
    progress = job.progress
    return "submitted, not begun" if not job.begun else progress.said if progress else "begun"


def running(jobs: list[RunningJob]) -> Table:
    """Tabulate the running jobs: elapsed time, and progress."""
    rows = [[f"  {job.name}", clock(time.time() - job.since), _working(job)] for job in jobs[:_JOBS]]
    return _table([*rows, *[[f"  and {len(jobs) - _JOBS} more"]] * (len(jobs) > _JOBS)], "left")


def clock(seconds: float) -> str:
    """Format a duration, 0 or more even if the machine's clock was set back."""
    return str(datetime.timedelta(seconds=round(max(seconds, 0))))
