"""Number of examples that hypothesis tries: a hundred fixed ones, or ten thousand new ones (``make test-full``)."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

_COMMON = {
    "deadline": None,
    "database": None,
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}
settings.register_profile("hundred", max_examples=100, derandomize=True, **_COMMON)
settings.register_profile("full", max_examples=10_000, print_blob=True, **_COMMON)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "hundred"))

MEMORY = Path("/dev/shm")  # Linux has it


@pytest.fixture(scope="package", autouse=True)
def files_in_memory() -> Iterator[None]:
    """Keep temporary files in memory: on a disk, an example takes four times as long, as artifacts are synced."""
    usual = tempfile.tempdir
    tempfile.tempdir = str(MEMORY) if MEMORY.is_dir() else usual
    yield
    tempfile.tempdir = usual
