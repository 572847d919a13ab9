"""What a grid is doing, as the events of its run say: during the run, and after it."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

from ..config import load
from ..core.errors import ConfigError, printable
from ..core.progress import is_bar, is_progress, seconds_left
from ..graph.cell_records import Records
from ..graph.grid import Grid
from ..graph.inputs import Inputs
from ..results import results_folder
from . import cluster
from .events import EVENTS, Execution, RunningJob, read
from .processes import living

# Of a cell, the strongest first.
_MARKS = {"failed": "x", "running": ">", "done": "#", "waiting": ".", "not supplied": "-"}
_COLOURS = {"x": 31, ">": 33, "#": 32}
# Lines of a failed job's log, and failed or running jobs, that a screen has room for.
_LINES, _JOBS = 5, 12
# Seconds between two screens, at most: a day.
_LONGEST_WAIT = 86_400


def failure(job: RunningJob) -> str:
    """Return the log of a failed job and the last line in it, which is no error of a job that was killed."""
    for log in job.logs:
        for line in _tail(Path(log), 1):
            killed = "no error, so the job was killed or had no time left; last line: " if is_progress(line) else ""
            return printable(f"{log}: {killed}{line}")
    return f"{job.logs[0]}: empty" if job.logs else f"{job.name} has no log"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid status``."""
    parser.add_argument("--directory", default=Path(), type=Path, help=results_folder.PLACE)
    parser.add_argument(
        "--watch", type=_seconds, metavar="SECONDS", help="refresh the screen every SECONDS, until the run is over"
    )
    parser.set_defaults(run=run)


def _seconds(text: str) -> float:
    """Read seconds to wait."""
    with contextlib.suppress(ValueError):
        if 0 < float(text) <= _LONGEST_WAIT:
            return float(text)
    raise argparse.ArgumentTypeError(f"{text[:50]!r} is not a number of seconds between 0 and {_LONGEST_WAIT:,}")


def run(args: argparse.Namespace) -> None:
    """Print the screen, once or again and again."""
    os.chdir(results_folder.working_folder(args.directory)[0])
    while True:
        current = read(EVENTS)
        screen = "\n".join(map(printable, lines(current, shutil.get_terminal_size().columns)))
        if args.watch and sys.stdout.isatty():
            print("\033[2J\033[H", end="")
        print(_coloured(screen) if sys.stdout.isatty() else screen, flush=True)
        if not args.watch or current.over or current.alive is False:
            return
        time.sleep(args.watch)


def lines(current: Execution, width: int) -> Iterator[str]:
    """Yield the screen of a run, for a terminal of so many columns."""
    yield _headline(current)
    if current.unread:
        yield f"{EVENTS} has {current.unread} unreadable lines, which status ignores"
    yield ""
    yield from _stages(current)
    yield _left(current)
    yield ""
    yield from _cells(current, width)
    if running := current.in_state("running"):
        yield from ["", f"{'Running' if current.alive is not False else 'Running when it died'}, {len(running)}:"]
        yield from (_describe(job) for job in running[:_JOBS])
    if failed := current.in_state("failed"):
        yield from ["", f"Failed, {len(failed)}:"]
        for job in failed[:_JOBS]:
            for log in job.logs:
                yield f"  {job.name}: {log}"
                yield from (f"    {line}" for line in _tail(Path(log), _LINES))


def _headline(current: Execution) -> str:
    started = datetime.datetime.fromtimestamp(current.facts["time"]).astimezone().isoformat(" ", "seconds")
    where = f"process {current.facts['pid']} on {current.facts['host']}, started {started}"
    if current.over:
        done = "finished" if current.over["succeeded"] else "ended unfinished"
        return f"{done} after {_clock(current.over['time'] - current.facts['time'])} ({where})"
    if current.alive is False:
        return f"died after {_clock(current.last - current.facts['time'])} ({where}). {_advice()}"
    since = _clock(time.time() - current.facts["time"])
    return f"running for {since} ({where})" + ("" if current.alive else ", which cannot be checked from here")


def _advice() -> str:
    """Say what helps after a run has died in the working directory: what still works there must end first."""
    if found := living():
        return f"Its jobs continue: wait until they end, or stop them (process {', '.join(map(str, found))})"
    try:
        cluster.refuse_beside_orphans(Path.cwd(), "local")
    except cluster.OrphanError as error:
        return str(error)
    return "Run it again: finished files stay"


def _stages(current: Execution) -> Iterator[str]:
    total: Counter[str] = Counter(current.facts["jobs"])
    columns = {state: current.count(state) for state in ("done", "running", "failed")}
    rules = [*total, *(rule for rule in dict.fromkeys(job.rule for job in current.jobs.values()) if rule not in total)]
    head = ["stage", *columns, "waiting", "of"]
    rows: list[tuple[str, list[int]]] = []
    for rule in rules:
        counts = [count[rule] for count in columns.values()]
        of = max(total[rule], sum(counts))
        rows.append((rule, [*counts, of - sum(counts), of]))
    rows.append(("total", [sum(counts[column] for _, counts in rows) for column in range(len(head) - 1)]))
    table = [head, *([rule, *(str(count) if count else "" for count in counts)] for rule, counts in rows)]
    widths = [max(len(row[column]) for row in table) for column in range(len(head))]
    for row in table:
        yield row[0].ljust(widths[0]) + "".join(f"  {cell:>{w}}" for cell, w in zip(row[1:], widths[1:], strict=True))


