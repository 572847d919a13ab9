"""Another family of retrievers takes a row, a class, an encoder and a search: the graph follows from the row."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import yaml
from helpers import ROOT

# What is put into two files of the package. The encoder and the search are two files of their own.
MODELS = '''
class BinaryModel(ModelEntry):
    """One bit per dimension."""

    family: Literal["binary"] = Field(description="Decides how the checkpoint is opened and searched.")
    bits: Size = Field(256, description="Bits of a vector.")


'''
ROW = '        Family("binary", "retriever", embeddings=".bits", index=".binary", index_threads=4, costs="dense"),\n'
GRID = {
    "models": {"coded": {"family": "binary", "checkpoint": "a/b", "revision": "0" * 40, "bits": 128}},
    "systems": {
        "coded": {"retriever": "coded"},
        "coded+ce": {"first_stage": "coded", "reranker": "ms-marco-minilm"},
        "both": {"fusion": "rrf", "of": ["bm25", "coded"]},
    },
    "grid": {"systems": ["coded", "coded+ce", "both"], "datasets": ["demo"]},
}


def _insert(path: Path, before: str, text: str) -> None:
    """Put text before a line that stands in a file once."""
    content = path.read_text()
    assert content.count(before) == 1
    path.write_text(content.replace(before, text + before))


def _run(checkout: Path, folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *command, "--directory", str(folder), "--configfile", str(folder / "grid.yaml")],
        cwd=checkout,
        env={"PYTHONPATH": str(checkout / "workflow"), "PATH": "/usr/bin:/bin", "HOME": str(folder)},
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        check=False,
    )


def test_a_grid_with_another_family_is_planned(tmp_path):
    checkout = tmp_path / "checkout"
    for name in ("workflow", "config", "envs", "profiles"):
        shutil.copytree(ROOT / name, checkout / name, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(ROOT / "Snakefile", checkout)
    package = checkout / "workflow" / "beirgrid" / "config"
    _insert(package / "models.py", "Model = Annotated[\n", MODELS)
    _insert(package / "models.py", "    | TermWeightsModel,\n", "    | BinaryModel\n")
    _insert(package / "families.py", '        Family("cross-encoder", "reranker"),\n', ROW)
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(GRID))
    dry = _run(checkout, tmp_path, "snakemake", "-n", "-p", "--cores", "1")
    assert dry.returncode == 0, dry.stdout
    counts = {rule: int(jobs) for rule, jobs in re.findall(r"^(\w+) +(\d+)$", dry.stdout, re.MULTILINE)}
    assert {rule: counts[rule] for rule in counts if "binary" in rule} == {
        "encode_binary": 1,
        "index_binary": 1,
        "retrieve_binary": 1,
    }
    assert counts["total"] == 2 + 2 + 3 + 2 + 1 + 1 + 1 + 3 + 3  # fetched, binary, BM25, reranked, fused, evaluated
    assert "results/embeddings/coded/demo/0.bits" in dry.stdout
    (command,) = re.findall(r" -m beirgrid .* retrieve (\S+) --system coded ", dry.stdout)
    assert command == "binary"
    arguments = [path.read_text() for path in (tmp_path / ".snakemake/beirgrid").glob("*.args")]
    read = {text for text in arguments if text.startswith('{"family": "binary"')}
    assert [json.loads(text) for text in read] == [{"family": "binary", "bits": 128}]
    plan = _run(checkout, tmp_path, "beirgrid", "plan", "--format", "json")
    rules = json.loads(plan.stdout)["rules"]
    assert rules["encode_binary"]["mem_mb"] > 1000
    assert rules["encode_binary"]["gpu_hours"] > 0 == rules["index_binary"]["gpu_hours"]
    wrong = {"models": {"minilm": {"bits": 8}}, "grid": GRID["grid"]}
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(GRID | wrong))
    refused = _run(checkout, tmp_path, "beirgrid", "plan").stdout
    assert "models.minilm: the key 'bits' goes with binary models, not with dense ones" in refused
