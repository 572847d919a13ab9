"""A run whose jobs are forked from its own servers, as a user's are, gives the same results."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers import ROOT
from small import SYSTEMS

from beirgrid.tools import forks

pytestmark = pytest.mark.slow  # whole workflows


@pytest.fixture
def short() -> Iterator[Path]:
    """A folder with a short name, as the address of a socket has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="f") as folder:
        yield Path(folder)


@pytest.mark.skipif(not forks.possible(), reason="jobs are not forked where there is a GPU")
def test_a_run_forks_its_jobs_and_makes_the_same_files(small_grid, finished, tmp_path, short):
    systems = ["bm25-flat", "tiny", "bm25+ce"]
    config = small_grid(
        tmp_path, systems={name: SYSTEMS[name] for name in systems}, grid={"systems": systems, "datasets": ["small"]}
    )
    environment = {**os.environ, "TMPDIR": str(short)}
    environment.pop(forks.FOLDER, None)
    command = [sys.executable, "-m", "snakemake", "--configfile", config, "--directory", tmp_path, "--cores", "2"]
    made = ("runs/tiny/small.run.gz", "runs/bm25+ce/small.run.gz", "metrics/bm25-flat/small.per-query.parquet")
    command += [f"results/{path}" for path in made]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)
    servers = set()
    while process.poll() is None:
        servers |= {path.stem for path in short.glob("beirgrid-*/*.log")}
        time.sleep(0.05)
    assert process.returncode == 0, (tmp_path / "log").read_text()
    for path in made:
        assert (tmp_path / "results" / path).read_bytes() == (finished / "results" / path).read_bytes()
    assert {name.partition("-")[0] for name in servers} == {"light", "models"}
    assert not list(short.glob("beirgrid-*"))
