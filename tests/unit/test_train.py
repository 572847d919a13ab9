"""Cross-encoders that train makes of a base: cut to its first layers and to the word pieces of the training texts."""

from __future__ import annotations

import json

import checkpoints
import numpy as np
import pytest
import torch
from helpers import ROOT
from safetensors.torch import load_file
from sentence_transformers import CrossEncoder
from transformers import AutoModel, AutoTokenizer, BertModel

from beirgrid.core.compute import Runtime
from beirgrid.core.errors import DataError
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


def _recipe(**keys) -> train.TrainRecipe:
    options = {"base": "tiny", "corpus": "x", "derive": ("titles",), "batch": 2, "seed": 1, "max_length": 64}
    return train.TrainRecipe(**options, **keys)


@pytest.mark.parametrize(("layers", "compact"), [(1, True), (None, True), (1, False)])
def test_a_cut_base_computes_what_the_layers_of_the_whole_one_do(tmp_path, layers, compact):
    tokenizer = checkpoints.bert_tokenizer("cab", "zebra")
    torch.manual_seed(0)
    base = tmp_path / "base"
    checkpoints.save(base, BertModel(checkpoints._config(vocab_size=len(tokenizer))), tokenizer)
    whole, tokenizer = AutoModel.from_pretrained(base).eval(), AutoTokenizer.from_pretrained(base)
    pairs = [("abba cab", "bad cab"), ("cab", "a bad dab")]
    model = train._cross_encoder(base, _recipe(layers=layers, compact=compact), Runtime("cpu", "float32", 512))
    train._cut(model[0], _recipe(layers=layers, compact=compact), {text for pair in pairs for text in pair})
    inputs = tokenizer(*zip(*pairs, strict=True), padding=True, return_tensors="pt")
    with torch.inference_mode():
        states = whole(**inputs, output_hidden_states=True).hidden_states[layers or -1]
        found = model.eval()[0](model.preprocess(pairs))["token_embeddings"]
    kept = inputs["attention_mask"].bool()
    np.testing.assert_allclose(found[kept].numpy(), states[kept].numpy(), rtol=1e-4, atol=1e-5)
    spelled = ["z", "##e", "##b", "##r", "##a"]  # a word that the training lacks
    assert model.tokenizer.tokenize("cab zebra") == ["cab", *(spelled if compact else ["zebra"])]
    assert model[0].auto_model.config.vocab_size == len(tokenizer) - compact


def test_a_compact_model_is_saved_in_float16_and_opens_again(tmp_path):
    base, output = checkpoints.save_bert(tmp_path / "base"), tmp_path / "made"
    examples = [{"query": "cab", "docs": ["bad cab", "dad"], "labels": [1.0, 0.0]}] * 4
    recipe = _recipe(layers=1, compact=True, learning_rate=1e-3)
    output.mkdir()
    train.fit_cross_encoder(examples, base, recipe, Runtime("cpu", "float32", 512), output)
    weights = load_file(output / "model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float16}
    assert not any(".layer.1." in name for name in weights)
    opened = CrossEncoder(str(output), device="cpu").float()
    good, bad = opened.predict([("cab", "bad cab"), ("cab", "dad")])
    assert good > bad


def test_only_a_bert_is_cut(tmp_path):
    model = train._cross_encoder(checkpoints.save_roberta(tmp_path / "base"), _recipe(), Runtime("cpu", "float32", 512))
    with pytest.raises(DataError, match=r"^train.layers and train.compact cut a BERT, and the base is a roberta"):
        train._cut(model[0], _recipe(layers=1), {"a"})
