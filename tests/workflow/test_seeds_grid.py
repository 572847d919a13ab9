"""Systems with seeds through the whole workflow: jobs per seed, and shared jobs."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkpoints
import pytest
from small import TRAINED, finish, job_counts, run, table

from beirgrid.results.answer_files import from_csv


def _write(small_grid: Callable[..., Path], tiny_models: dict[str, Path], folder: Path, seeds: int) -> Path:
    tuned = {"recipe": "tsdae", "base": "tiny-dense", "documents": 20, "seed": 4}
    models: dict[str, Any] = {
        "tiny-dense": {"family": "dense", "path": str(tiny_models["dense"]), "similarity": "cosine"},
        "tuned": {"family": "dense", "similarity": "cosine", "max_length": 64, "train": tuned},
        "tiny-trained": TRAINED,
    }
    systems = {
        "bm25-flat": {"retriever": "bm25", "fields": "flat"},
        "tuned": {"retriever": "tuned", "seeds": seeds},
        "tuned+ce": {"first_stage": "tuned", "reranker": "tiny-trained", "depth": 5, "seeds": seeds},
        "fused": {"fusion": "rrf", "of": ["bm25-flat", "tuned"], "seeds": seeds},
    }
    encode = {"shard": 60, "precision": "float32"}
    return small_grid(folder, models=models, systems=systems, encode=encode)


def test_only_what_depends_on_the_seed_is_planned_once_per_seed(small_grid, tiny_models, tmp_path):
    # Fetched: the base of all that is trained. Indexed: the flat index once, for bm25-flat and for the negatives.
    once = {"fetch_corpus": 1, "fetch_dataset": 1, "fetch_model": 1, "aggregate": 1, "report": 1}
    once |= {"index_lexical": 1, "retrieve_lexical": 1}
    per_seed = {"adapt": 3, "train": 3, "encode_dense": 3, "index_dense": 3, "retrieve_dense": 3}
    per_seed |= {"score": 3, "rerank": 3, "fuse": 3}
    both = {"evaluate": 1 + 3 * 3}
    planned = job_counts(run(_write(small_grid, tiny_models, tmp_path, 3), tmp_path, "-n"))
    assert planned == once | per_seed | both


@pytest.mark.slow
def test_seeds_give_other_scores_and_the_tables_their_mean(small_grid, tiny_models, tmp_path):
    configfile = _write(small_grid, tiny_models, tmp_path, 2)
    finish(configfile, tmp_path)
    results = tmp_path / "results"
    weights = [
        json.loads((results / f"models/{model}/model.json").read_text())["facts"]["files"]["model.safetensors"]
        for model in ("tuned@small", "tuned.seed2@small", "tiny-trained", "tiny-trained.seed2")
    ]
    assert len(set(weights)) == 4
    seeds = from_csv("seeds", results / "grids/grid/tables/seeds.csv")
    scores = from_csv("scores", results / "grids/grid/tables/scores.csv").set_index(["system", "metric"])["value"]
    assert set(seeds["system"]) == {"tuned", "tuned+ce", "fused"}
    for row in seeds.to_dict("records"):
        own = [
            json.loads((results / f"metrics/{row['system']}.seed{i}/small.json").read_text())["scores"]["means"]
            for i in (1, 2)
        ]
        values = [means[row["metric"]] for means in own]
        assert row["mean"] == pytest.approx(statistics.mean(values))
        assert row["deviation"] == pytest.approx(statistics.stdev(values))
        assert scores[row["system"], row["metric"]] == pytest.approx(statistics.mean(values))
    assert "<small>± " in (results / "grids/grid/report/index.html").read_text()
    assert "Nothing to be done" in finish(configfile, tmp_path)
    finish(configfile, tmp_path, "analyses")
    assert {row["system"] for row in table(tmp_path, "trade_offs")} == {*seeds["system"], "bm25-flat"}
    # A third seed runs alone.
    more = job_counts(run(_write(small_grid, tiny_models, tmp_path, 3), tmp_path, "-n"))
    assert (more["adapt"], more["train"], more["evaluate"]) == (1, 1, 3)


@pytest.mark.slow
def test_folders_of_own_trainings_have_the_mean_and_deviation_of_their_systems(small_grid, tmp_path):
    folders = [checkpoints.save_bert(tmp_path / f"m-s{seed}", seed=seed) for seed in (1, 2)]
    entry = {"family": "dense", "similarity": "cosine", "pooling": "mean"}
    models = {f"alone{seed}": {**entry, "path": str(folder)} for seed, folder in enumerate(folders, 1)}
    models["mine"] = {**entry, "path": str(tmp_path / "m-s{seed}")}
    models["listed"] = {**entry, "paths": list(map(str, folders))}
    systems: dict[str, Any] = {name: {"retriever": name} for name in models}
    for name in ("mine", "listed"):
        systems[name]["seeds"] = 2
    configfile = small_grid(tmp_path, models=models, systems=systems, encode={"shard": 60, "precision": "float32"})
    assert "mine.seed1" in finish(configfile, tmp_path)
    tables = tmp_path / "results/grids/grid/tables"
    seeds = from_csv("seeds", tables / "seeds.csv").set_index(["system", "metric"])
    scores = from_csv("scores", tables / "scores.csv").set_index(["system", "metric"])["value"]
    for (system, metric), row in seeds.iterrows():
        alone = [scores[f"alone{seed}", metric] for seed in (1, 2)]
        assert system in ("mine", "listed")
        assert row["mean"] == pytest.approx(statistics.mean(alone))
        assert row["deviation"] == pytest.approx(statistics.stdev(alone))
    assert seeds["deviation"].max() > 0
