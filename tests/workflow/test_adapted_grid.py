"""Models adapted to the corpora of a grid, by the real workflow: one per corpus, nothing twice."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from small import collection, finish, job_counts, run

_TRAIN = {"base": "tiny-dense", "derive": ["sentences"], "queries_per_document": 2, "documents": 30, "batch": 8}
_GPL = {**_TRAIN, "recipe": "gpl", "teacher": "tiny-ce", "steps": 6, "warmup": 0.1, "negative_depth": 5}
MODELS = {
    "tuned": {**_TRAIN, "recipe": "genq"},
    "restored": {"recipe": "tsdae", "base": "tiny-dense", "documents": 20},
    "taught": {**_GPL, "base": "restored", "retrievers": ["bm25", "restored"]},
}


@pytest.fixture(scope="module")
def grid(small_grid, tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Path:
    """A configfile of two corpora, one of them searched by two datasets."""
    folder = tmp_path_factory.mktemp("adapt")
    models = {
        "tiny-dense": {"family": "dense", "path": str(tiny_models["dense"]), "similarity": "cosine"},
        "tiny-ce": {"family": "cross-encoder", "path": str(tiny_models["cross-encoder"]), "max_length": 64},
    }
    for name, train in MODELS.items():
        models[name] = {"family": "dense", "similarity": "cosine", "max_length": 64, "train": train}
    corpora = {
        name: {"source": "local", "path": str(collection(folder / name, seed=seed)), "documents": 60}
        for seed, name in enumerate(("one", "two"))
    }
    datasets = {name: {"corpus": name.partition("-")[0], "queries": 11} for name in ("one", "two", "two-again")}
    return small_grid(
        folder,
        corpora=corpora,
        datasets=datasets,
        models=models,
        systems={name: {"retriever": name} for name in ("tuned", "taught")},
        grid={"systems": ["tuned", "taught"], "datasets": list(datasets)},
    )


def test_the_plan_trains_one_model_per_corpus(grid, tmp_path):
    done = run(grid, tmp_path, "-n")
    assert job_counts(done).items() >= {"generate": 4, "mine": 2, "label": 2, "adapt": 6, "retrieve_dense": 6}.items()
    trained = set(re.findall(r"^Job \d+: Adapting (\S+)$", done.stdout, re.MULTILINE))
    assert trained == {f"{model}@{corpus}" for model in MODELS for corpus in ("one", "two")}


@pytest.mark.full
def test_gpl_after_tsdae_runs_and_shows_what_it_cost(grid, tmp_path):
    settings = yaml.safe_load(grid.read_text())
    settings["grid"] = {"systems": ["taught"], "datasets": ["one"]}
    settings["encode"]["shard"] = 60
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(settings))
    finish(tmp_path / "grid.yaml", tmp_path)
    results = tmp_path / "results"
    assert json.loads((results / "metrics/taught/one.json").read_text())["facts"]["queries"] == 11
    made = json.loads((results / "models/taught@one/model.json").read_text())
    assert made["stage"] == "adapt"
    assert made["facts"]["files"]["model.safetensors"]
    assert not list((results / "models").glob("tuned*"))
    queries = pq.read_table(results / "training/taught@one/queries.parquet")
    assert len(set(queries["document"].to_pylist())) == 30
    costs = (results / "grids/grid/tables/costs.csv").read_text()
    for step in ("training/taught@one/margins.json", "models/restored@one/model.json", "models/taught@one/model.json"):
        assert step in costs
    assert "Nothing to be done" in finish(tmp_path / "grid.yaml", tmp_path)
    # Another learning rate trains again, and writes and labels nothing anew.
    settings["models"]["taught"]["train"]["learning_rate"] = 1e-4
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(settings))
    again = job_counts(run(tmp_path / "grid.yaml", tmp_path, "-n"))
    assert again["adapt"] == 1
    assert not {"generate", "mine", "label"} & again.keys()
