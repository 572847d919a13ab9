"""Two concurrent grids in two working directories that share every cache, the checkout and the checkpoints."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import yaml
from helpers import ROOT, hub
from model_hub import ModelHub, serve
from small import finish

from beirgrid.execution import forks

DOCUMENTS = 1500
SYSTEMS = {
    "fetched": {"retriever": "fetched"},
    "sparse": {"retriever": "tiny-splade"},
    "fused": {"fusion": "rrf", "of": ["sparse", "fetched"]},
}
COLLECTION, COMMIT = "some/collection", "1" * 40
RUNS = [f"results/runs/{system}/shared.run.gz" for system in SYSTEMS]


def _collection(folder: Path) -> dict[str, bytes]:
    """Return the files of a repository of the hub, which its library converts in a cache of its own."""
    choose = random.Random(0)
    words = ["".join(choose.choices("abcdefghij", k=4)) for _ in range(300)]
    documents = [{"_id": f"d{i}", "title": "", "text": " ".join(choose.choices(words, k=12))} for i in range(DOCUMENTS)]
    queries = [{"_id": f"q{i}", "text": " ".join(choose.choices(words, k=4))} for i in range(20)]
    judged = [{"query-id": f"q{i}", "corpus-id": f"d{7 * i}", "score": 1} for i in range(20)]
    hub(folder, {"corpus": {"corpus": documents}, "queries": {"queries": queries}, "default": {"test": judged}})
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def configfile(tmp_path: Path, tiny_models: dict[str, Path]) -> Path:
    corpus = {"source": "huggingface", "id": COLLECTION, "revision": COMMIT}
    settings = {
        "corpora": {"shared": {**corpus, "documents": DOCUMENTS}},
        "datasets": {"shared": {"corpus": "shared"}},
        "models": {
            "tiny-splade": {"family": "sparse", "path": str(tiny_models["splade"])},
            "fetched": {"family": "dense", "checkpoint": "some/model", "revision": "resolve", "similarity": "cosine"},
        },
        "systems": SYSTEMS,
        "grid": {"systems": list(SYSTEMS), "datasets": ["shared"]},
        "encode": {"precision": "float32", "shard": 800},
        "metrics": ["ndcg@10"],
    }
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(settings))
    return tmp_path / "grid.yaml"


@pytest.fixture
def start(tmp_path: Path, configfile: Path, tiny_models: dict[str, Path]):
    """Start the grid in a working directory of its own, with the caches of all; no process outlives the test."""
    processes: list[subprocess.Popen[bytes]] = []
    with serve() as models:
        models.push("some/model", tiny_models["dense"])
        models.commits[f"datasets/{COLLECTION}", COMMIT] = _collection(tmp_path / "collection")

        def call(name: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", "snakemake", "--configfile", configfile, "--directory", tmp_path / name]
            with (tmp_path / f"{name}.log").open("ab") as log:
                process = subprocess.Popen(
                    [*map(str, command), "--cores", "1", "--rerun-incomplete", *RUNS],
                    cwd=ROOT,
                    env=_environment(models, tmp_path),
                    stdout=log,
                    stderr=log,
                    start_new_session=True,
                )
            processes.append(process)
            return process

        yield call
        for process in processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)


def _environment(models: ModelHub, folder: Path) -> dict[str, str]:
    caches = {"HF_DATASETS_CACHE": "hub/datasets", "IR_DATASETS_HOME": "ir_datasets", "NUMBA_CACHE_DIR": "numba"}
    shared = {name: str(folder / place) for name, place in {**caches, "XDG_RUNTIME_DIR": "runtime"}.items()}
    (folder / "runtime").mkdir(mode=0o700, exist_ok=True)
    environment = {**models.environment(folder / "hub"), **shared}
    del environment[forks.FOLDER]  # each grid forks its own jobs, as outside of tests
    return environment


def _wait_until(condition: Callable[[], object], process: subprocess.Popen[bytes]) -> None:
    ends = time.monotonic() + 300
    while not condition() and process.poll() is None and time.monotonic() < ends:
        time.sleep(0.01)
    assert condition(), "the grid has ended before"


def _ended(process: subprocess.Popen[bytes], log: Path) -> None:
    assert process.wait(timeout=900) == 0, log.read_text()[-3000:]


def _results(folder: Path) -> dict[str, bytes]:
    """Return what the grid computed, of which the same inputs give the same bytes."""
    patterns = ("corpora/*/*.parquet", "datasets/*/*.*", "models/*/checkpoint/**/*", "runs/*/*.run.gz")
    paths = [path for pattern in patterns for path in (folder / "results").glob(pattern) if path.is_file()]
    records = ("corpus.json", "dataset.json")
    found = {str(path.relative_to(folder)): path.read_bytes() for path in paths if path.name not in records}
    assert len([name for name in found if name.endswith(".run.gz")]) == len(SYSTEMS)
    return found


# When the first grid is killed: while the hub's library converts the collection, and while vectors are computed.
MOMENTS: tuple[Callable[[Path], object], ...] = (
    lambda folder: list((folder / "hub/datasets").rglob("*.incomplete*")),
    lambda folder: list((folder / "one/results/embeddings").rglob("*beirgrid-tmp*")),
)


@pytest.mark.full
def test_one_that_is_killed_damages_neither_the_other_nor_its_own_rerun(start, tmp_path):
    one = start("one")
    _wait_until(lambda: (tmp_path / "hub/datasets").exists(), one)
    two = start("two")
    for moment in MOMENTS:
        _wait_until(partial(moment, tmp_path), one)
        os.killpg(one.pid, signal.SIGKILL)
        one.wait()
        finish(tmp_path / "grid.yaml", tmp_path / "one", "--unlock")
        one = start("one")
    _ended(one, tmp_path / "one.log")
    _ended(two, tmp_path / "two.log")
    assert _results(tmp_path / "one") == _results(tmp_path / "two")
