"""A small grid with every kind of stage, run by real Snakemake on random-weight models."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import made_once
from small import ENCODE, SYSTEMS, TRAINED, collection, finish


@pytest.fixture(scope="session")
def small_grid(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Callable[..., Path]:
    """Return a function that writes the grid's configfile, with changes, into a folder.

    The grid has all systems, the small grid's own or those of the changes, unless the changes have a grid.
    """
    data = made_once(tmp_path_factory, "small", collection)

    def write(folder: Path, **changes: Any) -> Path:
        settings: dict[str, Any] = {
            "corpora": {"small": {"source": "local", "path": str(data), "documents": 60}},
            "datasets": {"small": {"corpus": "small", "queries": 11}},
            "models": {
                "tiny-dense": {"family": "dense", "path": str(tiny_models["dense"]), "similarity": "cosine"},
                "tiny-splade": {"family": "sparse", "path": str(tiny_models["splade"])},
                "tiny-colbert": {
                    "family": "late-interaction",
                    "path": str(tiny_models["late-interaction"]),
                    "max_length": 60,
                    "query_length": 16,
                },
                "tiny-ce": {"family": "cross-encoder", "path": str(tiny_models["cross-encoder"]), "max_length": 64},
                "tiny-trained": TRAINED,
            },
            "systems": SYSTEMS,
            "grid": {"systems": list(changes.get("systems", SYSTEMS)), "datasets": ["small"]},
            "encode": ENCODE,
            "metrics": ["ndcg@10", "recall@100"],
        }
        settings.update(changes)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "grid.yaml").write_text(yaml.safe_dump(settings))
        return folder / "grid.yaml"

    return write


@pytest.fixture(scope="session")
def finished(small_grid: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of one undisturbed run of the small grid. Tests must not change it."""

    def make(folder: Path) -> None:
        finish(small_grid(folder), folder)

    return made_once(tmp_path_factory, "finished", make)
