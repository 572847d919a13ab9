"""Documents that a dataset excludes for a query (BRIGHT), with every kind of retriever."""

from __future__ import annotations

import random

import pytest
import yaml
from helpers import write_bright_leetcode, write_collection
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
def test_excluded_documents_are_dropped_before_the_cut(tiny_models, tmp_path, monkeypatch):
    """The same queries twice: with exclusions, of more documents than a run holds, and without."""
    choose = random.Random(0)
    words = ["".join(choose.choices("abcdefghij", k=4)) for _ in range(30)]
    texts = {f"d{i}": " ".join(choose.choices(words, k=9)) for i in range(60)}
    excluded = [sorted(choose.sample([*texts], size)) for size in (0, 5, 30, 30)]
    rows = []
    for number, ids in enumerate(excluded):
        gold = next(name for name in texts if name not in ids)
        rows.append((f"q{number}", " ".join(choose.choices(words, k=4)), gold, ids))
    write_bright_leetcode(tmp_path / "home", texts, rows)
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path / "home"))
    write_collection(
        tmp_path / "free",
        [{"_id": name, "text": text} for name, text in texts.items()],
        [{"_id": name, "text": text} for name, text, *_ in rows],
        {"test": [(name, gold, 1) for name, _, gold, _ in rows]},
    )
    models = {
        "tiny-dense": {"family": "dense", "path": str(tiny_models["dense"]), "similarity": "cosine"},
        "tiny-splade": {"family": "sparse", "path": str(tiny_models["splade"])},
        "tiny-colbert": {"family": "late-interaction", "path": str(tiny_models["late-interaction"])},
    }
    settings = {
        "corpora": {
            "free": {"source": "local", "path": str(tmp_path / "free"), "documents": 60},
            "bound": {"source": "ir_datasets", "id": "bright/leetcode", "documents": 60},
        },
        "datasets": {
            "free": {"corpus": "free", "queries": 4},
            "bound": {"corpus": "bound", "id": "bright/leetcode", "queries": 4},
        },
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
