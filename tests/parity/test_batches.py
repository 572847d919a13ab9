"""What a model gives for a text does not depend on the other texts of its batch, in any precision."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import opened
from helpers import quick_first
from test_encoders import _texts

from beirgrid.encoders import (
    CrossEncoderScorer,
    DenseEncoder,
    LateInteractionEncoder,
    Seq2SeqScorer,
    SparseTextEncoder,
    TermWeighter,
    base,
    packing,
)

# All texts of a test are one batch.
ONE_BATCH = 100_000
# How far apart two computations of one number may be: relative to the largest number.
ROUNDING = {"float32": 1e-5, "bfloat16": 0.06, "float16": 0.01}
WINDOWS = ("modernbert", "gemma")


def _mixed() -> list[str]:
    """Texts from nothing to more than the models read, so that most of a batch is padding."""
    return ["", "a", "ab cd", *_texts(12, seed=4), "ab " * 30, "cdef ghij " * 60]


def _plain(folder: Path, texts: list[str], limit: int) -> np.ndarray:
    """The normalised mean over tokens in float32, one text at a time, by transformers alone."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager")
    rows = []
    with torch.inference_mode():
        for text in texts:
            features = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
            rows.append(model(**features).last_hidden_state[0].mean(0).numpy())
    vectors = np.stack(rows)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


@pytest.mark.parametrize("precision", quick_first(ROUNDING))
@pytest.mark.parametrize("kind", WINDOWS)
def test_models_with_windows_to_both_sides_equal_plain_transformers(tiny_models, kind, precision):
    texts, spec = _mixed(), {"similarity": "cosine", "max_length": 200}
    encoder = opened(DenseEncoder, tiny_models[kind], spec, precision, ONE_BATCH)
    vectors = encoder.encode_documents(texts)
    assert np.isfinite(vectors).all()
    cosines = (vectors * _plain(tiny_models[kind], texts, 200)).sum(1)
    assert cosines.min() > 1 - {"float32": 1e-5, "bfloat16": 5e-3, "float16": 1e-4}[precision]


