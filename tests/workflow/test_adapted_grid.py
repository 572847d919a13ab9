"""Models adapted to the corpora of a grid, by the real workflow: one per corpus, nothing twice."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from helpers import copy_checkout, snakemake
from small import ENCODE, collection, finish, job_counts, run

_TRAIN = {"base": "tiny-dense", "derive": ["sentences"], "queries_per_document": 2, "documents": 30, "batch": 8}
_GPL = {**_TRAIN, "recipe": "gpl", "teacher": "tiny-ce", "steps": 6, "warmup": 0.1, "negative_depth": 5}
MODELS = {
    "tuned": {**_TRAIN, "recipe": "genq"},
    "restored": {"recipe": "tsdae", "base": "tiny-dense", "documents": 20},
    "taught": {**_GPL, "base": "restored", "retrievers": ["bm25", "restored"]},
}


@pytest.fixture(scope="module")
def grid(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Path:
    """A configfile of two corpora, one of them searched by two datasets."""
    folder = tmp_path_factory.mktemp("adapt")
    settings: dict[str, Any] = {
        "corpora": {},
        "datasets": {},
        "models": {
            "tiny-dense": {"family": "dense", "path": str(tiny_models["dense"]), "similarity": "cosine"},
            "tiny-ce": {"family": "cross-encoder", "path": str(tiny_models["cross-encoder"]), "max_length": 64},
        },
        "systems": {name: {"retriever": name} for name in ("tuned", "taught")},
        "grid": {"systems": ["tuned", "taught"], "datasets": ["one", "two", "two-again"]},
        "encode": ENCODE,
        "metrics": ["ndcg@10"],
    }
    for name, train in MODELS.items():
        settings["models"][name] = {"family": "dense", "similarity": "cosine", "max_length": 64, "train": train}
    for seed, name in enumerate(("one", "two")):
        data = collection(folder / name, seed=seed)
        settings["corpora"][name] = {"source": "local", "path": str(data), "documents": 60}
        settings["datasets"][name] = {"corpus": name, "queries": 11}
    settings["datasets"]["two-again"] = {"corpus": "two", "queries": 11}
    (folder / "grid.yaml").write_text(yaml.safe_dump(settings))
    return folder / "grid.yaml"


def test_the_plan_trains_one_model_per_corpus(grid, tmp_path):
    done = run(grid, tmp_path, "-n")
    assert job_counts(done).items() >= {"generate": 4, "mine": 2, "label": 2, "adapt": 6, "retrieve_dense": 6}.items()
    trained = set(re.findall(r"^Job \d+: Adapting (\S+)$", done.stdout, re.MULTILINE))
    assert trained == {f"{model}@{corpus}" for model in MODELS for corpus in ("one", "two")}


def test_a_gpu_is_asked_for_where_a_model_runs(grid, tiny_models, tmp_path):
    """On a cluster, a job that runs no model goes to the nodes without a GPU."""
    settings = yaml.safe_load(grid.read_text())
    plain = {**_GPL, "retrievers": ["bm25"]}
    neural = {**_GPL, "generator": "writer", "retrievers": ["bm25", "tiny-dense"]}
    del neural["derive"]
    for name, train in (("tuned", plain), ("taught", neural)):
        settings["models"][name]["train"] = train
    settings["models"]["writer"] = {"family": "query-generator", "path": str(tiny_models["query-generator"])}
    settings["grid"]["datasets"] = ["one"]
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(settings))
    # A dry run shows a rule's message in place of its resources, where it has one.
    unnamed = copy_checkout(tmp_path / "checkout")
    for rules in (unnamed / "workflow/rules").glob("*.smk"):
        rules.write_text(re.sub(r"^ +message:\n(?: +f?\".*\n)+", "", rules.read_text(), flags=re.MULTILINE))
    arguments = ["-n", "--profile", "slurm", "--directory", tmp_path, "--configfile", tmp_path / "grid.yaml"]
    done = snakemake(*arguments, cwd=unnamed)
    assert done.returncode == 0, done.stdout
    job = re.compile(
        r"^rule (\w+):\n(?:    .*\n)*?    wildcards: model=(\w+)@one\n(?:    .*\n)*?    resources: (.*)$", re.MULTILINE
    )
    jobs = {(rule, model): resources for rule, model, resources in job.findall(done.stdout)}
    for model, partition, gpus in (("tuned", "cpu", 0), ("taught", "gpu", 1)):
        for rule in ("generate", "mine"):
            assert f"slurm_partition={partition}" in jobs[rule, model]
            assert f"gpu={gpus}" in jobs[rule, model]
        assert "slurm_partition=gpu" in jobs["adapt", model]


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
