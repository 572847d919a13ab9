"""Shared fixtures: the checkout, small collections, and tiny checkpoints in the true on-disk format."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from helpers import ROOT

REAL = ROOT.parent / "shared" / "data" / "beir"

# No test may reach a hub, whatever the machine.
os.environ["HF_HUB_OFFLINE"] = "1"


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture(scope="session")
def real() -> Path:
    """Folder of real collections; tests that use it are skipped where it is absent."""
    if not (REAL / "scifact").is_dir():
        pytest.skip(f"no real collections under {REAL}")
    return REAL


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Checkpoints of random weights, by family."""
    from checkpoints import save_cross_encoder, save_dense, save_query_generator, save_term_weights

    folder = tmp_path_factory.mktemp("checkpoints")
    return {
        "dense": save_dense(folder / "dense"),
        "cross-encoder": save_cross_encoder(folder / "cross-encoder"),
        "query-generator": save_query_generator(folder / "query-generator"),
        "term-weights": save_term_weights(folder / "term-weights"),
    }


@pytest.fixture
def full_disk(tmp_path):
    """A file system of 1 MB."""
    if os.geteuid() != 0:
        pytest.skip("only root may mount a small file system")
    (tmp_path / "disk").mkdir()
    try:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(tmp_path / "disk")]
        mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if mounted.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    yield tmp_path / "disk"
    subprocess.run(["umount", str(tmp_path / "disk")], check=True)
