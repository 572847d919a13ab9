"""Stage fuse: combine several runs into one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Json

from ..collections import qrels
from ..config.systems import weight_problems
from ..config.values import Norm, Size
from ..core import lineage, provenance
from ..core.errors import DataError, quoted
from ..core.provenance import Artifact, Record
from ..pipeline.fuse import FUSE
from ..runs import fusion
from ..runs.fusion import Method
from ..runs.runs import read, write


def fuse(
    *,
    system: Annotated[str, "name of the system, used as the tag of the run"],
    runs: Annotated[list[Artifact], "runs to fuse"],
    method: Annotated[Method, "rrf: reciprocal rank fusion; wsum: weighted sum of normalised scores"],
    k: Annotated[Size, "constant of reciprocal rank fusion"] = 60,
    norm: Annotated[Norm, "normalisation of scores before a weighted sum"] = "min-max",
    weights: Annotated[Json[list[float]] | None, "weights of a weighted sum, JSON list; equal unless given"] = None,
    tune: Annotated[str, "metric for which the weights are tuned on other queries, name@k"] = "",
    dev_runs: Annotated[tuple[Artifact, ...], "runs of the same systems on these queries, in the same order"] = (),
    dev_qrels: Annotated[tuple[Artifact, ...], "qrels of these queries"] = (),
    queries: Annotated[tuple[Artifact, ...], "queries.parquet of the runs, and of these queries"] = (),
    depth: Annotated[Size, "documents per query to keep"] = 1000,
    output: Annotated[Path, "run to write, .run.gz"],
    record: Record,
) -> None:
    """Fuse several runs into one.

    Raises:
        DataError: a run cannot be read, has scores that ``norm`` cannot divide by, or has no weight; or the weights
            would be tuned on queries that the fusion answers.
    """
    if len(runs) < 2:
        raise DataError(f"--runs names {len(runs)} runs: a fusion needs at least two")
    if weights is not None and (problem := next(weight_problems(weights, len(runs)), "")):
        raise DataError(f"--weights{problem}")
    settings: dict[str, Any] = {"method": method, "k": k}
    if method == "wsum":
        settings = {"method": method, "norm": norm, "weights": list(weights or [1 / len(runs)] * len(runs))}
    if tune:
        settings = {"method": method, "norm": norm, "tune": tune}
        _check_tuning(method, runs, dev_runs, dev_qrels, queries)
    origin = lineage.check({"runs": runs, "dev_runs": dev_runs})
    with provenance.record(FUSE, record, settings, [output], origin=origin) as facts:
        parts = [read(path) for path in runs]
        if tune:
            found = fusion.tune([read(path) for path in dev_runs], qrels.read(dev_qrels[0]), tune, norm, depth)
            weights = found.weights
            facts["weights"] = list(weights)
            facts["tuned"] = {"metric": tune, "value": found.value, "queries": found.queries, "tried": found.tried}
        fused = fusion.fuse(parts, method, depth, k=k, norm=norm, weights=weights)
        write(output, fused, system)
        facts["queries"] = len(fused)


def _check_tuning(
    method: Method,
    runs: Sequence[Path],
    dev_runs: Sequence[Path],
    dev_qrels: Sequence[Path],
    queries: Sequence[Path],
) -> None:
    """Refuse to tune without runs, qrels and queries of a dev split, or on queries that the fusion answers."""
    from ..collections.collection import read_queries  # pyarrow, which most fusions do without

    if method != "wsum":
        raise DataError("--tune is for --method wsum, which has weights")
    if len(dev_runs) != len(runs) or len(dev_qrels) != 1 or len(queries) != 2:
        raise DataError("--tune needs --dev-runs (one for each of --runs), --dev-qrels, and --queries of both")
    texts, dev = (read_queries(path) for path in queries)
    if shared := sorted({*texts.values()} & {*dev.values()}):
        raise DataError(
            f"{len(shared)} queries of {queries[1]} are queries of {queries[0]} ({quoted(shared[0])}, say): weights "
            "must not be tuned on queries that they are tested with"
        )
