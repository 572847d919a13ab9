"""Install a wheel where no checkout is, and run its commands from any folder."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from helpers import made_once, unpack

from beirgrid.core import checkout
from beirgrid.execution import forks

pytestmark = pytest.mark.slow  # installs
COPIED = ["pyproject.toml", "setup.py", "MANIFEST.in", "README.md", "LICENSE", "CITATION.cff", "CHANGELOG.md"]
COPIED += ["CONTRIBUTING.md", "Snakefile", "config", "docs", "envs", "profiles", "workflow"]


def _call(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run a command that sees neither this checkout nor this Python's variables."""
    hidden = ("PYTHONPATH", "PYTHONSAFEPATH", "VIRTUAL_ENV", forks.FOLDER)
    environment = {name: value for name, value in os.environ.items() if name not in hidden}
    identity = {f"GIT_{who}_{what}": "x" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    return subprocess.run(
        list(map(str, command)), cwd=cwd, env=environment | identity, text=True, capture_output=True, check=False
    )


def _done(*command: str | Path, cwd: Path) -> str:
    done = _call(*command, cwd=cwd)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def home(root, tmp_path_factory) -> Path:
    """A folder with a checkout of its own (``source``), the wheel of it, and a virtual environment that has the wheel.

    The environment sees the libraries of this Python, and not the package that this Python has.
    """

    def make(folder: Path) -> None:
        source = folder / "source"
        source.mkdir()
        for name in COPIED:
            if (root / name).is_dir():
                ignored = shutil.ignore_patterns("__pycache__", "*.egg-info")
                shutil.copytree(root / name, source / name, ignore=ignored)
            else:
                shutil.copy(root / name, source / name)
        for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "all"]):
            _done("git", *command, cwd=source)
        pip = [sys.executable, "-m", "pip"]
        _done(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", f"git+file://{source}", cwd=folder)
        venv.create(folder / "venv", with_pip=False)
        python = folder / "venv/bin/python"
        packages = sysconfig.get_path("purelib", vars={"base": str(folder / "venv")})
        Path(packages, "shared.pth").write_text(sysconfig.get_path("purelib") + "\n")
        wheel = next(folder.glob("*.whl"))
        _done(*pip, "--python", python, "install", "-q", "--no-deps", "--ignore-installed", wheel, cwd=folder)

    return made_once(tmp_path_factory, "package", make)


def test_a_wheel_has_the_workflow_and_its_commit(home):
    with zipfile.ZipFile(next(home.glob("*.whl"))) as wheel:
        names = set(wheel.namelist())
        commit = wheel.read("beirgrid/share/COMMIT").decode().strip()
    shared = ("Snakefile", "workflow/rules/encode.smk", "workflow/report/page.js")
    shared += ("workflow/resources/demo/corpus.jsonl", "envs/neural.yaml", "docs/datasets.md", "CITATION.cff")
    shared += ("config/grids/paper.yaml", "config/published/beir_paper.csv", "profiles/slurm/config.yaml")
    assert {f"beirgrid/share/{name}" for name in shared} <= names
    assert not any("__pycache__" in name or name.startswith(("tests", "setup")) for name in names)
    assert _done("git", "rev-parse", "HEAD", cwd=home / "source").startswith(commit)
    assert len(commit) == 9


def test_an_installed_package_names_the_commit_it_was_built_from(home, tmp_path):
    _done("git", "init", "-q", cwd=tmp_path)  # a repository of somebody else
    commit = _done("git", "rev-parse", "--short=9", "HEAD", cwd=home / "source").strip()
    said = _done(home / "venv/bin/beirgrid", "--version", cwd=tmp_path)
    assert said == f"beirgrid {checkout.__version__}+g{commit}\n"


def test_the_demo_of_an_installed_package_is_planned_from_an_empty_folder(home, tmp_path):
    done = _call(home / "venv/bin/beirgrid", "demo", "-n", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "encode_dense" in done.stdout
    assert str(home / "source") not in done.stdout
    assert not (tmp_path / "results").exists()


def test_an_installed_package_runs_a_grid_without_a_file(home, tmp_path):
    command = home / "venv/bin/beirgrid"
    options = ["--systems", "bm25-flat", "--datasets", "demo", "--metrics", "ndcg@10", "--name", "mine"]
    done = _call(command, "run", *options, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    grid = tmp_path / "results/grids/mine"
    assert (grid / "report/index.html").is_file()
    again = _call(command, "run", grid / "grid.yaml", cwd=tmp_path)
    assert "Nothing to be done" in again.stdout + again.stderr


def test_a_source_archive_builds_the_same_wheel(home, tmp_path):
    """Without git: the archive keeps the commit."""
    script = "from setuptools.build_meta import build_sdist; import sys; print(build_sdist(sys.argv[1]))"
    name = _done(sys.executable, "-c", script, tmp_path, cwd=home / "source").splitlines()[-1]
    unpack(tmp_path / name, tmp_path / "unpacked")
    folder = next((tmp_path / "unpacked").iterdir())
    pip = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", folder]
    _done(*pip, cwd=tmp_path)
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as built, zipfile.ZipFile(next(home.glob("*.whl"))) as first:
        files = [{item.filename: item.CRC for item in wheel.infolist()} for wheel in (built, first)]
    ignored = {name for name in {**files[0], **files[1]} if ".dist-info/" in name}
    assert {name: digest for name, digest in files[0].items() if name not in ignored} == {
        name: digest for name, digest in files[1].items() if name not in ignored
    }
