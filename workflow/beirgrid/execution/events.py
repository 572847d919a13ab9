"""Follow the jobs of a run in Snakemake's log, keep their states in a file, and refuse a run beside another."""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import importlib.util
import json
import logging
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from logging import LogRecord
from pathlib import Path
from typing import Any

import psutil  # a dependency of Snakemake
from snakemake_interface_common.exceptions import WorkflowError
from snakemake_interface_logger_plugins.common import LogEvent

from ..core.checkout import CHECKOUT, MODULES, commit
from ..core.errors import BeirgridError, printable, warn
from ..core.progress import PREFIX
from ..graph.dag import job_name
from ..stages.report.plan import Report

EVENTS = Path("results/status.jsonl")
# Says which run works in the folder. Its process locks the file, and empties it when it ends.
LOCK = Path(".snakemake/beirgrid/run")
# SLURM's answer for a group does not reach Snakemake's log.
_REFUSED = "SLURM refused the group of this job: compare nodes with its partitions (beirgrid doctor --configfile FILE)"
# How Snakemake answers a Ctrl-C, and a SIGTERM.
_STOPS = ("Terminating processes", "Will exit after")
# The log of a job that the kernel killed, in Snakemake's error. The log itself cannot say it.
_KILLED = re.compile(r"> (\S+) 2>&1' returned non-zero exit status 137")
_OF_KILLED = "killed: the machine had too little memory, or somebody killed the job"
Event = dict[str, Any]


