"""Follow the jobs of a run in Snakemake's log, and keep their events in ``results/status.jsonl``."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from logging import LogRecord
from pathlib import Path
from typing import Any

from snakemake_interface_logger_plugins.common import LogEvent

from ..core.checkout import MODULES
from ..core.errors import BeirgridError, printable
from ..core.progress import is_progress, shown
from .processes import began, hidden

EVENTS = Path("results/status.jsonl")
Event = dict[str, Any]


@dataclass
class RunningJob:
    """A job of a run, as its last event has it."""

    rule: str
    wildcards: dict[str, str]
    logs: list[str]
    outputs: list[str]
    state: str
    since: float
    seconds: float = 0.0
    warnings: int = 0
    reason: str = ""  # of Snakemake or SLURM, for a failure

    @property
    def name(self) -> str:
        """Rule and wildcards."""
        return " ".join([self.rule, *self.wildcards.values()])

    @property
    def begun(self) -> bool:
        """Whether a running job has left the queue of a cluster: its log belongs to this attempt, or it has none."""
        try:
            return not self.logs or Path(self.logs[0]).stat().st_mtime >= self.since - 1
        except OSError:
            return False

    @property
    def progress(self) -> str:
        """The last line of a running job's log that reports progress; empty without one. Libraries log other things."""
        lines = tail(Path(self.logs[0]), 100) if self.begun and self.logs else []
        return next(filter(shown, reversed(lines)), "")

    @property
    def failure(self) -> str:
        """The log of a failed job with its last line, or the reason why there is no log."""
        for log in self.logs:
            for line in tail(Path(log), 1):
                # A progress line is no error message.
                killed = "no error, so the job was killed or had no time left; last line: " if is_progress(line) else ""
                return printable(f"{log}: {killed}{line}")
        empty = f"{self.logs[0]}: empty" if self.logs else f"{self.name} has no log"
        return printable(f"{self.name}: {self.reason.splitlines()[0]}" if self.reason else empty)


def tail(path: Path, count: int) -> list[str]:
    """Return the last lines of a log that are not empty. Of a progress bar, its last state counts as one."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 8192))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    lines = [line.rpartition("\r")[2].strip() or line.strip() for line in text.split("\n")]
    return [line for line in lines if line][-count:]


@dataclass
class Execution:
    """The state of a run, from its events."""

    facts: Event
    jobs: dict[int, RunningJob] = field(default_factory=dict)
    over: Event | None = None
    last: float = 0.0

    def count(self, state: str) -> Counter[str]:
        """Return the jobs in a state, per rule."""
        return Counter(job.rule for job in list(self.jobs.values()) if job.state == state)

    def in_state(self, state: str) -> list[RunningJob]:
        """Return the jobs in a state, the oldest first."""
        return sorted((job for job in list(self.jobs.values()) if job.state == state), key=lambda job: job.since)

    @property
    def alive(self) -> bool | None:
        """Whether the run's process is alive; None if it is on another machine or hidden."""
        if self.over:
            return False
        if self.facts["host"] != socket.gethostname():
            return None
        moment = began(self.facts["pid"])
        if moment is None:
            return None if hidden(self.facts["pid"]) else False
        # One minute of tolerance, because the machine's clock may be adjusted.
        return abs(moment - float(self.facts["began"])) < 60

    def add(self, event: Event) -> None:
        """Change the state by an event."""
        kind: str = event["event"]
        self.last = float(event["time"])
        if kind == "over":
            self.over = event
        elif kind == "started":
            facts = (event["rule"], event["wildcards"], event["log"], event["outputs"])
            self.jobs[event["id"]] = RunningJob(*facts, state="running", since=self.last)
        elif (job := self.jobs.get(event["id"])) is not None:
            job.logs, job.reason = event.get("log", job.logs), event.get("reason", "")
            job.warnings = event.get("warnings", 0)
            job.seconds, job.state, job.since = self.last - job.since, "done" if kind == "finished" else kind, self.last


def read(path: Path) -> Execution:
    """Read a run from its events file. Lines that are no events are left out: a full disk may have cut them."""
    if not path.is_file():
        raise BeirgridError(f"there is no {path}: no grid was run in this folder. --directory names another")
    run: Execution | None = None
    for line in path.read_bytes().split(b"\n"):
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
            event = json.loads(line)
            if event["event"] == "run":
                run = Execution(event, last=event["time"])
            elif run:
                run.add(event)
    if run is None:
        raise BeirgridError(f"{path} has no run: a full disk may have cut it off. Delete it and run the grid")
    _complete(run)
    return run


def _complete(run: Execution) -> None:
    """End jobs whose end Snakemake did not log: it logs none with --quiet, and never logs missing files."""
    for job in run.in_state("running"):
        records = [Path(path) for path in job.outputs if path.endswith(".json")]
        times = [path.stat().st_mtime for path in records if path.is_file()]
        if records and len(times) == len(records) and min(times) >= job.since:
            job.state, job.seconds, job.since = "done", max(times) - job.since, max(times)
        elif run.over:
            job.state, job.since = "failed", run.over["time"]


