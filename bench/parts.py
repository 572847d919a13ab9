"""Seconds with all parts that exist for speed on a CPU, and without each: the table of docs/performance.md.

Usage: parts.py [SCIFACT]. ``make bench-parts`` runs it; BENCH=small shows that it works and measures nothing.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal
from unittest.mock import patch

import bench
import encoding

from beirgrid.core.compute import Compute, multiplies_bfloat16
from beirgrid.encoders import kernels
from beirgrid.tools.open_systems import cpu_name

Precision = Literal["float32", "bfloat16"]
# What each part replaces, so that the encoder does without it, and the kinds of models that have the part.
PARTS = {
    "linear": ("fuse_layers", lambda *_: None, ("dense", "cross-encoder")),
    "last_layer": ("narrow_last_layer", lambda *_: False, ("cross-encoder",)),
}


def seconds(kind: str, folder: Path, texts: list[Any], precision: Precision, without: str = "") -> float:
    """Return the best of two runs of a kind of model, which lacks one part if one is named."""
    with ExitStack() as stack:
        if without:
            name, replacement, _ = PARTS[without]
            stack.enter_context(patch.object(kernels, name, replacement))
        _, compute = encoding.open_ours(encoding.MODELS[kind], folder, Compute("cpu", precision).start())
    compute(texts[:64])  # warm
    return min(encoding.timed(partial(compute, texts)) for _ in range(2))


def main() -> None:
    """Print the table in Markdown."""
    corpus = Path(sys.argv[1] if len(sys.argv) > 1 else bench.DEMO if bench.SMALL else bench.SCIFACT) / "corpus.jsonl"
    precisions: list[Precision] = ["float32", "bfloat16"] if multiplies_bfloat16("cpu") else ["float32"]
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{cpu_name()}, {today}{', small form: no measurement' if bench.SMALL else ''}\n")
    print("| part | lines | what | all | without | gain |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="beirgrid-bench-") as temporary:
        minilm, _ = bench.model_folder(Path(temporary))
        for kind in ("dense", "cross-encoder"):
            folder, texts = minilm, encoding.read(kind, corpus, 3 if bench.SMALL else bench.TEXTS[kind])
            if save := encoding.MODELS[kind].save:
                save(minilm, folder := Path(temporary) / kind)
            for precision in precisions:
                every = seconds(kind, folder, texts, precision)
                for part in (name for name, (_, _, kinds) in PARTS.items() if kind in kinds):
                    lines = (Path(kernels.__file__).parent / f"{part}.py").read_text("utf-8").count("\n")
                    less = seconds(kind, folder, texts, precision, part)
                    row = (f"`{part}.py`", lines, f"{kind}, {precision}", f"{every:.2f}", f"{less:.2f}")
                    print(f"| {' | '.join(map(str, row))} | {1 - every / less:.0%} |", flush=True)


if __name__ == "__main__":
    main()
