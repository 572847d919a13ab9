"""Events of a run: those kept of Snakemake's log, and reading them back."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from snakemake.exceptions import WorkflowError, format_exception_to_string
from snakemake.settings.enums import Quietness
from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.common import LogEvent

from beirgrid.__main__ import main
from beirgrid.core import checkout
from beirgrid.core.errors import BeirgridError
from beirgrid.core.progress import PREFIX, Progress
from beirgrid.execution import events
from beirgrid.tools import status
from snakemake_logger_plugin_beirgrid import LogHandler


@pytest.fixture
def told(tmp_path, monkeypatch):
    """A run that has begun in the working directory: its logger, its recorder, and the file of its events."""
    monkeypatch.chdir(tmp_path)
    logger = logging.Logger("snakemake")
    logger.addHandler(recorder := events.Recorder("grid", lambda: None))
    recorder.results = lambda written: None  # prints no tables
    logger.info("before the start", extra=_info(9))
    logger.info("stats", extra=STATS)
    return logger, recorder, tmp_path / events.EVENTS


def _screen(path: Path) -> str:
    """Return the screen of a run."""
    return "\n".join(status.screen(events.read(path)))


LOADED = "Loading weights:   0%|          | 0/39 [00:00<?, ?it/s]\rLoading weights: 100%|####| 39/39 [00:00<00:00]"
STATS = {"event": LogEvent.RUN_INFO, "stats": {"encode": 3, "all": 1, "total": 4}}
SECONDS = {f"encode tiny {number}": 1.0 for number in range(3)}


def _info(number: int, **changes: object) -> dict[str, object]:
    job = {"event": LogEvent.JOB_INFO, "jobid": number, "rule_name": "encode", "output": [f"results/{number}"]}
    return job | {"wildcards": {"model": "tiny", "shard": str(number)}, "log": [f"logs/{number}.log"]} | changes


def _done(number: int) -> dict[str, object]:
    return {"event": LogEvent.JOB_FINISHED, "job_id": number}


def _failed(number: int, *logs: str, **more: object) -> dict[str, object]:
    return {"event": LogEvent.JOB_ERROR, "jobid": number, "log": [*logs], **more}


def _unprintable(said: str) -> list[str]:
    """Return the letters that a terminal would obey."""
    return [letter for letter in said if not letter.isprintable() and letter != "\n"]


def test_jobs_are_followed_from_start_to_end(told):
    logger, recorder, path = told
    for number in (1, 2):
        logger.info("job", extra=_info(number))
    logger.info("something else")
    logger.info("done", extra=_done(1))
    logger.error("failed", extra=_failed(2, "2.log", "slurm.log"))
    run = events.read(path)
    assert run.facts["jobs"] == {"encode": 3}
    assert {number: job.state for number, job in run.jobs.items()} == {1: "done", 2: "failed"}
    assert run.alive
    assert run.jobs[2].logs == ["2.log", "slurm.log"]
    assert run.jobs[1].name == "encode tiny 1"
    logger.info("again", extra=_info(2))  # a retry
    assert events.read(path).jobs[2].state == "running"
    recorder.close()
    ended = events.read(path)
    assert ended.over is not None
    assert not ended.over["succeeded"]
    assert ended.alive is False
    logger.info("stats", extra=STATS)  # another run
    assert not events.read(path).jobs


@pytest.mark.parametrize(
    ("last", "killed"),
    [
        ("progress: encode: 1,234/5,183 documents, 25.00 documents/s, 0:02:38 left", True),
        (LOADED, True),
        ("beirgrid stage encode: error: the disk is full: x.npy", False),
        ("slurmstepd: error: Detected 1 oom_kill event", False),
        ("warning: 3/4 documents, as it seems", False),
    ],
)
def test_the_last_line_of_a_killed_job_is_not_called_its_error(tmp_path, last, killed):
    log = tmp_path / "a.log"
    log.write_text(f"before\n{last}\n")
    said = events.RunningJob(1, "encode", {}, [str(log)], [], 1.0, "failed").failure
    assert said.startswith(f"{log}: no error, so the job was killed") == killed
    assert said.endswith(last.rpartition("\r")[2])


# What a log may hold: it clears the screen, names the window, moves the cursor, rings, and turns the line around.
CONTROLS = "\x1b[2J\x1b]0;owned\x07\x9b5A\x08\u202eevil"
ESCAPED = "\\x1b[2J\\x1b]0;owned\\x07\\x9b5A\\x08\\u202eevil"
SEQUENCE = re.compile(r"\x1b\[[\d;?]*[A-Za-z]")
ERASED = re.compile(r"[^\n]*\r(?!\n)")


def test_no_control_sequence_of_a_log_reaches_the_terminal(told, tmp_path, monkeypatch, capsys):
    logger, _, path = told
    monkeypatch.setenv("COLUMNS", "200")  # a narrow screen cuts the line of a running job
    (tmp_path / "logs").mkdir()
    for number in (1, 2):
        (tmp_path / f"logs/{number}.log").write_text(f"before\n{CONTROLS} {number}\n")
        logger.info("job", extra=_info(number, rule_name=f"encode{CONTROLS}"))
    logger.error("failed", extra=_failed(2, "logs/2.log"))
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert f"{ESCAPED} 2" in shown
    assert not _unprintable(shown)
    assert events.read(path).jobs[2].failure.isprintable()


@pytest.mark.parametrize(
    "words",
    [
        ["why", f"{CONTROLS}.txt"],
        ["why", "x", f"--{CONTROLS}"],
        [f"{CONTROLS}"],
        ["evaluate", "--run", "run.txt", "--qrels", f"{CONTROLS}.tsv", "--metrics", "ndcg@10"],
        ["evaluate", "--run", "run.txt", "--qrels", "qrels.tsv", "--metrics", "ndcg@10"],
    ],
)
def test_no_control_sequence_that_a_message_quotes_reaches_the_terminal(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.txt").write_text(f"1 Q0 d1 1 {CONTROLS} x\n")
    (tmp_path / "qrels.tsv").write_text(f"query-id\tcorpus-id\tscore\n1\td{CONTROLS}\t{CONTROLS}\n")
    with contextlib.suppress(SystemExit):
        assert main(words)
    said = "".join(capsys.readouterr())
    assert "\\x1b[2J" in said
    assert not _unprintable(said)


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture(params=[_Terminal, io.StringIO], ids=["terminal", "file"])
def shown_run(request, tmp_path, monkeypatch):
    """A logger with the plugin, the plugin, and what returns the text that is shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "400")  # a frame of the live display is one line
    monkeypatch.setattr(sys, "stderr", printed := request.param())
    logger = logging.Logger("snakemake")
    logger.addHandler(plugin := LogHandler(OutputSettings(), None))
    return logger, plugin, lambda: ERASED.sub("", SEQUENCE.sub("", printed.getvalue()))