class Follower:
    """Turns records of Snakemake's log into events, and follows the state of the run."""

    def __init__(self) -> None:
        self.run: Execution | None = None
        self.failed = False  # whether Snakemake ended with an error
        self._of_groups: dict[int, list[str]] = {}  # logs of the cluster, by the job of a group that failed

    def follow(self, record: LogRecord) -> Event | None:
        """Return the event of a record, after it changed the state; None without one."""
        event = self._event(vars(record), str(getattr(record, "event", "")))
        if event is None:
            return None
        event["time"] = time.time()
        if event["event"] == "run":
            self.run = Execution(event, last=event["time"])
        elif self.run is None:
            return None
        else:
            self.run.add(event)
        return event

    def _event(self, told: dict[str, Any], kind: str) -> Event | None:
        if kind == LogEvent.RUN_INFO:
            process = {"pid": os.getpid(), "began": began(os.getpid()), "host": socket.gethostname()}
            jobs = {rule: jobs for rule, jobs in told["stats"].items() if rule not in ("all", "total")}
            return {"event": "run", "jobs": jobs, "command": sys.argv[1:], **process}
        if kind == LogEvent.JOB_INFO and told["rule_name"] != "all":
            facts = {"rule": told["rule_name"], "wildcards": dict(told["wildcards"]), "log": _texts(told["log"])}
            return {"event": "started", "id": told["jobid"], "outputs": _texts(told["output"]), **facts}
        if kind == LogEvent.JOB_FINISHED:
            job = self.run.jobs.get(told["job_id"]) if self.run else None
            return {"event": "finished", "id": told["job_id"], "warnings": _warnings(job)}
        if kind == LogEvent.JOB_ERROR:
            more = self._of_groups.pop(told["jobid"], None)
            # The command that submitted the job follows the reason.
            reason = str(told.get("rule_msg") or "").partition("\n    sbatch call:")[0]
            reason = self._refusal() if more == [] else reason
            return {
                "event": "failed",
                "id": told["jobid"],
                "log": _texts([*told["log"], *(more or ())]),
                "reason": reason,
            }
        if kind == LogEvent.GROUP_ERROR:
            self._of_groups |= {job["jobid"]: _texts(told["aux_logs"]) for job in told["job_error_info"]}
        elif kind == LogEvent.ERROR:
            self.failed = True
        return None

    @property
    def succeeded(self) -> bool:
        """Whether a run that has ended made all that it began to make."""
        if self.run:
            _complete(self.run)
        return not (self.failed or (self.run and self.run.in_state("running")))

    def _refusal(self) -> str:
        """Return why SLURM took no job of a group. Snakemake does not pass on what SLURM said."""
        from ..config import load  # not at each start of Snakemake
        from . import cluster

        beyond = ""
        with contextlib.suppress(BeirgridError):
            beyond = "; ".join(cluster.excesses(load(read(EVENTS).facts["config"]).nodes, cluster.partitions()))
        return f"SLURM refused the group of this job: {beyond or 'compare nodes with sinfo (docs/cluster.md)'}"


def _texts(values: Any) -> list[str]:
    return list(map(str, values))


def _warnings(job: RunningJob | None) -> int:
    count = 0
    for log in job.logs if job else ():
        with contextlib.suppress(OSError), Path(log).open("rb") as stream:
            count += sum(line.startswith(b"warning: ") for line in stream)
    return count


class Recorder(logging.Handler):
    """Writes the events of a run to a file, and the grid's tables at its end.

    The Snakefile adds it to Snakemake's logger: so it hears each run, with or without the plugin, also where another
    workflow uses this one as a module. ``begin`` is called before the first job; its errors end the run.
    """

    def __init__(self, grid: str, config: dict[str, Any], begin: Callable[[], None], quiet: bool = False) -> None:
        super().__init__()
        self.grid, self.config, self.begin, self.quiet = grid, config, begin, quiet
        self.follower, self.path = Follower(), EVENTS.absolute()

    def emit(self, record: LogRecord) -> None:
        """Write the event of a record, if it has one."""
        event = self.follower.follow(record)
        if event is None:
            return
        if event["event"] == "run":
            event["config"] = self.config
            self.path = EVENTS.absolute()
            try:
                self.begin()
            except BaseException:
                self.follower.run = None
                raise
            with contextlib.suppress(OSError):  # see below
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.unlink(missing_ok=True)
        self._write(event)

    def _write(self, event: Event) -> None:
        # A line that cannot be written (full disk) must not end the grid.
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")

    def close(self) -> None:
        """Record the end of the run, and print its results. Snakemake closes all handlers when it ends."""
        if run := self.follower.run:
            self._write({"event": "over", "time": time.time(), "succeeded": self.follower.succeeded})
            last = run.in_state("done")[-1:]
            wrote = self.follower.succeeded and any(job.rule.endswith("report") for job in last)
            self.follower = Follower()  # handlers are closed once more when Python ends
            self.results(wrote)
        super().close()

    def results(self, wrote: bool) -> None:
        """Print a summary of the tables; write them and the page before, in another process, unless the run did.

        In a group of its own, a Ctrl-C reaches this process alone, which ends it.
        """
        from .refresh import command

        sys.stdout.flush()
        if (words := command(self.grid, wrote)) and not (self.quiet and wrote):
            # This package, and no modules from the working directory.
            environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(MODULES), "OMP_NUM_THREADS": "1"}
            said = subprocess.DEVNULL if self.quiet else None
            with contextlib.suppress(OSError):
                subprocess.run(
                    words, env=environment, stdin=subprocess.DEVNULL, stdout=said, check=False, process_group=0
                )
