"""Measure models with all parts that exist for speed on a CPU, and without each: the table of docs/performance.md.

Usage: parts.py [SCIFACT] [part …]. ``make bench-parts`` runs it; BENCH=small shows that it works and measures nothing.
"""

from __future__ import annotations

import datetime
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import bench
import encoding

import beirgrid
from beirgrid.core.compute import Compute, cpu_name, multiplies_bfloat16
from beirgrid.encoders import sparse
from beirgrid.encoders.kernels import last_layer, linear

Precision = Literal["float32", "bfloat16"]


class Part(NamedTuple):
    """A part for speed.

    Attributes:
        module: the module of its code, below the package.
        place: the module or package that calls it.
        name: the function called there.
        instead: the function that lets the caller do without the part.
        kinds: what is measured with and without it.
    """

    module: str
    place: Any
    name: str
    instead: Callable[..., object]
    kinds: tuple[str, ...]


PARTS = {
    "linear": Part(
        "encoders/kernels/linear.py", linear, "reorder_all", lambda *_: None, ("dense", "cross-encoder", "sparse")
    ),
    "last_layer": Part("encoders/kernels/last_layer.py", last_layer, "narrow", lambda *_: False, ("cross-encoder",)),
    "maxima": Part("encoders/kernels/maxima.py", sparse, "_pool_maxima", lambda *_, **__: False, ("sparse",)),
}
Measure = Callable[[], float]


def encodes(kind: str, folder: Path, texts: list[Any], precision: Precision) -> float:
    """Return the seconds in which a kind of model computes texts or pairs, after a first batch."""
    _, compute = encoding.open_ours(encoding.MODELS[kind], folder, Compute("cpu", precision).start())
    compute(texts[:64])  # warm
    return encoding.timed(partial(compute, texts))


def cases(corpus: Path, temporary: Path) -> Iterator[tuple[str, str, Measure]]:
    """Yield kind, description and measurement of each case."""
    precisions: list[Precision] = ["float32", "bfloat16"] if multiplies_bfloat16("cpu") else ["float32"]
    minilm, _ = bench.model_folder(temporary)
    for kind in ("dense", "cross-encoder", "sparse"):
        folder, texts = minilm, encoding.read(kind, corpus, 3 if bench.SMALL else bench.TEXTS[kind])
        if save := encoding.MODELS[kind].save:
            save(minilm, folder := temporary / kind)
        for precision in precisions:
            yield kind, f"{kind}, {precision}", partial(encodes, kind, folder, texts, precision)


def seconds(measure: Measure, part: Part | None = None) -> float:
    """Return the best of two runs, without a part if one is given."""
    with ExitStack() as stack:
        if part:
            stack.enter_context(patch.object(part.place, part.name, part.instead))
        return min(measure() for _ in range(2))


def main() -> None:
    """Print the table in Markdown."""
    wanted = set(sys.argv[2:] or PARTS)
    corpus = Path(sys.argv[1] if len(sys.argv) > 1 else bench.DEMO if bench.SMALL else bench.SCIFACT) / "corpus.jsonl"
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{cpu_name()}, {today}{', small form: no measurement' if bench.SMALL else ''}\n")
    print("| part | lines | what | all | without | gain |\n|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory(prefix="beirgrid-bench-") as temporary:
        for kind, what, measure in cases(corpus, Path(temporary)):
            parts = {name: part for name, part in PARTS.items() if name in wanted and kind in part.kinds}
            every = seconds(measure) if parts else 0
            for name, part in parts.items():
                lines = (Path(beirgrid.__file__).parent / part.module).read_text("utf-8").count("\n")
                less = seconds(measure, part)
                row = (f"`{name}.py`", lines, what, f"{every:.2f}", f"{less:.2f}", f"{1 - every / less:.0%}")
                print(f"| {' | '.join(map(str, row))} |", flush=True)


if __name__ == "__main__":
    main()
