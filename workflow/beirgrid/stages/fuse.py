"""Stage fuse: combine several runs into one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import Json

from ..collections import qrels
from ..config.values import Norm, Size
from ..core import lineage, provenance
from ..core.errors import DataError, quoted
from ..core.provenance import Artifact, Record
from ..pipeline.fuse import Fuse
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
        DataError: a run cannot be read, or has scores that ``norm`` cannot divide by; or the weights would be tuned on
            queries that the fusion answers.
    """
    settings: dict[str, Any] = {"method": method, "k": k}
    if method == "wsum":
        settings = {"method": method, "norm": norm, "weights": list(weights or [1 / len(runs)] * len(runs))}
    if tune:
        settings = {"method": method, "norm": norm, "tune": tune}
        _refuse_shared(*queries)
    origin = lineage.check({"runs": runs, "dev_runs": dev_runs})
    with provenance.record(Fuse.stamp, record, settings, [output], origin=origin) as facts:
        parts = [read(path) for path in runs]
        if tune:
            found = fusion.tune([read(path) for path in dev_runs], qrels.read(dev_qrels[0]), tune, norm, depth)
            weights = found.weights
            facts["weights"] = list(weights)
            facts["tuned"] = {"metric": tune, "value": found.value, "queries": found.queries, "tried": found.tried}
        fused = fusion.fuse(parts, method, depth, k=k, norm=norm, weights=weights)
        write(output, fused, system)
        facts["queries"] = len(fused)


def _refuse_shared(queries: Path, dev: Path) -> None:
    """Refuse to tune on queries that the fusion answers."""
    from ..collections.collection import read_queries  # pyarrow, which most fusions do without

    if shared := sorted({*read_queries(queries).values()} & {*read_queries(dev).values()}):
        raise DataError(
            f"{len(shared)} queries of {dev} are queries of {queries} ({quoted(shared[0])}, say): weights must not be "
            "tuned on queries that they are tested with"
        )
