"""A grid on the cluster of cluster.sh: the start of each fault test, and its expected end."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from sites import FOLDER, TABLE, Site, undisturbed
from small import ENCODE, SYSTEMS, collection


@pytest.fixture(scope="session", autouse=True)
def _cluster() -> None:
    """Connect to the cluster that cluster.sh started; skip the tests without one."""
    if not (FOLDER / "slurm.conf").exists():
        pytest.skip("no test cluster runs; make test-slurm starts one")


@pytest.fixture(scope="session")
def write_config(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Callable[..., Path]:
    """Return a function that writes a configfile of the small grid with some of its systems, one job per stage."""
    data = collection(tmp_path_factory.mktemp("data") / "small")

    def write(
        systems: list[str],
        small_corpus: int = 0,
        datasets: int = 1,
        partition: str = "",
        kinds: tuple[str, ...] = ("gpu",),
    ) -> Path:
        names = ["small", "other"][:datasets]
        settings = {
            "corpora": {name: {"source": "local", "path": str(data), "documents": 60} for name in names},
            "datasets": {name: {"corpus": name, "queries": 11} for name in names},
            "models": {
                "tiny-dense": {"family": "dense", "path": str(tiny_models["dense"]), "similarity": "cosine"},
                "tiny-ce": {"family": "cross-encoder", "path": str(tiny_models["cross-encoder"]), "max_length": 64},
            },
            "systems": {name: SYSTEMS[name] for name in ("bm25-flat", "tiny", "bm25+ce", "fused")},
            "grid": {"systems": systems, "datasets": names},
            "encode": {**ENCODE, "shard": 60},
            "metrics": ["ndcg@10", "recall@100"],
            "small_corpus": small_corpus,
            **({"nodes": {kind: {"partition": partition} for kind in kinds}} if partition else {}),
        }
        path = tmp_path_factory.mktemp("config") / "grid.yaml"
        path.write_text(yaml.safe_dump(settings))
        return path

    return write


@pytest.fixture(scope="session")
def dense_grid(write_config: Callable[..., Path]) -> Path:
    """The configfile of the fault tests: one dense system, one shard, and a node that no other test uses."""
    return write_config(["tiny"], partition="spare")


@pytest.fixture(scope="session")
def fetched(dense_grid: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A working directory with all fetched files, so that faults hit the other stages."""
    folder = tmp_path_factory.mktemp("fetched")
    undisturbed(dense_grid, folder, "--until", "fetch_dataset", "fetch_model")
    return folder


@pytest.fixture(scope="session")
def expected(dense_grid: Path, fetched: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The table of an undisturbed run."""
    folder = tmp_path_factory.mktemp("undisturbed") / "site"
    shutil.copytree(fetched, folder)
    undisturbed(dense_grid, folder)
    return (folder / TABLE).read_text()


@pytest.fixture
def small_corpus(write_config: Callable[..., Path]) -> Path:
    """The configfile of the fault tests with a small corpus: two jobs per cell in place of four."""
    return write_config(["tiny"], 100, partition="spare")


@pytest.fixture
def site(fetched: Path, dense_grid: Path, expected: str, tmp_path: Path):
    """A separate working directory for a fault test."""
    shutil.copytree(fetched, tmp_path / "site")
    site = Site(tmp_path / "site", dense_grid)
    yield site
    site.clear()
