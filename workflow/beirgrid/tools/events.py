"""Follow the jobs of a run in Snakemake's log, and keep their events in ``results/status.jsonl``."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import logging
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from logging import LogRecord
from pathlib import Path
from typing import Any

import psutil
from snakemake_interface_logger_plugins.common import LogEvent

from ..core.checkout import MODULES
from ..core.errors import BeirgridError, printable
from ..core.progress import Shown, is_progress, shown
from . import cluster

EVENTS = Path("results/status.jsonl")
# Packages needed for tables and page.
_LIBRARIES = ("jinja2", "matplotlib", "numba", "pandas", "pyarrow", "scipy")
Event = dict[str, Any]


@dataclass
class RunningJob:
    """A job of a run, as its last event has it. Snakemake or SLURM gives ``reason``, for a failure."""

    rule: str
    wildcards: dict[str, str]
    logs: list[str]
    outputs: list[str]
    since: float
    state: str = "running"
    seconds: float = 0.0
    warnings: int = 0
    reason: str = ""

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
    def progress(self) -> Shown | None:
        """The last progress in a running job's log, where libraries log other things, too."""
        lines = tail(Path(self.logs[0]), 100) if self.begun and self.logs else []
        return next(filter(None, map(shown, reversed(lines))), None)

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
    """The state of a run, from its events. Before the first one, ``facts`` is empty."""

    facts: Event = field(default_factory=dict)
    jobs: dict[int, RunningJob] = field(default_factory=dict)
    over: Event | None = None
    last: float = 0.0
    failed: bool = False  # whether Snakemake ended with an error
    _of_groups: dict[int, list[str]] = field(default_factory=dict)  # logs of the cluster, by job of a group

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
        try:
            # One minute of tolerance, because the machine's clock may be adjusted.
            return bool(abs(psutil.Process(self.facts["pid"]).create_time() - self.facts["began"]) < 60)
        except psutil.NoSuchProcess:
            try:
                os.kill(self.facts["pid"], 0)
            except OSError as error:  # another user's process may be hidden, but not its number
                return None if isinstance(error, PermissionError) else False
        return False

    @property
    def until(self) -> float:
        """When the run ended, as far as is known; now while it may run."""
        return float(self.over["time"] if self.over else self.last if self.alive is False else time.time())

    @property
    def succeeded(self) -> bool:
        """Whether a run that has ended made all that it began to make."""
        self.end_jobs()
        return not (self.failed or self.in_state("running"))

    def end_jobs(self) -> None:
        """End jobs whose end Snakemake did not log: it logs none with --quiet, and never logs missing files."""
        for job in self.in_state("running"):
            records = [Path(path) for path in job.outputs if path.endswith(".json")]
            times = [path.stat().st_mtime for path in records if path.is_file()]
            if records and len(times) == len(records) and min(times) >= job.since:
                job.state, job.seconds, job.since = "done", max(times) - job.since, max(times)
            elif self.over:
                job.state, job.since = "failed", self.over["time"]

    def add(self, event: Event) -> None:
        """Change the state by an event. What precedes a run is left out."""
        kind, self.last = event["event"], float(event["time"])
        if kind == "run":
            self.facts, self.jobs, self.over = event, {}, None
        elif kind == "over":
            self.over = event
        elif kind == "started" and self.facts:
            facts = (event["rule"], event["wildcards"], event["log"], event["outputs"])
            self.jobs[event["id"]] = RunningJob(*facts, since=self.last)
        elif job := self.jobs.get(event.get("id", -1)):
            job.logs, job.reason = event.get("log", job.logs), event.get("reason", "")
            job.warnings = event.get("warnings", 0)
            job.seconds, job.state, job.since = self.last - job.since, "done" if kind == "finished" else kind, self.last

    def follow(self, record: LogRecord) -> Event | None:
        """Return the event of a record of Snakemake's log, after it changed the state; None without one."""
        kind = getattr(record, "event", None)
        event = self._event(vars(record), kind) if self.facts or kind == LogEvent.RUN_INFO else None
        if event:
            event["time"] = time.time()
            self.add(event)
        return event

    def _event(self, told: dict[str, Any], kind: str | None) -> Event | None:
        if kind == LogEvent.RUN_INFO:
            me = psutil.Process()
            jobs = {rule: jobs for rule, jobs in told["stats"].items() if rule not in ("all", "total")}
            host = socket.gethostname()
            return {"event": "run", "jobs": jobs, "pid": me.pid, "began": me.create_time(), "host": host}
        if kind == LogEvent.JOB_INFO and told["rule_name"] != "all":
            facts = {"rule": told["rule_name"], "wildcards": dict(told["wildcards"]), "log": _texts(told["log"])}
            return {"event": "started", "id": told["jobid"], "outputs": _texts(told["output"]), **facts}
        if kind == LogEvent.JOB_FINISHED and (job := self.jobs.get(told["job_id"])):
            return {"event": "finished", "id": told["job_id"], "warnings": sum(map(_warnings, job.logs))}
        if kind == LogEvent.JOB_ERROR:
            more = self._of_groups.pop(told["jobid"], None)
            # The command that submitted the job follows the reason.
            reason = _refusal() if more == [] else str(told.get("rule_msg") or "").partition("\n    sbatch call:")[0]
            return {
                "event": "failed",
                "id": told["jobid"],
                "log": _texts([*told["log"], *(more or ())]),
                "reason": reason,
            }
        if kind == LogEvent.GROUP_ERROR:  # those of its jobs follow
            self._of_groups |= {job["jobid"]: _texts(told["aux_logs"]) for job in told["job_error_info"]}
        self.failed |= kind == LogEvent.ERROR
        return None


