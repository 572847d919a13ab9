"""Events of a run: what is kept of Snakemake's log, and what is read back."""

from __future__ import annotations

import json
import logging
import socket
import subprocess
import sys

import pytest
from snakemake_interface_logger_plugins.common import LogEvent

from beirgrid import status
from beirgrid.errors import BeirgridError


@pytest.fixture
def told(tmp_path):
    """A logger with a recorder, and its file."""
    logger = logging.Logger("snakemake")
    recorder = status.Recorder(logger, {"grid": {}})
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
    recorder.start(path)


def test_jobs_are_followed_from_start_to_end(told):
    logger, recorder, path = told
    logger.info("before the start", extra=_info(9))
    _begin(logger, recorder, path)
    for number in (1, 2):
        logger.info("job", extra=_info(number))
    logger.info("something else")
    logger.info("done", extra={"event": LogEvent.JOB_FINISHED, "job_id": 1})
    logger.error("failed", extra={"event": LogEvent.JOB_ERROR, "jobid": 2, "log": ["2.log", "slurm.log"]})
    run = status.read(path)
    assert run.facts["jobs"] == {"encode": 3}
    assert {number: job.state for number, job in run.jobs.items()} == {1: "done", 2: "failed"}
    assert run.alive
    assert run.jobs[2].logs == ["2.log", "slurm.log"]
    assert run.jobs[1].name == "encode tiny 1"
    logger.info("again", extra=_info(2))  # a retry
    assert status.read(path).jobs[2].state == "running"
    recorder.end(succeeded=False)
    ended = status.read(path)
    assert ended.over is not None
    assert not ended.over["succeeded"]
    assert ended.alive is False


def test_a_job_that_nothing_more_was_said_of_has_failed_when_the_run_is_over(told):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    logger.info("job", extra=_info(1))
    recorder.end(succeeded=False)
    assert status.read(path).jobs[1].state == "failed"


def test_a_job_whose_end_was_not_told_is_done_once_its_record_is_there(told, tmp_path):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    made = tmp_path / "made.json"
    logger.info("job", extra=_info(1) | {"output": [str(made)]})
    assert status.read(path).jobs[1].state == "running"
    made.write_text("{}")
    assert status.read(path).jobs[1].state == "done"


def test_a_line_that_is_cut_off_is_left_out(told):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    logger.info("job", extra=_info(1))
    whole = path.read_text()
    path.write_text(whole + whole.splitlines()[-1][:20])
    assert list(status.read(path).jobs) == [1]
    path.write_text(whole[:30])
    with pytest.raises(BeirgridError, match="cut off"):
        status.read(path)


@pytest.mark.parametrize(
    "garbage", [b"\xff\xfe\x00", b"null", b"5", b"[1]", b'"run"', b"{}", b'{"event": "started"}', b'{"event": "run"}']
)
def test_garbage_between_the_events_is_left_out(told, garbage):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    logger.info("job", extra=_info(1))
    first, second = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([garbage, first, garbage, second, garbage]))
    assert list(status.read(path).jobs) == [1]
    path.write_bytes(garbage)
    with pytest.raises(BeirgridError, match=r"holds no run: .* Delete it and run the grid"):
        status.read(path)


def test_a_configuration_that_no_longer_holds_costs_the_cells_alone(told, monkeypatch, tmp_path):
    """A corpus's folder is gone, say."""
    logger, recorder, path = told
    _begin(logger, recorder, path)
    logger.info("job", extra=_info(1))
    recorder.end(succeeded=True)
    monkeypatch.chdir(tmp_path)
    screen = list(status.lines(status.read(path), 80))
    assert any(line.startswith("The cells cannot be shown: the configuration cannot be run") for line in screen)
    assert any(line.startswith("encode ") for line in screen)


def test_what_helps_a_run_that_died_is_said(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    assert status._advice().startswith("Run it again")
    (tmp_path / ".snakemake/locks").mkdir(parents=True)
    assert "--unlock" not in status._advice()
    (tmp_path / ".snakemake/locks/0.input.lock").write_text("results/x")
    assert "--unlock" in status._advice()
    # a stage that outlived its Snakemake, and one of another folder
    stages = [
        subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "beirgrid", "encode"], cwd=folder)
        for folder in (tmp_path, tmp_path.parent)
    ]
    try:
        assert status._advice().startswith(
            f"Its jobs go on: wait until they end, or end them (process {stages[0].pid})"
        )
    finally:
        for stage in stages:
            stage.kill()
            stage.wait()
    assert "--unlock" in status._advice()


def test_a_second_run_replaces_the_first(told):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    logger.info("job", extra=_info(1))
    status.Recorder(logging.Logger("other"), {}).start(path)
    assert not status.read(path).jobs


def test_a_process_that_is_gone_has_died_and_another_machines_cannot_be_asked(told):
    logger, recorder, path = told
    _begin(logger, recorder, path)
    facts = json.loads(path.read_text())
    path.write_text(json.dumps({**facts, "pid": 2**22 + 1}) + "\n")  # above the largest number of a process
    assert status.read(path).alive is False
    path.write_text(json.dumps({**facts, "began": facts["began"] - 600}) + "\n")  # a later process of its number
    assert status.read(path).alive is False
    path.write_text(json.dumps({**facts, "began": facts["began"] - 5}) + "\n")  # the clock was set
    assert status.read(path).alive is True
    path.write_text(json.dumps({**facts, "host": f"not-{socket.gethostname()}"}) + "\n")
    assert status.read(path).alive is None


def test_a_full_disk_ends_no_grid(told, full_disk):
    logger, recorder, _ = told
    (full_disk / "filler").write_bytes(b"x" * 2**20)
    _begin(logger, recorder, full_disk / "results/status.jsonl")
    logger.info("job", extra=_info(1))
    recorder.end(succeeded=True)


def test_the_last_words_of_a_log_are_those_of_its_progress_bar(tmp_path):
    log = tmp_path / "x.log"
    log.write_text("first\n\n10%\r50%\r90%\nencode: 5/9 documents\n\n")
    assert status._tail(log, 2) == ["90%", "encode: 5/9 documents"]
    assert status._tail(tmp_path / "none.log", 2) == []
