"""Encoding against sentence-transformers, and both against the matrix products that this machine can do.

Usage: encoding.py CHECKPOINT ENTRY CORPUS DOCUMENTS ROUNDS. Prints a JSON object for each precision: our seconds,
theirs, and the shares of the measured peak. Seconds are medians of rounds in which the contenders take turns.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from beirgrid.core.compute import Compute
from beirgrid.encoders import open_encoder

# Rows of the matrix products that the peak is measured on, and for how many seconds.
ROWS, SECONDS = 2048, 1.0


def products(transformer: Any) -> list[tuple[int, int]]:
    """Return the shapes [outputs, inputs] of the linear layers."""
    return [
        (layer.out_features, layer.in_features) for layer in transformer.modules() if isinstance(layer, torch.nn.Linear)
    ]


def peak(shapes: list[tuple[int, int]], precision: str) -> float:
    """Return the most operations per second that the layers' matrix products reach, with all threads."""
    kind = getattr(torch, precision)
    weights = [torch.randn(shape, dtype=kind) for shape in shapes]
    inputs = {width: torch.randn(ROWS, width, dtype=kind) for _, width in shapes}
    operations = sum(2 * ROWS * outputs * width for outputs, width in shapes)
    best, end = 0.0, time.monotonic() + SECONDS
    with torch.inference_mode():
        while time.monotonic() < end:
            started = time.monotonic()
            for weight in weights:
                torch.nn.functional.linear(inputs[weight.shape[1]], weight)
            best = max(best, operations / (time.monotonic() - started))
    return best


def operations(transformer: Any, lengths: list[int]) -> float:
    """Return the multiplications and additions that a model does for texts of so many tokens."""
    config = transformer.config
    weights = sum(outputs * inputs for outputs, inputs in products(transformer.encoder))
    attention = 4 * config.num_hidden_layers * config.hidden_size
    return float(sum(2 * weights * length + attention * length**2 for length in lengths))


def timed(work: Callable[[], object]) -> float:
    """Return the seconds that some work takes."""
    started = time.monotonic()
    work()
    return time.monotonic() - started


def main() -> None:
    """Measure, and print the result."""
    from sentence_transformers import SentenceTransformer

    checkpoint, entry, corpus, documents, rounds = sys.argv[1:]
    lines = Path(corpus).read_text(encoding="utf-8").splitlines()[: int(documents)]
    texts = [f"{text['title']} {text['text']}".strip() for text in map(json.loads, lines)]
    theirs = SentenceTransformer(checkpoint, device="cpu")
    theirs.max_seq_length = json.loads(entry)["max_length"]
    native = Compute(device="cpu").start().resolve()
    ours = {
        precision: open_encoder(checkpoint, json.loads(entry), Compute(device="cpu", precision=precision).start())
        for precision in dict.fromkeys([native, "float32"])
    }
    lengths = [len(ids) for ids in ours["float32"].read(texts)]
    shapes = products(theirs[0].auto_model.encoder)
    work = operations(theirs[0].auto_model, lengths)
    contenders: dict[str, Callable[[], object]] = {"theirs": lambda: theirs.encode(texts)}
    contenders |= {name: lambda encoder=encoder: encoder.encode_documents(texts) for name, encoder in ours.items()}
    seconds: dict[str, list[float]] = {name: [] for name in contenders}
    peaks = dict.fromkeys(ours, 0.0)
    for contender in contenders.values():
        timed(contender)  # warm
    for _ in range(int(rounds)):
        for name, contender in contenders.items():
            seconds[name].append(timed(contender))
        peaks = {name: max(best, peak(shapes, name)) for name, best in peaks.items()}
    median = {name: statistics.median(found) for name, found in seconds.items()}
    for precision, best in peaks.items():
        rates = {"ours": work / median[precision], "theirs": work / median["theirs"]}
        found = {
            "precision": precision,
            "seconds": {"ours": median[precision], "theirs": median["theirs"]},
            "documents_per_second": len(texts) / median[precision],
            "peak_gflops": best / 1e9,
            "share_of_peak": rates["ours"] / best,
            "their_share_of_float32_peak": rates["theirs"] / peaks["float32"],
        }
        print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
