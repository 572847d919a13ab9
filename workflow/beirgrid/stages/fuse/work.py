"""Stage fuse: combine several runs into one."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from ...collections import qrels as judgements
from ...core.errors import DataError, quoted
from ...core.provenance import Artifact, Facts
from ...runs import tuning
from ...runs.fusion import Fuser, Fusion
from ...runs.opened import NotSearchable, OpenPart, OpenSystem
from ...runs.runs import Run, read, write


def fuse(
    *,
    system: Annotated[str, "name of the system, used as the tag of the run"],
    runs: Annotated[list[Artifact], "runs to fuse"],
    dev_runs: Annotated[list[Artifact], "runs of the same systems, on which the fusion is tuned"] = [],  # noqa: B006
    dev_qrels: Annotated[Artifact | None, "judgements of the queries of these runs"] = None,
    qrels: Annotated[Artifact | None, "judgements of the queries to fuse, for a fusion that is tuned by folds"] = None,
    fusion: Annotated[Fusion, "method, its parameter, the metric that tuning takes, and the depth of the run"],
    output: Annotated[Path, "run to write, .run.gz"],
) -> Facts:
    """Fuse several runs into one.

    Raises:
        DataError: a run cannot be read, there is not a weight for each run, or a query is to be fused by weights that
            its own judgements chose.
    """
    weights = fusion.weights
    if weights is not None and len(weights) != len(runs):
        raise DataError(f"{len(runs)} runs, {runs[0]} first, need as many weights, but there are {len(weights)}")
    parts = [read(path) for path in runs]
    told: Any = None
    if qrels:
        fused, told = tuning.fused_by_folds(parts, fusion, judgements.read(qrels))
    else:
        arguments, told = _arguments(fusion, dev_runs, dev_qrels, {query for part in parts for query in part})
        fused = Fuser(parts, fusion).fuse(fusion.depth, **arguments)
    write(output, fused, system)
    return {"queries": len(fused)} | ({"tuned": told} if told else {})


def _arguments(
    fusion: Fusion, dev_runs: list[Path], dev_qrels: Path | None, queries: set[str]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a fusion, and what the record tells of them, if they are tuned on other queries."""
    if not dev_qrels:
        return fusion.arguments, {}
    grades = judgements.read(dev_qrels)
    if seen := queries & grades.keys():
        raise DataError(
            f"{dev_qrels} judges {len(seen)} of the queries to fuse, {quoted(min(seen))} first: tune on other queries"
        )
    return tuning.tuned([read(path) for path in dev_runs], fusion, grades)


def open_fuse(
    open_part: OpenPart,
    *,
    runs: list[Path],
    dev_runs: list[Path],
    dev_qrels: Path | None,
    qrels: Path | None,
    fusion: Fusion,
) -> OpenSystem:
    """Open the systems of a fusion for single queries. A tuned one is tuned again, on the same runs.

    Raises:
        NotSearchable: the fusion was tuned by folds.
    """
    if qrels:
        raise NotSearchable("it was tuned by folds, so each of its queries has other weights, and a new query has none")
    arguments, _ = _arguments(fusion, dev_runs, dev_qrels, set())
    parts: tuple[OpenSystem, ...] = tuple(map(open_part, runs))

    def rank(texts: Mapping[str, str]) -> Run:
        return Fuser([part.rank(texts) for part in parts], fusion).fuse(fusion.depth, **arguments)

    return OpenSystem(rank, fusion.depth, parts=parts)
