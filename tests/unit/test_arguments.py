"""Jobs on standard input, and how commands end."""

from __future__ import annotations

import inspect
import io
import json
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from helpers import python

from beirgrid.__main__ import main
from beirgrid.graph.dag import by_function
from beirgrid.graph.job import stage_function


def _run(name: str, job: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a stage in a folder as rules do: bash passes the job as standard input."""
    command = shlex.join([python(), "-m", "beirgrid", "stage", name])
    (folder / "job.sh").write_text(f"{command} <<< {shlex.quote(job)}\n", encoding="utf-8")
    return subprocess.run(["bash", "job.sh"], cwd=folder, capture_output=True, text=True, check=False)


def _fetching(root: Path, **entry: Any) -> dict[str, Any]:
    """Return the job that fetches the demonstration's corpus, as its rule writes it."""
    return {
        "inputs": {},
        "outputs": {"output": "x.parquet", "record": "x.json"},
        "settings": {"entry": {"source": "local", "path": str(root / "workflow/resources/demo"), **entry}},
        "options": {"name": "x"},
        "digest": "0123456789abcdef",
    }


@pytest.mark.slow
def test_the_record_keeps_a_job_and_why_prints_it_to_be_run_again(root, tmp_path):
    """The record names no folder of this machine: the path starts at the checkout."""
    job = _fetching(root)
    done = _run("fetch_corpus", json.dumps(job), tmp_path)
    assert done.returncode == 0, done.stderr
    record = json.loads((tmp_path / "x.json").read_text())
    job["settings"]["entry"]["path"] = "workflow/resources/demo"
    assert record["job"] == {"stage": "fetch_corpus", **job}
    assert record["command"] == "python -m beirgrid stage fetch_corpus"
    made = (tmp_path / "x.parquet").read_bytes()
    (tmp_path / "workflow").symlink_to(root / "workflow")
    why, stage = (f"{python()} -m beirgrid {words}" for words in ("why x.parquet --job", "stage fetch_corpus"))
    again = f"set -e; {why} > job.json; rm x.parquet x.json; {stage} < job.json"
    subprocess.run(["bash", "-c", again], cwd=tmp_path, check=True)
    assert (tmp_path / "x.parquet").read_bytes() == made
    assert json.loads((tmp_path / "x.json").read_text())["job"] == record["job"]


def test_an_entry_that_is_too_long_for_an_argument_of_linux_is_read(root, tmp_path):
    """With characters that are special to a shell."""
    job = _fetching(root, path="x" * 300_000, note="a\n\u2028 'b' {c} $(d) @e")
    refused = _run("fetch_corpus", json.dumps(job), tmp_path)
    assert "note: Extra inputs are not permitted" in refused.stderr
    assert "Traceback" not in refused.stderr


def _refusal(name: str, text: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Return the message of a stage that refuses the job on its standard input."""
    with mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(text.encode()))):
        assert main(["stage", name]) == 1
    return capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "[]", "{", "3", "\x00", '{"settings": []}', '{"settings": {"k": 1, "k": 2}}'])
def test_an_input_that_is_no_job_is_refused(capsys, text):
    said = "beirgrid stage fuse: error: standard input is not a job, a JSON object"
    assert _refusal("fuse", text, capsys).startswith(said)


def test_a_stage_that_is_not_there_is_named(capsys):
    said = "beirgrid stage rernk: error: there is no stage 'rernk'; did you mean 'rerank'?\n"
    assert _refusal("rernk", "", capsys) == said


@pytest.mark.parametrize(
    ("words", "closed", "statuses", "said"),
    [
        (["evaluate", "--run", "a.trec", "--qrels", "qrels.tsv"], True, {128 + signal.SIGPIPE}, b""),
        (["--help"], True, {0, 128 + signal.SIGPIPE}, b""),  # argparse of some Pythons ignores the error
        (["evaluate", "--run", "a.trec", "--qrels", "qrels.tsv"], False, {1}, b"error: the disk is full"),
    ],
)
def test_an_output_that_nobody_reads_ends_a_command_quietly(tmp_path, words, closed, statuses, said):
    (tmp_path / "a.trec").write_text("q1 Q0 d1 1 1 t\n")
    (tmp_path / "qrels.tsv").write_text("q1\td1\t1\n")
    if closed:
        reader, output = os.pipe()
        os.close(reader)
    else:
        output = os.open("/dev/full", os.O_WRONLY)
    command, pipes = [sys.executable, "-m", "beirgrid", *words], {"stdout": output, "stderr": subprocess.PIPE}
    for unbuffered in ("", "1"):
        environment = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
        done = subprocess.run(command, cwd=tmp_path, env=environment, **pipes, check=False)
        assert done.returncode in statuses
        assert said in done.stderr
        assert len(done.stderr.splitlines()) == bool(said)
    os.close(output)


# Options that count something, of any stage.
COUNTS = {"candidates", "depth", "dimensions", "k", "memory", "shard_size", "threads"}


@pytest.mark.parametrize("name", by_function())
@pytest.mark.parametrize(("number", "limit"), [(0, "greater than or equal to 1"), (1000001, "less than or equal to")])
def test_a_count_of_nothing_or_of_too_much_is_refused(capsys, name, number, limit):
    counts = COUNTS & inspect.signature(stage_function(name)).parameters.keys()
    said = _refusal(name, json.dumps({"options": dict.fromkeys(counts, number)}), capsys)
    assert [option for option in counts if f"{option}: Input should be {limit}" not in said] == []


def test_an_option_that_is_unknown_or_missing_is_named(capsys):
    said = _refusal("rerank", '{"options": {"depht": 3}}', capsys)
    assert "depht: Unexpected keyword argument (here 3)" in said
    assert "first_stage: Missing required keyword only argument" in said
    assert len(said.splitlines()) == 1