@pytest.fixture
def begun(told, shown_run):
    """The logger of a run that has begun, which is recorded and shown, the plugin, and what returns the text."""
    logger, (_, plugin, shown) = told[0], shown_run
    logger.addHandler(plugin)
    logger.info("held back")
    logger.info("begun", extra={"event": LogEvent.WORKFLOW_STARTED})
    logger.info("stats", extra=STATS | {"seconds": SECONDS})
    return logger, plugin, shown


def test_the_screen_of_a_run_shows_what_matters_and_escapes_control_sequences(begun, tmp_path):
    logger, plugin, shown = begun
    (tmp_path / "1.log").write_text(f"before\n{CONTROLS} in the log\n")
    logger.info("job", extra=_info(1))
    command = 'RuleException:\nCalledProcessError in file "encode.smk", line 26:\nCommand \'{"values": …}\''
    logger.error(command, extra={"event": LogEvent.ERROR})
    logger.error("failed", extra=_failed(1, "1.log"))
    logger.warning(f"{CONTROLS} in a warning")
    logger.warning("No SLURM account given, trying to guess.")
    logger.warning("No account was given, not able to get a SLURM account via sacct: sacct: invalid option -- '1'")
    logger.warning("Unable to guess SLURM account. Trying to proceed without.")
    logger.info("not shown")
    logger.info("Complete log(s): all.log")
    logger.info("Nothing to be done (all requested files are present and up to date).")
    logger.error("WorkflowError", extra={"event": LogEvent.ERROR})
    plugin.close()
    said = shown()
    # Lines with a rate are frames of a terminal's live display.
    assert [line for line in said.splitlines() if "per minute" not in line] == [
        "  encode tiny 1: 1.log",
        "    before",
        f"    {ESCAPED} in the log",
        f"{ESCAPED} in a warning",
        "Complete log(s): all.log",
        "Nothing to be done.",
        "WorkflowError",
        "0 of 3 jobs done, 1 failed, 0:00:00. The same command continues the run: finished files stay",
    ]
    assert "held back" not in said
    assert "not shown" not in said
    assert not _unprintable(said)


