"""Contenders of the bench's part ``generation``.

Usage: generation.py NAMES FOLDER. NAMES are some of make, ours and theirs, with commas between them.

``make`` saves a T5 of random weights as large as docT5query's, and texts. The others print the seconds in which they
sample queries. Random weights hardly ever end a query, so both sample queries of the same length.
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from pathlib import Path
from typing import Any

SMALL = os.environ.get("BENCH") == "small"
BASE = {"d_model": 768, "d_kv": 64, "d_ff": 3072, "num_layers": 12, "num_heads": 12}
TINY = {"d_model": 64, "d_kv": 16, "d_ff": 128, "num_layers": 2, "num_heads": 4}
VOCABULARY, WORDS = 32_128, 150
DOCUMENTS, QUERIES, PIECES = (2, 4, 4) if SMALL else (6, 40, 16)


def make(folder: Path) -> None:
    """Save the model, with a tokenizer of one piece per word, and texts as long as BEIR's documents."""
    import torch
    from transformers import T5Config, T5ForConditionalGeneration, T5Tokenizer

    words = [f"w{number}" for number in range(VOCABULARY - 104)]
    special = [("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0), ("▁", -20.0)]
    tokenizer = T5Tokenizer(vocab=[*special, *((f"▁{word}", -5.0) for word in words)], model_max_length=512)
    torch.manual_seed(0)
    options: dict[str, Any] = {"vocab_size": VOCABULARY, "decoder_start_token_id": 0, **(TINY if SMALL else BASE)}
    T5ForConditionalGeneration(T5Config(**options)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    choose = random.Random(0)  # noqa: S311
    lengths = [max(5, round(choose.gauss(WORDS, WORDS / 3))) for _ in range(DOCUMENTS)]
    (folder / "texts.json").write_text(json.dumps([" ".join(choose.choices(words, k=length)) for length in lengths]))


def ours(folder: Path, texts: list[str]) -> float:
    """Time sampling as the stage ``expand`` does it, in seconds."""
    from beirgrid.config.models import QueryGenerator as Entry
    from beirgrid.core.compute import Compute
    from beirgrid.encoders import query_generator

    query_generator.QUERY_LENGTH = PIECES
    entry = Entry(family="query-generator", top_k=10)
    model = query_generator.GeneratorModel(folder, entry, Compute().start())
    model.generate(texts[:1], per_text=2, seed=0)
    started = time.monotonic()
    model.generate(texts, per_text=QUERIES, seed=0)
    return time.monotonic() - started


def theirs(folder: Path, texts: list[str], batch: int = 1) -> float:
    """Time sampling by transformers, in seconds: one document after the other, as docT5query's authors do it, or in
    batches; on a GPU in bfloat16.
    """
    import torch
    from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

    device = "cuda" if torch.cuda.is_available() else "cpu"
    tokenizer = AutoTokenizer.from_pretrained(folder)
    dtype = torch.bfloat16 if device == "cuda" else torch.float32
    model = AutoModelForSeq2SeqLM.from_pretrained(folder, dtype=dtype).to(device).eval()

    def generate(some: list[str], queries: int) -> None:
        inputs = tokenizer(some, truncation=True, max_length=512, padding=True, return_tensors="pt").to(device)
        pieces = model.generate(**inputs, do_sample=True, top_k=10, num_return_sequences=queries, max_new_tokens=PIECES)
        tokenizer.batch_decode(pieces, skip_special_tokens=True)

    generate(texts[:1], 2)
    started = time.monotonic()
    for start in range(0, len(texts), batch):
        generate(texts[start : start + batch], QUERIES)
    return time.monotonic() - started


if __name__ == "__main__":
    where = Path(sys.argv[2])
    for what in sys.argv[1].split(","):
        if what == "make":
            make(where)
        else:
            print({"ours": ours, "theirs": theirs}[what](where, json.loads((where / "texts.json").read_text())))
