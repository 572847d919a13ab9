"""``beirgrid doctor``: each finding, on a machine that lacks what the check needs."""

from __future__ import annotations

import os
import re
import socket
import sys
from pathlib import Path

import pytest

from beirgrid.__main__ import main
from beirgrid.config.entries import Nodes
from beirgrid.tools import doctor
from beirgrid.tools.configfiles import merged


def findings(capsys, *options: str) -> dict[str, tuple[str, str]]:
    """Return state and text of each finding by subject, with the advice below it; the last of several has one."""
    main(["doctor", *options])
    told = re.findall(r"^(\w+) +([^:]+): (.*(?:\n    .*)?)", capsys.readouterr().out, re.MULTILINE)
    return {what: (state, text) for state, what, text in told}


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Return a function that puts a program with this output before the machine's programs."""
    folder = tmp_path / "programs"
    folder.mkdir()
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def put(name: str, output: str, status: int = 0) -> None:
        (folder / name).write_text(f"#!/bin/sh\ncat <<'END'\n{output}\nEND\nexit {status}\n")
        (folder / name).chmod(0o755)

    return put


def test_this_machine_is_described_and_nothing_is_left(tmp_path, capsys):
    told = findings(capsys, "--offline", "--directory", str(tmp_path))
    assert sys.executable in told["Python"][1]
    right = ("machine", "Java", "PyTorch")
    assert {name: told[name][0] for name in right} == dict.fromkeys(right, "ok")
    assert not list(tmp_path.iterdir())
    assert "network" not in told


def test_a_folder_that_is_absent_is_a_problem(tmp_path, capsys):
    assert main(["doctor", "--offline", "--directory", str(tmp_path / "gone")]) == 1
    said = capsys.readouterr().out
    assert f"PROBLEM disk: {tmp_path / 'gone'}: No such file or directory\n    create the folder, or use" in said


def test_a_full_disk_is_noted(full_disk, capsys):
    state, text = findings(capsys, "--offline", "--directory", str(full_disk))["disk"]
    assert (state, "free space" in text) == ("note", True)


def test_a_java_that_does_not_start_is_a_problem(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert findings(capsys, "--offline")["Java"] == ("PROBLEM", f"{tmp_path}/bin/java does not start")


def test_a_gpu_that_pytorch_does_not_see_is_a_problem(programs, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    programs("nvidia-smi", "NVIDIA H200, 580.1, 143771 MiB")
    gpu, pytorch = [finding for finding in doctor.examine(Path(), Nodes(), offline=True) if finding.what == "GPU"]
    assert gpu.seen == "NVIDIA H200, 580.1, 143771 MiB"
    assert pytorch.state == "PROBLEM"
    assert "TORCH=cuda" in pytorch.advice or "driver" in pytorch.advice


def test_a_network_that_is_out_of_reach_is_noted(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # closed again: nothing answers there
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    told = [finding for finding in doctor.examine(Path(), Nodes()) if finding.what == "network"]
    assert len(told) == 2
    assert all((finding.state, "out of reach" in finding.seen) == ("note", True) for finding in told)
    assert all(finding.advice for finding in told)


def test_the_limits_of_jobs_stand_beside_the_partitions(programs):
    programs("sinfo", "partition cpu*: 8 cores, 64000 MB, 1-00:00:00\npartition gpu: 4+ cores, 32000 MB, infinite")
    told = list(doctor.examine(Path(), merged([]).nodes, offline=True))
    assert [finding.seen for finding in told if finding.what == "SLURM"] == [
        "partition cpu*: 8 cores, 64000 MB, 1-00:00:00",
        "partition gpu: 4+ cores, 32000 MB, infinite",
    ]
    (of_gpu,) = (finding.seen for finding in told if finding.what == "nodes.gpu")
    assert of_gpu == "partition gpu: at most 8 cores, 64000 MB, 1440 minutes for a job"


def test_a_cluster_that_does_not_answer_is_a_problem(programs, capsys):
    programs("sinfo", "slurm_load_partitions: Unable to contact slurm controller", status=1)
    seen = "sinfo fails\n    ask your administrator: does slurmctld run?"
    assert findings(capsys, "--offline")["SLURM"] == ("PROBLEM", seen)
