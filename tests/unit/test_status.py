"""Events of a run: those kept of Snakemake's log, and reading them back."""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import shutil
import socket
import subprocess
import sys
from types import SimpleNamespace

import pytest
from helpers import write_collection
from snakemake.logging import ColorizingTextHandler
from snakemake.settings.types import OutputSettings
from snakemake_interface_logger_plugins.common import LogEvent

from beirgrid.__main__ import main
from beirgrid.core import progress as lines_of_logs
from beirgrid.core.errors import BeirgridError
from beirgrid.core.progress import Progress, is_progress
from beirgrid.tools import console, events, status


@pytest.fixture
def told(tmp_path):
    """A logger with a recorder, and its file."""
    logger, recorder = logging.Logger("snakemake"), events.Recorder()
    logger.addHandler(handler := logging.Handler())
    handler.emit = recorder.hear
    return logger, recorder, tmp_path / "results/status.jsonl"


def _info(number: int, rule: str = "encode") -> dict:
    return {
        "event": LogEvent.JOB_INFO,
        "jobid": number,
        "rule_name": rule,
        "wildcards": {"model": "tiny", "shard": str(number)},
        "log": [f"logs/{number}.log"],
        "output": [f"results/{number}"],
    }


def _begin(logger, recorder, path) -> None:
    logger.info("stats", extra={"event": LogEvent.RUN_INFO, "stats": {"encode": 3, "all": 1, "total": 4}})
    recorder.start(path, {"grid": {}})


def test_jobs_are_followed_from_start_to_end(told):
    logger, recorder, path = told
    logger.info("before the start", extra=_info(9))
    _begin(logger, recorder, path)
    for number in (1, 2):
        logger.info("job", extra=_info(number))
    logger.info("something else")
    logger.info("done", extra={"event": LogEvent.JOB_FINISHED, "job_id": 1})
    logger.error("failed", extra={"event": LogEvent.JOB_ERROR, "jobid": 2, "log": ["2.log", "slurm.log"]})
    run = events.read(path)
    assert run.facts["jobs"] == {"encode": 3}
    assert {number: job.state for number, job in run.jobs.items()} == {1: "done", 2: "failed"}
    assert run.alive
    assert run.jobs[2].logs == ["2.log", "slurm.log"]
    assert run.jobs[1].name == "encode tiny 1"
    logger.info("again", extra=_info(2))  # a retry
    assert events.read(path).jobs[2].state == "running"
    recorder.end(succeeded=False)
    ended = events.read(path)
    assert ended.over is not None
    assert not ended.over["succeeded"]
    assert ended.alive is False


@pytest.mark.parametrize(
    ("last", "killed"),
    [
        ("encode: 1,234/5,183 documents, 25.0 documents/s, 0:02:38 left", True),
        ("fetch x: 1,234 documents, 9,876.5 documents/s", True),
        ("encode shard 0: 0/5,183 documents", True),
        ("Loading weights:   0%|          | 0/39 [00:00<?, ?it/s]\rLoading weights: 100%|####| 39/39", True),
        ("beirgrid encode: error: the disk is full: x.npy", False),
        ("slurmstepd: error: Detected 1 oom_kill event", False),
        ("warning: 3/4 documents, as it seems", False),
    ],
)
def test_the_last_line_of_a_killed_job_is_not_called_its_error(tmp_path, last, killed):
    log = tmp_path / "a.log"
    log.write_text(f"before\n{last}\n")
    said = events.RunningJob("encode", {}, [str(log)], [], "failed", 1.0).failure
    assert said.startswith(f"{log}: no error, so the job was killed") == killed
    assert said.endswith(last.rpartition("\r")[2])


# What a log may hold: it clears the screen, names the window, moves the cursor, rings, and turns the line around.
CONTROLS = "\x1b[2J\x1b]0;owned\x07\x9b5A\x08\u202eevil"
ESCAPED = "\\x1b[2J\\x1b]0;owned\\x07\\x9b5A\\x08\\u202eevil"
SEQUENCE = re.compile(r"\x1b\[[\d;]*m")  # colours


