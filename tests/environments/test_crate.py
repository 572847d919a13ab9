"""Validate beirgrid's crates with roc-validator, for the profile that they claim.

roc-validator needs an older rich than import-linter does, so it is installed into a separate virtual environment.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import finished
import pytest
from helpers import ROOT

pytestmark = pytest.mark.environments

VALIDATOR = "roc-validator==0.13.0"


@pytest.fixture(scope="module")
def validator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment with the validator."""
    folder = tmp_path_factory.mktemp("validator")
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin/python"
    subprocess.run([python, "-m", "pip", "install", "--quiet", VALIDATOR], check=True)
    return python


@pytest.fixture
def crate(tmp_path: Path) -> Path:
    """The crate of a folder with one cell."""
    with finished.at(tmp_path / "work"):
        finished.collection(Path(), "mine")
        finished.searched("a+b@c", "mine", finished.rankings(1), "float32", depth=10)
        finished.command("export", "ro-crate", "--output", str(tmp_path / "crate"), "--author", "A. B.")
    return tmp_path / "crate"


def _validated(validator: Path, crate: Path) -> subprocess.CompletedProcess[str]:
    context = ROOT / "tests/data/ro-crate-1.1-context.jsonld.gz"
    command = [validator, Path(__file__).with_name("validate_crate.py"), crate, context]
    return subprocess.run(command, text=True, capture_output=True, check=False)


def test_a_crate_is_a_workflow_run_crate(validator, crate):
    done = _validated(validator, crate)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_validator_notices_what_is_missing(validator, crate):
    (crate / "workflow/Snakefile").unlink()
    metadata = json.loads((crate / "ro-crate-metadata.json").read_text())
    metadata["@graph"] = [entity for entity in metadata["@graph"] if entity["@type"] != "CreateAction"]
    (crate / "ro-crate-metadata.json").write_text(json.dumps(metadata))
    done = _validated(validator, crate)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "workflow" in done.stdout
