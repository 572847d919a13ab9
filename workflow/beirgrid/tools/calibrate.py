"""Measure the speed of models and searches on this machine with the stages' code, for ``plan``."""

from __future__ import annotations

import datetime
import os
import platform
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ..config.entries import DenseModel
from ..core import files
from ..core.compute import Compute, Runtime
from ..core.errors import say

# Shapes of the random models: MiniLM on a CPU, BERT-base on a GPU, which a smaller model would not saturate.
_SHAPES: dict[str, dict[str, Any]] = {
    "cpu": {"num_hidden_layers": 6, "hidden_size": 384, "num_attention_heads": 12, "intermediate_size": 1536},
    "cuda": {"num_hidden_layers": 12, "hidden_size": 768, "num_attention_heads": 12, "intermediate_size": 3072},
}
_WORDS = 150
# Texts per measurement, for about ten seconds.
_TEXTS = {"cpu": 1000, "cuda": 20_000}
_VECTORS, _DIMENSIONS, _QUERIES = 200_000, 384, 500


def calibrate(path: Path) -> None:
    """Write ``rates`` (of models and exact searches), ``device``, ``machine`` and ``cpus`` to ``path``."""
    texts = list(_texts(random.Random(0), 20_000))  # noqa: S311
    rates: dict[str, float] = {}
    with tempfile.TemporaryDirectory(prefix="beirgrid-") as folder, Compute().start() as runtime:
        for name, measure in (("model_flops", _model), ("search_flops", _search)):
            say(f"calibrate: {name} …")
            rates[name] = float(f"{measure(Path(folder), runtime, texts):.4g}")
    measured = {
        "rates": rates,
        "device": runtime.kind,
        "machine": _machine(runtime),
        "cpus": len(os.sched_getaffinity(0)),
        "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
    }
    files.write_json(path, measured)
    say(f"calibrate: wrote {path}")


def _machine(runtime: Runtime) -> str:
    what = runtime.hardware if runtime.kind == "cuda" else f"{len(os.sched_getaffinity(0))} cores"
    return f"{platform.node()}, {what}"


def _texts(rng: random.Random, count: int) -> Iterator[str]:
    """Yield texts whose word frequencies follow those of a natural language."""
    words = [f"{chr(97 + n % 26)}{n}" for n in range(30_000)]
    weights = [1 / (rank + 1) for rank in range(len(words))]
    for _ in range(count):
        yield " ".join(rng.choices(words, weights, k=_WORDS))


def _model(folder: Path, runtime: Runtime, texts: list[str]) -> float:
    """Measure the FLOP/s of encoding with a model of random weights."""
    from transformers import BertConfig, BertModel, BertTokenizer

    from ..encoders import DenseEncoder

    words = sorted({word for text in texts for word in text.split()})
    vocabulary = {word: n for n, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words])}
    model = BertModel(BertConfig(vocab_size=len(vocabulary), **_SHAPES[runtime.kind]))
    model.save_pretrained(folder / "model")
    BertTokenizer(vocab=vocabulary, model_max_length=512).save_pretrained(folder / "model")
    layers = sum(weight.numel() for weight in model.encoder.parameters())
    entry = DenseModel(family="dense", pooling="mean", similarity="cosine", max_length=256)
    encoder = DenseEncoder(folder / "model", entry, runtime)
    encoder.encode_documents(texts[:50])
    texts = texts[: _TEXTS[runtime.kind]]
    started = time.monotonic()
    encoder.encode_documents(texts)
    return len(texts) * (_WORDS + 2) * 2 * layers / (time.monotonic() - started)


def _search(folder: Path, runtime: Runtime, texts: list[str]) -> float:
    """Measure the FLOP/s of exact search."""
    import faiss
    import numpy as np

    from ..search.flat import search_shards

    rng = np.random.default_rng(0)
    index = faiss.IndexFlatIP(_DIMENSIONS)
    index.add(rng.standard_normal((_VECTORS, _DIMENSIONS), np.float32))
    faiss.write_index(index, str(folder / "0.faiss"))
    queries = rng.standard_normal((_QUERIES, _DIMENSIONS), np.float32)
    started = time.monotonic()
    search_shards([folder / "0.faiss"], queries, 1000)
    return 2.0 * _VECTORS * _DIMENSIONS * _QUERIES / (time.monotonic() - started)