def test_an_error_before_a_run_is_the_last_line(shown_run):
    logger, plugin, shown = shown_run
    logger.info("Config file a is extended")
    logger.warning("take care")
    logger.error("wrong key")
    plugin.close()
    assert shown() == "take care\nwrong key\n"


def test_a_dry_run_has_a_line_for_each_reason_with_the_jobs_of_each_rule(capsys):
    logger = logging.Logger("snakemake")
    logger.addHandler(plugin := LogHandler(OutputSettings(dryrun=True, stdout=True), None))
    logger.info("begun", extra={"event": LogEvent.WORKFLOW_STARTED})
    logger.info("stats", extra={"event": LogEvent.RUN_INFO, "stats": {"encode": 3, "report": 1, "all": 1, "total": 5}})
    for number, why in enumerate(["Missing output files: a", "Missing output files: b", "Params have changed"]):
        logger.info("job", extra=_info(number, reason=why))
    logger.info("job", extra=_info(4, rule_name="report", reason="Input files updated by another job: a"))
    logger.warning("to be replaced")
    plugin.close()
    assert capsys.readouterr().out.splitlines() == [
        "to be replaced",
        "Dry run (-v lists each job):",
        "2 new: 2×encode",
        "1 with changed settings: encode",
        "1 with inputs that are made again: report",
    ]


@pytest.mark.parametrize("asked", ["quiet", "verbose", "debug_dag", "printshellcmds"])
def test_who_asks_for_more_or_less_of_snakemakes_lines_gets_them(shown_run, asked):
    assert shown_run[1].writes_to_stream
    settings = OutputSettings(**{asked: {Quietness.RULES} if asked == "quiet" else True})
    assert not LogHandler(settings, None).writes_to_stream


@pytest.mark.parametrize("shown_run", [io.StringIO], indirect=True)
@pytest.mark.parametrize(("second", "lines"), [(125.0, 2), (131.0, 3)])
def test_a_file_gets_a_line_at_ends_of_jobs_every_half_a_minute_at_most(begun, monkeypatch, second, lines):
    logger, plugin, shown = begun
    for number, clock in enumerate((100.0, second, 200.0)):
        monkeypatch.setattr(status.time, "monotonic", lambda clock=clock: clock)
        logger.info("job", extra=_info(number))
        logger.info("done", extra=_done(number))
    logger.info("Complete log(s): all.log")
    plugin.close()
    said = shown().splitlines()
    assert re.fullmatch(r"1 of 3 jobs done, about 0:00:0[0-2] left; last: encode tiny 0", said[0])
    assert len(said) == lines
    assert said[-1] == "3 jobs done, 0:00:00"


