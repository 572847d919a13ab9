"""Check the results and the speed of a model on this machine; ``doctor`` runs this module in a separate process.

``python -m beirgrid.tools.model_check cuda`` encodes the demo collection with MiniLM in each number format of a device
and compares the vectors with those of a CPU in float32. ``cpu`` encodes only its first documents.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from transformers import AutoTokenizer

from ..core.checkout import CHECKOUT
from ..core.compute import Compute
from ..encoders import open_encoder
from ..models import checkpoints
from .configfiles import merged

# The largest difference between unit vectors (Euclidean distance) that a number format may bring. TF32 products, which
# PyTorch leaves off, would differ by about 1e-3.
TOLERANCE = {"float32": 1e-4, "float16": 0.02, "bfloat16": 0.1}
# The number formats of each device. A CPU takes minutes for float16.
FORMATS = {"cpu": ("float32", "bfloat16"), "cuda": ("float32", "float16", "bfloat16")}
# Millions of parameters that compute each token: those of MiniLM without its word embeddings.
_MILLIONS = 11.0
# Rows and columns of the matrices of the product that stands for the device's peak, and for how long it is measured.
_SIZE, _SECONDS = 4096, 1.0


class Measured(NamedTuple):
    """Results of a number format on a device: distance to the CPU's float32, documents and operations per second."""

    precision: str
    distance: float
    tolerance: float
    documents_per_second: float
    operations: float
    peak: float


def main(device: str) -> None:
    """Print a line of JSON for each number format of a device: cpu or cuda."""
    for measured in measure(device):
        print(json.dumps(measured._asdict()), flush=True)


def measure(device: str) -> Iterator[Measured]:
    """Measure each number format on a device."""
    model = merged([]).models["minilm"]
    corpus = CHECKOUT / "workflow" / "resources" / "demo" / "corpus.jsonl"
    documents = [json.loads(line) for line in corpus.read_text(encoding="utf-8").splitlines()]
    texts = [f"{document['title']} {document['text']}" for document in documents]
    texts = texts if device == "cuda" else texts[:64]  # a CPU encodes ten per second
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "checkpoint"
        checkpoints.fetch("minilm", model, folder)
        reference = _encode(folder, model, texts, "cpu", "float32")
        for precision in FORMATS[device]:
            is_reference = (device, precision) == ("cpu", "float32")
            vectors, seconds, tokens = reference if is_reference else _encode(folder, model, texts, device, precision)
            distance = float(np.linalg.norm(vectors - reference[0], axis=1).max())
            rate = tokens / seconds * 2e6 * _MILLIONS
            speed = len(texts) / seconds
            yield Measured(precision, distance, TOLERANCE[precision], speed, rate, peak(device, precision))


def _encode(folder: Path, model: Any, texts: list[str], device: Any, precision: Any) -> tuple[np.ndarray, float, int]:
    """Return vectors, float32 [texts, dimension], the seconds that they took when warm, and the number of tokens."""
    with Compute(device=device, precision=precision).start() as runtime:
        encoder = open_encoder(folder, model, runtime)
        encoder.encode_documents(texts[:32])
        started = time.perf_counter()
        vectors = encoder.encode_documents(texts)
        seconds = time.perf_counter() - started
    tokenizer = AutoTokenizer.from_pretrained(folder)
    found = tokenizer(texts, truncation=True, max_length=model.max_length)["input_ids"]
    return vectors, seconds, sum(len(tokens) for tokens in found)


def peak(device: str, precision: str) -> float:
    """Measure the operations per second of a large matrix product."""
    size = _SIZE if device == "cuda" else _SIZE // 4
    matrix = torch.randn(size, size, device=device, dtype=getattr(torch, precision))
    best, end = 0.0, time.monotonic() + _SECONDS
    while time.monotonic() < end:
        started = time.perf_counter()
        matrix @ matrix
        if device == "cuda":
            torch.cuda.synchronize()
        best = max(best, 2 * size**3 / (time.perf_counter() - started))
    return best


if __name__ == "__main__":
    main(sys.argv[1])
