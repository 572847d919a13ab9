"""Stages that run at once on a machine with several GPUs use different ones."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest
from helpers import ROOT

TAKE = """
import os, sys, torch
torch.cuda.device_count = lambda: min(2, len(os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")))
from beirgrid.encoders import pick_device
pick_device("auto"), pick_device("auto")
print(os.environ["CUDA_VISIBLE_DEVICES"], flush=True)
sys.stdin.read()
"""


@pytest.fixture
def take(tmp_path):
    """Return a function that starts a stage where PyTorch counts two GPUs, unless some are set to be visible."""
    started = []

    def start(**variables: str) -> tuple[subprocess.Popen[str], str]:
        environment = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
        environment |= {"PYTHONPATH": str(ROOT / "workflow"), "TMPDIR": str(tmp_path), **variables}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([sys.executable, "-c", TAKE], env=environment, text=True, **pipes)
        started.append(process)
        return process, process.stdout.readline().strip()

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_each_takes_one_of_its_own_and_a_killed_one_gives_it_back(take):
    first, gpu = take()
    assert gpu == "0"
    assert take()[1] == "1"
    third, shared = take()
    assert shared in ("0", "1")
    assert third.stderr.readline() == f"other stages have all 2 GPUs: sharing GPU {shared} with one\n"
    first.send_signal(signal.SIGKILL)
    first.wait()
    assert take()[1] == "0"


def test_what_is_visible_is_what_is_taken_from(take):
    assert take(CUDA_VISIBLE_DEVICES="3,GPU-8a1")[1] == "3"
    assert take(CUDA_VISIBLE_DEVICES="3,GPU-8a1")[1] == "GPU-8a1"
    assert take(CUDA_VISIBLE_DEVICES="3")[1] == "3"  # the only one, as SLURM gives it: nothing to choose


def test_what_is_named_beyond_the_gpus_that_are_there_is_not_taken(take):
    taken = [take(CUDA_VISIBLE_DEVICES="0,1,2,3")[1] for _ in range(3)]
    assert taken[:2] == ["0", "1"]
    assert taken[2] in ("0", "1")
