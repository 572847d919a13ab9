"""A run is refused beside another, beside the jobs of a killed one, and before it reads files from the future."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from helpers import quick_first

from beirgrid.core.errors import BeirgridError
from beirgrid.execution import events

SNAKEFILE = """
import os, time
from pathlib import Path
from beirgrid.execution import events
from snakemake.logging import logger

def begin():
    events.refuse_beside_others()
    events.refuse_the_future(workflow.dag.needrun_jobs())

if workflow.is_main_process:
    logger.addHandler(events.Recorder("grid", begin, quiet=True))
    while "SLOW" in os.environ and not Path("begun").exists():
        time.sleep(0.05)

rule all:
    input: "source"
    output: "done"
    shell: "touch begun; while [ ! -e go ]; do sleep 0.1; done; touch done"
"""
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--cores", "1", "--snakefile", "Snakefile", "--rerun-incomplete"]


PIPES = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}


def _run() -> subprocess.CompletedProcess[str]:
    return subprocess.run(SNAKEMAKE, check=False, **PIPES)


def _start() -> subprocess.Popen[str]:
    """Start a run, and return when its job has begun."""
    started = subprocess.Popen(SNAKEMAKE, **PIPES, start_new_session=True)
    while not Path("begun").exists():
        assert started.poll() is None
        time.sleep(0.05)
    return started


@pytest.fixture
def workflow(tmp_path, monkeypatch) -> None:
    """A workflow in the working directory, whose one job ends when there is a file ``go``."""
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").write_text(SNAKEFILE)
    Path("source").touch()


@pytest.mark.slow
@pytest.mark.usefixtures("workflow")
def test_a_killed_run_leaves_no_lock_but_jobs_beside_which_no_other_runs(tmp_path):
    started = _start()
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    assert list(Path(".snakemake/locks").iterdir())
    Path("go").touch()
    told = events.LOCK.read_text()
    events.LOCK.write_text(told.replace(socket.gethostname(), "another-host"))
    assert f"{events.LOCK.read_text()} may still work in {tmp_path}. If its process is gone, delete" in _run().stdout
    events.LOCK.write_text(told)
    words = [sys.executable, "-c", "import time; time.sleep(600)", "beirgrid", "stage", "encode"]
    job = subprocess.Popen(words, cwd=tmp_path)
    try:
        refused = _run()
        assert refused.returncode != 0, refused.stdout
        assert f"wait until they end, or stop them (process {job.pid})" in refused.stdout
    finally:
        job.kill()
        job.wait()
    assert _run().returncode == 0
    assert Path("done").exists()
    assert events.LOCK.read_text() == ""


@pytest.mark.slow
@pytest.mark.usefixtures("workflow")
def test_of_two_runs_one_goes_on_and_the_other_is_told_whose_it_is(tmp_path):
    """The older process gets to its jobs later."""
    older = subprocess.Popen(SNAKEMAKE, **PIPES, env={**os.environ, "SLOW": ""})
    time.sleep(0.05)
    younger = _start()
    refused, _ = older.communicate()
    assert older.returncode != 0
    who = f"process {younger.pid} of {psutil.Process().username()} on {socket.gethostname()} since 20"
    assert f"Grid grid ({who}" in refused
    assert f"works in {tmp_path}: wait until it ends, or use another --directory" in refused
    assert "--unlock" not in refused
    assert "Traceback" not in refused
    Path("go").touch()
    assert "Another run" not in younger.communicate()[0]
    assert younger.returncode == 0


@pytest.mark.slow
@pytest.mark.usefixtures("workflow")
def test_a_file_from_the_future_is_named_with_the_remedy_before_any_job():
    Path("go").touch()
    os.utime("source", (time.time() + 3600,) * 2)
    refused = _run()
    assert refused.returncode != 0
    assert "source was changed in the future" in refused.stdout
    assert not Path("begun").exists()
    remedy = re.search(r"If the clock is right: (touch .*)", refused.stdout)[1]
    subprocess.run(shlex.split(remedy), check=True)
    assert _run().returncode == 0


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        (
            "python -P snakemake_command.py snakemake --snakefile Snakefile",
            False,
        ),  # it holds the lock, or will not get it
        ("python -m snakemake --snakefile Snakefile --mode subprocess", True),
        ("python -m beirgrid stage encode", True),
        ("python -m beirgrid stage fetch_corpus", True),
        ("python -m pytest", False),
        ("/venv/bin/beirgrid status", False),
    ],
)
def test_only_jobs_count_as_those_of_a_killed_run(words, runs):
    assert events._works([Path(word).name for word in words.split()]) == runs


@pytest.mark.parametrize(("error", "shown"), [("KeyboardInterrupt", "stopped at once. The same"), ("OSError", "Trace")])
def test_an_interrupt_that_nobody_handles_is_shown_in_one_line(error, shown):
    code = f"from beirgrid.core import interrupts; interrupts.handle_signals(); raise {error}"
    done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True, check=False)
    assert done.returncode != 0
    assert done.stderr.startswith(shown)
    assert error == "OSError" or done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "library", "line"),
    quick_first(
        [(["demo", "-n"], "configargparse", "stopped before any job began"), (["plan", "demo"], "numpy", "stopped")]
    ),
)
def test_an_interrupt_while_libraries_are_imported_is_shown_in_one_line(tmp_path, command, library, line):
    """A module that takes long stands in the place of a library, so that the interrupt cannot come too late."""
    reached = tmp_path / "reached"
    slow = f"import pathlib, time\npathlib.Path({str(reached)!r}).touch()\ntime.sleep(60)\n"
    (tmp_path / f"{library}.py").write_text(slow)
    words = [sys.executable, "-m", "beirgrid", *command, "--directory", str(tmp_path)]
    options = {"env": {**os.environ, "PYTHONPATH": str(tmp_path)}, "text": True, "stderr": subprocess.PIPE}
    # A shell's background ignores the signal.
    started = subprocess.Popen(words, preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL), **options)
    while started.poll() is None and not reached.exists():
        time.sleep(0.01)
    started.send_signal(signal.SIGINT)
    assert started.communicate()[1] == f"{line}\n"
    assert started.returncode == -signal.SIGINT
    assert not list(tmp_path.rglob("results"))


# SLURM's jobs; tests/slurm uses a real cluster

RUN = "4f0d8a52-0a2b-4f3e-9c1d-2b7f5f2f8a11"


@pytest.mark.parametrize(
    ("name", "place", "refused"),
    [
        (RUN, ".", True),
        (RUN, "link", True),  # as the jobs' node calls it
        (f"prefix_{RUN}", ".", True),
        (RUN, "elsewhere", False),
        ("beirgrid", ".", False),  # the job in which someone runs Snakemake itself
    ],
)
def test_only_snakemakes_jobs_that_work_in_the_folder_count(tmp_path, monkeypatch, name, place, refused):
    (tmp_path / "link").symlink_to(tmp_path)
    squeue = tmp_path / "bin/squeue"
    squeue.parent.mkdir()
    squeue.write_text(f"#!/bin/sh\necho '{name}|ann|{tmp_path / place}'\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{squeue.parent}:/bin:/usr/bin")
    message = rf"\(run {name}, user ann\).*squeue --name {name}"
    with pytest.raises(BeirgridError, match=message) if refused else contextlib.nullcontext():
        events.refuse_beside_orphans(tmp_path, "slurm")


def test_without_slurm_there_is_nothing_to_ask(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", "")
    events.refuse_beside_orphans(tmp_path, "slurm")
    events.refuse_beside_orphans(Path("/nowhere"), "local")
