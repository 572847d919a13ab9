"""Compare a local decoder's orders with transformers' own generation and RankGPT's windows."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import save_chat, save_yes_no

from beirgrid.config.models import ListwiseReranker
from beirgrid.core.compute import Runtime
from beirgrid.core.errors import DataError
from beirgrid.encoders import open_scorer
from beirgrid.encoders.listwise import messages

DOCUMENTS = [f"{'abcdefgh'[row]} text of {row} words that has a few more" for row in range(8)]


def scorer(folder: Path, **keys: Any) -> Any:
    entry = {"family": "listwise-reranker", "path": str(folder), "window": 4, "step": 2, "words": 5, **keys}
    return open_scorer(folder, ListwiseReranker.model_validate(entry), Runtime("cpu", "float32", 300))


def written(folder: Path, query: str, documents: list[str]) -> str:
    """Return the answer of transformers' own greedy search to RankGPT's messages."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    asked = messages(query, [" ".join(text.split()[:5]) for text in documents])
    ids = tokenizer.apply_chat_template(asked, add_generation_prompt=True, return_tensors="pt")["input_ids"]
    order = tokenizer(" > ".join(f"[{number}]" for number in range(1, 5)))["input_ids"]
    past, read = None, ids
    for _ in range(len(order) + 16):
        with torch.inference_mode():
            found = model(read, past_key_values=past, use_cache=True)
        read, past = found.logits[:, -1:].argmax(-1), found.past_key_values
        ids = torch.cat([ids, read], 1)
        if read == tokenizer.eos_token_id:
            break
    return tokenizer.decode(ids[0]).rpartition("assistant\n")[2]


def test_a_decoder_orders_windows_of_documents(tmp_path):
    folder = save_chat(tmp_path / "model", seed=1)
    order, answers = list(range(8)), []
    for start in (4, 2, 0):
        answers.append(written(folder, "a query", [DOCUMENTS[row] for row in order[start : start + 4]]))
        named = [int(number) - 1 for number in re.findall(r"\d+", answers[-1])]
        places = [place for place in dict.fromkeys([*named, *range(4)]) if 0 <= place < 4]
        order[start : start + 4] = [order[start + place] for place in places]
    opened = scorer(folder)
    scores = opened.score(["a query"] * 8, DOCUMENTS)
    assert np.argsort(-scores).tolist() == order
    assert order != list(range(8)), answers
    facts = opened.facts()
    assert facts["windows"] == 3
    assert facts["prompt"] == messages("{query}", ["{document}"])
    assert facts["precision"] == "float32"
    assert opened.spent() == {name: facts[name] for name in opened.spent()}


def test_a_window_that_the_model_cannot_read_is_refused(tmp_path):
    with pytest.raises(DataError, match="the model reads 500: give the model's entry fewer words, or a smaller"):
        scorer(save_chat(tmp_path / "model"), max_length=500).score(["a"] * 2, DOCUMENTS[:2])


def test_a_model_without_a_chat_template_is_refused(tmp_path):
    with pytest.raises(DataError, match="is no chat model"):
        scorer(save_yes_no(tmp_path / "model"))
