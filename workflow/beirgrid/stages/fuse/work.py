"""Stage fuse: combine several runs into one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

from pydantic import Json

from ...config.values import Norm, Size
from ...core.errors import DataError
from ...core.provenance import Artifact, Facts
from ...runs import fusion
from ...runs.fusion import Method
from ...runs.opened import OpenPart, OpenSystem
from ...runs.runs import Run, read, write


def fuse(
    *,
    system: Annotated[str, "name of the system, used as the tag of the run"],
    runs: Annotated[list[Artifact], "runs to fuse"],
    method: Annotated[Method, "rrf: reciprocal rank fusion; wsum: weighted sum of normalised scores"],
    k: Annotated[Size, "constant of reciprocal rank fusion"] = 60,
    norm: Annotated[Norm, "normalisation of scores before a weighted sum"] = "min-max",
    weights: Annotated[Json[list[float]] | None, "weights of a weighted sum, JSON list; equal unless given"] = None,
    depth: Annotated[Size, "documents per query to keep"] = 1000,
    output: Annotated[Path, "run to write, .run.gz"],
) -> Facts:
    """Fuse several runs into one.

    Raises:
        DataError: a run cannot be read, or there is not a weight for each run.
    """
    if weights is not None and len(weights) != len(runs):
        raise DataError(f"{len(runs)} runs, {runs[0]} first, need as many weights, but there are {len(weights)}")
    fused = fusion.fuse([read(path) for path in runs], method, depth, k=k, norm=norm, weights=weights)
    write(output, fused, system)
    return {"queries": len(fused)}


def open_fuse(
    open_part: OpenPart, *, runs: list[Path], method: Method, k: int, norm: Norm, weights: list[float], depth: int
) -> OpenSystem:
    """Open the systems of a fusion for single queries."""
    parts: tuple[OpenSystem, ...] = tuple(map(open_part, runs))

    def rank(texts: Mapping[str, str]) -> Run:
        rankings = [part.rank(texts) for part in parts]
        return fusion.fuse(rankings, method, depth, k=k, norm=norm, weights=weights)

    return OpenSystem(rank, depth, parts=parts)