@dataclass
class RunningJob:
    """A job of a run, and since when it is in its state. Snakemake or SLURM gives ``reason``, for a failure."""

    id: int
    rule: str
    wildcards: dict[str, str]
    logs: list[str]
    outputs: list[str]
    since: float
    state: str = "running"
    reason: str = ""

    @property
    def name(self) -> str:
        """Rule and wildcards."""
        return job_name(self.rule, self.wildcards)

    @property
    def work(self) -> str:
        """What a running job does, by the last progress in its log, where libraries log other things, too.

        On a cluster, a log that is older than the job belongs to an earlier attempt: the job is in the queue.
        """
        with contextlib.suppress(OSError):
            if not self.logs or Path(self.logs[0]).stat().st_mtime >= self.since - 1:
                lines = tail(Path(self.logs[0]), 100) if self.logs else []
                progress = [line.removeprefix(PREFIX) for line in lines if line.startswith(PREFIX)]
                return progress[-1].partition(": ")[2] if progress else "begun"
        return "not begun"

    @property
    def failure(self) -> str:
        """The log of a failed job with its last line, or the reason why there is no log."""
        for log in self.logs if self.reason != _OF_KILLED else ():
            for line in tail(Path(log), 1):
                is_error = not (line.startswith(PREFIX) or "%|" in line)  # a library's progress bar
                killed = "" if is_error else "no error, so the job was killed or had no time left; last line: "
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
    failed: bool = False  # whether Snakemake ended with an error
    stopped: bool = False  # whether somebody stopped it
    _of_groups: dict[int, list[str]] = field(default_factory=dict)  # logs of the cluster, by job of a group
    _killed: set[str] = field(default_factory=set)  # logs of jobs

    def in_state(self, state: str) -> list[RunningJob]:
        """Return the jobs in a state, the oldest first."""
        return sorted((job for job in list(self.jobs.values()) if job.state == state), key=lambda job: job.since)

    @property
    def alive(self) -> bool | None:
        """Whether the run's process is alive; None if it is on another machine or hidden."""
        if self.over or self.facts["host"] != socket.gethostname():
            return False if self.over else None
        try:
            # One minute of tolerance, because the machine's clock may be adjusted.
            return bool(abs(psutil.Process(self.facts["pid"]).create_time() - self.facts["began"]) < 60)
        except psutil.NoSuchProcess:
            return False
        except psutil.Error:  # of another user
            return None

    @property
    def until(self) -> float:
        """When the run ended, as far as is known; now while it may run."""
        last = max([self.facts["time"], *(job.since for job in list(self.jobs.values()))])
        return float(self.over["time"] if self.over else last if self.alive is False else time.time())

    @property
    def succeeded(self) -> bool:
        """Whether a run that has ended made all that it began to make."""
        self.end_jobs()
        return not (self.failed or self.in_state("running") or self.in_state("failed"))

    def end_jobs(self) -> None:
        """End jobs whose end Snakemake did not log: it logs none with --quiet, and never logs missing files."""
        for job in self.in_state("running"):
            records = [Path(path) for path in job.outputs if path.endswith(".json")]
            times = [path.stat().st_mtime for path in records if path.is_file()]
            if records and len(times) == len(records) and min(times) >= job.since:
                job.state = "done"
                job.since = max(times)
            elif self.over:
                job.state = "failed"
                job.since = self.over["time"]

    def follow(self, record: LogRecord) -> Event | None:
        """Change the state by a record of Snakemake's log; return the run or the job that changed, if any."""
        kind = getattr(record, "event", None)
        fields = vars(record)
        if kind == LogEvent.RUN_INFO:
            self._begin(fields)
            return {"event": "run", **self.facts}
        if not self.facts:
            return None
        job = None
        if kind == LogEvent.JOB_INFO and fields["rule_name"] != "all":
            job = self._begin_job(fields)
        elif kind == LogEvent.JOB_FINISHED and (job := self.jobs.get(fields["job_id"])):
            job.state = "done"
            job.since = time.time()
        elif kind == LogEvent.JOB_ERROR and (job := self.jobs.get(fields["jobid"])):
            self._fail(job, fields)
        elif kind == LogEvent.GROUP_ERROR:  # those of its jobs follow
            self._of_groups |= {failed["jobid"]: fields["aux_logs"] for failed in fields["job_error_info"]}
        elif kind == LogEvent.ERROR:
            self.failed = True
            self._killed.update(_KILLED.findall(record.getMessage()))
        self.stopped |= kind is None and record.getMessage().startswith(_STOPS)
        return {"event": "job", **asdict(job)} if job else None

    def _begin(self, fields: Mapping[str, Any]) -> None:
        """Begin a run of this process, with its number of jobs per rule and their expected seconds."""
        me = psutil.Process()
        process = {"pid": me.pid, "began": me.create_time(), "host": socket.gethostname()}
        jobs = {rule: number for rule, number in fields["stats"].items() if rule not in ("all", "total")}
        expected = {"seconds": fields.get("seconds", {})}
        self.facts = {"jobs": jobs, "time": time.time(), **process, **expected}
        self.jobs = {}
        self.over = None

    def _begin_job(self, fields: Mapping[str, Any]) -> RunningJob:
        """Begin a job of Snakemake's log."""
        logs, outputs = (list(map(str, fields[files])) for files in ("log", "output"))
        wildcards = dict(fields["wildcards"])
        job = RunningJob(fields["jobid"], fields["rule_name"], wildcards, logs, outputs, time.time())
        self.jobs[job.id] = job
        return job

    def _fail(self, job: RunningJob, fields: Mapping[str, Any]) -> None:
        """Mark a job as failed, with its logs and the reason; as stopped, if the run was and the logs say no more."""
        of_group = self._of_groups.pop(job.id, None)
        job.logs = list(map(str, [*fields["log"], *(of_group or ())]))
        # The command that submitted the job follows the reason.
        reason = str(fields.get("rule_msg") or "").partition("\n    sbatch call:")[0]
        killed = self._killed.intersection(job.logs)
        self._killed -= killed  # the next attempt may end otherwise
        job.reason = _REFUSED if of_group == [] else _OF_KILLED if killed else reason
        last = [line for log in job.logs for line in tail(Path(log), 1)]
        job.state = "failed"
        if self.stopped and all(line == "stopped" or line.startswith(PREFIX) for line in last):
            job.state = "stopped"
        job.since = time.time()


def read(path: Path) -> Execution:
    """Read a run from its events file. Lines that are no events are left out: a full disk may have cut them."""
    if not path.is_file():
        raise BeirgridError(f"there is no {path}: no grid was run in this folder. --directory names another")
    run = Execution()
    for line in path.read_bytes().split(b"\n"):
        with contextlib.suppress(ValueError, TypeError, KeyError, AttributeError):
            event = json.loads(line)
            kind = event.pop("event")
            if kind == "run":
                run = Execution(event)
            elif kind == "job":
                run.jobs[event["id"]] = RunningJob(**event)
            elif kind == "over":
                run.over = event
    if not run.facts:
        raise BeirgridError(f"{path} has no run: a full disk may have cut it off. Delete it and run the grid")
    run.end_jobs()
    return run


