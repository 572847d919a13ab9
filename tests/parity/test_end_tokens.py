"""The tokens around a text are those of tokenizer_config.json, as transformers 4 read it, in every family."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
from checkpoints import (
    change_json,
    normalised,
    opened,
    save_cross_encoder,
    save_decoder,
    save_dense,
    save_pylate,
    save_roberta,
    save_splade,
)
from sentence_transformers import CrossEncoder, MultiVectorEncoder, SentenceTransformer, SparseEncoder
from transformers import AutoModel, AutoTokenizer, LlamaConfig

from beirgrid.encoders.loading import load_checkpoint

TEXTS = ["ab", "a longer text", "", "x " * 30]
BOTH = {"add_bos_token": True, "add_eos_token": True}


def _saying(folder: Path, **said: Any) -> Path:
    """Write keys into a checkpoint's tokenizer_config.json."""
    change_json(next(folder.rglob("tokenizer_config.json")), **said)
    return folder


def test_the_end_token_is_pooled(tmp_path):
    """The vectors are the last states of transformers' model over tokens that the test puts together itself."""
    folder = _saying(save_decoder(tmp_path / "model", ended=False), **BOTH)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    last = []
    for text in TEXTS:
        plain = tokenizer(text, add_special_tokens=False)["input_ids"]
        with torch.inference_mode():
            states = model(torch.tensor([[tokenizer.bos_token_id, *plain, tokenizer.eos_token_id]])).last_hidden_state
        last.append(states[0, -1].numpy())
    expected = normalised(last)
    entry = {"similarity": "cosine", "pooling": "own"}
    found = opened("dense", folder, entry).encode_documents(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)
    dropped = opened("dense", _saying(folder, add_eos_token=False, add_bos_token=False), entry)
    assert np.abs(dropped.encode_documents(TEXTS) - expected).max() > 0.1


@pytest.mark.parametrize(
    ("loader", "save"),
    [
        (SentenceTransformer, save_dense),
        (SparseEncoder, save_splade),
        (MultiVectorEncoder, save_pylate),
        (CrossEncoder, save_cross_encoder),
        (AutoTokenizer, save_dense),
    ],
)
def test_every_family_reads_them(tmp_path, loader, save):
    folder = save(tmp_path / "model")
    change_json(next(folder.rglob("tokenizer.json")), post_processor=None)
    _saying(folder, tokenizer_class="PreTrainedTokenizerFast", bos_token="[CLS]", eos_token="[SEP]", **BOTH)
    model = load_checkpoint(loader, folder, unused="pooler")
    tokenizer = getattr(model, "tokenizer", model)
    plain = tokenizer("ab", add_special_tokens=False)["input_ids"]
    assert tokenizer("ab")["input_ids"] == [tokenizer.bos_token_id, *plain, tokenizer.eos_token_id]
    assert tokenizer("ab", "ab")["input_ids"] == 2 * tokenizer("ab")["input_ids"]


@pytest.mark.parametrize(
    ("save", "said"),
    [
        (save_decoder, {}),
        (save_decoder, {"add_eos_token": True}),  # which its tokenizer.json does
        (save_decoder, {"add_bos_token": False, "add_eos_token": False}),  # Qwen's defaults, which no release read
        (lambda folder: save_roberta(folder), {"bos_token": "<s>", "eos_token": "</s>", **BOTH}),
        (save_dense, {"add_bos_token": False}),
        (save_dense, {"add_eos_token": True}),  # no end token, but [CLS] and [SEP], which nothing replaces
        (save_decoder, {"add_bos_token": True, "bos_token": None}),
    ],
)
def test_tokenizers_that_are_right_stay_as_they_are(tmp_path, save, said):
    folder = _saying(save(tmp_path / "model"), **said)
    expected = AutoTokenizer.from_pretrained(folder).backend_tokenizer.to_str()
    found = load_checkpoint(AutoTokenizer, folder).backend_tokenizer.to_str()
    assert json.loads(found)["post_processor"] == json.loads(expected)["post_processor"]


def test_a_class_that_obeyed_its_file_leaves_the_end_token_out(tmp_path):
    """The tokenizer.json of the checkpoint puts it after each text. An entry may ask for it all the same."""
    folder = _saying(save_decoder(tmp_path / "model"), add_eos_token=False, tokenizer_class="LlamaTokenizerFast")
    entry = {"similarity": "cosine", "pooling": "own"}
    for more, end in (({}, False), ({"special_tokens": "end"}, True)):
        tokenizer = opened("dense", folder, entry | more).tokenizer
        plain = tokenizer("ab", add_special_tokens=False)["input_ids"]
        assert tokenizer("ab")["input_ids"] == plain + [tokenizer.eos_token_id] * end


@pytest.mark.parametrize("name", ["LlamaTokenizer", "GemmaTokenizer"])
@pytest.mark.parametrize(
    ("said", "first", "end"),
    [({}, True, False), ({"add_bos_token": False}, False, False), ({"add_eos_token": True}, True, True)],
)
def test_a_sentencepiece_model_without_tokenizer_json(tmp_path, name, said, first, end):
    """In transformers 4, the first token was the default of these classes."""
    (tmp_path / "texts").write_text("ab cd abc\n" * 50)
    options = {"vocab_size": 20, "model_type": "bpe", "minloglevel": 2, "bos_id": 1, "eos_id": 2, "unk_id": 0}
    sentencepiece.SentencePieceTrainer.train(
        input=str(tmp_path / "texts"), model_prefix=str(tmp_path / "tokenizer"), hard_vocab_limit=False, **options
    )
    LlamaConfig().save_pretrained(tmp_path)
    tokens = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name, **tokens, **said}))
    tokenizer = load_checkpoint(AutoTokenizer, tmp_path)
    plain = tokenizer("abc", add_special_tokens=False)["input_ids"]
    assert tokenizer("abc")["input_ids"] == [1] * first + plain + [2] * end
