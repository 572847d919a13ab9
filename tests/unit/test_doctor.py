"""``beirgrid doctor``: each finding, on a machine that lacks what the check needs."""

from __future__ import annotations

import os
import re
import sys

import pytest
import yaml

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
    ((state, text),) = told["Java"]
    assert (state, text.partition("\n")[0]) == ("PROBLEM", f"{tmp_path}/bin/java does not start")
    assert told["SLURM"] == [("PROBLEM", "sinfo fails\n    ask your administrator: does slurmctld run?")]
    gpu, (state, text) = told["GPU"]
    assert gpu == ("ok", "NVIDIA H200, 580.1, 143771 MiB")
    assert state == "PROBLEM"
    assert "TORCH=cuda" in text or "driver" in text


# As `sinfo --exact` prints them: gpu has two kinds of nodes.
PARTITIONS = """\
cpu* 8 64000 1-00:00:00 (null)
gpu 4 190000 infinite gpu:a100:4(S:0-1)
gpu 16 32000 infinite gpu:v100:2
short 8 64000 30:00 (null)"""
FITS = "at most 8 cores, 64000 MB, 1440 minutes for a job"


def test_partitions_are_listed_with_their_nodes(programs, capsys):
    programs("sinfo", PARTITIONS)
    assert findings(capsys)["SLURM"] == [
        ("ok", "partition cpu*: 8 cores, 64000 MB, 1-00:00:00, GPU: none"),
        ("ok", "partition gpu: 4 cores, 190000 MB, infinite, GPU: gpu:a100:4(S:0-1)"),
        ("ok", "partition gpu: 16 cores, 32000 MB, infinite, GPU: gpu:v100:2"),
        ("ok", "partition short: 8 cores, 64000 MB, 30:00, GPU: none"),
    ]


@pytest.mark.parametrize(
    ("kind", "nodes", "expected"),
    [
        ("cpu", {"cores": 8}, ("ok", f"partition cpu: {FITS}")),
        ("cpu", {"partition": ""}, ("ok", f"partition by default: {FITS}")),
        ("cpu", {"partition": "short,cpu"}, ("ok", f"partition short,cpu: {FITS}")),
        ("gpu", {"cores": 4, "gpu_model": "a100"}, ("ok", "partition gpu: at most 4 cores")),
        ("gpu", {"cores": 16, "mem_mb": 32000}, ("ok", "partition gpu: at most 16 cores")),
        ("cpu", {"partition": "standard"}, ("PROBLEM", "to one of those of SLURM: cpu, gpu, short")),
        ("gpu", {"partition": "cpu"}, ("PROBLEM", "there is no partition cpu with gpu:\n")),
        ("gpu", {"gpu_model": "h100"}, ("PROBLEM", "there is no partition gpu with gpu:h100\n")),
        ("cpu", {"cores": 9}, ("PROBLEM", "set nodes.cpu.cores: 8")),
        ("cpu", {"cores": 9, "mem_mb": 64001}, ("PROBLEM", "set nodes.cpu.cores: 8, nodes.cpu.mem_mb: 64000")),
        ("cpu", {"partition": "short"}, ("PROBLEM", "set nodes.cpu.runtime: 30")),
        ("gpu", {"cores": 8}, ("PROBLEM", "set nodes.gpu.cores: 4")),  # each kind of node lacks one of the two
    ],
)  # fmt: skip
def test_nodes_that_slurm_lacks_are_a_problem(kind, nodes, expected, programs, tmp_path, capsys):
    programs("sinfo", PARTITIONS)
    (tmp_path / "cluster.yaml").write_text(yaml.safe_dump({"nodes": {kind: nodes}}))
    ((state, text),) = findings(capsys, "--configfile", str(tmp_path / "cluster.yaml"))[f"nodes.{kind}"]
    assert (state, expected[1] in text) == (expected[0], True), text


def test_without_models_on_gpus_no_gpu_nodes_are_needed(programs, tmp_path, capsys):
    programs("sinfo", "cpu* 8 64000 infinite (null)")
    (tmp_path / "cluster.yaml").write_text("device: cpu")
    told = findings(capsys, "--configfile", str(tmp_path / "cluster.yaml"))
    assert told["nodes.cpu"] == [("ok", f"partition cpu: {FITS}")]
    assert "nodes.gpu" not in told


def test_a_cluster_without_snakemakes_plugin_is_a_problem(programs, monkeypatch, capsys):
    programs("sinfo", PARTITIONS)
    monkeypatch.setitem(sys.modules, "snakemake_executor_plugin_slurm", None)  # as if it were not installed
    state, text = findings(capsys)["SLURM"][0]
    assert state == "PROBLEM"
    assert text.endswith("-m pip install snakemake-executor-plugin-slurm")


@pytest.mark.parametrize(
    ("version", "state"), [('openjdk version "21" 2023-09-19', "ok"), ('java version "17.0.9"', "PROBLEM"),
                           ('java version "1.8.0_392"', "PROBLEM")],
)  # fmt: skip
def test_an_old_java_is_a_problem(version, state, programs, tmp_path, monkeypatch, capsys):
    programs("java", version)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    (tmp_path / "programs").rename(tmp_path / "bin")
    ((seen, text),) = findings(capsys)["Java"]
    assert (seen, text.partition("\n")[0]) == (state, version)
    assert ("BM25 needs Java 21 or newer" in text) == (state == "PROBLEM")
