"""Write and read the events of a run (``results/status.jsonl``), and the states of its jobs."""

from __future__ import annotations

import contextlib
import json
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

from ..config import load
from ..config.entries import Nodes
from ..core.errors import BeirgridError, printable
from ..core.progress import is_bar, is_progress
from . import cluster
from .processes import began, hidden

EVENTS = Path("results/status.jsonl")
# Limits of valid events: the latest time, and the largest process id.
_LATEST, _LAST_PROCESS = 1e11, 2**31 - 1


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
    reason: str = ""  # Snakemake's or SLURM's, of a failed job

    @property
    def name(self) -> str:
        """Rule and wildcards."""
        return " ".join([self.rule, *self.wildcards.values()])

    @property
    def begun(self) -> bool:
        """Whether its log belongs to this attempt. Rules of other workflows may have no log."""
        try:
            return any(Path(log).stat().st_mtime >= self.since - 1 for log in self.logs[:1])
        except OSError:
            return False

    @property
    def last_words(self) -> str:
        """The last line of a running job's log that is not a library's progress bar; empty without one."""
        said = [line for line in tail(Path(self.logs[0]), 100) if not is_bar(line)] if self.begun else []
        return said[-1] if said else ""

    @property
    def failure(self) -> str:
        """The log of a failed job with its last line, which is not an error message if the job was killed.

        A job that never began has the reason in place of a log.
        """
        if self.reason and not any(Path(log).exists() for log in self.logs):
            return printable(f"{self.name}: {self.reason.splitlines()[0]}")
        for log in self.logs:
            for line in tail(Path(log), 1):
                killed = "no error, so the job was killed or had no time left; last line: " if is_progress(line) else ""
                return printable(f"{log}: {killed}{line}")
        return printable(f"{self.logs[0]}: empty" if self.logs else f"{self.name} has no log")

    def end(self, state: str, moment: float) -> None:
        """Change the state of the job, which took until now."""
        self.seconds, self.state, self.since = moment - self.since, state, moment


def tail(path: Path, count: int) -> list[str]:
    """Return the last informative lines of a log; a progress bar's last state counts as one."""
    try:
        with path.open("rb") as stream:
            stream.seek(max(0, path.stat().st_size - 8192))
            text = stream.read().decode("utf-8", "replace")
    except OSError:
        return []
    said = [line.rpartition("\r")[2].strip() or line.strip() for line in text.split("\n")]
    return [line for line in said if line][-count:]


def _warnings(job: RunningJob | None) -> int:
    found = 0
    for log in job.logs if job else ():
        with contextlib.suppress(OSError), Path(log).open("rb") as stream:
            found += sum(line.startswith(b"warning: ") for line in stream)
    return found


@dataclass
class Execution:
    """The state of a run, from its events."""

    facts: dict[str, Any]
    jobs: dict[int, RunningJob] = field(default_factory=dict)
    over: dict[str, Any] | None = None
    last: float = 0.0
    unread: int = 0

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


class Recorder:
    """Writes the events of Snakemake's jobs to a file, in the main process, and tracks their states."""

    def __init__(self) -> None:
        self.stats: dict[str, int] = {}
        self.path: Path | None = None
        self.run: Execution | None = None
        self._of_groups: dict[int, list[str]] = {}  # the cluster's logs of a job that failed with its group

    def start(self, path: Path, config: dict[str, Any]) -> None:
        """Begin the file of a run, and delete the file of the run before."""
        self.path, self.run = path.absolute(), None
        with contextlib.suppress(OSError):  # see below
            path.parent.mkdir(parents=True, exist_ok=True)
            path.unlink(missing_ok=True)
        process = {"pid": os.getpid(), "began": began(os.getpid()), "host": socket.gethostname()}
        self._write("run", jobs=self.stats, command=sys.argv[1:], config=config, **process)

    def end(self, succeeded: bool) -> None:
        """Record the end of the run."""
        self._write("over", succeeded=succeeded)

    def hear(self, record: LogRecord) -> None:
        """Write the event of a record of Snakemake's log, if it has one."""
        told, kind = vars(record), str(getattr(record, "event", ""))
        if kind == LogEvent.RUN_INFO:
            self.stats = {rule: jobs for rule, jobs in told["stats"].items() if rule not in ("all", "total")}
        elif kind == LogEvent.JOB_INFO and told["rule_name"] != "all":
            facts = {
                "rule": told["rule_name"],
                "wildcards": dict(told["wildcards"]),
                "log": list(map(str, told["log"])),
            }
            self._write("started", id=told["jobid"], outputs=list(map(str, told["output"])), **facts)
        elif kind == LogEvent.JOB_FINISHED:
            job = self.run.jobs.get(told["job_id"]) if self.run else None
            self._write("finished", id=told["job_id"], warnings=_warnings(job))
        elif kind == LogEvent.GROUP_ERROR:
            logs = list(map(str, told["aux_logs"]))
            self._of_groups |= {job["jobid"]: logs for job in told["job_error_info"]}
        elif kind == LogEvent.JOB_ERROR:
            more = self._of_groups.pop(told["jobid"], None)
            # The command that submitted the job follows the reason.
            reason = str(told.get("rule_msg") or "").partition("\n    sbatch call:")[0]
            reason = self._refusal() if more == [] else reason
            self._write("failed", id=told["jobid"], log=[*map(str, told["log"]), *(more or ())], reason=reason)

    def _refusal(self) -> str:
        """Return why SLURM took no job of a group. Snakemake does not pass on what SLURM said."""
        nodes = load(self.run.facts["config"]).nodes if self.run else Nodes()
        listed = subprocess.run(cluster.PARTITIONS, capture_output=True, text=True, check=False).stdout
        beyond = "; ".join(cluster.excesses(nodes, listed)) or "see Snakemake's log"
        return f"SLURM refused the group of this job: {beyond}"

    def _write(self, kind: str, **facts: Any) -> None:
        if self.path is None:
            return
        event = {"event": kind, "time": time.time(), **facts}
        if kind == "run":
            self.run = Execution(event, last=event["time"])
        elif self.run:
            _follow(self.run, event)
        # A line that cannot be written (full disk) must not end the grid.
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")


