"""``beirgrid doctor``: each finding, on a machine that lacks what the check needs."""

from __future__ import annotations

import os
import re

import pytest

from beirgrid.__main__ import main


def findings(capsys, *options: str) -> dict[str, list[tuple[str, str]]]:
    """Return state and text of the findings by subject, with the advice below each."""
    status = main(["doctor", *options])
    told: dict[str, list[tuple[str, str]]] = {}
    for state, what, text in re.findall(r"^(\w+) +([^:]+): (.*(?:\n    .*)?)", capsys.readouterr().out, re.MULTILINE):
        told.setdefault(what, []).append((state, text))
    assert status == any(state == "PROBLEM" for of_subject in told.values() for state, _ in of_subject)
    return told


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
    told = findings(capsys, "--directory", str(tmp_path))
    assert {name: told[name][0][0] for name in ("Java", "PyTorch")} == {"Java": "ok", "PyTorch": "ok"}
    assert told["disk"][0][1].endswith(f"MB free in {tmp_path}") or "free space" in told["disk"][0][1]
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_noted(full_disk, capsys):
    ((state, text),) = findings(capsys, "--directory", str(full_disk))["disk"]
    assert (state, "free space" in text) == ("note", True)


def test_what_no_grid_can_run_with_is_a_problem(programs, tmp_path, monkeypatch, capsys):
    """An absent folder, a Java that does not start, a GPU that PyTorch does not see, a cluster that does not answer."""
    gone = tmp_path / "gone"
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    programs("nvidia-smi", "NVIDIA H200, 580.1, 143771 MiB")
    programs("sinfo", "slurm_load_partitions: Unable to contact slurm controller", status=1)
    told = findings(capsys, "--directory", str(gone))
    absent = f"[Errno 2] No such file or directory: '{gone}'\n    create the folder, or use --directory"
    assert told["disk"] == [("PROBLEM", absent)]
    assert told["Java"] == [("PROBLEM", f"{tmp_path}/bin/java does not start")]
    assert told["SLURM"] == [("PROBLEM", "sinfo fails\n    ask your administrator: does slurmctld run?")]
    gpu, (state, text) = told["GPU"]
    assert gpu == ("ok", "NVIDIA H200, 580.1, 143771 MiB")
    assert state == "PROBLEM"
    assert "TORCH=cuda" in text or "driver" in text


def test_the_limits_of_jobs_stand_beside_the_partitions(programs, capsys):
    programs("sinfo", "partition cpu*: 8 cores, 64000 MB, 1-00:00:00\npartition gpu: 4+ cores, 32000 MB, infinite")
    told = findings(capsys)
    assert told["SLURM"] == [
        ("ok", "partition cpu*: 8 cores, 64000 MB, 1-00:00:00"),
        ("ok", "partition gpu: 4+ cores, 32000 MB, infinite"),
    ]
    assert told["nodes.gpu"] == [("ok", "partition gpu: at most 8 cores, 64000 MB, 1440 minutes for a job")]