@pytest.mark.parametrize("precision", ["float32", "float64", "bfloat16", "float16"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [None, 3])
def test_packed_attention_is_that_of_each_text_alone(causal, window, precision):
    """Two heads of queries share one of keys. In float64, PyTorch attends, as on a GPU in float32."""
    import torch

    torch.manual_seed(0)
    lengths = [7, 5, 5, 2, 1]
    kind = getattr(torch, precision)
    query, (key, value) = torch.randn(1, 4, 20, 8, dtype=kind), torch.randn(2, 1, 2, 20, 8, dtype=kind)
    mask = (torch.arange(7) < torch.tensor(lengths)[:, None]).long()
    with packing.planned(mask, "cpu"):
        packing._thread.layout = packing._thread.planned
        try:
            options = {"sliding_window": window, "is_causal": causal}
            found, _ = packing.attend(torch.nn.Module(), query, key, value, None, **options)
        finally:
            packing._thread.layout = None
    start = 0
    for length in lengths:
        places = slice(start, start + length)
        keys, values = (part[0].double().repeat_interleave(2, 0)[:, places] for part in (key, value))
        weights = query[0, :, places].double() @ keys.transpose(1, 2) / 8**0.5
        for row in range(length):
            for column in range(length):
                if (causal and column > row) or (window and abs(row - column) >= window):
                    weights[:, row, column] = -torch.inf
        weights = weights.softmax(-1)
        expected = (weights @ values).to(kind).transpose(0, 1)  # only the result is rounded to float16
        if precision == "bfloat16":  # and weights to bfloat16, where the processor multiplies it
            most = 2**-8 * (weights @ values.abs()).transpose(0, 1) + 2**-7 * expected.abs()
            assert ((found[0, places] - expected).abs() <= most).all()
        else:
            torch.testing.assert_close(found[0, places], expected)
        start += length


def test_what_cannot_be_packed_is_padded_and_the_record_says_so(tiny_models):
    for kind, expected in (("dense", "packed"), ("modernbert", "packed"), ("gtr", "padded")):
        encoder = opened(DenseEncoder, tiny_models[kind], {"similarity": "cosine"}, "float32", ONE_BATCH)
        assert encoder.facts()["batches"] == expected
    spec = {"similarity": "dot", "pooling": "pooler"}
    assert opened(DenseEncoder, tiny_models["dpr-question"], spec, "float32").facts()["batches"] == "packed"
    scorer = opened(CrossEncoderScorer, tiny_models["cross-encoder"], {}, "float32", ONE_BATCH)
    assert scorer.facts()["batches"] == "packed"
    weigher = opened(TermWeighter, tiny_models["term-weights"], {}, "float32", ONE_BATCH)
    assert weigher.facts()["batches"] == "packed"


def test_a_model_in_training_or_with_other_attention_is_padded(tiny_models, monkeypatch):
    encoder = opened(DenseEncoder, tiny_models["dense"], {"similarity": "cosine"}, "float32", ONE_BATCH)
    packed = []
    attend = packing._by_tiles
    monkeypatch.setattr(packing, "_by_tiles", lambda *given: packed.append(1) or attend(*given))
    vectors = encoder.encode_documents(["ab cd", "ef"])
    assert packed
    packed.clear()
    encoder.model.train()
    encoder.encode_documents(["ab cd", "ef"])
    encoder.model.eval()
    encoder.model.transformers_model.set_attn_implementation("eager")
    np.testing.assert_allclose(encoder.encode_documents(["ab cd", "ef"]), vectors, atol=1e-6)
    assert not packed


Encode = Callable[[list[str]], list[np.ndarray]]


def _dense(*settings: Any) -> Encode:
    encoder = opened(DenseEncoder, *settings)
    return lambda texts: list(encoder.encode_documents(texts))


def _sparse(*settings: Any) -> Encode:
    encoder = opened(SparseTextEncoder, *settings)
    return lambda texts: list(encoder.encode_documents(texts).toarray())


def _late(*settings: Any) -> Encode:
    encoder = opened(LateInteractionEncoder, *settings)

    def encode(texts: list[str]) -> list[np.ndarray]:
        found = encoder.encode_documents(texts)
        return np.split(found.vectors, np.cumsum(found.counts)[:-1])

    return encode


def _pairs(*settings: Any) -> Encode:
    scorer = opened(CrossEncoderScorer, *settings)
    return lambda texts: list(scorer.score(["ab cd"] * len(texts), texts)[:, None])


def _prompts(*settings: Any) -> Encode:
    scorer = opened(Seq2SeqScorer, *settings)
    return lambda texts: list(scorer.score(["ab cd"] * len(texts), texts)[:, None])


def _terms(*settings: Any) -> Encode:
    weigher = opened(TermWeighter, *settings)
    return lambda texts: [text.weights for text in weigher.piece_weights(texts)]


FAMILIES = {
    "dense": (_dense, {"similarity": "dot"}),
    "decoder": (_dense, {"similarity": "dot"}),
    "roberta": (_dense, {"similarity": "dot", "pooling": "mean"}),
    "modernbert": (_dense, {"similarity": "dot"}),
    "gemma": (_dense, {"similarity": "dot"}),
    "splade": (_sparse, {}),
    "sparta": (_sparse, {"pooling": "sparta"}),
    "late-interaction": (_late, {}),
    "stanford": (_late, {}),
    "cross-encoder": (_pairs, {}),
    "electra": (_pairs, {}),
    "distilbert": (_dense, {"similarity": "dot", "pooling": "cls"}),
    "dpr-context": (_dense, {"similarity": "dot", "pooling": "pooler"}),
    "seq2seq": (_prompts, {"max_length": 100}),
    "term-weights": (_terms, {}),
}


@pytest.mark.parametrize("precision", quick_first(ROUNDING))
@pytest.mark.parametrize("kind", FAMILIES)
def test_a_text_alone_is_what_it_is_in_any_batch(tiny_models, kind, precision):
    open_model, spec = FAMILIES[kind]
    encode, texts = open_model(tiny_models[kind], {"max_length": 120, **spec}, precision, ONE_BATCH), _mixed()
    together, backwards = encode(texts), encode(texts[::-1])[::-1]
    largest = max(np.abs(row).max(initial=0) for row in together)
    for number, one in enumerate(together):
        assert np.isfinite(one).all()
        alone = encode([texts[number]]) if number % 4 == 0 else []
        for found in (backwards[number], *alone):
            np.testing.assert_allclose(found, one, atol=ROUNDING[precision] * largest, rtol=0)


@pytest.mark.parametrize("kind", ["dense", "decoder", "roberta", "modernbert", "gemma", "late-interaction", "stanford"])
def test_lists_of_tokens_are_what_padded_tensors_hold(tiny_models, kind, monkeypatch):
    family = LateInteractionEncoder if kind in ("late-interaction", "stanford") else DenseEncoder
    encoder = opened(family, tiny_models[kind], {"max_length": 120, **FAMILIES[kind][1]}, "float32", ONE_BATCH)
    found = {role: encoder.tokenized(_mixed(), role) for role in ("query", "document")}
    monkeypatch.setattr(base, "_LISTS", {})
    for role, tokens in found.items():
        padded = encoder.tokenized(_mixed(), role)
        assert padded.columns.keys() == tokens.columns.keys()
        for name, column in padded.columns.items():
            assert [row.tolist() for row in column] == [row.tolist() for row in tokens.columns[name]]
            assert {row.dtype for row in tokens.columns[name]} == {np.dtype(np.int32)}
