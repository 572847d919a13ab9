"""Profiles, the literal commands of the README, lint-like facts about the rules."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
import yaml
from helpers import ROOT, snakemake

RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))


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
    names = {rule for path in RULES for rule in re.findall(r"^rule (\w+):", path.read_text(), re.MULTILINE)}
    assert set(settings["set-resources"]) <= names
    rules = [rule for path in RULES for rule in re.split(r"^rule ", path.read_text(), flags=re.MULTILINE)[1:]]
    models = {rule.split(":")[0] for rule in rules if " gpu=" in rule}
    grouped = {rule.split(":")[0] for rule in rules if "    group:" in rule}
    alone = {"retrieve_lucene", "rerank", "fuse"}  # in jobs that run no model
    assert set(settings["set-resources"]) == models | (grouped - alone)


def test_only_one_kind_of_gpu_request_is_made():
    """gres and gpu together conflict in the plugin."""
    assert not any("gres" in path.read_text() for path in RULES)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_rules_have_all_directives_in_one_order(path):
    order = ["message", "input", "output", "params", "log", "benchmark", "wildcard_constraints"]
    order += ["conda", "threads", "resources", "group", "shell"]
    optional = {"input", "wildcard_constraints", "group"}
    for body in re.split(r"^rule \w+:", path.read_text(), flags=re.MULTILINE)[1:]:
        found = re.findall(r"^    (\w+):", body, re.MULTILINE)
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
