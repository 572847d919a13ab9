"""Stage evaluate: compute the metrics of one run on one dataset, per query and mean."""

from __future__ import annotations

import unicodedata
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...collections import qrels as judgements
from ...core import files
from ...core.errors import DataError, quantity, quoted, warn
from ...core.provenance import Artifact, Made
from ...measures import MAIN, STANDARD, USUAL, metric_key, written
from ...measures import per_query as metrics_per_query
from ...results.scores import Scores
from ...runs import runs

# The share of the top ten documents that is not judged.
HOLES = "hole@10"

RunFile = Annotated[Artifact, "run, TREC format, plain or .gz"]
Qrels = Annotated[Artifact, "qrels, BEIR or TREC layout, plain or .gz"]
Metrics = Annotated[tuple[str, ...], "metrics, such as nDCG@10 or ndcg@10, or main"]
Main = Annotated[str, "metric of the dataset that main stands for"]


class Measured(NamedTuple):
    """The metrics of a run."""

    grades: dict[str, dict[str, int]]  # of the judged documents of each query
    values: dict[str, np.ndarray]  # per metric, float64 [queries], in the order of ``grades``
    holes: float | None  # share of the top ten that is not judged, if documents with other grades are listed
    unknown: list[str]  # queries of the run without qrels
    lacking: list[str]  # queries with qrels for which the run has no document
    reordered: int  # number of queries with qrels that trec_eval 10 orders otherwise, if asked
    by_doubles: dict[str, np.ndarray]  # as ``values``, in that order; empty without such queries

    @property
    def means(self) -> dict[str, float]:
        """The mean of each metric over all queries."""
        return {name: float(np.mean(of_metric)) for name, of_metric in self.values.items()}

    @property
    def order_note(self) -> str:
        """A sentence on the queries that trec_eval 10 orders otherwise, with the metrics that this changes."""
        here = {name: f"{mean:.6f}" for name, mean in self.means.items()}
        there = {name: f"{np.mean(of_metric):.6f}" for name, of_metric in self.by_doubles.items()}
        changed = [f"{written(name)} {here[name]} → {there[name]}" for name in there if here[name] != there[name]]
        return (
            "trec_eval 10 compares scores as doubles, beirgrid as float32, as trec_eval 9 does. In the order of "
            f"trec_eval 10, which differs for {self.reordered} of {quantity(len(self.grades), 'query')}, "
            + (", ".join(changed) if changed else "each metric is equal to six digits")
        )


def evaluate(
    *,
    run: RunFile,
    qrels: Qrels,
    metrics: Metrics = STANDARD,
    main: Main = USUAL,
    system: Annotated[str, "name of the system"] = "",
    dataset: Annotated[str, "name of the dataset"] = "",
    per_query: Annotated[Path, "values per query to write, .parquet: a column query, float64 per metric"],
) -> Made:
    """Compute the metrics of a run.

    The mean is over all queries with qrels, including those that the run lacks (trec_eval -c).

    Raises:
        BeirgridError: a metric is unknown.
        DataError: run or qrels cannot be read, or the run has queries without qrels.
    """
    measured = measure(run, qrels, metrics, main)
    if measured.unknown:
        raise DataError(without_qrels(run, measured))
    with files.atomic(per_query) as temporary:
        pq.write_table(pa.table({"query": list(measured.grades)} | measured.values), temporary)
    of_cell = Scores(system=system, dataset=dataset, queries=len(measured.grades), means=measured.means)
    scores = of_cell.model_dump()
    # The facts repeat the scores for programs that expect files of beirgrid 0.1.0.
    facts = {**scores, "queries_without_documents": len(measured.lacking), "order": runs.ORDER}
    if measured.holes is not None:
        facts["not_judged"] = measured.holes
    return Made(facts, {"scores": scores})


