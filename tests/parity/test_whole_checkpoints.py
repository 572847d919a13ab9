"""A checkpoint is used completely or refused: no weight is invented or left out, and a model distinguishes texts."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import encode_texts, opened, save_changed
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

from beirgrid.core.errors import DataError
from beirgrid.encoders.guards import check_finite

DOT = {"family": "dense", "similarity": "dot"}


@pytest.mark.parametrize(
    ("lost", "message"),
    [
        # transformers' log merges the layers' names to encoder.layer.{0, 1}.
        ("self.query.weight", r"it lacks 2 weights, encoder\.layer\.0\.attention\.self\.query\.weight first"),
        ("layer.1.", r"not a complete SentenceTransformer: it lacks \d+ weights, encoder\.layer\.1"),
    ],
)
def test_weights_that_are_missing_are_not_made_up(tiny_models, tmp_path, lost, message):
    def lose(weights):
        for name in [name for name in weights if lost in name]:
            del weights[name]

    folder = save_changed(tmp_path / "x", tiny_models["dense"], lose)
    with pytest.raises(DataError, match=message):
        opened("dense", folder, DOT)


def test_a_head_that_is_missing_is_not_made_up(tiny_models):
    with pytest.raises(DataError, match=r"not a complete CrossEncoder: it lacks 2 weights, classifier"):
        opened("cross-encoder", tiny_models["dense"], {})


@pytest.mark.parametrize(
    ("kind", "model", "weight"),
    [
        ("query-generator", "query-generator", "encoder.block.0.layer.0.SelfAttention.q.weight"),
        ("term-weights", "term-weights", "classifier.weight"),
        ("splade", "sparse", "cls.predictions.bias"),
        ("late-interaction", "late-interaction", "encoder.layer.0.output.dense.weight"),
    ],
)
def test_nan_weights_are_named(tiny_models, tmp_path, kind, model, weight):
    def spoil(weights):
        weights[weight][-1] = float("nan")

    folder = save_changed(tmp_path / "broken", tiny_models[kind], spoil)
    with pytest.raises(DataError, match=rf"the weight \S*{re.escape(weight)} has values that are not finite"):
        opened(model, folder, {})


@pytest.mark.parametrize("name", ["embeddingHead.weight", "classifier.weight", "encoder.layer.2.output.dense.weight"])
def test_weights_that_the_model_does_not_use_are_refused(tiny_models, tmp_path, name):
    folder = save_changed(tmp_path / "x", tiny_models["dense"], lambda weights: weights.update({name: torch.ones(4)}))
    with pytest.raises(DataError, match=f"holds 1 weights that a SentenceTransformer .* does not use, {name} first"):
        opened("dense", folder, DOT)


@pytest.mark.parametrize(
    "name", ["cls.predictions.bias", "lm_head.weight", "embeddings.position_ids", "vocab_projector.bias"]
)
def test_what_pre_training_leaves_behind_is_no_part_of_the_model(tiny_models, tmp_path, name):
    folder = save_changed(tmp_path / "x", tiny_models["dense"], lambda weights: weights.update({name: torch.ones(4)}))
    whole, more = (opened("dense", path, DOT) for path in (tiny_models["dense"], folder))
    np.testing.assert_array_equal(whole.encode_documents(["ab"]), more.encode_documents(["ab"]))


def _encode(folder: Path, checkpoint: Path, texts: list[str]) -> int:
    return encode_texts(folder / "0.npy", checkpoint, texts, DOT)


@pytest.mark.parametrize(("value", "told"), [(0.0, "all zero"), (0.3, "the same")])
def test_a_model_that_gives_all_texts_one_vector_is_refused(tiny_models, tmp_path, capsys, value, told):
    def change(weights):
        weights["encoder.layer.1.output.LayerNorm.weight"].zero_()
        weights["encoder.layer.1.output.LayerNorm.bias"].fill_(value)

    broken = save_changed(tmp_path / "broken", tiny_models["dense"], change)
    assert _encode(tmp_path, broken, ["ab", "cd efg"]) == 1
    assert f"the model's vectors of this shard are {told}, though the texts differ" in capsys.readouterr().err
    assert not (tmp_path / "0.npy").exists()
    assert _encode(tmp_path, broken, ["ab"]) == 0  # of one text nothing can be said


def test_documents_that_are_alike_have_one_vector(tiny_models, tmp_path):
    for texts in (["ab", "ab", "ab"], ["", "", ""], ["ab " * 500 + "c", "ab " * 500 + "d"]):
        assert _encode(tmp_path, tiny_models["dense"], texts) == 0


def test_modules_that_do_not_fit_are_told(tiny_models, tmp_path, capsys):
    model = SentenceTransformer(str(tiny_models["dense"]), device="cpu")
    SentenceTransformer(modules=[*model, Dense(48, 16)], device="cpu").save_pretrained(str(tmp_path / "dense"))
    assert _encode(tmp_path, tmp_path / "dense", ["ab"]) == 1
    assert "its modules (modules.json) do not fit together" in capsys.readouterr().err


def test_a_document_of_22_megabytes_has_the_vector_of_its_beginning(tiny_models, tmp_path):
    texts = ["ab cd " * 3_700_000, "x" * 1000, " ".join(["ab cd"] * 200)]
    assert _encode(tmp_path, tiny_models["dense"], texts) == 0
    vectors = np.load(tmp_path / "0.npy")
    np.testing.assert_allclose(vectors[0], vectors[2], atol=1e-5)
    assert np.abs(vectors[0] - vectors[1]).max() > 0.01


def test_values_that_are_not_finite_in_float32_are_told_as_the_checkpoints():
    rows = np.array([[1.0, 2.0], [np.nan, 1.0]])
    with pytest.raises(DataError, match="first query 'b', in float32: its checkpoint holds weights that are not"):
        check_finite(rows, ["query 'a'", "query 'b'"], "float32")


OWN_MODULE = """
import torch
from transformers import AutoModel, AutoTokenizer

class Transformer(torch.nn.Module):
    save_in_root = True

    def __init__(self, path):
        super().__init__()
        self.auto_model, self.tokenizer = AutoModel.from_pretrained(path), AutoTokenizer.from_pretrained(path)
        self.max_seq_length = 64

    def forward(self, features, **options):
        names = {"input_ids", "attention_mask", "token_type_ids"} & features.keys()
        found = self.auto_model(**{name: features[name] for name in names})
        return {**features, "token_embeddings": found.last_hidden_state}

    def tokenize(self, texts, padding=True):
        return dict(self.tokenizer(texts, padding=padding, truncation=True, max_length=64, return_tensors="pt"))

    @classmethod
    def load(cls, path, **options):
        return cls(path)
"""


def test_a_checkpoint_may_bring_a_first_module_of_its_own(tiny_models, tmp_path):
    """Jina's checkpoints do. Their module lacks attributes that sentence-transformers reads from its own."""
    folder, texts = shutil.copytree(tiny_models["dense"], tmp_path / "own"), ["ab cd", "", "cdef ghij ab"]
    (folder / "own_module.py").write_text(OWN_MODULE)
    modules = json.loads((folder / "modules.json").read_text())
    assert modules[0]["path"] == ""
    modules[0]["type"] = "own_module.Transformer"
    (folder / "modules.json").write_text(json.dumps(modules))
    encoder = opened("dense", folder, {**DOT, "trust_remote_code": True})
    plain = opened("dense", tiny_models["dense"], DOT)
    np.testing.assert_allclose(encoder.encode_documents(texts), plain.encode_documents(texts), atol=1e-6)
