"""The Python of these tests: forked where that changes nothing, otherwise started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import python

pytestmark = pytest.mark.skipif(python() == sys.executable, reason="processes are not forked on this machine")


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
    command = [python(), "-c", f"import os; print(os.getppid(), *map(os.environ.get, {list(variables)}))"]
    parent, *values = subprocess.check_output(command, env={**os.environ, **variables}, text=True).split()
    assert (int(parent) != os.getpid()) == forked
    assert values == list(variables.values())
