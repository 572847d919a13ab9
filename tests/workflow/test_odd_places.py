"""Checkouts and working directories with odd names and contents; grids of hundreds of systems."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from helpers import ROOT, snakemake

ODD = 'it\'s a "{co}" {system} $(touch hacked) `touch hacked` <x> <results> & ; * ü'


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the checkout under an odd name, with what Python and numba have compiled there."""
    folder = tmp_path_factory.mktemp("checkout") / ODD
    half_written = shutil.ignore_patterns("*.pyc.*", "*.tmp.*")
    for name in ("workflow", "config", "envs", "profiles"):
        shutil.copytree(ROOT / name, folder / name, ignore=half_written)
    shutil.copy(ROOT / "Snakefile", folder)
    return folder


def _snakemake(checkout: Path, *arguments: str | Path, folder: Path) -> str:
    done = snakemake(*arguments, "--directory", folder, "--cores", "2", cwd=checkout)
    assert done.returncode == 0, done.stdout
    return done.stdout


def _commands(dry: str) -> list[str]:
    """Return the shell commands that a dry run prints."""
    return re.findall(r"^Shell command: (PYTHONSAFEPATH=1 .*)$", dry, re.MULTILINE)


def test_the_demo_is_planned_in_short_commands_anywhere(checkout, tmp_path):
    folder = tmp_path / ODD
    folder.mkdir()
    dry = _snakemake(checkout, "--dry-run", "-p", "--configfile", "config/grids/demo.yaml", folder=folder)
    commands = _commands(dry)
    assert len(commands) > 20
    # the checkout's path stands in the tables' settings, once per file of published values
    longest = max(commands, key=len)
    assert len(longest) - longest.count("/config/published/") * len(str(checkout)) < 2000
    assert not list(tmp_path.rglob("hacked")) + list(checkout.parent.rglob("hacked"))


@pytest.mark.slow
def test_a_grid_is_made_anywhere_and_no_file_there_is_run(checkout, tmp_path):
    """The working directory has modules under the names of those that stages import; one would leave a mark."""
    folder = tmp_path / ODD
    folder.mkdir()
    for name in ("json", "datasets", "numpy", "pandas", "argparse", "beirgrid", "site", "sitecustomize"):
        (folder / f"{name}.py").write_text(f"open({str(tmp_path / 'mark')!r}, 'w').close()\nraise SystemExit")
    grid = tmp_path / "grid.yaml"
    grid.write_text("grid: {systems: [bm25-flat], datasets: [demo]}\nmetrics: [ndcg@10]\n")
    _snakemake(checkout, "--configfile", grid, folder=folder)
    assert (folder / "results/grids/grid/tables/ndcg@10.md").read_text().count("|") > 6
    assert (folder / "results/grids/grid/report/index.html").is_file()
    assert "Nothing to be done" in _snakemake(checkout, "--configfile", grid, folder=folder)
    (folder / "beirgrid.py").unlink()  # what a person starts there by that name is that file
    said = subprocess.run(
        [sys.executable, "-m", "beirgrid", "status"],
        cwd=folder,
        env={"PYTHONPATH": str(checkout / "workflow"), "PATH": "/usr/bin:/bin"},
        text=True,
        capture_output=True,
        check=False,
    )
    assert said.stdout.startswith("finished after"), said
    assert not [*tmp_path.rglob("hacked"), *checkout.parent.rglob("hacked"), *tmp_path.glob("mark")]


@pytest.mark.slow
def test_five_hundred_systems_make_short_commands(tmp_path):
    systems = {f"bm25-number-{i}": {"retriever": "bm25", "k1": i / 100} for i in range(500)}
    systems["all"] = {"fusion": "rrf", "of": list(systems)}
    grid = tmp_path / "grid.yaml"
    settings = {"systems": systems, "grid": {"systems": list(systems), "datasets": ["demo"]}, "metrics": ["p@5"]}
    grid.write_text(yaml.safe_dump(settings))
    dry = _snakemake(ROOT, "--dry-run", "-p", "--configfile", grid, folder=tmp_path)
    commands = _commands(dry)
    assert len(commands) == 2 * 501 + 5  # a run and its metrics each; corpus, dataset, index, tables, report
    (fusion,) = (command for command in commands if " fuse " in command)
    assert max(len(command) for command in commands if command != fusion) < 2000
    assert len(re.findall(r'"results/runs/[^"]+"', fusion)) == 500 + 1 + 1
    assert len(fusion) < 65_000  # Snakemake puts longer commands into files


@pytest.mark.slow
def test_a_model_inside_the_working_directory_is_found(tiny_models, tmp_path):
    folder = tmp_path / "work {x}"
    shutil.copytree(tiny_models["dense"], folder / "my model")
    settings = {
        "models": {"mine": {"family": "dense", "similarity": "cosine", "path": "my model"}},
        "systems": {"mine": {"retriever": "mine"}},
        "grid": {"systems": ["mine"], "datasets": ["demo"]},
        "metrics": ["p@5"],
    }
    (folder / "grid.yaml").write_text(yaml.safe_dump(settings))
    _snakemake(ROOT, "--configfile", folder / "grid.yaml", "--until", "fetch_model", folder=folder)
    assert (folder / "results/models/mine/checkpoint/model.safetensors").is_file()