class Expectation(logging.Filter):
    """Adds to the beginning of a run the seconds that its jobs are expected to take, for all who follow the run."""

    def __init__(self, seconds: Callable[[], dict[str, float]]) -> None:
        super().__init__()
        self.seconds = seconds

    def filter(self, record: LogRecord) -> bool:
        """Add the seconds to the record of a beginning. Every record passes."""
        if getattr(record, "event", None) == LogEvent.RUN_INFO:
            record.seconds = self.seconds()
        return True


class Recorder(logging.Handler):
    """Writes the events of a run to a file, and prints the grid's tables at its end.

    The Snakefile adds it to Snakemake's logger: so it hears each run, with or without the plugin, also where another
    workflow uses this one as a module. ``begin`` is called before the first job; its errors end the run. From the start
    of Snakemake to its end, the folder is locked.
    """

    def __init__(self, grid: str, begin: Callable[[], None], quiet: bool = False) -> None:
        super().__init__()
        self.grid = grid
        self.begin = begin
        self.quiet = quiet
        self.run = Execution()
        self.path = EVENTS.absolute()
        self.held = contextlib.ExitStack()
        self.commit = commit(CHECKOUT)

    def emit(self, record: LogRecord) -> None:
        """Write the event of a record, if it has one."""
        event = self.run.follow(record)
        if event and event["event"] == "run":
            self.path = EVENTS.absolute()
            run = self.run
            self.run = Execution()
            _try(self.begin)
            self.run = run
            with contextlib.suppress(OSError):  # see below
                self.path.parent.mkdir(parents=True, exist_ok=True)
                self.path.unlink(missing_ok=True)
        if event:
            self._write(event)
        elif getattr(record, "event", None) == LogEvent.WORKFLOW_STARTED:
            _try(self.held.enter_context, locked(self.grid))

    def _write(self, event: Event) -> None:
        # A line that cannot be written (full disk) must not end the grid.
        with contextlib.suppress(OSError), self.path.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps(event, ensure_ascii=False, default=str) + "\n")

    def close(self) -> None:
        """Record the end of the run, and print its results. Snakemake closes all handlers when it ends."""
        run = self.run
        self.run = Execution()  # handlers are closed once more when Python ends
        if run.facts:
            self._write({"event": "over", "time": time.time(), "succeeded": run.succeeded})
            last = run.in_state("done")[-1:]
            if not (self.quiet or run.stopped):  # who stops a run does not wait for its tables
                self.results(written=run.succeeded and any(job.rule.endswith(Report.rule) for job in last))
            if self.commit != (now := commit(CHECKOUT)):
                changed = f"{CHECKOUT} has changed since the run began, from commit {self.commit} to {now}"
                warn(f"{changed}: later jobs may have run the new code (beirgrid why FILE names the commit of a file)")
        self.held.close()
        super().close()

    def results(self, written: bool) -> None:
        """Print a summary of the tables; write them and the page before, unless the run did.

        In a process group of its own, as a Ctrl-C reaches this process alone. Where the packages of tables are in conda
        environments alone, nothing is printed.
        """
        if not importlib.util.find_spec("matplotlib"):
            return
        sys.stdout.flush()
        words = [sys.executable, "-m", "beirgrid", "report", "--grid", self.grid, *["--written"] * written]
        # This package, and no modules from the working directory.
        environment = {**os.environ, "PYTHONSAFEPATH": "1", "PYTHONPATH": str(MODULES), "OMP_NUM_THREADS": "1"}
        with contextlib.suppress(OSError):
            subprocess.run(words, env=environment, stdin=subprocess.DEVNULL, check=False, process_group=0)


def _try(act: Callable[..., object], *arguments: Any) -> None:
    """Act. Snakemake shows an error, and ends."""
    try:
        act(*arguments)
    except (BeirgridError, OSError) as error:
        raise refusal(error) from None


def refusal(error: Exception) -> WorkflowError:
    """Return an error that Snakemake shows by its message alone, without the lines of code that raised it."""
    none = property(lambda _: None, lambda *_: None)  # contextlib sets it
    shown: WorkflowError = type("WorkflowError", (WorkflowError,), {"__traceback__": none})(str(error))
    return shown


# Other runs in the folder

