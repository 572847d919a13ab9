"""Cross-encoders that train makes of a base, and the queries that the demo's learn from."""

from __future__ import annotations

import json

import checkpoints
from helpers import ROOT
from sentence_transformers import CrossEncoder

from beirgrid.core.compute import Runtime
from beirgrid.stages.train import work as train

DEMO = ROOT / "workflow/resources/demo"


def test_no_test_query_of_the_demo_is_in_its_training():
    texts = {row["_id"]: row["text"] for row in map(json.loads, (DEMO / "queries.jsonl").open())}
    asked = {}
    for split in ("train", "test"):
        lines = (DEMO / f"qrels/{split}.tsv").read_text().splitlines()[1:]
        asked[split] = {" ".join(texts[line.split("\t")[0]].casefold().split()) for line in lines}
    assert (len(asked["train"]), len(asked["test"])) == (672, 50)
    assert asked["train"].isdisjoint(asked["test"])


def test_a_trained_cross_encoder_opens_again_and_prefers_what_it_learned(tmp_path):
    base, output = checkpoints.save_bert(tmp_path / "base"), tmp_path / "made"
    examples = [{"query": "cab", "docs": ["bad cab", "dad"], "labels": [1.0, 0.0]}] * 4
    recipe = train.TrainRecipe(base="tiny", corpus="x", derive=("titles",), batch=2, learning_rate=1e-3, max_length=64)
    output.mkdir()
    train.fit_cross_encoder(examples, base, recipe, Runtime("cpu", "float32", 512), output)
    good, bad = CrossEncoder(str(output), device="cpu").predict([("cab", "bad cab"), ("cab", "dad")])
    assert good > bad
