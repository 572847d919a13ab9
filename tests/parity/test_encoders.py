"""Vectors and scores equal those of plain transformers code on the same weights."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from checkpoints import opened

from beirgrid.core.errors import DataError
from beirgrid.encoders.cross_encoder import CrossEncoderScorer
from beirgrid.encoders.dense import DenseEncoder
from beirgrid.encoders.engine import token_batches

BUDGET = 300


def _texts(count: int, seed: int = 0) -> list[str]:
    choose = random.Random(seed)
    letters = "abcdefghij    "
    return ["".join(choose.choices(letters, k=choose.randrange(0, 150))).strip() for _ in range(count)]


def _mean_pooled(folder: Path, texts: list[str], limit: int) -> np.ndarray:
    """Average the last hidden states of the tokens, one text at a time: no padding, no batches."""
    import torch
    from transformers import AutoModel, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    rows = []
    with torch.inference_mode():
        for text in texts:
            features = tokenizer(text, truncation=True, max_length=limit, return_tensors="pt")
            rows.append(model(**features).last_hidden_state[0].mean(0).numpy())
    return np.stack(rows)


@pytest.mark.parametrize("similarity", ["dot", "cosine"])
def test_dense_vectors_equal_plain_transformers(tiny_models, similarity):
    texts = _texts(70)
    spec = {"similarity": similarity, "max_length": 48}
    encoder = opened(DenseEncoder, tiny_models["dense"], spec, "float32", BUDGET)
    expected = _mean_pooled(tiny_models["dense"], texts, 48)
    if similarity == "cosine":
        expected = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(encoder.encode_documents(texts), expected, atol=1e-5, rtol=1e-4)


def test_prompts_stand_before_queries_and_documents(tiny_models):
    texts = _texts(5)
    spec = {"similarity": "dot", "prompts": {"query": "ab: ", "document": "cd: "}}
    encoder = opened(DenseEncoder, tiny_models["dense"], spec, "float32", BUDGET)
    for encode, prompt in ((encoder.encode_queries, "ab: "), (encoder.encode_documents, "cd: ")):
        expected = _mean_pooled(tiny_models["dense"], [prompt + text for text in texts], 128)
        np.testing.assert_allclose(encode(texts), expected, atol=1e-5, rtol=1e-4)


def test_cross_encoder_gives_raw_logits(tiny_models):
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    queries, documents = _texts(40, seed=1), _texts(40, seed=2)
    scorer = opened(CrossEncoderScorer, tiny_models["cross-encoder"], {"max_length": 96}, "float32", BUDGET)
    folder = tiny_models["cross-encoder"]
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForSequenceClassification.from_pretrained(folder)
    expected = []
    with torch.inference_mode():
        for query, document in zip(queries, documents, strict=True):
            # In lists, because alone an empty document counts as missing, and the pair loses a separator.
            features = tokenizer([query], [document], truncation="longest_first", max_length=96, return_tensors="pt")
            expected.append(model(**features).logits.item())
    scores = scorer.score(queries, documents)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert (scores < 0).any() or (scores > 1).any()  # a sigmoid would not leave [0, 1]


def test_batches_hold_every_text_once_within_the_budget():
    lengths = np.random.default_rng(0).integers(1, 200, 500)
    batches = list(token_batches(lengths, 400))
    assert sorted(np.concatenate(batches)) == list(range(500))
    assert all(len(rows) == 1 or lengths[rows].max() * len(rows) <= 400 for rows in batches)
    longest = [lengths[rows].max() for rows in batches]
    assert longest == sorted(longest, reverse=True)


def test_no_texts_give_no_vectors(tiny_models):
    encoder = opened(DenseEncoder, tiny_models["dense"], {"similarity": "dot"}, "float32", BUDGET)
    assert encoder.encode_documents([]).shape == (0, 32)


def test_a_folder_that_is_no_model_is_named(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(DataError, match=str(tmp_path)):
        opened(DenseEncoder, tmp_path, {"similarity": "dot"}, "float32", BUDGET)


def test_a_projection_after_the_pooling_computes_in_float32(tiny_models, tmp_path):
    """In bfloat16 the low 16 bits of a float32 are zero."""
    import torch
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Dense

    model = SentenceTransformer(str(tiny_models["dense"]), device="cpu")
    torch.manual_seed(0)
    SentenceTransformer(modules=[*model, Dense(32, 16)], device="cpu").save_pretrained(str(tmp_path))
    vectors = opened(DenseEncoder, tmp_path, {"similarity": "cosine"}, "bfloat16", BUDGET).encode_documents(_texts(30))
    assert ((vectors.view(np.uint32) & 0xFFFF) == 0).mean() < 0.2
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_weights_that_are_missing_are_not_made_up(tiny_models, tmp_path):
    import shutil

    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny_models["dense"], tmp_path / "dense")
    weights = load_file(tmp_path / "dense/model.safetensors")
    kept = {name: value for name, value in weights.items() if "layer.1." not in name}
    save_file(kept, tmp_path / "dense/model.safetensors", metadata={"format": "pt"})
    with pytest.raises(DataError, match=r"not a complete SentenceTransformer: it lacks \d+ weights, encoder.layer.1"):
        opened(DenseEncoder, tmp_path / "dense", {"similarity": "dot"}, "float32", BUDGET)
    with pytest.raises(DataError, match=r"not a complete CrossEncoder: it lacks 2 weights, classifier"):
        opened(CrossEncoderScorer, tiny_models["dense"], {}, "float32", BUDGET)


def test_a_length_beyond_the_models_positions_is_refused(tiny_models):
    with pytest.raises(DataError, match="max_length is 512, but the model has only 128 positions"):
        opened(DenseEncoder, tiny_models["dense"], {"similarity": "dot", "max_length": 512}, "float32", BUDGET)
