"""With ``precision: auto``, a GPU computes in float16 where the numbers fit. The same code runs here on a CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import FAMILIES, enlarge_all, opened, results, save_changed

from beirgrid.core.errors import DataError
from beirgrid.encoders.guards import check_finite

TEXTS = ["ab cd", "ef ^ gh", "a", "jab ij cab", "^", "de fa " * 20]
LARGE = ["^" in text for text in TEXTS]

KINDS = ("dense", "splade", "stanford", "cross-encoder", "term-weights")


def _enlarge_one(weights: dict[str, Any]) -> None:
    """Change weights so that only the token ^ exceeds float16, by a large first dimension of its own."""
    for table in ("word", "position", "token_type"):
        vectors = weights[f"embeddings.{table}_embeddings.weight"]
        vectors[:, 0] = 0
        vectors[:, 1:] -= vectors[:, 1:].mean(1, keepdim=True)  # or the layer norm would give other tokens a share
    token = 5 + "abcdefghijklmnopqrstuvwxyz0123456789!\"#$%&'()*+,-./:;<=>?@[\\]^".index("^")
    weights["embeddings.word_embeddings.weight"][token] = 0
    weights["embeddings.word_embeddings.weight"][token, 0] = 100
    weights["embeddings.LayerNorm.weight"][0] = 2e4


def _open(kind: str, folder: Path, precision: str) -> Any:
    family, entry = FAMILIES[kind]
    return opened(family, folder, entry, precision, 10_000)


@pytest.mark.parametrize("taken", ["float16", "bfloat16", "float32"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_model_that_does_not_fit_float16_computes_in_another_precision(
    tiny_models, as_on_a_gpu, tmp_path, kind, taken
):
    as_on_a_gpu(bfloat16=taken != "float32")
    fits = taken == "float16"
    folder = tiny_models[kind] if fits else save_changed(tmp_path / kind, tiny_models[kind], enlarge_all)
    model, asked = (_open(kind, folder, precision) for precision in ("auto", taken))
    for found, expected in zip(results(model, TEXTS), results(asked, TEXTS), strict=True):
        assert np.isfinite(found).all()
        np.testing.assert_array_equal(found, expected)
    assert model.facts()["precision"] == taken
    assert "computed_in_bfloat16" not in model.facts()


@pytest.mark.parametrize("kind", KINDS)
def test_texts_that_overflow_are_computed_in_bfloat16_and_no_others(tiny_models, as_on_a_gpu, tmp_path, capsys, kind):
    as_on_a_gpu(bfloat16=True)
    folder = save_changed(tmp_path / kind, tiny_models[kind], _enlarge_one)
    models = {precision: _open(kind, folder, precision) for precision in ("auto", "float16", "bfloat16")}
    found, narrow, wide = (results(model, TEXTS) for model in models.values())
    largest = max(np.abs(row).max() for row in wide)
    for text, large in enumerate(LARGE):
        assert np.isfinite(found[text]).all()
        assert np.isfinite(narrow[text]).all() != large
        if large:
            np.testing.assert_allclose(found[text], wide[text], atol=0.06 * largest, rtol=0)
        else:
            np.testing.assert_array_equal(found[text], narrow[text])
    facts = models["auto"].facts()
    assert facts["precision"] == "float16"
    assert facts["computed_in_bfloat16"] == "2 texts that overflow in float16"
    assert capsys.readouterr().err.count("overflow float16") == 1


def test_float16_that_is_asked_for_stays_and_its_overflow_is_an_error(tiny_models, as_on_a_gpu, tmp_path):
    as_on_a_gpu(bfloat16=True)
    encoder = _open("dense", save_changed(tmp_path / "dense", tiny_models["dense"], _enlarge_one), "float16")
    with pytest.raises(DataError, match=r"for 2 of 6 texts, first 'ef .*in float16: set precision: float32 in the mod"):
        check_finite(encoder.encode_documents(TEXTS), list(map(repr, TEXTS)), encoder.precision)
