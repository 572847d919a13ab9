"""The screen of a grid: during the run, after its end, and after a kill."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time

import pytest
from helpers import ROOT, beirgrid
from small import run


def _screen(folder) -> str:
    done = beirgrid("status", "--directory", folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def _row(screen: str, name: str) -> list[str]:
    return next(line for line in screen.splitlines() if line.startswith(f"{name} ")).split()


def test_a_finished_grid(finished):
    screen = _screen(finished)
    assert screen.startswith("finished after 0:")
    done, of = _row(screen, "total")[1:]
    assert done == of
    assert int(of) > 30
    assert "Failed" not in screen
    assert "Running" not in screen


@pytest.mark.slow
def test_a_killed_grid_is_said_to_have_died_and_its_rerun_begins_anew(small_grid, tmp_path):
    configfile = small_grid(tmp_path, grid={"systems": ["tiny"], "datasets": ["small"]})
    command = [sys.executable, "-m", "snakemake", "--configfile", configfile, "--directory", tmp_path, "--cores", "1"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while not (tmp_path / "results/corpora/small/corpus.json").exists():
        assert process.poll() is None
        time.sleep(0.1)
    while not re.search(r"^  (fetch|encode)\S* .* 0:00:\d\d  ", screen := _screen(tmp_path), re.MULTILINE):
        assert process.poll() is None  # between two jobs
    assert screen.startswith("running for 0:00:")
    process.send_signal(signal.SIGKILL)
    process.wait()
    screen = _screen(tmp_path)
    assert screen.startswith("died after 0:00:")
    run(configfile, tmp_path, "--unlock")
    assert _screen(tmp_path).startswith("died")
    again = run(configfile, tmp_path, "--rerun-incomplete")
    while "wait until they end" in again.stdout:  # the killed run's last job still works
        time.sleep(1)
        again = run(configfile, tmp_path, "--rerun-incomplete")
    assert again.returncode == 0, again.stdout
    assert _screen(tmp_path).startswith("finished")


def test_a_dry_run_is_no_run(small_grid, tmp_path):
    assert run(small_grid(tmp_path), tmp_path, "--dry-run").returncode == 0
    done = beirgrid("status", "--directory", tmp_path)
    assert done.returncode == 1
    assert "no grid was run in this folder" in done.stderr
