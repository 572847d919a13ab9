"""A run is refused beside another and beside the jobs of a killed one; a lock that is left over is known."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import quick_first

from beirgrid.core.errors import BeirgridError
from beirgrid.tools import events, run

SNAKEFILE = """
from beirgrid.tools import events
from snakemake.logging import logger
if workflow.is_main_process:
    logger.addHandler(events.Recorder("grid", events.refuse_beside_others, quiet=True))
rule all:
    output: "done"
    shell: "touch begun; while [ ! -e go ]; do sleep 0.1; done; touch done"
"""
SNAKEMAKE = [sys.executable, "-m", "snakemake", "--cores", "1", "--snakefile", "Snakefile", "--rerun-incomplete"]


def _run(*options: str) -> subprocess.CompletedProcess[str]:
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.run([*SNAKEMAKE, *options], text=True, check=False, **pipes)


@pytest.mark.slow
def test_a_killed_run_leaves_a_lock_and_jobs_beside_which_no_other_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").write_text(SNAKEFILE)
    silent = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    started = subprocess.Popen(SNAKEMAKE, **silent, start_new_session=True)
    while not Path("begun").exists():
        assert started.poll() is None
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    assert list(Path(".snakemake/locks").iterdir())
    Path("go").touch()
    path = Path("results/status.jsonl")
    told = path.read_text()
    first, *rest = told.splitlines()
    path.write_text("\n".join([json.dumps({**json.loads(first), "host": "another-host"}), *rest]))
    assert not run._was_killed(tmp_path)  # it cannot be seen from here
    path.write_text(told)
    assert run._was_killed(tmp_path)
    words = [sys.executable, "-c", "import time; time.sleep(600)", "beirgrid", "stage", "encode"]
    job = subprocess.Popen(words, cwd=tmp_path)
    try:
        assert _run("--unlock").returncode == 0
        assert not run._was_killed(tmp_path)
        refused = _run()
        assert refused.returncode != 0
        assert f"wait until they end, or stop them (process {job.pid})" in refused.stdout
    finally:
        job.kill()
        job.wait()
    assert _run().returncode == 0
    assert Path("done").exists()
    Path(".snakemake/locks").mkdir(exist_ok=True)
    Path(".snakemake/locks/of-another-run").touch()
    assert not run._was_killed(tmp_path)  # the last run has ended


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("python -P interrupts.py snakemake --snakefile Snakefile", True),
        ("python -m beirgrid stage encode", True),
        ("python -m beirgrid stage fetch_corpus", True),
        ("python -m pytest", False),
        ("/venv/bin/beirgrid status", False),
    ],
)
def test_only_snakemake_and_stages_count_as_a_run(words, runs):
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
