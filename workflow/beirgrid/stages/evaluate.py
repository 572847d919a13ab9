"""Stage evaluate: compute the metrics of one run on one dataset, per query and mean."""

from __future__ import annotations

import unicodedata
from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..collections import qrels as judgements
from ..config.metric_names import MAIN, STANDARD, USUAL, metric_key, parse_metric, written
from ..core import files, provenance
from ..core.errors import DataError, quoted, warn
from ..core.provenance import Artifact
from ..pipeline.evaluate import Evaluate
from ..results.scores import Scores
from ..runs import runs
from ..runs.metrics import per_query as metrics_per_query

# The share of the top ten documents that is not judged.
HOLES = "hole@10"


def evaluate(
    *,
    run: Annotated[Artifact, "run, TREC format, plain or .gz"],
    qrels: Annotated[Artifact, "qrels, BEIR or TREC layout, plain or .gz"],
    metrics: Annotated[tuple[str, ...], "metrics, such as nDCG@10 or ndcg@10, or main"] = STANDARD,
    main: Annotated[str, "metric of the dataset that main stands for"] = USUAL,
    system: Annotated[str, "name of the system"] = "",
    dataset: Annotated[str, "name of the dataset"] = "",
    output: Annotated[Path | None, "scores and their record to write, .json; without it the scores are printed"] = None,
    per_query: Annotated[Path | None, "values per query to write, .parquet: a column query, float64 per metric"] = None,
) -> None:
    """Compute the metrics of a run.

    The mean is over all queries with qrels, including those that the run lacks (trec_eval -c).

    Raises:
        BeirgridError: a metric is unknown.
        DataError: run or qrels cannot be read, or the run has queries without qrels. If scores are printed, these
            queries are skipped with a warning, unless the run has no others.
    """
    metrics, main = tuple(map(metric_key, metrics)), metric_key(main)
    for name in (*metrics, main):
        parse_metric(name)
    meant = {name: main if name == MAIN else name for name in metrics}
    results: dict[str, Any] = {}
    outputs = [per_query] if per_query else []
    settings: dict[str, Any] = {"metrics": list(metrics)} | ({"main": main} if MAIN in metrics else {})
    inputs = {"run": run, "qrels": qrels}
    recorded = provenance.record(Evaluate.stamp, output, settings, outputs, results, **inputs) if output else None
    with recorded or nullcontext({}) as facts:
        (grades, changes), found = judgements.read_with_changes(qrels), runs.read(run)
        if unknown := [query for query in found if query not in grades]:
            message = f"{run} has {len(unknown)} queries without qrels, {quoted(unknown[0])} first"
            if output or len(unknown) == len(found):
                raise DataError(message)
            warn(f"{message}; they are skipped")
        lacking = [query for query in grades if query not in found or not found[query].ids]
        if lacking and not output:
            warn(
                f"{run} lacks {len(lacking)} of {len(grades)} queries that have qrels, {quoted(lacking[0])} "
                "first; they count 0",
            )
        if look_alikes := [document for query in grades for document in _look_alikes(found.get(query), grades[query])]:
            warn(
                f"{len(look_alikes)} documents of {run} are not judged, but their ids differ from judged ones only in "
                f"Unicode form (NFC or NFD), {look_alikes[0]!a} first",
            )
        computed = metrics_per_query(found, grades, [*dict.fromkeys([*meant.values(), HOLES])], changes)
        values = {name: computed[metric] for name, metric in meant.items()}
        means = {name: float(np.mean(of_metric)) for name, of_metric in values.items()}
        scores = Scores(system=system, dataset=dataset, queries=len(grades), means=means)
        # Where only relevant documents are listed, the others are judged in all but name.
        if any(grade <= 0 for of_query in grades.values() for grade in of_query.values()):
            facts["not_judged"] = float(np.mean(computed[HOLES]))
        if per_query:
            with files.atomic(per_query) as temporary:
                pq.write_table(pa.table({"query": list(grades)} | values), temporary)
        results["scores"] = scores.model_dump()
        # The facts repeat the scores for programs that expect files of beirgrid 0.1.0.
        facts.update(results["scores"], queries_without_documents=len(lacking))
    if not output:
        print(*(f"{written(name)}\t{mean:.4f}" for name, mean in means.items()), f"queries\t{len(grades)}", sep="\n")


def _look_alikes(ranking: runs.Ranking | None, grades: dict[str, int]) -> list[str]:
    """Return unjudged documents whose ids equal judged ones after Unicode normalisation."""
    judged = {unicodedata.normalize("NFC", document) for document in grades if not document.isascii()}
    if ranking is None or not judged:
        return []
    others = (document for document in ranking.ids if not document.isascii() and document not in grades)
    return [document for document in others if unicodedata.normalize("NFC", document) in judged]