def test_a_job_that_slurm_refuses_has_the_reason(told, begun):
    reason = "SLURM sbatch failed. The error message was 'sbatch: error: CPU count'."
    (logger, _, path), shown = told, begun[2]
    logger.info("job", extra=_info(1))
    logger.error("failed", extra=_failed(1, "1.log", rule_msg=f"{reason}\n    sbatch call:\n        sbatch -n 1"))
    assert f"  encode tiny 1: {reason}\n" in shown()
    assert "sbatch call" not in shown()
    assert f"  encode tiny 1: {reason}" in _screen(path)
    assert events.read(path).jobs[1].failure == f"encode tiny 1: {reason}"


def test_a_job_that_was_killed_says_so_in_place_of_the_last_line_of_its_log(told, tmp_path):
    logger, _, path = told
    (tmp_path / "1.log").write_text("WARNING: of a library\n")
    for ended in (137, 1):  # of the job, and of its next attempt
        command = f"RuleException:\nCommand 'python > 1.log 2>&1' returned non-zero exit status {ended}."
        logger.info("job", extra=_info(1, log=["1.log"]))
        logger.error(command, extra={"event": LogEvent.ERROR})
        logger.error("failed", extra=_failed(1, "1.log"))
        killed = "encode tiny 1: killed: the machine had too little memory, or somebody killed the job"
        assert events.read(path).jobs[1].failure == (killed if ended == 137 else "1.log: WARNING: of a library")
        assert (killed in _screen(path)) == (ended == 137)


def test_snakemake_shows_a_refusal_without_the_lines_that_raised_it():
    def refuse() -> None:
        raise BeirgridError("another run works here")

    @contextlib.contextmanager
    def held() -> Iterator[None]:
        yield

    with pytest.raises(WorkflowError) as caught, held():
        events._try(refuse)
    assert format_exception_to_string(caught.value, {__file__: {}}) == "WorkflowError:\nanother run works here"


def test_a_stop_is_told_once(begun):
    logger, _, shown = begun
    for _ in range(3):
        logger.info("Will exit after finishing currently running jobs (scheduler).")
    assert shown().count("Will exit after") == 1


@pytest.mark.parametrize("said", ["Terminating processes on user request", "Will exit after finishing running jobs"])
def test_who_stops_a_run_gets_no_tables_and_only_jobs_that_failed_by_themselves_count_as_failed(told, tmp_path, said):
    logger, recorder, path = told
    recorder.results = lambda written: pytest.fail("tables are written")
    for number, log in enumerate(
        (f"{PREFIX}encode: 1/3 documents\nstopped", f"{PREFIX}encode: 2/3", "", "error: disk")
    ):
        (tmp_path / f"{number}.log").write_text(log)
        logger.info("job", extra=_info(number))
    logger.info(said)
    for number in range(4):
        logger.error("failed", extra=_failed(number, f"{number}.log"))
    logger.error("WorkflowError", extra={"event": LogEvent.ERROR})
    recorder.close()
    run = events.read(path)
    assert [job.state for job in run.jobs.values()] == ["stopped", "stopped", "stopped", "failed"]
    assert status.counts(run) == "0 of 3 jobs done, 1 failed, 3 stopped"
    assert not run.over["succeeded"]


