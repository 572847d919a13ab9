"""Profiles, the literal commands of the README, lint-like facts about the rules."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml
from helpers import ROOT, python, snakemake
from small import SYSTEMS, finish, job_counts

from beirgrid.config.load import merged
from beirgrid.core import paths

# A grid of which a dry run takes half as long as that of the default grid.
DEMO = ("--configfile", "config/grids/demo.yaml")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--workflow-profile", "slurm", *DEMO),
        ("--profile", "profiles/slurm", *DEMO),
        ("--profile", "profiles/local", *DEMO),
        ("--cores", "1", *DEMO),
        pytest.param(("--profile", "slurm", "--configfile", "config/grids/paper.yaml"), marks=pytest.mark.full),
        pytest.param(("--profile", "slurm", "--configfile", "config/grids/modern.yaml"), marks=pytest.mark.slow),
        ("--profile", "slurm", "--configfile", "config/grids/adapt-demo.yaml"),
    ],
    ids=" ".join,
)
def test_a_dry_run_schedules_the_grid(arguments, tmp_path):
    done = snakemake("-n", *arguments, "--directory", tmp_path, "--quiet", "rules")
    assert done.returncode == 0, done.stdout
    assert int(re.search(r"^encode_dense +(\d+)$", done.stdout, re.MULTILINE)[1]) > 0
    assert not (tmp_path / "results").exists()


def test_the_default_grid_has_a_system_of_each_kind_on_the_public_collections(tmp_path):
    """As typed in a fresh clone."""
    done = snakemake("-n", "--profile", "slurm", "--directory", tmp_path, "--quiet", "rules")
    kinds = ("lexical", "dense", "sparse", "late_interaction")
    # 13 datasets, and the 12 forums of CQADupStack.
    assert not (tmp_path / "results").exists()
    expected = {**{f"retrieve_{kind}": 25 for kind in kinds}, "rerank": 25, "fuse": 25, "evaluate": 6 * 25}
    assert job_counts(done).items() >= expected.items()
    config = merged()
    reranked = config.systems["bm25+ce"]
    assert (config.retrieve.depth, reranked.first_stage, reranked.depth) == (1000, "bm25", 100)
    assert config.models[reranked.reranker].family == "cross-encoder"


def test_the_slurm_profile_has_options_that_snakemake_knows():
    settings = yaml.safe_load((ROOT / "profiles/slurm/config.yaml").read_text())
    helped = subprocess.run([python(), "-m", "snakemake", "--help"], text=True, capture_output=True, check=True).stdout
    options = set(re.findall(r"--([a-z][a-z-]+)", helped))
    assert {name for name in settings if name not in options} == set()
    assert settings["slurm-status-command"] == "squeue"  # sacct hangs where accounting is off
    assert "set-resources" not in settings  # partitions come from the configuration


@pytest.mark.slow
def test_the_workflow_for_ci_runs_a_grid_and_then_what_is_new(tmp_path):
    """Its own commands, but for the installation. The second machine has the cached results alone."""
    page = (ROOT / "docs" / "quickstart.md").read_text()
    ci = yaml.safe_load(re.search(r"```yaml\n(name: Grid\n.*?)```", page, re.DOTALL)[1])
    steps = ci["jobs"]["grid"]["steps"]
    commands = [step["run"] for step in steps if "run" in step and not step["run"].startswith("pip ")]
    (cached,) = [step["with"]["path"] for step in steps if "cache" in step.get("uses", "")]
    (kept,) = [step["with"]["path"] for step in steps if "artifact" in step.get("uses", "")]
    machines = [tmp_path / "first", tmp_path / "second"]
    said = []
    for machine in machines:
        machine.mkdir()
        if machine == machines[1]:
            shutil.copytree(machines[0] / cached, machine / cached)
        (machine / "grid.yaml").write_text("grid: {name: g, systems: [bm25-flat], datasets: [demo]}\n")
        folders = f"{ROOT / '.venv/bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        environment = {**os.environ, "PATH": folders, "GITHUB_STEP_SUMMARY": str(machine / "summary.md")}
        script = ["bash", "-euo", "pipefail", "-c", "\n".join(commands)]
        done = subprocess.run(script, cwd=machine, env=environment, text=True, capture_output=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "| demo | " in (machine / "summary.md").read_text()
        assert [path.name for path in machine.glob(f"{kept}/*.html")] == ["index.html"]
        said.append(done.stdout + done.stderr)
    assert "Nothing to be done" in said[1]
    assert "Nothing to be done" not in said[0]


@pytest.mark.parametrize(
    "name", ["Snakefile", "workflow", "config", "envs", "results", "profiles", "tests", "README.md"]
)
def test_the_top_level_is_in_git(name):
    done = subprocess.run(["git", "ls-files", name], cwd=ROOT, text=True, capture_output=True, check=True)
    assert done.stdout


def test_the_page_of_the_results_names_every_folder():
    written = {path.split("/")[1] for path in vars(paths).values() if str(path).startswith("results/")}
    assert len(written) > 10
    assert written <= set(re.findall(r"`(\w+)`", (ROOT / "results" / "README.md").read_text()))


def test_parsing_imports_nothing_heavy(tmp_path):
    code = (
        "import sys, yaml; sys.path.insert(0, 'workflow');"
        "from beirgrid import config;"
        "from beirgrid.core import interrupts, paths, provenance;"
        "from beirgrid.graph import dag, rules; dag.stages();"
        "from beirgrid.execution import events; from beirgrid.tools import status;"
        "heavy = {'torch', 'datasets', 'pyserini', 'transformers', 'numpy', 'pandas', 'pyarrow',"
        " 'ir_datasets', 'snakemake'};"
        "sys.exit(', '.join(sorted(heavy & set(sys.modules))) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_the_slurm_profile_extends_a_grid_of_small_corpora(small_grid, tmp_path):
    """Stages that share jobs with others, and the same stages alone, must ask for the same kind of node."""
    encode = {"precision": "float32", "keep": True}
    grid = {"systems": ["bm25-flat", "tiny", "sparse"], "datasets": ["small"]}
    first = small_grid(tmp_path, encode=encode, grid=grid)
    finish(first, tmp_path)
    raw = yaml.safe_load(first.read_text())
    models = {**raw["models"], "tiny-dense-2": {**raw["models"]["tiny-dense"], "max_length": 50}}
    systems = SYSTEMS | {"k": {"retriever": "bm25", "k1": 1.2}, "tiny2": {"retriever": "tiny-dense-2"}}
    grid["systems"] += ["k", "tiny2", "fused"]
    more = small_grid(
        tmp_path, systems=systems, encode=encode, grid=grid, models=models, metrics=["ndcg@10", "recall@100", "p@5"]
    )
    planned = snakemake(
        *("-n", "--profile", "slurm", "--configfile", more, "--directory", tmp_path),
        *("--forcerun", "index_dense"),  # of the one model alone, of the other after its encoding
    )
    assert job_counts(planned).items() >= {"evaluate": 6, "encode_dense": 1, "index_dense": 2}.items()


def test_modules_and_rules_stay_short():
    """A module is read in one sitting; rules only connect files to commands."""
    lines = {path: path.read_text().count("\n") for path in (ROOT / "workflow" / "beirgrid").rglob("*.py")}
    assert {path.name: count for path, count in lines.items() if count >= 480} == {}
    rules = [path.read_text() for path in (ROOT / "workflow" / "rules").glob("*.smk")]
    assert max(text.count("\n") for text in rules) < 250
    assert not re.findall(r"^ +rule\b.*:$|\blambda\b", "".join(rules), re.MULTILINE)  # in loops, nameless functions


def test_no_two_modules_and_no_two_public_classes_have_one_name():
    paths = [path for path in (ROOT / "workflow" / "beirgrid").rglob("*.py") if path.stem != "__init__"]
    # Each stage has a plan and a work module. Products beside the grid name their modules as the grid does.
    stages = [path.parent for path in paths if path.stem == "plan"]
    modules = Counter(path.stem for path in paths if path.parent not in stages and path.parent.name != "sets")
    found = (re.findall(r"^class ([A-Z]\w*)", path.read_text(), re.MULTILINE) for path in paths)
    classes = Counter(name for names in found for name in names)
    assert [name for name, count in (modules + classes).items() if count > 1] == []


def test_no_public_function_has_a_name_that_says_nothing():
    for path in (ROOT / "workflow" / "beirgrid").rglob("*.py"):
        names = re.findall(r"\bdef (\w+)", path.read_text())
        assert not re.findall(
            r"\b(?:agreed|alike|asked|found|given|joined|kept|moved|named|told)\b", " ".join(names)
        ), path
