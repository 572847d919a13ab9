"""``beirgrid doctor``: each finding, on a machine that lacks what the check needs."""

from __future__ import annotations

import json
import os
import socket
import sys
from pathlib import Path

import pytest

from beirgrid.__main__ import main
from beirgrid.config.entries import Nodes
from beirgrid.tools import doctor


def found(capsys, *options: str) -> dict[str, dict]:
    main(["doctor", "--json", *options])
    return {finding["what"]: finding for finding in json.loads(capsys.readouterr().out)}


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
    findings = found(capsys, "--offline", "--directory", str(tmp_path))
    assert sys.executable in findings["Python"]["found"]
    right = ("clock, disk", "clock, temporary files", "Java", "PyTorch")
    assert {name: findings[name]["state"] for name in right} == dict.fromkeys(right, "ok")
    assert not list(tmp_path.iterdir())
    assert not any(name.startswith("network") for name in findings)
    assert all(finding["advice"] for finding in findings.values() if finding["state"] == "problem")


def test_a_folder_that_is_absent_is_a_problem(tmp_path, capsys):
    assert main(["doctor", "--offline", "--directory", str(tmp_path / "gone")]) == 1
    said = capsys.readouterr().out
    assert f"PROBLEM disk: {tmp_path / 'gone'}: No such file or directory\n    create the folder, or use" in said


def test_a_full_disk_is_noted(full_disk, capsys):
    findings = found(capsys, "--offline", "--directory", str(full_disk))
    assert findings["disk"]["state"] == "note"
    assert "free space" in findings["disk"]["advice"]


def test_a_java_that_does_not_start_is_a_problem(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    finding = found(capsys, "--offline")["Java"]
    assert (finding["state"], finding["found"]) == ("problem", f"{tmp_path}/bin/java does not start")


def test_a_gpu_that_pytorch_does_not_see_is_a_problem(programs, monkeypatch, capsys):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    programs("nvidia-smi", "NVIDIA H200, 580.1, 143771 MiB")
    findings = [finding for finding in doctor.examine(Path(), Nodes(), offline=True) if finding.what == "GPU"]
    assert findings[0].found == "NVIDIA H200, 580.1, 143771 MiB"
    assert findings[1].state == "problem"
    assert "TORCH=cuda" in findings[1].advice or "driver" in findings[1].advice


def test_a_network_that_is_out_of_reach_is_noted(monkeypatch, capsys):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]  # closed again: nothing answers there
    for name in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{port}")
    findings = found(capsys)
    for what in ("network, hub", "network, collections"):
        assert findings[what]["state"] == "note"
        assert "out of reach" in findings[what]["found"]
        assert findings[what]["advice"]


@pytest.mark.parametrize(
    ("settings", "state"),
    [
        ("MinJobAge = 300 sec\nAccountingStorageType = accounting_storage/none", None),
        ("MinJobAge = 60 sec\nAccountingStorageType = accounting_storage/none", "problem"),
        ("MinJobAge = 60 sec\nAccountingStorageType = accounting_storage/slurmdbd", "note"),
    ],
)
def test_a_cluster_is_compared_with_the_profile(programs, settings, state, capsys):
    programs("sinfo", "cpu*|8+|64000|1-00:00:00\ngpu|16|120000|infinite\ncpu*|4|32000|1-00:00:00")
    programs("scontrol", settings)
    findings = found(capsys, "--offline")
    assert findings["SLURM"]["found"] == "partitions cpu, gpu"
    assert findings.get("SLURM, MinJobAge", {}).get("state") == state


@pytest.mark.parametrize(
    ("partitions", "problem"),
    [
        ("cpu*|8|64000|1-00:00:00\ngpu|8|64000|infinite", ""),
        (
            "cpu*|4|64000|1-00:00:00\ngpu|8|64000|infinite",
            "nodes.cpu.cores is 8, but the nodes of partition cpu have 4",
        ),
        (
            "cpu*|8|32000+|12:00:00\ngpu|8|64000|infinite",
            "nodes.cpu.mem_mb is 64000, but the nodes of partition cpu have "
            "32000; nodes.cpu.runtime is 1440, but the nodes of partition cpu have 720",
        ),
        ("cpu*|8|64000|1-00:00:00", "nodes.gpu.partition is gpu, which SLURM does not have"),
    ],
)
def test_the_limits_of_jobs_are_compared_with_the_partitions(programs, partitions, problem, capsys):
    programs("sinfo", partitions)
    finding = found(capsys, "--offline")["SLURM, nodes"]
    assert (finding["state"], finding["found"]) == (
        ("problem", problem) if problem else ("ok", "each job fits a node of its partition")
    )


def test_the_default_partition_is_that_with_a_star():
    assert not list(doctor.excesses(Nodes(), "big*|8|64000|1-00:00:00\nsmall|1|1000|10:00"))
    assert len(list(doctor.excesses(Nodes(), "big|8|64000|1-00:00:00\nsmall*|1|1000|10:00"))) == 6


def test_a_cluster_that_does_not_answer_is_a_problem(programs, capsys):
    programs("sinfo", "slurm_load_partitions: Unable to contact slurm controller", status=1)
    assert found(capsys, "--offline")["SLURM"] == {
        "what": "SLURM",
        "state": "problem",
        "found": "sinfo fails",
        "advice": "ask your administrator: does slurmctld run?",
    }
