"""Checkpoints of odd form: a text's results do not depend on its batch, or one message says what to change."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
from checkpoints import SIZE, bert_tokenizer, byte_tokenizer, change_json, opened, results, save
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import CNN, Dense, Pooling, Transformer

from beirgrid.config.models import DenseModel
from beirgrid.core.compute import Runtime
from beirgrid.core.errors import DataError
from beirgrid.encoders.dense import DenseEncoder

ONE_BATCH = 100_000
TEXTS = ["ab", "cdef gh ij k lmn", "abc " * 20, "q", "de fg"]
END = "<|e|>"
LEFT = byte_tokenizer("Qwen2Tokenizer", padding_side="left", eos_token=END, pad_token=END, unk_token=END)


def _save(folder: Path, name: str, tokenizer: Any, **settings: Any) -> Path:
    torch.manual_seed(0)
    config = getattr(transformers, f"{name}Config")(vocab_size=len(tokenizer), initializer_range=0.5, **settings)
    model = getattr(transformers, f"{name}Model")(config)
    for weight in model.parameters():  # the padding vector is not zero in trained weights
        torch.nn.init.normal_(weight, std=0.3)
    return save(folder, model, tokenizer)


def _open(folder: Path, **entry: Any) -> DenseEncoder:
    spec = {"similarity": "dot", "pooling": "mean", "max_length": 100, **entry}
    encoder: DenseEncoder = opened("dense", folder, spec, "float32", ONE_BATCH)
    encoder.engine.workers = 1
    return encoder


PADDED = {
    "ConvBert": {"embedding_size": 32, "head_ratio": 2, "conv_kernel_size": 3, **SIZE},
    "MobileBert": {"embedding_size": 32, "intra_bottleneck_size": 32, **SIZE},
    "GPTNeo": {"attention_types": [[["global", "local"], 1]], "bos_token_id": 0, "eos_token_id": 0, **SIZE},
}


@pytest.mark.parametrize("name", PADDED)
def test_texts_that_depend_on_padding_are_computed_by_length(tmp_path, name):
    tokenizer = LEFT if name == "GPTNeo" else bert_tokenizer()
    encoder = _open(_save(tmp_path / "model", name, tokenizer, **PADDED[name]))
    assert encoder.facts()["batches"].startswith("texts of one length")
    alone = np.concatenate([encoder.encode_documents([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode_documents(TEXTS), alone, atol=1e-5 * np.abs(alone).max(), rtol=0)
    expected = np.stack([encoder.model.encode(text) for text in TEXTS])
    np.testing.assert_allclose(alone, expected, atol=1e-4 * np.abs(alone).max(), rtol=0)


def test_models_that_mask_padding_are_computed_in_mixed_batches(tiny_models):
    assert "batches" not in _open(tiny_models["bert"]).facts()


ROPES = {
    "Phi3": {"rope_type": "longrope", "short_factor": [1.0] * 8, "long_factor": [4.0] * 8},
    "Llama": {"rope_type": "dynamic", "factor": 4.0},
}


@pytest.mark.parametrize("name", ROPES)
def test_texts_beyond_the_length_at_which_positions_are_scaled_are_refused(tmp_path, name):
    rope = {"rope_theta": 1e4, "original_max_position_embeddings": 32, **ROPES[name]}
    size = {**SIZE, "max_position_embeddings": 128 if name == "Phi3" else 32, "pad_token_id": 0}
    if name == "Phi3":
        size["original_max_position_embeddings"] = 32
    folder = _save(tmp_path / "model", name, LEFT, rope_parameters=rope, bos_token_id=0, eos_token_id=0, **size)
    with pytest.raises(DataError, match="depend on the longest text of a batch: set max_length to 32 or less"):
        _open(folder, max_length=33)
    encoder = _open(folder, max_length=32)
    alone = np.concatenate([encoder.encode_documents([text]) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode_documents(TEXTS), alone, atol=1e-4 * np.abs(alone).max(), rtol=0)


def test_texts_without_tokens_have_one_vector_in_any_batch(tmp_path):
    size = {**SIZE, "num_key_value_heads": 2, "head_dim": 16}
    encoder = _open(_save(tmp_path / "model", "Qwen3", LEFT, **size))
    assert encoder.tokenized([""], "document").lengths.tolist() == [0]
    found = encoder.encode_documents(["", ""])
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found[0], encoder.encode_documents(["ab cd", ""])[1], atol=1e-5)


SETTINGS = "config_sentence_transformers.json"
WRAPPED: dict[str, tuple[str, Callable[[Any], Any], str]] = {
    "no pooling": ("modules.json", lambda modules: modules[:1], "do not fit together: KeyError"),
    "pooling first": ("modules.json", lambda modules: [modules[1], modules[0]], "starts with a Pooling"),
    "cut vectors": (SETTINGS, lambda saved: {**saved, "truncate_dim": 8}, r"to 8 dimensions \(truncate_dim\)"),
}


@pytest.mark.parametrize(("name", "change", "told"), WRAPPED.values(), ids=WRAPPED)
def test_modules_and_settings_that_cannot_be_used_are_told(tiny_models, tmp_path, name, change, told):
    path = shutil.copytree(tiny_models["dense"], tmp_path / "x") / name
    path.write_text(json.dumps(change(json.loads(path.read_text()))))
    with pytest.raises(DataError, match=told):
        opened("dense", tmp_path / "x", {"similarity": "cosine"})


OWN = {"similarity": "cosine", "pooling": "own", "prompts": {"query": "", "document": ""}}


def test_a_list_of_training_data_is_no_settings(tiny_models, tmp_path):
    """all-MiniLM-L6-v2 has such a file."""
    folder = shutil.copytree(tiny_models["dense"], tmp_path / "model")
    (folder / "data_config.json").write_text('[{"name": "pairs.jsonl.gz", "lines": 3, "weight": 1}]')
    assert opened("dense", folder, OWN).encode_documents(TEXTS).shape[0] == len(TEXTS)


@pytest.mark.parametrize("place", ["dense", "whole", "tokenizer"])
def test_code_that_transformers_would_leave_out_is_refused(tiny_models, tmp_path, place):
    """The code, a bidirectional mask for example, would be replaced by a class that computes something else."""
    folder = shutil.copytree(tiny_models["dense"], tmp_path / "model")
    if place == "tokenizer":
        auto_map = {"AutoTokenizer": ["tokenization.OwnTokenizer", None]}
        change_json(next(folder.rglob("tokenizer_config.json")), auto_map=auto_map)
        told = r"OwnTokenizer.*auto_map in its tokenizer_config\.json.*trust_remote_code"
    else:
        change_json(folder / "config.json", auto_map={"AutoModel": "modeling.BertBiModel"})
        told = r"modeling\.BertBiModel.* transformers has a class for bert.* Set trust_remote_code in the model's entry"
    if place == "whole":  # without modules.json
        (folder / "modules.json").unlink()
    with pytest.raises(DataError, match=told):
        opened("dense", folder, OWN)
    encoder = opened("dense", folder, OWN | {"trust_remote_code": False})
    plain = opened("dense", tiny_models["dense"], OWN)
    np.testing.assert_array_equal(encoder.encode_documents(TEXTS), plain.encode_documents(TEXTS))
    model = DenseModel(family="dense", trust_remote_code=False, **OWN)
    DenseEncoder(folder, model, Runtime("cpu", "float32", 300), trainable=True).model.save(str(tmp_path / "copy"))
    assert opened("dense", tmp_path / "copy", OWN).encode_documents(TEXTS).shape == (5, 32)


OWN_ACTIVATION = "transformers.activations.QuickGELUActivation"  # not PyTorch's, and installed everywhere
ACTIVATIONS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "dense": ("dense", "2_Dense/config.json", {"activation_function": OWN_ACTIVATION}),
    "late interaction": ("late-interaction", "1_Dense/config.json", {"activation_function": OWN_ACTIVATION}),
    "reranker": ("cross-encoder", "config.json", {"sentence_transformers": {"activation_fn": OWN_ACTIVATION}}),
    "old reranker": ("cross-encoder", "config.json", {"sbert_ce_default_activation_function": OWN_ACTIVATION}),
}


@pytest.mark.parametrize(("family", "file", "change"), ACTIVATIONS.values(), ids=ACTIVATIONS)
def test_an_activation_that_sentence_transformers_would_replace_is_refused(tiny_models, tmp_path, family, file, change):
    folder, entry = shutil.copytree(tiny_models[family], tmp_path / "model"), OWN if family == "dense" else {}
    if family == "dense":
        modules = [*SentenceTransformer(str(folder), device="cpu"), Dense(32, 8)]
        SentenceTransformer(modules=modules, device="cpu").save(str(folder))
    if family != "cross-encoder":
        change_json(folder / file, activation_function="torch.nn.modules.activation.Tanh")
    plain = results(opened(family, folder, entry), TEXTS)
    change_json(folder / file, **change)
    told = rf"of its own \({OWN_ACTIVATION}: \w*activation\w* in its {file}\), and sentence-transformers takes"
    with pytest.raises(DataError, match=told):
        opened(family, folder, entry)
    for ours, expected in zip(
        results(opened(family, folder, entry | {"trust_remote_code": False}), TEXTS), plain, strict=True
    ):
        np.testing.assert_array_equal(ours, expected)  # with Tanh; a reranker's scores are its logits
    if family == "dense":
        library = SentenceTransformer(str(folder), device="cpu", trust_remote_code=True)
        ours = opened(family, folder, entry | {"trust_remote_code": True}).encode_queries(TEXTS)
        np.testing.assert_allclose(ours, library.encode(TEXTS, normalize_embeddings=True), atol=1e-5)
        assert np.abs(ours - plain).max() > 0.01


def test_brackets_need_a_tokenizer_that_adds_no_tokens(tiny_models):
    with pytest.raises(DataError, match="adds 2 tokens itself, so it takes no brackets"):
        _open(tiny_models["bert"], brackets={"query": ["[", "]"], "document": ["{", "}"]})


def test_a_convolution_after_the_transformer_is_computed_by_length(tmp_path, tiny_models):
    """Its window reaches into the padding. sentence-transformers has the same numbers for one text at a time."""
    torch.manual_seed(0)
    convolution = CNN(in_word_embedding_dimension=SIZE["hidden_size"], out_channels=8, kernel_sizes=[3, 5])
    pooling = Pooling(convolution.get_embedding_dimension(), "mean")
    plain = Transformer(str(tiny_models["bert"]))
    SentenceTransformer(modules=[plain, convolution, pooling], device="cpu").save_pretrained(str(tmp_path / "model"))
    encoder = _open(tmp_path / "model", pooling=None)
    assert encoder.facts()["batches"].startswith("texts of one length")
    expected = np.stack([encoder.model.encode(text) for text in TEXTS])
    np.testing.assert_allclose(encoder.encode_documents(TEXTS), expected, atol=1e-4, rtol=0)
