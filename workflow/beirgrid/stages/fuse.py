"""Stage fuse: combine several runs into one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from ..config.systems import weight_problems
from ..config.values import Norm
from ..core import lineage, provenance
from ..core.errors import DataError
from ..core.provenance import Artifact
from ..models.arguments import SizeOption
from ..runs import fusion
from ..runs.fusion import Method
from ..runs.runs import read, write


def fuse(
    *,
    system: Annotated[str, "name of the system, used as the tag of the run"],
    runs: Annotated[list[Artifact], "runs to fuse"],
    method: Annotated[Method, "rrf: reciprocal rank fusion; wsum: weighted sum of normalised scores"],
    k: Annotated[SizeOption, "constant of reciprocal rank fusion"] = 60,
    norm: Annotated[Norm, "normalisation of scores before a weighted sum"] = "min-max",
    weights: Annotated[Sequence[float] | None, "weights of a weighted sum, JSON list; equal by default"] = None,
    depth: Annotated[SizeOption, "documents per query to keep"] = 1000,
    output: Annotated[Path, "run to write, .run.gz"],
    record: Annotated[Path, "record to write, .json"],
) -> None:
    """Fuse several runs into one.

    Raises:
        DataError: a run cannot be read, has no weight, or has scores that ``norm`` cannot divide by.
    """
    if len(runs) < 2:
        raise DataError(f"--runs names {len(runs)} runs: a fusion needs at least two")
    if weights is not None and not all(isinstance(weight, int | float) for weight in weights):
        raise DataError(f"--weights must be a list of numbers: {weights}")
    if weights is not None and (problem := next(weight_problems(weights, len(runs)), "")):
        raise DataError(f"--weights{problem}")
    settings: dict[str, Any] = {"method": method, "k": k}
    if method == "wsum":
        settings = {"method": method, "norm": norm, "weights": list(weights or [1 / len(runs)] * len(runs))}
    origin = lineage.check({"runs": runs})
    with provenance.record("fuse", record, settings, [output], origin=origin) as facts:
        parts = [read(path) for path in runs]
        fused = fusion.fuse(parts, method, depth, k=k, norm=norm, weights=weights)
        write(output, fused, system)
        facts["queries"] = len(fused)
