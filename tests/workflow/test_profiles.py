"""Profiles, the literal commands of the README, lint-like facts about the rules."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml
from helpers import ROOT, rules, snakemake
from small import SYSTEMS, run


@pytest.mark.parametrize(
    "arguments",
    [
        ("--profile", "slurm"),
        ("--workflow-profile", "slurm"),
        ("--profile", "profiles/slurm"),
        ("--profile", "profiles/local"),
        ("--cores", "1"),
        ("--profile", "slurm", "--configfile", "config/grids/paper.yaml"),
        ("--profile", "slurm", "--configfile", "config/grids/modern.yaml"),
        ("--profile", "slurm", "--configfile", "config/grids/adapt-demo.yaml"),
    ],
    ids=" ".join,
)
def test_a_dry_run_schedules_the_grid(arguments, tmp_path):
    done = snakemake("-n", *arguments, "--directory", tmp_path, "--quiet", "rules")
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"^encode +(\d+)$", done.stdout, re.MULTILINE)[1]) > 0
    assert not (tmp_path / "results").exists()


def test_the_slurm_profile_says_what_the_plugin_knows():
    settings = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    helped = subprocess.run(
        [sys.executable, "-m", "snakemake", "--help"], text=True, capture_output=True, check=True
    ).stdout
    options = set(re.findall(r"--([a-z][a-z-]+)", helped))
    assert {name for name in settings if name not in options} == set()
    assert settings["slurm-status-command"] == "squeue"  # sacct hangs where accounting is off
    assert set(settings["set-resources"]) <= set(rules())
    models = {rule for rule, body in rules().items() if " gpu=" in body}
    grouped = {rule for rule, body in rules().items() if "    group:" in body}
    alone = {"retrieve_lucene", "rerank", "fuse"}  # in jobs that run no model
    assert set(settings["set-resources"]) == models | (grouped - alone)


def test_only_one_kind_of_gpu_request_is_made():
    """gres and gpu together conflict in the plugin."""
    assert not any("gres" in body for body in rules().values())


@pytest.mark.parametrize("rule", sorted(rules()))
def test_rules_have_all_directives_in_one_order(rule):
    order = ["message", "input", "output", "params", "log", "benchmark", "wildcard_constraints"]
    order += ["conda", "threads", "resources", "group", "shell"]
    optional = {"input", "wildcard_constraints", "group"}
    found = list(dict.fromkeys(re.findall(r"^    (\w+):", rules()[rule], re.MULTILINE)))
    assert found == [name for name in order if name in found]
    assert set(order) - optional <= set(found)


def test_parsing_imports_nothing_heavy(tmp_path):
    code = (
        "import sys, yaml; sys.path.insert(0, 'workflow');"
        "from beirgrid import config, environment, grid, paths, provenance;"
        "heavy = {'torch', 'datasets', 'pyserini', 'transformers', 'ranx', 'numpy', 'pandas', 'ir_datasets'};"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_slurm_profile_extends_a_grid_of_small_corpora(small_grid, tmp_path):
    """Stages that share jobs with others, and the same stages alone, must ask for the same kind of node."""
    encode = {"precision": "float32", "keep": True}
    grid = {"systems": ["bm25-flat", "tiny", "sparse"], "datasets": ["small"]}
    first = small_grid(tmp_path, encode=encode, grid=grid)
    done = run(first, tmp_path)
    assert done.returncode == 0, done.stdout
    raw = yaml.safe_load(first.read_text())
    models = {**raw["models"], "tiny-dense-2": {**raw["models"]["tiny-dense"], "max_length": 50}}
    systems = SYSTEMS | {"k": {"retriever": "bm25", "k1": 1.2}, "tiny2": {"retriever": "tiny-dense-2"}}
    grid["systems"] += ["k", "tiny2", "fused"]
    more = small_grid(
        tmp_path, systems=systems, encode=encode, grid=grid, models=models, metrics=["ndcg@10", "recall@100", "p@5"]
    )
    planned = snakemake(
        *("-n", "--profile", "slurm", "--configfile", more, "--directory", tmp_path),
        *("--forcerun", "index_faiss"),  # of the one model alone, of the other after its encoding
    )
    assert planned.returncode == 0, planned.stdout
    counts = dict(re.findall(r"^(\w+) +(\d+)$", planned.stdout, re.MULTILINE))
    assert (counts["evaluate"], counts["encode"], counts["index_faiss"]) == ("6", "1", "2")
