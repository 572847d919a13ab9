"""The command of a killed run is repeated, and the lock of a process that may be alive is kept."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from helpers import ROOT, python

from beirgrid.__main__ import commands
from beirgrid.core.errors import log_to_standard_error
from beirgrid.tools import console, processes

SNAKEFILE = f"""
import sys
sys.path.insert(0, {str(ROOT / "workflow")!r})
from beirgrid.tools import processes
if workflow.is_main_process:
    processes.allow_one_run()
    processes.allow_one_run()  # as a second module of this workflow does
rule all:
    output: "done"
    shell: "touch begun; while [ ! -e go ]; do sleep 0.1; done; touch done"
"""
# Their processes are Snakemake's.
BECOME_SNAKEMAKE = {"demo", "run", "reproduce"}
OPTIONS = ["-m", "snakemake", "--cores", "1", "--snakefile", "Snakefile", "--rerun-incomplete"]


@pytest.fixture
def killed(tmp_path, monkeypatch):
    """A working directory, in which a run was killed with its job."""
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").write_text(SNAKEFILE)
    command = [sys.executable, *OPTIONS]
    started = subprocess.Popen(command, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not Path("begun").exists():
        assert started.poll() is None
        time.sleep(0.05)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    assert list(Path(".snakemake/locks").iterdir())
    Path("go").touch()
    return tmp_path


def _run(*options: str, program: str = sys.executable) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [program, *OPTIONS, *options], text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )


@pytest.mark.usefixtures("killed")
def test_a_command_whose_run_was_killed_is_repeated():
    done = _run()
    assert done.returncode == 0, done.stdout
    assert Path("done").exists()
    assert not list(Path(".snakemake").glob("locks/*"))
    assert processes.LOCK.read_text() == ""


@pytest.mark.parametrize("holder", ["another-host 0123-4567", "", f"{os.uname().nodename} of-another-start"])
def test_the_lock_of_a_run_that_cannot_be_seen_stays(killed, holder):
    processes.LOCK.write_text(holder)
    for _ in range(2):
        refused = _run(program=python())
        assert refused.returncode != 0
        place = f", on {holder.split()[0]}" if holder else ""
        assert (
            f"{killed} is locked by a run that did not end{place}. If it no longer runs, repeat the command with "
            "--unlock, then without. Finished files stay"
        ) in refused.stdout
        assert list(Path(".snakemake/locks").iterdir())
        assert processes.LOCK.read_text() == holder
    assert _run("--unlock", program=python()).returncode == 0
    assert _run(program=python()).returncode == 0


@pytest.mark.slow
def test_the_lock_of_a_run_whose_jobs_continue_stays(killed):
    job = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)", "beirgrid", "encode"], cwd=killed)
    try:
        refused = _run()
        assert refused.returncode != 0
        assert f"and its jobs continue: wait until they end, or stop them (process {job.pid})" in refused.stdout
        assert list(Path(".snakemake/locks").iterdir())
    finally:
        job.kill()
        job.wait()
    assert _run().returncode == 0


@pytest.mark.parametrize(
    ("words", "runs"),
    [
        ("python -P interrupts.py snakemake --snakefile Snakefile", True),
        ("python -m beirgrid encode @-", True),
        ("python -m beirgrid fetch corpus @-", True),
        ("python -m pytest", False),
        *(
            (f"/venv/bin/beirgrid {words.split()[0]} x", False)
            for words in commands([])
            if words not in BECOME_SNAKEMAKE
        ),
    ],
)
def test_only_snakemake_and_stages_count_as_a_run(words, runs):
    assert processes._works([Path(word).name for word in words.split()]) == runs


@pytest.mark.parametrize(("error", "shown"), [("KeyboardInterrupt", "stopped at once. The same"), ("OSError", "Trace")])
def test_an_interrupt_that_nobody_handles_is_shown_in_one_line(error, shown):
    code = f"from beirgrid.core import environment; environment.handle_signals(); raise {error}"
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, text=True, capture_output=True, check=False)
    assert done.returncode != 0
    assert done.stderr.startswith(shown)
    assert error == "OSError" or done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("command", "library", "line"),
    [(["plan", "demo"], "numpy", "stopped"), (["demo", "--dry-run"], "_yaml", "stopped before any job began")],
)
def test_an_interrupt_while_libraries_are_imported_is_shown_in_one_line(tmp_path, command, library, line):
    words = [sys.executable, "-m", "beirgrid", *command, "--directory", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    started = subprocess.Popen(
        words,
        env=environment,
        text=True,
        stderr=subprocess.PIPE,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # which a shell's background ignores
    )
    process = Path("/proc", str(started.pid))
    is_snakemake = "before" in line
    while started.poll() is None and not (
        library in (process / "maps").read_text()
        and is_snakemake == ("snakemake" in (process / "cmdline").read_text().split("\0"))
    ):
        time.sleep(0.001)
    started.send_signal(signal.SIGINT)
    assert started.communicate()[1] == f"{line}\n"
    assert started.returncode == -signal.SIGINT
    assert not list(tmp_path.rglob("results"))


def test_a_log_on_a_full_disk_ends_in_one_line(capfd):
    log_to_standard_error()
    handler = logging.FileHandler("/dev/full")
    console.end_where_the_disk_is_full(handler)
    logger = logging.Logger("snakemake")
    logger.addHandler(handler)
    for number in range(3):
        logger.info(number)
    assert capfd.readouterr().err == "warning: the log ends here: No space left on device (/dev/full)\n"


def test_a_run_that_cannot_write_its_lock_is_refused_in_one_line(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("Snakefile").write_text(SNAKEFILE)
    processes.LOCK.parent.mkdir(parents=True)
    processes.LOCK.symlink_to("/dev/full")
    assert f"Error: {tmp_path} cannot be locked for this run: No space left on device\n" in _run().stdout