def read(path: Path) -> Execution:
    """Read a run from its events file. Invalid lines are counted; the last one may be incomplete."""
    if not path.is_file():
        raise BeirgridError(f"there is no {path}: no grid was run in this folder. --directory names another")
    run: Execution | None = None
    unread = 0
    *lines, last = path.read_bytes().split(b"\n")
    for line in [*lines, last]:
        event = _event(line)
        if event is None:
            unread += line is not last
        elif event["event"] == "run":
            run = Execution(event, last=event["time"])
        elif run:
            _follow(run, event)
    if run is None:
        raise BeirgridError(f"{path} has no run: a full disk may have cut it off. Delete it and run the grid")
    run.unread = unread
    _complete(run)
    return run


def _event(line: bytes) -> dict[str, Any] | None:
    """Parse the event of a line; None if it is not one (a full disk, or another writer)."""
    try:
        event = json.loads(line)
        fields = _FIELDS[event["event"]]
        whole = all(fits(event[key]) for key, fits in {"time": _is_time, **fields}.items())
    except (ValueError, RecursionError, TypeError, KeyError):
        return None
    return event if whole else None


def _is_time(value: Any) -> bool:
    return isinstance(value, int | float) and 0 <= value < _LATEST


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and 0 <= value <= _LAST_PROCESS


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(map(_is_text, value))


# Required keys of each event, with a check of each value.
_JOB: dict[str, Callable[[Any], bool]] = {
    "id": _is_number,
    "rule": _is_text,
    "wildcards": lambda value: isinstance(value, dict) and all(map(_is_text, value.values())),
    "log": _are_texts,
    "outputs": _are_texts,
}
_FIELDS: dict[str, dict[str, Callable[[Any], bool]]] = {
    "run": {
        "jobs": lambda value: isinstance(value, dict) and all(map(_is_number, value.values())),
        "config": lambda value: isinstance(value, dict),
        "pid": _is_number,
        "began": _is_time,
        "host": _is_text,
    },
    "started": _JOB,
    "finished": {"id": _is_number},
    "failed": {"id": _is_number, "log": _JOB["log"]},
    "over": {"succeeded": lambda value: isinstance(value, bool)},
}


def _follow(run: Execution, event: dict[str, Any]) -> None:
    run.last = event["time"]
    kind = event["event"]
    if kind == "over":
        run.over = event
    elif kind == "started":
        facts = (event["rule"], event["wildcards"], event["log"], event["outputs"])
        run.jobs[event["id"]] = RunningJob(*facts, state="running", since=event["time"])
    elif (job := run.jobs.get(event.get("id", -1))) is not None:
        job.logs = event.get("log", job.logs)
        job.reason = str(event.get("reason") or "")
        if _is_number(event.get("warnings")):
            job.warnings = event["warnings"]
        job.end({"finished": "done"}.get(kind, kind), event["time"])


def _complete(run: Execution) -> None:
    """End jobs whose end Snakemake did not log: it logs none with --quiet, and never logs missing files."""
    for job in run.in_state("running"):
        records = [Path(path) for path in job.outputs if path.endswith(".json")]
        times = [path.stat().st_mtime for path in records if path.is_file()]
        if records and len(times) == len(records) and min(times) >= job.since:
            job.end("done", max(times))
        elif run.over:
            job.end("failed", run.over["time"])