def test_no_control_sequence_of_a_log_reaches_the_terminal(told, tmp_path, monkeypatch, capsys):
    logger, recorder, path = told
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")  # a narrow screen cuts the line of a running job
    (tmp_path / "logs").mkdir()
    _begin(logger, recorder, path)
    for number in (1, 2):
        (tmp_path / f"logs/{number}.log").write_text(f"before\n{CONTROLS} {number}\n")
        logger.info("job", extra={**_info(number), "rule_name": f"encode{CONTROLS}"})
    logger.error("failed", extra={"event": LogEvent.JOB_ERROR, "jobid": 2, "log": ["logs/2.log"]})
    assert main(["status"]) == 0
    shown = capsys.readouterr().out
    assert f"{ESCAPED} 1" in shown
    assert not [letter for letter in shown if not letter.isprintable() and letter != "\n"]
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
    assert not [letter for letter in said if not letter.isprintable() and letter != "\n"]


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def on_a_terminal(tmp_path, monkeypatch):
    """A logger with the handler of a run on a terminal, that handler, and what returns the text that is shown."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TERM", "xterm")
    logger, printed = logging.Logger("snakemake"), _Terminal()
    logger.addHandler(handler := ColorizingTextHandler(stream=printed))
    handler.name = "DefaultStreamHandler"
    manager = SimpleNamespace(logger=logger, get_logfile=lambda: [f"snakemake{CONTROLS}.log"])
    modifier = SimpleNamespace(is_main_snakefile=lambda: True)
    workflow = SimpleNamespace(output_settings=OutputSettings(), logger_manager=manager, modifier=modifier)
    return logger, console.RunLog(workflow), lambda: SEQUENCE.sub("", printed.getvalue())


def test_the_screen_of_a_run_escapes_control_sequences(on_a_terminal, tmp_path):
    logger, run_log, shown = on_a_terminal
    logger.info("held back")
    logger.info("begun", extra={"event": LogEvent.WORKFLOW_STARTED})
    run_log.recorder.start(tmp_path / "results/status.jsonl", {})
    (tmp_path / "1.log").write_text(f"before\n{CONTROLS} in the log\n")
    logger.info("job", extra=_info(1))
    logger.error("failed", extra={"event": LogEvent.JOB_ERROR, "jobid": 1, "log": ["1.log"]})
    logger.warning(f"{CONTROLS} in a warning")
    logger.info("not shown")
    logger.info("Nothing to be done")
    run_log.close()
    said = shown()
    assert f"  encode tiny 1: 1.log\n    before\n    {ESCAPED} in the log\n{ESCAPED} in a warning\n" in said
    assert f"Snakemake's log: snakemake{ESCAPED}.log\n" in said
    assert said.endswith("Nothing to be done\n")
    assert "held back" not in said
    assert "not shown" not in said
    assert not [letter for letter in said if not letter.isprintable() and letter != "\n"]


def test_an_error_before_a_run_is_the_last_line(on_a_terminal):
    logger, run_log, shown = on_a_terminal
    logger.info("Config file a is extended")
    logger.warning("take care")
    logger.error("wrong key")
    run_log.close()
    assert shown() == "take care\nwrong key\n"


def test_a_failed_job_without_a_log_is_shown(on_a_terminal, tmp_path):
    logger, run_log, shown = on_a_terminal
    run_log.recorder.start(tmp_path / "results/status.jsonl", {})
    logger.info("job", extra=_info(1, "my_train") | {"log": []})
    logger.error("failed", extra={"event": LogEvent.JOB_ERROR, "jobid": 1, "log": []})
    assert shown() == "  my_train tiny 1 has no log\n"


def test_warnings_in_the_logs_of_jobs_are_counted(told, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    logger, recorder, path = told
    _begin(logger, recorder, path)
    (tmp_path / "1.log").write_text("warning: one\nencode\nwarning: two\nno warning: three\n")
    logger.info("job", extra=_info(1) | {"log": ["1.log"]})
    logger.info("job", extra=_info(2) | {"log": ["gone.log"]})
    assert status.warnings(events.read(path)) == ""
    for number in (1, 2):
        logger.info("done", extra={"event": LogEvent.JOB_FINISHED, "job_id": number})
    assert "2 warnings: 1.log" in status.lines(events.read(path), 80)
    assert status.warnings(recorder.run) == "2 warnings: 1.log"


def test_a_job_that_nothing_more_was_said_of_has_failed_when_the_run_is_over(told):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    logger.info("job", extra=_info(1))
    recorder.end(succeeded=False)
    assert events.read(path).jobs[1].state == "failed"


def test_a_job_whose_end_was_not_told_is_done_once_its_record_is_there(told, tmp_path):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    made = tmp_path / "made.json"
    logger.info("job", extra=_info(1) | {"output": [str(made)]})
    assert events.read(path).jobs[1].state == "running"
    made.write_text("{}")
    assert events.read(path).jobs[1].state == "done"


def test_a_line_that_is_cut_off_is_left_out(told):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    logger.info("job", extra=_info(1))
    whole = path.read_text()
    path.write_text(whole + whole.splitlines()[-1][:20])
    assert list(events.read(path).jobs) == [1]
    path.write_text(whole[:30])
    with pytest.raises(BeirgridError, match="has no run"):
        events.read(path)


RUN = {"event": "run", "time": 1, "jobs": {}, "config": {}, "host": "x", "began": 1, "pid": 1}
JOB = {"event": "started", "time": 1, "id": 1, "rule": "x", "wildcards": {}, "log": ["x"], "outputs": []}
GARBAGE = {
    "bytes": b"\x00\xff\xfe\x80",
    "no JSON": b"oops",
    "number": b"17",
    "list": b'["event", "run"]',
    "null": b"null",
    "nested": b"[" * 100_000,
    "number of 5,000 digits": b'{"event": "finished", "time": 1, "id": ' + b"7" * 5000 + b"}",
    "no event": b'{"time": 1}',
    "event that is none": b'{"event": "launched", "time": 1}',
    "event that is a list": b'{"event": ["run"], "time": 1}',
    "no time": b'{"event": "finished", "id": 1}',
    "time in words": b'{"event": "finished", "id": 1, "time": "noon"}',
    "time that is none": b'{"event": "finished", "id": 1, "time": NaN}',
    "time of no year": b'{"event": "over", "succeeded": true, "time": 1e300}',
    "id that is a list": b'{"event": "finished", "time": 1, "id": [1]}',
    "run without a process": json.dumps({key: value for key, value in RUN.items() if key != "pid"}).encode(),
    "process of no machine": json.dumps({**RUN, "pid": 2**70}).encode(),
    "jobs in words": json.dumps({**RUN, "jobs": {"a": "b"}}).encode(),
    "job with a log in words": json.dumps({**JOB, "log": "x"}).encode(),
    "job of numbers": json.dumps({**JOB, "wildcards": {"shard": 1}, "outputs": [2]}).encode(),
}


@pytest.mark.parametrize("garbage", list(GARBAGE.values()), ids=list(GARBAGE))
def test_lines_that_are_no_events_are_left_out_and_counted(told, garbage):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    logger.info("job", extra=_info(1))
    path.write_bytes(path.read_bytes() + garbage + b"\n")
    logger.info("job", extra=_info(2))
    run = events.read(path)
    assert list(run.jobs) == [1, 2]
    assert run.unread == 1
    screen = list(status.lines(run, 80))
    assert "results/status.jsonl has 1 unreadable lines, which status ignores" in screen
    path.write_bytes(garbage + b"\n")
    with pytest.raises(BeirgridError, match="has no run"):
        events.read(path)


def test_a_job_of_another_workflow_needs_no_log(told, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    logger, recorder, path = told
    _begin(logger, recorder, path)
    for number in (1, 2):
        logger.info("job", extra=_info(number, "my_train") | {"log": []})
    logger.error("failed", extra={"event": LogEvent.JOB_ERROR, "jobid": 2, "log": []})
    screen = "\n".join(status.lines(events.read(path), 80))
    assert re.search(r"my_train tiny 1 +0:00:00 +begun", screen)
    assert events.read(path).jobs[2].failure == "my_train tiny 2 has no log"


def test_a_name_with_a_line_separator_is_read(told):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    logger.info("job", extra=_info(1) | {"wildcards": {"dataset": "a\u2028b\x85c"}})
    assert events.read(path).jobs[1].name == "encode a\u2028b\x85c"
    assert events.read(path).unread == 0


@pytest.fixture
def shown(tmp_path, capsys, monkeypatch):
    """Run ``python -m beirgrid status`` in this process; return status, screen and errors."""
    monkeypatch.chdir(tmp_path)

    def call() -> tuple[int, str, str]:
        done = main(["status"])
        return done, *capsys.readouterr()

    return call


def test_a_corpus_folder_that_is_gone_takes_only_the_cells_away(tmp_path, shown):
    folder = tmp_path / "mine"
    write_collection(folder, [{"_id": "d", "text": "x"}], [{"_id": "q", "text": "x"}], {"test": [("q", "d", 1)]})
    raw = {
        "corpora": {"mine": {"source": "local", "path": str(folder)}},
        "datasets": {"mine": {"corpus": "mine"}},
        "models": {},
        "systems": {"bm25": {"retriever": "bm25"}},
        "metrics": ["ndcg@10"],
        "grid": {"systems": ["bm25"], "datasets": ["mine"]},
    }
    recorder = events.Recorder()
    recorder.start(tmp_path / "results/status.jsonl", raw)
    recorder.end(succeeded=True)
    done, screen, errors = shown()
    assert (done, errors) == (0, "")
    assert any(line.split() == ["mine", "."] for line in screen.splitlines())
    shutil.rmtree(folder)
    done, screen, errors = shown()
    assert (done, errors) == (0, "")
    assert screen.startswith("finished after 0:")
    assert "The cells are not shown: the configuration cannot be run:" in screen
    assert f"corpora.mine.path: there is no folder {folder}" in screen


def test_half_of_a_surrogate_pair_is_shown_somehow(tmp_path, shown):
    recorder = events.Recorder()
    recorder.start(tmp_path / "results/status.jsonl", {"grid": {}})
    job = {"id": 1, "rule": "encode", "wildcards": {"dataset": "\ud800"}, "log": ["x.log"], "outputs": []}
    with (tmp_path / "results/status.jsonl").open("a") as stream:
        stream.write(json.dumps({"event": "started", "time": 1, **job}) + "\n")
    done, screen, _ = shown()
    assert done == 0
    assert "encode \\ud800" in screen


def test_a_clock_that_is_set_back_makes_no_negative_time(tmp_path, shown):
    recorder = events.Recorder()
    recorder.start(tmp_path / "results/status.jsonl", {"grid": {}})
    with (tmp_path / "results/status.jsonl").open("a") as stream:
        stream.write(json.dumps({"event": "over", "time": 1, "succeeded": True}) + "\n")
    assert shown()[1].startswith("finished after 0:00:00 (")


def test_what_helps_a_run_that_died_is_said(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert status._advice().startswith("Run it again")
    # a stage that outlived its Snakemake, and one of another folder
    stages = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "beirgrid", "encode"], cwd=folder)
        for folder in (tmp_path, tmp_path.parent)
    ]
    try:
        assert status._advice().startswith(
            f"Its jobs continue: wait until they end, or stop them (process {stages[0].pid})"
        )
    finally:
        for stage in stages:
            stage.kill()
            stage.wait()
    assert status._advice().startswith("Run it again")


def test_a_second_run_replaces_the_first(told):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    logger.info("job", extra=_info(1))
    events.Recorder().start(path, {})
    assert not events.read(path).jobs


def test_a_process_that_is_gone_has_died_and_another_machines_cannot_be_asked(told):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "pid": 2**22 + 1}) + "\n")  # above the largest number of a process
    assert events.read(path).alive is False
    path.write_text(json.dumps({**facts, "began": facts["began"] - 600}) + "\n")  # a later process of its number
    assert events.read(path).alive is False
    path.write_text(json.dumps({**facts, "began": facts["began"] - 5}) + "\n")  # the clock was set
    assert events.read(path).alive is True
    path.write_text(json.dumps({**facts, "host": f"not-{socket.gethostname()}"}) + "\n")
    assert events.read(path).alive is None


def test_a_full_disk_ends_no_grid(told, full_disk):
    logger, recorder, _ = told
    (full_disk / "filler").write_bytes(b"x" * 2**20)
    _begin(logger, recorder, full_disk / "results/status.jsonl")
    logger.info("job", extra=_info(1))
    recorder.end(succeeded=True)


def test_the_last_words_of_a_log_are_those_of_its_progress_bar(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("first\n\n10%\r50%\r90%\nencode: 5/9 documents\n\n")
    assert events.tail(log, 2) == ["90%", "encode: 5/9 documents"]
    assert events.tail(tmp_path / "none.log", 2) == []


LOADED = "Loading weights:   0%|          | 0/39 [00:00<?, ?it/s]\rLoading weights: 100%|####| 39/39 [00:00<00:00]"


def _working(told, tmp_path, *lines: str) -> str:
    """Return the screen of a run of three jobs, of which one runs and has written these lines to its log."""
    logger, recorder, path = told
    _begin(logger, recorder, path)
    log = tmp_path / "1.log"
    logger.info("job", extra=_info(1) | {"log": [str(log)]})
    log.write_text("".join(f"{line}\n" for line in lines))
    return "\n".join(status.lines(events.read(path), 80))


def test_a_librarys_progress_bar_is_not_the_progress_of_a_job(told, tmp_path):
    screen = _working(told, tmp_path, "encode shard 0: 0/5,183 documents", LOADED)
    assert "Loading weights" not in screen
    assert re.search(r"encode tiny 1 +0:00:00 +0/5,183 documents$", screen, re.MULTILINE)
    assert re.search(r"0:00:00 +begun$", _working(told, tmp_path, LOADED), re.MULTILINE)


def test_no_time_is_left_before_there_is_a_rate(told, tmp_path):
    logger, _, path = told
    screen = _working(told, tmp_path, "encode shard 0: 0/5,183 documents", LOADED)
    assert "left: about" not in screen
    # A finished job of another stage says nothing about this one.
    logger.info("job", extra=_info(7, "fetch"))
    logger.info("done", extra={"event": LogEvent.JOB_FINISHED, "job_id": 7})
    left = status.speed(events.read(path))
    assert left.endswith("; left: 3 jobs of unknown length")


def test_the_time_left_counts_what_running_jobs_say_of_themselves(told, tmp_path):
    logger, _, path = told
    _working(told, tmp_path, "encode shard 0: 1,000/5,183 documents, 10.0 documents/s, 0:06:58 left", LOADED)
    assert status.speed(events.read(path)).endswith("; left: about 0:06:58, and 2 jobs of unknown length")
    logger.info("job", extra=_info(2))
    logger.info("done", extra={"event": LogEvent.JOB_FINISHED, "job_id": 2})
    assert status.speed(events.read(path)).endswith("; left: about 0:06:58")


def test_progress_says_what_begins_and_shows_no_rate_before_anything_is_done(capsys):
    progress = Progress("encode shard 0", 4, "documents", interval=0)
    progress.add(1)
    progress.add(3)
    begun, one, all_done = capsys.readouterr().err.splitlines()
    assert begun == "encode shard 0: 0/4 documents"
    assert one.startswith("encode shard 0: 1/4 documents, ")
    assert lines_of_logs.shown(one).seconds_left is not None
    assert [lines_of_logs.shown(line).share for line in (begun, one, all_done)] == [0, 0.25, 1]
    assert lines_of_logs.shown(begun).said == "0/4 documents"
    assert all_done.startswith("encode shard 0: 4/4 documents, ")
    assert (lines_of_logs.shown(begun).seconds_left, lines_of_logs.shown(all_done).seconds_left) == (None, None)
    assert all(map(is_progress, (begun, one, all_done)))


def test_progress_shows_a_rate_below_one(capsys):
    progress = Progress("train", 42, "steps", interval=0)
    progress.started -= 1000
    progress.add(8)
    line = capsys.readouterr().err.splitlines()[-1]
    assert line.startswith("train: 8/42 steps, 0.008 steps/s, 1:10:")
    assert lines_of_logs.shown(line).seconds_left == pytest.approx(34 / 0.008, abs=10)