def test_a_run_says_that_the_checkout_changed_since_it_began(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(events, "CHECKOUT", tmp_path)
    monkeypatch.setattr(events.Recorder, "results", lambda recorder, written: None)
    monkeypatch.chdir(tmp_path)

    def commit_all() -> str:
        for command in ("init -q", "add Snakefile", "-c user.name=x -c user.email=x commit -qm all"):
            subprocess.run(["git", *command.split()], cwd=tmp_path, check=True)
        return checkout.commit(tmp_path)

    def said(act: Callable[[], object]) -> str:
        recorder = events.Recorder("grid", lambda: None)
        recorder.emit(logging.makeLogRecord(STATS))
        act()
        recorder.close()
        return capsys.readouterr().err

    (tmp_path / "Snakefile").write_text("one")
    commit_all()
    assert said(lambda: None) == ""
    (tmp_path / "Snakefile").write_text("two")
    changed = checkout.commit(tmp_path)
    then = said(commit_all)
    assert f"{tmp_path} has changed since the run began, from commit {changed} to {checkout.commit(tmp_path)}" in then
    began = checkout.commit(tmp_path)
    (tmp_path / "Snakefile").write_text("three")
    then = said(lambda: (tmp_path / "Snakefile").write_text("four"))
    assert f"from commit {began}.dirty." in then


def test_warnings_in_the_logs_of_jobs_are_counted(told, tmp_path):
    logger, recorder, path = told
    (tmp_path / "1.log").write_text("warning: one\nencode\nwarning: two\nno warning: three\n")
    for number, log in ((1, "1.log"), (2, "gone.log")):
        logger.info("job", extra=_info(number, log=[log]))
    assert list(status.warnings(events.read(path))) == []
    for number in (1, 2):
        logger.info("done", extra=_done(number))
    assert "2 warnings: 1.log" in _screen(path)
    assert list(status.warnings(recorder.run)) == ["2 warnings: 1.log"]


def test_a_job_whose_end_was_not_told_is_done_once_its_record_is_there_and_else_failed_in_the_end(told, tmp_path):
    logger, recorder, path = told
    made = tmp_path / "made.json"
    for number, output in enumerate((made, tmp_path / "never.json")):
        logger.info("job", extra=_info(number, output=[str(output)]))
    assert [job.state for job in events.read(path).jobs.values()] == ["running", "running"]
    made.write_text("{}")
    assert [job.state for job in events.read(path).jobs.values()] == ["done", "running"]
    recorder.close()
    assert [job.state for job in events.read(path).jobs.values()] == ["done", "failed"]
    assert not events.read(path).over["succeeded"]


@pytest.mark.parametrize(
    "garbage", [b"\x00\xff", b"oops", b"17", b"null", b'{"time": 1}', b'{"event": "job", "id": [1]}', b'{"event": "jo']
)
def test_lines_that_are_no_events_are_left_out(told, garbage):
    logger, _, path = told
    logger.info("job", extra=_info(1))
    path.write_bytes(path.read_bytes() + garbage + b"\n")
    logger.info("job", extra=_info(2))
    assert list(events.read(path).jobs) == [1, 2]
    path.write_bytes(garbage + b"\n")
    with pytest.raises(BeirgridError, match="has no run"):
        events.read(path)


def test_a_job_of_another_workflow_needs_no_log(told, begun):
    (logger, _, path), shown = told, begun[2]
    for number in (1, 2):
        logger.info("job", extra=_info(number, rule_name="my_train", log=[]))
    logger.error("failed", extra=_failed(2))
    assert "  my_train tiny 2: no log\n" in shown()
    assert re.search(r"my_train tiny 1 +0:00:00 +begun", _screen(path))
    assert events.read(path).jobs[2].failure == "my_train tiny 2 has no log"


def test_odd_events_are_shown_somehow(told, capsys):
    job = {"id": 1, "rule": "encode", "logs": ["x.log"], "outputs": [], "since": 1}
    job |= {"event": "job", "wildcards": {"dataset": "\ud800\u2028\x85"}}
    over = {"event": "over", "time": 1, "succeeded": True}  # the clock was set back
    with told[2].open("a", errors="surrogatepass") as stream:
        stream.writelines(json.dumps(event, ensure_ascii=False) + "\n" for event in (job, over))
    assert main(["status"]) == 0
    shown = capsys.readouterr().out.splitlines()
    assert shown[0].startswith("finished after 0:00:00 (")
    assert "  encode \\ud800" in shown


def test_a_process_that_is_gone_has_died_and_another_machines_cannot_be_asked(told):
    facts = json.loads(told[2].read_text())
    for change, alive in (
        ({"pid": 2**22 + 1}, False),  # above the largest number of a process
        ({"began": facts["began"] - 600}, False),  # a later process of its number
        ({"began": facts["began"] - 5}, True),  # the clock was set
        ({"host": f"not-{socket.gethostname()}"}, None),
    ):
        told[2].write_text(json.dumps({**facts, **change}) + "\n")
        assert events.read(told[2]).alive is alive, change


def test_a_full_disk_ends_no_grid(told, full_disk, monkeypatch):
    logger, recorder, _ = told
    (full_disk / "filler").write_bytes(b"x" * 2**20)
    monkeypatch.setattr(events, "EVENTS", full_disk / "results/status.jsonl")
    logger.info("stats", extra=STATS)
    logger.info("job", extra=_info(1))
    recorder.close()


def test_the_last_words_of_a_log_are_those_of_its_progress_bar(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("first\n\n10%\r50%\r90%\nencode: 5/9 documents\n\n")
    assert events.tail(log, 2) == ["90%", "encode: 5/9 documents"]
    assert events.tail(tmp_path / "none.log", 2) == []


def test_a_librarys_progress_bar_is_not_the_progress_of_a_job(told, tmp_path):
    logger, _, path = told
    log = tmp_path / "1.log"
    logger.info("job", extra=_info(1, log=[str(log)]))
    log.write_text(f"{LOADED}\n")
    assert re.search(r"encode tiny 1 +0:00:00 +begun$", _screen(path), re.MULTILINE)
    log.write_text(f"progress: encode shard 0: 0/5,183 documents\n{LOADED}\n")
    screen = _screen(path)
    assert "Loading weights" not in screen
    assert re.search(r"encode tiny 1 +0:00:00 +0/5,183 documents$", screen, re.MULTILINE)


def test_the_time_left_follows_the_work_and_not_the_number_of_jobs(tmp_path, monkeypatch):
    """Of 1,000 expected seconds, 10 took 100: a job that is at work counts by its age, up to 0.9 of what it takes."""
    monkeypatch.chdir(tmp_path)
    logger = logging.Logger("snakemake")
    logger.addFilter(events.Expectation(lambda: {"encode tiny 1": 10.0, "encode tiny 2": 90.0, "encode tiny 3": 900.0}))
    logger.addHandler(recorder := events.Recorder("grid", lambda: None))
    recorder.results = lambda written: None  # prints no tables
    logger.info("stats", extra=dict(STATS))
    for number in (1, 2):
        logger.info("job", extra=_info(number))
    run = events.read(tmp_path / events.EVENTS)
    now = run.jobs[2].since
    monkeypatch.setattr(events.time, "time", lambda: now)
    run.facts["time"] = now - 100
    assert status.speed(run) == "0.0 per minute"
    run.jobs[1].state = "done"
    assert status.speed(run) == "about 2:45:00 left"
    run.jobs[2].since -= 30
    assert status.speed(run) == "about 0:40:00 left"
    run.jobs[2].since -= 1000
    assert status.speed(run) == f"about {status.clock(100 * (990 - 81) / 91)} left"


def test_progress_says_what_begins_and_shows_no_rate_before_anything_is_done(capsys):
    progress = Progress("encode shard 0", 4, "documents", interval=0)
    progress.started -= 1000
    progress.add(1)
    progress.add(3)
    begun, one, all_done = capsys.readouterr().err.splitlines()
    assert begun == "progress: encode shard 0: 0/4 documents"
    assert re.fullmatch(r"progress: encode shard 0: 1/4 documents, 0.00 documents/s, 0:50:\d\d left", one)
    assert all_done == "progress: encode shard 0: 4/4 documents, 0.00 documents/s"