def _left(current: Execution) -> str:
    """Say how fast jobs end and how long the rest takes, from the mean of each rule's jobs and how many run at once."""
    done = current.in_state("done")
    elapsed = max(
        (current.over or {"time": time.time() if current.alive else current.last})["time"] - current.facts["time"], 1.0
    )
    rate = f"{len(done) / elapsed * 60:,.1f} jobs per minute"
    if current.over or current.alive is False:
        return rate
    times: dict[str, list[float]] = {}
    for job in done:
        times.setdefault(job.rule, []).append(job.seconds)
    means = {rule: sum(seconds) / len(seconds) for rule, seconds in times.items()}
    running = current.in_state("running")
    waiting = (
        Counter(current.facts["jobs"]) - current.count("done") - current.count("failed") - current.count("running")
    )
    lasting: list[float | None] = [_rest(job, means.get(job.rule)) for job in running]
    lasting += [means.get(rule) for rule in waiting.elements()]
    known = [seconds for seconds in lasting if seconds is not None]
    unknown = len(lasting) - len(known)
    failed = " (including jobs that depend on a failed job and will not run)" if current.in_state("failed") else ""
    if not known:
        return f"{rate}; left: {unknown} jobs of stages without a finished job{failed}" if unknown else rate
    at_once = max(1.0, sum(job.seconds for job in done) / elapsed)
    beside = f", and {unknown} jobs of stages without a finished job" if unknown else ""
    return f"{rate}; left: about {_clock(max(sum(known) / at_once, *known))}{beside}{failed}"


def _rest(job: RunningJob, mean: float | None) -> float | None:
    """Return the seconds that a running job still takes: as its log says, else by the mean of its stage's jobs."""
    left = seconds_left(_last_words(job))
    if left is not None or mean is None:
        return left
    rest = mean - (time.time() - job.since)
    return rest if rest > 0 else None  # longer than the mean: nobody knows


def _cells(current: Execution, width: int) -> Iterator[str]:
    """Yield a matrix of datasets × systems."""
    try:
        grid = Grid(load(current.facts["config"]))
        records = Records(grid, Inputs(grid))
    except ConfigError as error:  # a corpus folder that was there when the run began is gone, say
        yield f"The cells are not shown: {error}"
        return
    states = _states(current)
    systems, datasets = grid.config.grid.systems, grid.config.grid.datasets
    first = max(map(len, datasets))
    names = list(systems)
    if first + sum(len(name) + 2 for name in names) > width:
        names = [str(number) for number in range(1, len(systems) + 1)]
    yield " " * first + "".join(f"  {name}" for name in names)
    for dataset in datasets:
        marks = (_MARKS[_cell(records, states, system, dataset)] for system in systems)
        yield (
            dataset.ljust(first) + "".join(f"  {m:^{len(name)}}" for m, name in zip(marks, names, strict=True)).rstrip()
        )
    yield "  ".join(f"{mark} {state}" for state, mark in _MARKS.items())
    if names[0] == "1":
        yield ", ".join(f"{number} {name}" for number, name in enumerate(systems, start=1))


def _states(current: Execution) -> dict[str, str]:
    return {file: job.state for job in current.jobs.values() for file in job.outputs}


def _cell(records: Records, states: dict[str, str], system: str, dataset: str) -> str:
    """Return the state of a cell: of what its files' jobs are doing, the first of ``_MARKS`` that one of them has."""
    grid = records.grid
    parts = [part for part in grid.parts(dataset) if part not in grid.not_supplied]
    if not parts:
        return "not supplied"
    files = [file for part in parts for file in records.files_of(system, part)]
    found = {states.get(file, "") for file in files}
    if "failed" in found or "running" in found:
        return "failed" if "failed" in found else "running"
    return "done" if all(Path(file).is_file() for file in files) else "waiting"


def _describe(job: RunningJob) -> str:
    """Return what a running job last said; a cluster may not have begun with it."""
    said = (_last_words(job) or "begun") if _begun(job) or not job.logs else "submitted, not begun"
    return f"  {job.name}, {_clock(time.time() - job.since)}: {said}"


def _begun(job: RunningJob) -> bool:
    """Tell whether a job's log is that of this attempt. Rules of other workflows may have none."""
    return any(Path(log).is_file() and Path(log).stat().st_mtime >= job.since - 1 for log in job.logs[:1])


def _last_words(job: RunningJob) -> str:
    """Return the last line of a running job's log that is no library's progress bar, empty if there is none."""
    said = [line for line in _tail(Path(job.logs[0]), 100) if not is_bar(line)] if _begun(job) else []
    return said[-1] if said else ""


def _tail(path: Path, count: int) -> Iterable[str]:
    """Return the last lines of a log that say something; a progress bar's last state counts as one."""
    if not path.is_file():
        return []
    with path.open("rb") as stream:
        stream.seek(max(0, path.stat().st_size - 8192))
        text = stream.read().decode("utf-8", "replace")
    said = [line.rpartition("\r")[2].strip() or line.strip() for line in text.split("\n")]
    return [line for line in said if line][-count:]


def _clock(seconds: float) -> str:
    """Return a duration; none is negative, though the machine's clock may be set back."""
    return str(datetime.timedelta(seconds=round(max(seconds, 0))))


def _coloured(screen: str) -> str:
    """Colour the marks of the matrix."""
    coloured = []
    for line in screen.split("\n"):
        if line.split()[1:] and set(line.split()[1:]) <= set(_MARKS.values()):
            head, *marks = line.split("  ")
            line = "  ".join([head, *(_colour(mark) for mark in marks)])
        coloured.append(line)
    return "\n".join(coloured)


def _colour(text: str) -> str:
    code = _COLOURS.get(text.strip())
    return f"\033[{code}m{text}\033[0m" if code else text
