"""``beirgrid status``: show the state of a grid's jobs, from the events of its run."""

from __future__ import annotations

import datetime
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..core.errors import show
from ..results import results_folder
from .events import EVENTS, Execution, RunningJob, read, tail
from .options import ResultsPlace
from .text import column_lines

# Limits of a screen: lines of a failed job's log, and failed or running jobs.
_LINES, _JOBS = 5, 12


def status(*, directory: ResultsPlace = Path()) -> None:
    """Print the state of a grid's jobs. To watch a run: ``watch beirgrid status``."""
    os.chdir(results_folder.working_folder(directory)[0])
    show(*screen(read(EVENTS)))


def screen(current: Execution) -> Iterator[str]:
    """Yield the lines of the screen of a run."""
    yield from (_headline(current), "", *_stages(current), speed(current), *warnings(current))
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
    facts, over = current.facts, current.over
    started = datetime.datetime.fromtimestamp(facts["time"]).astimezone().isoformat(" ", "seconds")
    where = f"process {facts['pid']} on {facts['host']}, started {started}"
    since = clock(current.until - facts["time"])
    if over:
        return f"{'finished' if over['succeeded'] else 'ended unfinished'} after {since} ({where})"
    if current.alive is False:
        return f"died after {since} ({where}). Run it again: finished files stay"
    return f"running for {since} ({where})" + ("" if current.alive else ", which cannot be checked from here")


def _stages(current: Execution) -> Iterator[str]:
    """Yield the lines of a table of the jobs of each stage by their state. Zeros are left out."""
    total = current.facts["jobs"]
    states = {state: Counter(job.rule for job in current.in_state(state)) for state in ("done", "running", "failed")}
    rows: list[list[Any]] = []
    for rule in dict.fromkeys([*total, *(job.rule for job in current.jobs.values())]):
        counts = [count[rule] for count in states.values()]
        of = max(total.get(rule, 0), sum(counts))
        rows.append([rule, *counts, of - sum(counts), of])
    sums = [sum(column) for column in list(zip(*rows, strict=True))[1:]] or [0] * 5
    cells = [[str(cell or "") for cell in row] for row in [*rows, ["total", *sums]]]
    yield from column_lines([["stage", *states, "waiting", "of"], *cells], [True, *[False] * 5])


def speed(current: Execution) -> str:
    """Return the rate of jobs, and the time that the others take at this rate, whatever their stages."""
    elapsed, done = max(current.until - current.facts["time"], 1.0), len(current.in_state("done"))
    rate, others = f"{done / elapsed * 60:,.1f} jobs per minute", sum(current.facts["jobs"].values()) - done
    if current.alive is False or not done or others <= 0:
        return rate
    return f"{rate}; left at this rate: {clock(others * elapsed / done)}"


def warnings(current: Execution) -> Iterator[str]:
    """Count the warnings in the logs of finished jobs, and name the first of these logs; nothing if there are none."""
    logs = [Path(log) for job in current.in_state("done") for log in job.logs]
    numbers = {log: (b"\n" + log.read_bytes()).count(b"\nwarning: ") for log in logs if log.is_file()}
    if warned := [str(log) for log, number in numbers.items() if number]:
        more = f" and {len(warned) - 3} more" if warned[3:] else ""
        yield f"{sum(numbers.values())} warnings: {', '.join(warned[:3])}{more}"


def counts(current: Execution) -> str:
    """Return how many jobs are done, running and failed."""
    words = [f"{len(current.in_state('done'))} of {sum(current.facts['jobs'].values())} jobs done"]
    words += [f"{number} {state}" for state in ("running", "failed") if (number := len(current.in_state(state)))]
    return ", ".join(words)


def clock(seconds: float) -> str:
    """Format a duration, 0 or more even if the machine's clock was set back."""
    return str(datetime.timedelta(seconds=round(max(seconds, 0))))
