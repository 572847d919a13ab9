"""The Python of these tests: forked where that changes nothing, otherwise started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import python

pytestmark = pytest.mark.skipif(python() == sys.executable, reason="processes are not forked on this machine")


def run(program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [python(), "-c", program]
    return subprocess.run(command, env={**os.environ, **variables}, capture_output=True, text=True, check=False)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("variables", "forked"),
    [
        ({}, True),
        ({"JAVA_HOME": "/java"}, True),
        ({"CUDA_VISIBLE_DEVICES": "1"}, True),
        ({"TESTED_KEY": "k"}, True),
        ({"HF_ENDPOINT": "http://127.0.0.1:9"}, False),
        ({"PYTHONPATH": "site"}, False),
    ],
    ids=str,
)
def test_a_process_is_forked_unless_a_library_would_read_another_environment(tmp_path, monkeypatch, variables, forked):
    monkeypatch.chdir(tmp_path)
    Path("site").mkdir()
    Path("site/sitecustomize.py").touch()
    done = run(f"import os; print(os.getppid(), *map(os.environ.get, {list(variables)}))", **variables)
    parent, *values = done.stdout.split()
    assert (int(parent) != os.getpid()) == forked
    assert values == list(variables.values())


@pytest.mark.slow
def test_a_forked_process_that_is_killed_looks_killed():
    assert run("import os; os.kill(os.getpid(), 9)").returncode == -signal.SIGKILL
    assert run("import sys; sys.exit('no')").stderr == "no\n"
