"""Concurrent stages on a machine with several GPUs use different ones."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile

import pytest
import torch
from helpers import ROOT, python

from beirgrid.core import compute
from beirgrid.core.errors import ConfigError, DataError
from beirgrid.graph.job import arguments

TAKE = """
import os, sys, torch
torch.cuda.device_count = lambda: min(2, len(os.environ.get("CUDA_VISIBLE_DEVICES", "0,1").split(",")))
torch.cuda.is_available = lambda: True
from beirgrid.core.compute import Compute
from beirgrid.core.errors import log_to_standard_error
log_to_standard_error()
visible = os.environ.get("CUDA_VISIBLE_DEVICES")
runtime = Compute().start()
assert Compute().start() == runtime  # not another GPU
assert os.environ.get("CUDA_VISIBLE_DEVICES") == visible
print((visible or "0,1").split(",")[int(runtime.device.removeprefix("cuda:"))], os.getpid(), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def take(tmp_path):
    """Return a function that starts a stage where PyTorch counts two GPUs, unless some are set to be visible."""
    started = []

    def start(**variables: str) -> tuple[subprocess.Popen[str], str, int]:
        """Return the process, the GPU that it took, and the id of the process that holds the GPU's lock."""
        unset = ("CUDA_VISIBLE_DEVICES",)
        environment = {name: value for name, value in os.environ.items() if name not in unset}
        environment |= {"PYTHONPATH": str(ROOT / "workflow"), "TMPDIR": str(tmp_path), **variables}
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen([python(), "-c", TAKE], env=environment, text=True, **pipes)
        started.append(process)
        gpu, holder = process.stdout.readline().split()
        return process, gpu, int(holder)

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_each_takes_one_of_its_own_and_a_killed_one_gives_it_back(take):
    first, gpu, holder = take()
    assert gpu == "0"
    assert take()[1] == "1"
    third, shared, _ = take()
    assert shared in ("0", "1")
    assert third.stderr.readline() == f"other stages hold all 2 GPUs: sharing GPU {shared} with one\n"
    os.kill(holder, signal.SIGKILL)
    assert first.wait() == -signal.SIGKILL
    assert take()[1] == "0"


def test_what_is_visible_is_what_is_taken_from(take):
    assert take(CUDA_VISIBLE_DEVICES="3,GPU-8a1")[1] == "3"
    assert take(CUDA_VISIBLE_DEVICES="3,GPU-8a1")[1] == "GPU-8a1"
    assert take(CUDA_VISIBLE_DEVICES=" 3, GPU-8a2")[1].strip() == "GPU-8a2"
    assert take(CUDA_VISIBLE_DEVICES="MIG-GPU-8a1/1/0,MIG-GPU-8a1/1/1")[1] == "MIG-GPU-8a1/1/0"
    assert take(CUDA_VISIBLE_DEVICES="MIG-GPU-8a1/1/0,MIG-GPU-8a1/1/1")[1] == "MIG-GPU-8a1/1/1"
    assert take(CUDA_VISIBLE_DEVICES="3")[1] == "3"  # the only one, as SLURM gives it: nothing to choose


def test_what_is_named_beyond_the_gpus_that_are_there_is_not_taken(take):
    taken = [take(CUDA_VISIBLE_DEVICES="0,1,2,3")[1] for _ in range(3)]
    assert taken[:2] == ["0", "1"]
    assert taken[2] in ("0", "1")


def test_a_folder_of_locks_of_another_user_is_named(monkeypatch, tmp_path):
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    (locks := tmp_path / f"beirgrid-{os.getuid()}").mkdir()
    os.chown(locks, 65534, 65534)
    with pytest.raises(DataError, match=rf"^{locks}, for locks of GPUs, belongs to another user"):
        compute.own_gpu.__wrapped__()


@pytest.mark.parametrize("tokens", [2048, {"gpu": 1}, {"cpu": 0}, {"cpu": "many"}])
def test_batch_sizes_are_checked(tokens):
    assert arguments(_with_model, {"batch_tokens": {"cpu": 64}})["compute"].batch_tokens == (64, 65536)
    with pytest.raises(ConfigError, match=r"compute\.batch_tokens"):
        arguments(_with_model, {"batch_tokens": tokens})


def _with_model(compute: compute.Compute) -> None:
    """Stand for a stage that runs a model, by the signature alone."""


@pytest.mark.parametrize(("bfloat16", "taken"), [(True, "bfloat16"), (False, "float32")])
def test_training_takes_no_float16_unless_it_is_asked_for(monkeypatch, bfloat16, taken):
    monkeypatch.setattr(compute, "multiplies_bfloat16", lambda device: bfloat16)
    gpu, cpu = (compute.Runtime(device, "auto", 1) for device in ("cuda:0", "cpu"))
    assert (gpu.resolve(), gpu.resolve(wide=True), cpu.resolve(wide=True)) == ("float16", taken, "float32")
    assert gpu.resolve("float16", wide=True) == "float16"
