"""Compare BGE-M3's sparse and multi-vector heads with FlagEmbedding's formulas over transformers' own model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from checkpoints import opened, save_pickled, sides
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from beirgrid.core.errors import DataError
from beirgrid.models import checkpoints
from beirgrid.models.checkpoints import CheckpointEntry

TEXTS = ["a short text, a text", "one that is somewhat longer than the first", "x", "", "<s> in </s> (a text) 1 <s>"]
SPARSE = {"pooling": "bge-m3"}


@pytest.fixture(scope="module")
def fetched(tiny_models: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Fetch a RoBERTa with the heads of BGE-M3 in their published, pickled form."""
    base = tmp_path_factory.mktemp("m3")
    folder = save_pickled(base / "published", tiny_models["roberta"])
    torch.manual_seed(4)
    for head, size in (("sparse", 1), ("colbert", 24)):
        torch.save(torch.nn.Linear(32, size).state_dict(), folder / f"{head}_linear.pt")
    (target := base / "fetched").mkdir()
    facts = checkpoints.fetch("m3", CheckpointEntry(path=str(folder), pickled=True), target)
    pickles = {"colbert_linear.pt", "pytorch_model.bin", "sparse_linear.pt"}
    assert set(facts["converted"]["files"]) == pickles
    assert not pickles & {path.name for path in target.iterdir()}
    return target


def published(folder: Path, text: str) -> tuple[dict[int, float], np.ndarray]:
    """Return the weight of each token and the token vectors, by FlagEmbedding's formulas."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    read = tokenizer(text, return_tensors="pt")
    sparse, colbert = (load_file(folder / f"{head}_linear.safetensors") for head in ("sparse", "colbert"))
    with torch.inference_mode():
        hidden = model(**read).last_hidden_state[0]
        weights = torch.relu(hidden @ sparse["weight"].T + sparse["bias"])[:, 0].tolist()
        vectors = torch.nn.functional.normalize(hidden[1:] @ colbert["weight"].T + colbert["bias"], dim=-1)
    left_out = {tokenizer.cls_token_id, tokenizer.eos_token_id, tokenizer.pad_token_id, tokenizer.unk_token_id}
    found: dict[int, float] = {}
    for token, weight in zip(read["input_ids"][0].tolist(), weights, strict=True):
        if token not in left_out and weight > 0:
            found[token] = max(weight, found.get(token, 0.0))
    return found, vectors.numpy()


def test_weights_of_tokens(fetched):
    encoder = opened("sparse", fetched, SPARSE)
    for _, encode in sides(encoder):
        rows = encode(TEXTS)
        for text, row in zip(TEXTS, rows, strict=True):
            expected, _ = published(fetched, text)
            assert set(row.indices) == set(expected)
            np.testing.assert_allclose([expected[token] for token in row.indices], row.data, atol=1e-5)
    assert encoder.encode_documents([]).shape == (0, encoder.dimension)


def test_vectors_of_tokens(fetched):
    encoder = opened("late-interaction", fetched, {"head": "bge-m3"})
    expected = [published(fetched, text)[1] for text in TEXTS]
    for _, encode in sides(encoder):
        vectors, counts = encode(TEXTS)
        assert counts.tolist() == [len(found) for found in expected]
        np.testing.assert_allclose(vectors, np.concatenate(expected), atol=1e-5)
    assert encoder.dimension == 24


def test_another_model_has_no_such_head(tiny_models):
    with pytest.raises(DataError, match=r"has no sparse_linear\.safetensors: it is not BGE-M3"):
        opened("sparse", tiny_models["roberta"], SPARSE)
    with pytest.raises(DataError, match=r"has no colbert_linear\.safetensors"):
        opened("late-interaction", tiny_models["roberta"], {"head": "bge-m3"})
