"""Pins agree: conda environments, the lock, and what is installed."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement

ENVIRONMENTS = sorted((Path(__file__).parent.parent.parent / "envs").glob("*.yaml"))


def _locked(root: Path) -> dict[str, str]:
    """Return name to version for the Python that the conda environments have."""
    text = "".join((root / "requirements" / name).read_text() for name in ("lock.txt", "torch-cuda.txt"))
    lines = re.findall(r"^[A-Za-z0-9_.-]+==[^\\\n]+", text, flags=re.MULTILINE)
    python = {"python_full_version": "3.11.11", "python_version": "3.11"}
    pins = [pin for pin in map(Requirement, lines) if pin.marker is None or pin.marker.evaluate(python)]
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.stem)
def test_conda_environments_agree_with_the_lock(root, path):
    environment = yaml.safe_load(path.read_text())
    *packages, pip = environment["dependencies"]
    assert all(re.fullmatch(r"[a-z]+=[\d.]+", package) for package in packages), "conda packages have exact pins"
    locked = _locked(root)
    for pin in pip["pip"]:
        name, _, pinned = pin.partition("==")
        assert locked.get(name) == pinned, f"{path.name}: {pin} is not what requirements/ has"


def test_every_locked_package_has_hashes(root):
    for path in (root / "requirements").glob("*.txt"):
        blocks = re.split(r"\n(?=[A-Za-z0-9])", path.read_text().strip())
        assert all("==" in block and "--hash=sha256:" in block for block in blocks), path


def test_what_is_installed_is_what_is_locked(root):
    direct = re.findall(r"^([A-Za-z0-9_-]+)(?:\[\w+\])?==(\S+)", (root / "requirements" / "lock.in").read_text(), re.M)
    assert len(direct) > 20
    for name, pinned in direct:
        assert version(name).split("+")[0] == pinned, name


def test_torchs_two_builds_are_one_version(root):
    cpu = (root / "requirements" / "torch-cpu.txt").read_text().split()[0]
    cuda = (root / "requirements" / "torch-cuda.txt").read_text().split()[0]
    assert cpu == f"{cuda}+cpu"
