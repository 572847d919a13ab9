"""The workflow as the real snakedeploy deploys it from a repository, and what Snakemake makes of that.

git fetches the repository from a folder in place of github.com.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT, copy_checkout, install_beside

pytestmark = pytest.mark.environments

# Beside what the tests have. snakedeploy 0.17.1 declares no support for Python 3.13.
PACKAGES = ["snakedeploy==0.17.1", "pygithub==2.10.0", "pynacl==1.6.2", "toml==0.10.2", "pyjwt==2.15.1"]
PACKAGES += ["cryptography==50.0.2", "cffi==2.1.1", "pycparser==3.12"]
URL = "https://github.com/beirgrid/beirgrid"
CONFIG = "grid: {systems: [bm25-flat], datasets: [demo]}\nmetrics: [main]\n"


def _environment(folder: Path) -> dict[str, str]:
    git = {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{folder}/hub/.insteadOf"}
    git |= {"GIT_CONFIG_VALUE_0": "https://github.com/", "GITHUB_TOKEN": ""}  # a token would change the address
    return os.environ | git | {"XDG_CACHE_HOME": str(folder / "cache"), "PYTHONPATH": f"{ROOT / 'workflow'}"}


def _git(folder: Path, *arguments: str) -> None:
    options = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", "-C", folder, *options, *arguments], check=True, capture_output=True)


@pytest.fixture(scope="module")
def deployed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a deployed workflow, beside the repository that it came from."""
    folder = tmp_path_factory.mktemp("snakedeploy")
    repository = copy_checkout(folder / "hub/beirgrid/beirgrid")
    _git(repository, "init", "--quiet")
    _git(repository, "add", "--all")
    _git(repository, "commit", "--quiet", "--message", "All")
    _git(repository, "tag", "v1")
    install_beside(folder / "packages", *PACKAGES)
    environment = _environment(folder) | {"PYTHONPATH": str(folder / "packages")}
    program = "from snakedeploy.client import main; main()"
    command = [sys.executable, "-c", program, "deploy-workflow", URL, folder / "mine", "--tag", "v1"]
    subprocess.run(command, env=environment, check=True)
    (folder / "mine/config/config.yaml").write_text(CONFIG)
    return folder / "mine"


def _snakemake(deployed: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "snakemake", "--cores", "1", *options]
    environment = _environment(deployed.parent)
    return subprocess.run(
        command, cwd=deployed, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False
    )


def test_a_deployed_workflow_makes_the_report(deployed):
    done = _snakemake(deployed)
    assert done.returncode == 0, done.stdout
    assert "bm25-flat has nDCG@10 on demo" in done.stdout
    assert (deployed / "results/grids/grid/report/index.html").is_file()


def test_rules_of_another_version_than_the_package_are_refused(deployed):
    repository = deployed.parent / "hub/beirgrid/beirgrid"
    with (repository / "workflow/rules/fuse.smk").open("a") as rules:
        rules.write("# another version\n")
    _git(repository, "commit", "--quiet", "--all", "--message", "Another version")
    _git(repository, "tag", "v2")
    snakefile = deployed / "workflow/Snakefile"
    snakefile.write_text(snakefile.read_text().replace('tag="v1"', 'tag="v2"'))
    done = _snakemake(deployed, "--dry-run")
    assert done.returncode == 1
    assert "fuse.smk differs from" in done.stdout
