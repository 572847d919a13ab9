"""A last layer that computes only first tokens gives the results of sentence-transformers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import opened, random_texts, save_cross_encoder
from helpers import quick_first
from sentence_transformers import CrossEncoder

from beirgrid.config.models import DenseModel
from beirgrid.core.compute import Runtime
from beirgrid.encoders.dense import DenseEncoder, pooled_transformer

ONE_BATCH = 100_000
# Largest difference between two computations of a number, relative to the largest number. The random weights give large
# scores of attention, which bfloat16 rounds.
ROUNDING = {"float32": 1e-5, "bfloat16": 0.08, "float16": 0.01}
FIRST = {**dict.fromkeys(["bert", "distilbert", "roberta"], "cls"), "dpr-question": "pooler", "dpr-context": "pooler"}
TEXTS = ["", "a", *random_texts(12, seed=4), "ab " * 30]


def _dense(tiny_models: Any, kind: str, pooling: str, precision: str = "float32") -> DenseEncoder:
    spec = {"similarity": "dot", "pooling": pooling, "max_length": 120}
    encoder: DenseEncoder = opened("dense", tiny_models[kind], spec, precision, ONE_BATCH)
    return encoder


def _assert_close(found: np.ndarray, expected: np.ndarray, precision: str) -> None:
    np.testing.assert_allclose(found, expected, atol=ROUNDING[precision] * np.abs(expected).max(), rtol=0)


@pytest.mark.parametrize("precision", quick_first(ROUNDING))
@pytest.mark.parametrize("kind", FIRST)
def test_vectors_of_first_tokens_are_those_of_sentence_transformers(tiny_models, kind, precision):
    encoder = _dense(tiny_models, kind, FIRST[kind], precision)
    assert encoder.narrow
    hub = {"local_files_only": True, "trust_remote_code": False}
    plain = pooled_transformer(str(tiny_models[kind]), FIRST[kind], device="cpu", **hub)
    plain.max_seq_length = 120
    _assert_close(encoder.encode_documents(TEXTS), plain.encode(TEXTS), precision)


@pytest.mark.parametrize("precision", quick_first(ROUNDING))
@pytest.mark.parametrize("kind", ["Bert", "Electra", "DistilBert", "Albert"])
def test_scores_are_those_of_sentence_transformers(tmp_path, kind, precision):
    if kind == "Albert" and precision != "float32":
        pytest.skip("its layers share random weights, and their rounding adds up")
    folder = save_cross_encoder(tmp_path / "model", kind)
    scorer = opened("cross-encoder", folder, {}, precision, ONE_BATCH)
    assert scorer.narrow == (kind != "Albert")
    pairs = [("ab cd", text) for text in TEXTS]
    plain = CrossEncoder(str(folder), device="cpu", activation_fn=torch.nn.Identity())
    _assert_close(scorer.score(*map(list, zip(*pairs, strict=True))), plain.predict(pairs), precision)


@pytest.mark.parametrize(("kind", "name"), [("bert", "layer.{}.output"), ("distilbert", "layer.{}.ffn")])
def test_feed_forward_networks_see_all_tokens_but_the_last_one_a_token_of_each_text(tiny_models, kind, name):
    encoder = _dense(tiny_models, kind, "cls")
    seen: dict[int, int] = {}
    for layer in (0, 1):
        module = next(part for path, part in encoder.transformer.named_modules() if path.endswith(name.format(layer)))
        module.register_forward_hook(lambda _, inputs, __, layer=layer: seen.update({layer: inputs[0].shape[1]}))
    encoder.encode_documents(TEXTS)
    assert seen == {0: encoder.tokenized(TEXTS, "document").lengths.max(), 1: 1}


def test_what_reads_more_than_first_tokens_gets_all_of_them(tiny_models):
    assert not _dense(tiny_models, "bert", "mean").narrow
    spec = {"similarity": "dot", "pooling": "mean"}
    assert not opened("dense", tiny_models["decoder"], {"similarity": "dot"}).narrow
    assert not opened("dense", tiny_models["roberta"], spec).narrow


def test_a_model_that_is_trained_computes_all_tokens(tiny_models):
    entry = DenseModel.model_validate({"family": "dense", "similarity": "dot", "pooling": "cls"})
    encoder = DenseEncoder(tiny_models["bert"], entry, Runtime("cpu", "float32", 300), trainable=True)
    assert not encoder.narrow
