"""Cross-encoders that train makes of a base: cut to its first layers and to the word pieces of the training texts."""

from __future__ import annotations

import hashlib
import json

import checkpoints
import numpy as np
import pytest
import torch
import yaml
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


def test_the_small_reranker_of_the_demo_is_what_its_record_says():
    shipped = ROOT / "workflow/resources/demo-small"
    record = json.loads((shipped / "model.json").read_text())
    found = (path for path in (shipped / "checkpoint").rglob("*") if path.is_file())
    files = {path.relative_to(shipped).as_posix(): path for path in found}
    assert {name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in files.items()} == {
        name: output["sha256"] for name, output in record["outputs"].items()
    }
    assert sum(path.stat().st_size for path in files.values()) < 15_000_000
    made = yaml.safe_load((ROOT / "config/grids/demo-small.yaml").read_text())["models"]["demo-small-made"]["train"]
    assert record["job"]["settings"]["recipe"].items() >= {key: made[key] for key in made.keys() - {"teacher"}}.items()


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


def test_each_pass_leaves_out_half_of_the_words_that_a_query_shares_with_its_document():
    shared, own = [f"shared{number}" for number in range(500)], [f"own{number}" for number in range(500)]
    pairs = [train.Positive(" ".join([*shared, *own]), "1", " ".join(shared)), train.Positive("Shared!", "2", "shared")]
    passes = train._with_fewer_words(pairs, _recipe(dropped_words=0.5, epochs=3))
    kept = [set(query.split()) for query, document, _ in passes if document == "1"]
    assert all(words.issuperset(own) and 200 < len(words.intersection(shared)) < 300 for words in kept)
    assert len(set(map(frozenset, kept))) == 3
    assert [query for query, document, _ in passes if document == "2"] == ["Shared!"] * 3  # never empty


def test_only_a_bert_is_cut(tmp_path):
    model = train._cross_encoder(checkpoints.save_roberta(tmp_path / "base"), _recipe(), Runtime("cpu", "float32", 512))
    with pytest.raises(DataError, match=r"^train.layers and train.compact cut a BERT, and the base is a roberta"):
        train._cut(model[0], _recipe(layers=1), {"a"})
