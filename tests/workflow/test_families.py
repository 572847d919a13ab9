"""Families without a grid of their own, on the embedded collection, through the whole workflow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from helpers import tracked_configuration
from small import finish, table

from beirgrid.config import load

SYSTEMS: dict[str, dict[str, Any]] = {
    "bm25": {"retriever": "bm25"},
    "gtr": {"retriever": "tiny-gtr"},
    "sgpt": {"retriever": "tiny-sgpt"},
    "sparta": {"retriever": "tiny-sparta"},
    "colbert": {"retriever": "tiny-colbert"},
    "genq": {"retriever": "tiny-genq"},
    "bm25+colbert": {"first_stage": "bm25", "reranker": "tiny-colbert", "depth": 20},
    "fused": {"fusion": "rrf", "of": ["bm25", "sparta", "colbert"]},
}


def _models(tiny: dict[str, Path]) -> dict[str, dict[str, Any]]:
    def model(family: str, kind: str, **more: Any) -> dict[str, Any]:
        return {"family": family, "path": str(tiny[kind]), **more}

    mlm = {"recipe": "mlm", "base": "tiny-dense", "documents": 60, "epochs": 1, "batch": 20, "seed": 1}
    genq = {"recipe": "genq", "base": "tiny-mlm", "derive": ["titles", "sentences"], "documents": 60, "seed": 1}
    brackets = {"query": ["[", "]"], "document": ["{", "}"]}
    dense = {"similarity": "cosine", "max_length": 64}
    return {
        "tiny-dense": model("dense", "dense", **dense),
        "tiny-gtr": model("dense", "gtr", pooling="mean", **dense),
        "tiny-sgpt": model("dense", "sgpt", pooling="weightedmean", brackets=brackets, **dense),
        "tiny-sparta": model("sparse", "sparta", pooling="sparta", max_length=64),
        "tiny-colbert": model("late-interaction", "late-interaction", max_length=64, query_length=16),
        "tiny-mlm": {"family": "dense", "train": mlm, **dense},
        "tiny-genq": {"family": "dense", "train": genq, **dense},
    }


@pytest.mark.slow
def test_families_without_a_grid_of_their_own_run_on_the_embedded_collection(small_grid, tiny_models, tmp_path):
    grid = {"systems": list(SYSTEMS), "datasets": ["demo"]}
    changes = {"models": _models(tiny_models), "systems": SYSTEMS, "grid": grid, "encode": {"precision": "float32"}}
    finish(small_grid(tmp_path, **changes), tmp_path, "--show-failed-logs")
    rows = {row["system"]: row for row in table(tmp_path) if row["metric"] == "ndcg@10"}
    assert set(rows) == set(SYSTEMS)
    assert {row["queries"] for row in rows.values()} == {"50"}
    assert abs(float(rows["bm25"]["value"]) - 0.5212) < 5e-5
    for name in ("gtr", "sgpt", "colbert"):  # random weights find little, but they do find
        assert float(rows[name]["value"]) > 0

    assert json.loads((tmp_path / "results/models/tiny-mlm@demo/model.json").read_text())["facts"]["steps"] == 3
    assert "models/tiny-mlm@demo/model.json" in (tmp_path / "results/grids/grid/tables/costs.csv").read_text()


def test_the_papers_grid_has_its_ten_systems_and_nineteen_datasets():
    config = load(tracked_configuration("grids/paper"))
    assert len(config.grid.systems) == 10
    assert len(config.grid.datasets) == 19
