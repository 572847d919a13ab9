"""Models with separate sides in a real run: two towers, prompts per dataset, a seq2seq reranker."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from helpers import write_collection
from small import ENCODE, finish, job_counts, run

from beirgrid.runs import runs

pytestmark = pytest.mark.slow

SYSTEMS = {
    "bm25-flat": {"retriever": "bm25", "fields": "flat"},
    "two-towers": {"retriever": "tiny-context"},
    "decoder": {"retriever": "tiny-decoder"},
    "monot5@200": {"first_stage": "bm25-flat", "reranker": "tiny-monot5", "depth": 200},
    "monot5@10": {"first_stage": "bm25-flat", "reranker": "tiny-monot5", "depth": 10},
}


@pytest.fixture(scope="module")
def grid(tmp_path_factory, tiny_models, small_grid):
    """Return a function that writes the configfile of the grid, with the decoder's prompts, into a folder."""
    words = ["amber", "basalt", "cedar", "delta", "ember", "fjord"]
    documents = [{"_id": f"d{i}", "title": words[i % 6], "text": f"{words[i % 5]} {words[i % 4]}"} for i in range(30)]
    queries = [{"_id": f"q{i}", "text": f"{word} stone"} for i, word in enumerate(words)]
    qrels = [(f"q{i}", f"d{i}", 1) for i in range(6)]
    splits = {"test": qrels, "dev": qrels[:3]}
    data = write_collection(tmp_path_factory.mktemp("data") / "small", documents, queries, splits)

    def write(folder: Path, prompts: dict[str, Any]) -> Path:
        dense = {"family": "dense", "similarity": "dot", "pooling": "pooler"}
        models: dict[str, Any] = {
            "tiny-context": {**dense, "path": "dpr-context", "separator": " [SEP] ", "query_model": "tiny-question"},
            "tiny-question": {**dense, "path": "dpr-question"},
            "tiny-decoder": {"family": "dense", "path": "decoder", "similarity": "cosine", "prompts": prompts},
            "tiny-monot5": {"family": "seq2seq-reranker", "path": "seq2seq", "max_length": 64},
        }
        for name, model in models.items():
            models[name] = {**model, "path": str(tiny_models[model["path"]])}
        return small_grid(
            folder,
            corpora={"small": {"source": "local", "path": str(data), "documents": 30}},
            datasets={"small": {"corpus": "small"}, "other": {"corpus": "small", "split": "dev"}},
            models=models,
            systems=SYSTEMS,
            grid={"systems": list(SYSTEMS), "datasets": ["small", "other"]},
            encode={**ENCODE, "shard": 60},
        )

    return write


PROMPTS = {"query": "q: ", "datasets": {"other": {"query": "other: "}}}


@pytest.fixture(scope="module")
def finished(grid, tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    finish(grid(folder, PROMPTS), folder)
    return folder


def _scores(folder: Path, system: str, dataset: str, query: str) -> dict[str, float]:
    ranking = runs.read(folder / f"results/runs/{system}/{dataset}.run.gz")[query]
    return dict(zip(ranking.ids, map(float, ranking.scores), strict=True))


def test_each_tower_of_dpr_encodes_its_side(finished, tiny_models):
    import torch
    from transformers import AutoTokenizer, DPRContextEncoder, DPRQuestionEncoder

    def encode(folder: Path, loader: Any, *text: str) -> np.ndarray:
        features = AutoTokenizer.from_pretrained(folder)(*text, return_tensors="pt")
        with torch.inference_mode():
            return loader.from_pretrained(folder)(input_ids=features["input_ids"]).pooler_output[0].numpy()

    question = encode(tiny_models["dpr-question"], DPRQuestionEncoder, "amber stone")
    document = encode(tiny_models["dpr-context"], DPRContextEncoder, "basalt", "basalt basalt")
    assert _scores(finished, "two-towers", "small", "q0")["d1"] == pytest.approx(float(question @ document), abs=1e-4)


def test_a_dataset_has_its_own_query_prompt(finished):
    for dataset, prompt in (("small", "q: "), ("other", "other: ")):
        made = json.loads((finished / f"results/runs/decoder/{dataset}.json").read_text())
        assert made["job"]["settings"]["model"]["prompts"] == {"query": prompt}
    assert _scores(finished, "decoder", "small", "q0") != _scores(finished, "decoder", "other", "q0")
    made = json.loads((finished / "results/embeddings/tiny-decoder/small/0.json").read_text())
    assert "prompts" not in made["job"]["settings"]["model"]


def test_depths_of_a_reranker_come_from_one_scoring_pass(finished):
    deep, shallow = (_scores(finished, system, "small", "q0") for system in ("monot5@200", "monot5@10"))
    common = list(shallow)[:10]
    assert [document for document in deep if document in common] == common
    assert [deep[document] for document in common] == [shallow[document] for document in common]
    scored = json.loads((finished / "results/pairs/tiny-monot5/small/bm25-flat.json").read_text())["facts"]
    assert scored["pairs_scored"] == scored["pairs"]
    assert len(list((finished / "results/pairs/tiny-monot5/small").glob("*.json"))) == 1


CHANGES = {
    "of a dataset": ({"query": "q: ", "datasets": {"other": {"query": "new: "}}}, 1),
    "of the model": ({"query": "new: ", "datasets": {"other": {"query": "other: "}}}, 1),
    "of documents": ({**PROMPTS, "document": "d: "}, 2),
}


@pytest.mark.parametrize(("prompts", "retrieved"), CHANGES.values(), ids=CHANGES)
def test_another_prompt_makes_again_only_what_it_changes(finished, grid, tmp_path, prompts, retrieved):
    jobs = job_counts(run(grid(tmp_path, prompts), finished, "-n"))
    encoded = {"encode_dense": 1, "index_dense": 1} if "document" in prompts else {}
    searched = {"retrieve_dense": retrieved, "evaluate": retrieved}
    assert jobs == {**encoded, **searched, "aggregate": 1, "report": 1}
