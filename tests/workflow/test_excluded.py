"""Documents that a dataset excludes for a query (BRIGHT), with every kind of retriever."""

from __future__ import annotations

import random

import pytest
import yaml
from helpers import Rows, hub
from small import run

from beirgrid.collections import collection
from beirgrid.runs import runs

DEPTH = 15
SYSTEMS = {
    "bm25": {"retriever": "bm25", "fields": "flat"},
    "dense": {"retriever": "tiny-dense"},
    "sparse": {"retriever": "tiny-splade"},
    "late": {"retriever": "tiny-colbert", "candidates": 100},
    "late-all": {"retriever": "tiny-colbert", "exhaustive": True},
}


@pytest.mark.slow
def test_excluded_documents_are_dropped_before_the_cut(tiny_models, tmp_path):
    """The same queries twice, in BRIGHT's layout: with exclusions, of more documents than a run holds, and without."""
    choose = random.Random(0)
    words = ["".join(choose.choices("abcdefghij", k=4)) for _ in range(30)]
    documents = [{"id": f"d{i}", "content": " ".join(choose.choices(words, k=9))} for i in range(60)]
    excluded = [sorted(f"d{i}" for i in choose.sample(range(60), size)) for size in (0, 5, 30, 30)]
    free: Rows = []
    for number, ids in enumerate(excluded):
        gold = next(document["id"] for document in documents if document["id"] not in ids)
        query = " ".join(choose.choices(words, k=4))
        free.append({"id": f"q{number}", "query": query, "gold_ids": [gold], "excluded_ids": ["N/A"]})
    bound = [{**row, "excluded_ids": ids or ["N/A"]} for row, ids in zip(free, excluded, strict=True)]
    source = hub(tmp_path / "hub", {"documents": {"d": documents}, "examples": {"free": free, "bound": bound}})
    models = {
        "tiny-dense": {"family": "dense", "path": str(tiny_models["dense"]), "similarity": "cosine"},
        "tiny-splade": {"family": "sparse", "path": str(tiny_models["splade"])},
        "tiny-colbert": {"family": "late-interaction", "path": str(tiny_models["late-interaction"])},
    }
    corpus = {"source": "huggingface", "id": source, "revision": "1" * 40, "split": "d", "documents": 60}
    settings = {
        "corpora": {"tiny": corpus},
        "datasets": {name: {"corpus": "tiny", "split": name, "queries": 4} for name in ("free", "bound")},
        "models": models,
        "systems": SYSTEMS,
        "grid": {"systems": list(SYSTEMS), "datasets": ["free", "bound"]},
        "encode": {"precision": "float32"},
        "retrieve": {"depth": DEPTH},
        "metrics": ["ndcg@10"],
    }
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(settings))
    searched = [f"results/runs/{system}/{name}.run.gz" for system in SYSTEMS for name in ("free", "bound")]
    done = run(tmp_path / "grid.yaml", tmp_path, *searched, "--show-failed-logs")
    assert done.returncode == 0, done.stdout[-3000:]
    assert collection.read_excluded(tmp_path / "results/datasets/free/queries.parquet") == {}
    for system in SYSTEMS:
        without, with_ = (runs.read(tmp_path / f"results/runs/{system}/{name}.run.gz") for name in ("free", "bound"))
        for query, ids in zip(without, excluded, strict=True):
            kept = with_[query].ids
            assert not set(kept) & set(ids)
            left = [document for document in without[query].ids if document not in ids]
            assert kept[: len(left)] == left  # others fill up
            if system in ("dense", "late-all"):
                assert len(kept) == DEPTH
