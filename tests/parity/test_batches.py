"""A text's results do not depend on the other texts of its batch, in any precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import FAMILIES, normalised, opened, random_texts, results, states
from helpers import quick_first

from beirgrid.encoders import base
from beirgrid.encoders.dense import pooled_transformer

# All texts of a test are one batch.
ONE_BATCH = 100_000
# Largest difference between two computations of a number, relative to the largest number.
ROUNDING = {"float32": 1e-5, "bfloat16": 0.06, "float16": 0.01}
WINDOWS = ("modernbert", "gemma")


def _mixed() -> list[str]:
    """Texts from empty to longer than the models read, so that most of a batch is padding."""
    return ["", "a", "ab cd", *random_texts(12, seed=4), "ab " * 30, "cdef ghij " * 60]


@pytest.mark.parametrize("precision", quick_first(ROUNDING))
@pytest.mark.parametrize("kind", WINDOWS)
def test_models_with_windows_to_both_sides_equal_plain_transformers(tiny_models, kind, precision):
    texts, spec = _mixed(), {"similarity": "cosine", "max_length": 200}
    encoder = opened("dense", tiny_models[kind], spec, precision, ONE_BATCH)
    vectors = encoder.encode_documents(texts)
    assert np.isfinite(vectors).all()
    plain = states(tiny_models[kind], texts, 200, attn_implementation="eager")
    cosines = (vectors * normalised([tokens.mean(0) for tokens in plain])).sum(1)
    assert cosines.min() > 1 - {"float32": 1e-5, "bfloat16": 5e-3, "float16": 1e-4}[precision]


def _open(tiny_models: dict[str, Path], kind: str, precision: str = "float32") -> Any:
    family, spec = FAMILIES[kind]
    return opened(family, tiny_models[kind], {"max_length": 120, **spec}, precision, ONE_BATCH)


@pytest.mark.parametrize("precision", quick_first(ROUNDING))
@pytest.mark.parametrize("kind", sorted(FAMILIES.keys() - {"query-generator"}))
def test_a_text_alone_is_what_it_is_in_any_batch(tiny_models, kind, precision):
    model, texts = _open(tiny_models, kind, precision), _mixed()
    together, backwards = results(model, texts), results(model, texts[::-1])[::-1]
    largest = max(np.abs(row).max(initial=0) for row in together)
    for number, one in enumerate(together):
        assert np.isfinite(one).all()
        alone = results(model, [texts[number]]) if number % 4 == 0 else []
        for found in (backwards[number], *alone):
            np.testing.assert_allclose(found, one, atol=ROUNDING[precision] * largest, rtol=0)


@pytest.mark.parametrize(
    "kind",
    ["dense", "decoder", "late-interaction", "stanford", "cross-encoder", "seq2seq", "splade", "term-weights"],
)
def test_low_precision_is_near_float32_and_finished_in_it(tiny_models, kind):
    """In bfloat16 the low 16 bits of a float32 are zero."""
    models = (_open(tiny_models, kind, precision) for precision in ("float32", "bfloat16"))
    exact, low = (np.concatenate(results(model, random_texts(40))) for model in models)
    exact, low = exact[exact != 0], low[exact != 0]
    assert low.dtype == np.float32
    assert np.corrcoef(exact.ravel(), low.ravel())[0, 1] > 0.99
    assert ((low.view(np.uint32) & 0xFFFF) == 0).mean() < 0.2


def test_a_text_may_spell_the_padding_token(tiny_models):
    """RoBERTa numbers the tokens of a text, except tokens with the id of padding."""
    folder, texts = tiny_models["roberta"], ["ab <pad> cd", "<pad>", "ab cd ef gh ij kl", "<pad><pad> a"]
    spec = {"similarity": "dot", "pooling": "cls", "max_length": 120}
    encoder = opened("dense", folder, spec, "float32", ONE_BATCH)
    plain = pooled_transformer(str(folder), "cls", device="cpu", local_files_only=True, trust_remote_code=False)
    assert encoder.model.tokenizer.pad_token_id in encoder.tokenized(texts, "document").columns["input_ids"][0]
    np.testing.assert_allclose(encoder.encode_documents(texts), plain.encode(texts), atol=1e-5)


@pytest.mark.parametrize("kind", ["dense", "decoder", "roberta", "modernbert", "gemma", "late-interaction", "stanford"])
def test_lists_of_tokens_are_what_padded_tensors_hold(tiny_models, kind, monkeypatch):
    encoder = _open(tiny_models, kind)
    found = {role: encoder.tokenized(_mixed(), role) for role in ("query", "document")}
    monkeypatch.setattr(base, "_LISTS", {})
    for role, tokens in found.items():
        padded = encoder.tokenized(_mixed(), role)
        assert padded.columns.keys() == tokens.columns.keys()
        for name, column in padded.columns.items():
            assert [row.tolist() for row in column] == [row.tolist() for row in tokens.columns[name]]
            assert {row.dtype for row in tokens.columns[name]} == {np.dtype(np.int32)}