# Snakemake's SLURM plugin names all jobs of a run by the run's UUID, after a prefix if one is set.
_RUN = re.compile(r"([\w-]+_)?[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@contextlib.contextmanager
def locked(grid: str) -> Iterator[None]:
    """Lock this folder for the run of a grid.

    Snakemake's own lock does not see runs of other targets, and stays when its process is killed: it is removed here.

    Raises:
        BeirgridError: another run has the lock, or had it when it was killed on another machine.
    """
    me = psutil.Process()
    here = f" on {socket.gethostname()} since "
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("a+", encoding="utf-8") as stream:
        stream.seek(0)
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            other = f"{stream.read() or 'Another run'} works in {Path.cwd()}"
            raise BeirgridError(f"{other}: wait until it ends, or use another --directory") from None
        killed = stream.read()
        if killed and here not in killed:
            raise BeirgridError(f"{killed} may still work in {Path.cwd()}. If its process is gone, delete {LOCK}")
        for left in Path(".snakemake/locks").glob("*.lock") if killed else ():
            left.unlink(missing_ok=True)
        began = datetime.datetime.now().astimezone().isoformat(" ", "minutes")
        stream.truncate(0)
        print(f"Grid {grid} (process {me.pid} of {me.username()}{here}{began})", end="", file=stream, flush=True)
        yield
        stream.truncate(0)


def refuse_the_future(jobs: Iterable[Any]) -> None:
    """Raise BeirgridError if jobs of Snakemake read files from the future, which no other of them makes.

    Snakemake ends a run after a job whose output is older than an input.
    """
    jobs = list(jobs)
    inputs = {Path(path) for job in jobs for path in job.input} - {Path(path) for job in jobs for path in job.output}
    LOCK.touch()
    now = LOCK.stat().st_mtime  # on the clock of the file system
    if late := sorted(str(path) for path in inputs if path.is_file() and path.lstat().st_mtime > now + 1):
        cause = (
            f"{late[0]} was changed in the future, by the clock of this machine: a job that reads it would end the run"
        )
        raise BeirgridError(f"{cause}. Set the clock. If the clock is right: touch {shlex.join(late)}")


def refuse_beside_others() -> None:
    """Raise BeirgridError if jobs of a run that was killed work in this folder. Call this before a run's first job.

    ``refuse_beside_orphans`` sees those of SLURM.
    """
    here = str(Path.cwd())
    others = []
    for process in psutil.process_iter(["cwd", "cmdline", "environ"]):
        facts = process.info
        works = facts["cwd"] == here and _works([Path(word).name for word in facts["cmdline"] or ()])
        if works and "SLURM_JOB_ID" not in (facts["environ"] or {}):
            others.append(str(process.pid))
    if others:
        of_killed = f"Jobs of a run that was killed work in {here}"
        raise BeirgridError(f"{of_killed}: wait until they end, or stop them (process {', '.join(others)})")


def _works(words: list[str]) -> bool:
    """Tell from a command line whether the process is a job of a run."""
    return {"snakemake", "--mode"} <= {*words} or ("beirgrid", "stage") in pairwise(words)


def refuse_beside_orphans(folder: Path, executor: str) -> None:
    """Raise BeirgridError if jobs of an earlier run that works in ``folder`` are in SLURM's queue.

    After a SIGKILL of Snakemake, or a crash of its machine, its jobs continue, and a second run would write the same
    files. Call this before a run's first job. It asks the cluster, because a marker file could be stale. Other
    executors skip it on a machine without SLURM, or in a folder in which no SLURM job ever ran.
    """
    submitted = executor == "slurm" or (folder / ".snakemake" / "slurm_logs").exists()
    if not (submitted and shutil.which("squeue")):
        return
    command = ["squeue", "--noheader", "--format=%j|%u|%Z"]  # pending, running and ending jobs
    listed = subprocess.run(command, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        raise BeirgridError(f"squeue does not say whether jobs of an earlier run live: {listed.stderr.strip()}")
    for line in listed.stdout.splitlines():
        name, user, place = line.split("|", 2)
        if _RUN.fullmatch(name) and Path(place).resolve() == folder.resolve():
            raise BeirgridError(
                f"SLURM still has jobs of an earlier run in this folder (run {name}, user {user}), which write the "
                f"files that this run would write. Wait until they end (squeue --name {name}) or cancel them (scancel "
                f"--name {name}); then run again."
            )
