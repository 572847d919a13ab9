"""The disk fills up under each stage with large output: one message, no partial file."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import numpy as np
import pytest
from helpers import beirgrid, fetch_collection, quick_first
from small import TRAINED

from beirgrid.runs import runs


@pytest.fixture(scope="module")
def inputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fetched corpus of 3,000 documents, its queries, and vectors."""
    folder = tmp_path_factory.mktemp("inputs")
    choose = random.Random(0)
    words = ["".join(choose.choices("abcdefghijklmnopqrstuvwxyz", k=8)) for _ in range(20_000)]
    texts = [". ".join(" ".join(choose.choices(words, k=7)) for _ in range(3)) for _ in range(3000)]
    documents = [{"_id": f"d{i}", "title": "", "text": text} for i, text in enumerate(texts)]
    queries = [{"_id": f"q{i}", "text": " ".join(words[i : i + 2000])} for i in range(60)]
    fetch_collection(folder, documents, queries, [(f"q{i}", "d1", 1) for i in range(60)])
    fields = ("--corpus", folder / "corpus.parquet", "--fields", "flat")
    done = beirgrid("index", "lexical", *fields, "--output", folder / "lucene", "--record", folder / "lucene.json")
    assert done.returncode == 0, done.stderr
    np.save(folder / "vectors.npy", np.ones((3000, 384), np.float32))
    for name in ("a", "b"):
        ranked = {f"q{i}": choose.sample([row["_id"] for row in documents], 900) for i in range(60)}
        scores = np.arange(900, 0, -1)
        runs.write(folder / f"{name}.run.gz", {q: runs.canonical(q, ids, scores) for q, ids in ranked.items()}, name)
    return folder


def _commands(inputs: Path, models: dict[str, Path], disk: Path) -> dict[str, tuple[str | Path, ...]]:
    """Return the words of each stage, without its record."""
    corpus, queries = ("--corpus", inputs / "corpus.parquet"), ("--queries", inputs / "queries.parquet")
    recipe = json.dumps({**TRAINED["train"], "base": "dense", "queries": 4, "max_length": 32, "language": "en"})

    def of_model(stage: str, checkpoint: str, family: str, **entry: object) -> tuple[str | Path, ...]:
        model = json.dumps({"family": family, **entry})
        return (stage, "--model", model, "--checkpoint", models[checkpoint], *corpus)

    dense = of_model("encode", "dense", "dense", similarity="dot")
    late = of_model("encode", "late-interaction", "late-interaction", max_length=16)
    expand = of_model("expand", "term-weights", "term-weights", keep_terms=True)
    scored = of_model("score", "cross-encoder", "cross-encoder", max_length=64)
    search = ("retrieve", "lexical", "--system", "bm25", "--index", inputs / "lucene", "--fields", "flat", *queries)
    fuse = ("fuse", "--system", "fused", "--runs", inputs / "a.run.gz", inputs / "b.run.gz", "--method", "rrf")
    train = ("train", "--recipe", recipe, "--base", models["dense"], *corpus, "--index", inputs / "lucene")
    return {
        "encode": (*dense, "--shard-size", "5000", "--output", disk / "0.npy"),
        "encode-late": (*late, "--shard-size", "5000", "--output", disk / "0.tokens"),
        "expand": (*expand, "--shard-size", "5000", "--output", disk / "0.parquet"),
        "index-faiss": ("index", "dense", "--vectors", inputs / "vectors.npy", "--output", disk / "0.faiss"),
        "index-lucene": ("index", "lexical", *corpus, "--fields", "flat", "--output", disk / "lucene"),
        "retrieve": (*search, "--output", disk / "run.gz"),
        "score": (*scored, *queries, "--run", inputs / "a.run.gz", "--depth", "1", "--pairs", disk / "pairs"),
        "fuse": (*fuse, "--output", disk / "run.gz"),
        "train": (*train, "--output", disk / "checkpoint"),
    }


pytestmark = pytest.mark.slow  # whole processes
STAGES = ["encode", "encode-late", "expand", "index-faiss", "index-lucene", "retrieve", "score", "fuse", "train"]


@pytest.mark.parametrize("stage", quick_first(STAGES))
def test_a_full_disk_is_named_and_nothing_is_left(inputs, tiny_models, full_disk, stage):
    (full_disk / "finished").write_text("finished work")
    filler = full_disk / "filler"
    free = shutil.disk_usage(full_disk).free
    filler.write_bytes(b"x" * max(free - (0 if stage == "score" else 120_000), 0))
    command = _commands(inputs, tiny_models, full_disk)[stage]
    done = beirgrid(*command, "--record", full_disk / "made.json")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "No space left on device" in done.stderr or "disk is full" in done.stderr
    left = {path.name for path in full_disk.rglob("*") if path.is_file()}
    assert left == {"filler", "finished"}