def read(path: Path) -> Execution:
    """Read a run from its events file. Lines that are no events are left out: a full disk may have cut them."""
    if not path.is_file():
        raise BeirgridError(f"there is no {path}: no grid was run in this folder. --directory names another")
    run = Execution()
    for line in path.read_bytes().split(b"\n"):
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
            run.add(json.loads(line))
    if not run.facts:
        raise BeirgridError(f"{path} has no run: a full disk may have cut it off. Delete it and run the grid")
    run.end_jobs()
    return run


def _texts(values: Any) -> list[str]:
    return list(map(str, values))


def _warnings(log: str) -> int:
    with contextlib.suppress(OSError), Path(log).open("rb") as stream:
        return sum(line.startswith(b"warning: ") for line in stream)
    return 0


def _refusal() -> str:
    """Return why SLURM took no job of a group. Snakemake does not pass on what SLURM said."""
    from ..config import load  # not at each start of Snakemake

    beyond = ""
    with contextlib.suppress(BeirgridError):
        beyond = "; ".join(cluster.excesses(load(read(EVENTS).facts["config"]).nodes, cluster.partitions()))
    return f"SLURM refused the group of this job: {beyond or 'compare nodes with sinfo (docs/cluster.md)'}"


class Recorder(logging.Handler):
    """Writes the events of a run to a file, and prints the grid's tables at its end.

    The Snakefile adds it to Snakemake's logger: so it hears each run, with or without the plugin, also where another
    workflow uses this one as a module. ``begin`` is called before the first job; its errors end the run.
    """

    def __init__(self, grid: str, config: dict[str, Any], begin: Callable[[], None], quiet: bool = False) -> None:
        super().__init__()
        self.grid, self.config, self.begin, self.quiet = grid, config, begin, quiet
        self.run, self.path = Execution(), EVENTS.absolute()

    def emit(self, record: LogRecord) -> None:
        """Write the event of a record, if it has one."""
        event = self.run.follow(record)
        if event and event["event"] == "run":
            event["config"] = self.config
            self.path = EVENTS.absolute()
            try:
                self.begin()
            except BaseException:
                self.run = Execution()
                raise
            with contextlib.suppress(OSError):  # see below
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.unlink(missing_ok=True)
        if event:
            self._write(event)

    def _write(self, event: Event) -> None:
        # A line that cannot be written (full disk) must not end the grid.
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")

    def close(self) -> None:
        """Record the end of the run, and print its results. Snakemake closes all handlers when it ends."""
        run, self.run = self.run, Execution()  # handlers are closed once more when Python ends
        if run.facts:
            self._write({"event": "over", "time": time.time(), "succeeded": run.succeeded})
            last = run.in_state("done")[-1:]
            self.results(wrote=run.succeeded and any(job.rule.endswith("report") for job in last))
        super().close()

    def results(self, wrote: bool) -> None:
        """Print a summary of the tables; write them and the page before, in another process, unless the run did.

        In a group of its own, a Ctrl-C reaches this process alone, which ends it. Where the packages of tables are in
        conda environments alone, nothing is printed.
        """
        if (self.quiet and wrote) or not all(map(importlib.util.find_spec, _LIBRARIES)):
            return
        sys.stdout.flush()
        words = [sys.executable, "-m", "beirgrid", "report", "--grid", self.grid, *["--written"] * wrote]
        # This package, and no modules from the working directory.
        environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(MODULES), "OMP_NUM_THREADS": "1"}
        said = subprocess.DEVNULL if self.quiet else None
        with contextlib.suppress(OSError):
            subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, stdout=said, check=False, process_group=0)