def show_metrics(*, run: RunFile, qrels: Qrels, metrics: Metrics = STANDARD, main: Main = USUAL) -> None:
    """Compute the metrics of a run and print them.

    The mean is over all queries with qrels, including those that the run lacks (trec_eval -c). Queries of the run
    without qrels are skipped with a warning, unless the run has no others. If trec_eval 10, which compares scores as
    doubles, orders queries otherwise, a warning has both values of each metric that this changes.

    Raises:
        BeirgridError: a metric is unknown.
        DataError: run or qrels cannot be read, or no query of the run has qrels.
    """
    measured = measure(run, qrels, metrics, main, doubles=True)
    if measured.reordered:
        warn(f"{run}: {measured.order_note}")
    if measured.unknown:
        warn(f"{without_qrels(run, measured)}; they are skipped")
    if measured.lacking:
        warn(
            f"{run} lacks {len(measured.lacking)} of {quantity(len(measured.grades), 'query')} with qrels, "
            f"{quoted(measured.lacking[0])} first; they count 0",
        )
    lines = [f"{written(name)}\t{mean:.4f}" for name, mean in measured.means.items()]
    print(*lines, f"queries\t{len(measured.grades)}", sep="\n")


def without_qrels(run: Path, measured: Measured) -> str:
    """Return how many queries of a run have no qrels."""
    return f"{run} has {quantity(len(measured.unknown), 'query')} without qrels, {quoted(measured.unknown[0])} first"


def measure(run: Path, qrels: Path, metrics: tuple[str, ...], main: str, *, doubles: bool = False) -> Measured:
    """Compute the metrics of a run for each query with qrels.

    Args:
        doubles: whether to compute them in the order of trec_eval 10 too.

    Raises:
        BeirgridError: a metric is unknown.
        DataError: run or qrels cannot be read, or no query of the run has qrels.
    """
    metrics = tuple(map(metric_key, metrics))
    main = metric_key(main)
    meant = {name: main if name == MAIN else name for name in metrics}
    grades, changes = judgements.read_with_changes(qrels)
    found = runs.read(run)
    look_alikes = [document for query in grades for document in _look_alikes(found.get(query), grades[query])]
    if look_alikes:
        warn(
            f"{len(look_alikes)} documents of {run} are not judged, but their ids differ from judged ones only in "
            f"Unicode form (NFC or NFD), {look_alikes[0]!a} first",
        )
    computed = metrics_per_query(found, grades, [*dict.fromkeys([*meant.values(), HOLES])], changes)
    others = runs.ordered_by_doubles(run, found) if doubles else {}
    again = metrics_per_query(found | others, grades, [*meant.values()], changes) if others else {}
    measured = Measured(
        grades,
        values=_by_name(computed, meant),
        reordered=len(grades.keys() & others.keys()),
        by_doubles=_by_name(again, meant),
        holes=float(np.mean(computed[HOLES])) if _has_other_grades(grades) else None,
        unknown=[query for query in found if query not in grades],
        lacking=[query for query in grades if query not in found or not found[query].ids],
    )
    if found and len(measured.unknown) == len(found):
        raise DataError(without_qrels(run, measured))
    return measured


def _by_name(computed: dict[str, np.ndarray], meant: dict[str, str]) -> dict[str, np.ndarray]:
    """Return the values of metrics, if there are any, by the names that the caller writes."""
    return {name: computed[metric] for name, metric in meant.items() if computed}


def _has_other_grades(grades: judgements.Qrels) -> bool:
    """Tell whether qrels list documents that are not relevant. Where they do not, all others are judged as such."""
    return any(grade <= 0 for of_query in grades.values() for grade in of_query.values())


def _look_alikes(ranking: runs.Ranking | None, grades: dict[str, int]) -> list[str]:
    """Return unjudged documents whose ids equal judged ones after Unicode normalisation."""
    judged = {unicodedata.normalize("NFC", document) for document in grades if not document.isascii()}
    if ranking is None or not judged:
        return []
    others = (document for document in ranking.ids if not document.isascii() and document not in grades)
    return [document for document in others if unicodedata.normalize("NFC", document) in judged]
