"""Events of a run: what is kept of Snakemake's log, and what is read back."""

from __future__ import annotations

import json
import logging
import socket

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
