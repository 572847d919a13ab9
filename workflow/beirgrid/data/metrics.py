"""Values of metrics for one run, computed with ranx on the canonical order."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..config.metrics import Metric, parse_metric
from ..core.environment import prepare_libraries
from . import qrels as judgements
from . import runs

# Our name, which is the field's, to ranx's. None: not in ranx, computed here from its hits.
_RANX: dict[str, str | None] = {
    "ndcg": "ndcg",
    "ndcg_burges": "ndcg_burges",
    "ndcg_judged": "ndcg",
    "recall": "recall",
    "recall_cap": None,
    "mrr": "mrr",
    "map": "map",
    "p": "precision",
    "success": "hit_rate",
    "hole": None,
    "hole_corpus": None,
}


def evaluate_run(
    run: str | Path | Mapping[str, Mapping[str, float]],
    qrels: str | Path | Mapping[str, Mapping[str, int]],
    metrics: Sequence[str],
) -> dict[str, float]:
    """Compute the metrics of a run. The mean is over all queries with qrels, whether the run has them or not.

    Args:
        run: a TREC run (plain or .gz), or query id to document id to score. Scores are compared as float32; of equal
            scores the larger document id comes first, as in trec_eval.
        qrels: qrels in BEIR's or TREC's layout (plain or .gz), or query id to document id to grade. A grade above 0 is
            relevant.
        metrics: names, name@k: ndcg, ndcg_burges, ndcg_judged, recall, recall_cap, mrr, map, p, success, hole or
            hole_corpus.

    Returns:
        the mean by the name of the metric.

    Raises:
        BeirgridError: a metric is unknown.
        DataError: run or qrels cannot be read.

    Example:
        >>> evaluate_run({"q1": {"d1": 2.0, "d2": 1.0}}, {"q1": {"d2": 1}}, ["mrr@10"])
        {'mrr@10': 0.5}
    """
    if isinstance(run, str | Path):
        ranked = runs.read(run)
    else:
        ranked = {query: runs.canonical(query, found, list(found.values())) for query, found in run.items()}
    grades = judgements.read(qrels) if isinstance(qrels, str | Path) else qrels
    return {name: float(np.mean(values)) for name, values in per_query(ranked, grades, metrics).items()}


def per_query(run: runs.Run, qrels: Mapping[str, Mapping[str, int]], metrics: Sequence[str]) -> dict[str, np.ndarray]:
    """Compute metrics of a run for each query that has qrels; a query that the run lacks has no documents.

    Args:
        run: rankings by query, in canonical order (``runs.read``).
        qrels: per query, document id to grade. A grade above 0 is relevant.
        metrics: names, name@k.

    Returns:
        float64 [queries] by the name of the metric, in the order of the qrels.

    Raises:
        BeirgridError: a metric is unknown.
    """
    parsed = {name: parse_metric(name) for name in metrics}
    ranked = [run[query].ids if query in run else [] for query in qrels]
    values = evaluate(list(parsed.values()), list(qrels.values()), ranked)
    return {name: values[metric] for name, metric in parsed.items()}


def evaluate(
    metrics: Sequence[Metric], qrels: Sequence[Mapping[str, int]], ranked: list[list[str]]
) -> dict[Metric, np.ndarray]:
    """Compute metrics for each query.

    ``recall_cap`` is recall with the denominator min(relevant documents, k). ``ndcg_judged`` is nDCG of the documents
    that are judged for the query, whatever their grade; the others are taken out before the cut at k (trec_eval -J).
    ``hole`` is the share of the top k that is not judged for the query; ``hole_corpus`` is the share that is judged for
    none of the queries, as beir's ``custom_metrics.hole`` computes it (BEIR paper, Table 4). Both divide by k however
    many documents were retrieved.

    Args:
        metrics: what to compute.
        qrels: per query, document id to grade. A grade above 0 is relevant.
        ranked: per query, document ids in canonical order (best first), empty if none was retrieved.

    Returns:
        float64 [queries] for each metric. Queries without a retrieved document have 0 of every metric, queries
        without a relevant document 0 of all but the holes.
    """
    names = {metric: f"{_RANX[metric.name] or 'hits'}@{metric.k}" for metric in metrics}
    judged_only = {metric for metric in metrics if metric.name == "ndcg_judged"}
    scores = _with_ranx(qrels, ranked, {name for metric, name in names.items() if metric not in judged_only})
    condensed = [[document for document in ids if document in of] for of, ids in zip(qrels, ranked, strict=True)]
    of_judged = _with_ranx(qrels, condensed, {names[metric] for metric in judged_only}) if judged_only else {}

    judged_at_all = set().union(*qrels)
    values: dict[Metric, np.ndarray] = {}
    for metric, name in names.items():
        if metric.name == "recall_cap":
            relevant_counts = [sum(grade > 0 for grade in grades.values()) for grades in qrels]
            values[metric] = scores[name] / np.clip(relevant_counts, 1, metric.k)
        elif metric.name in ("hole", "hole_corpus"):
            known = qrels if metric.name == "hole" else [judged_at_all] * len(qrels)
            holes = [_hole(documents, ids, metric.k) for documents, ids in zip(known, ranked, strict=True)]
            values[metric] = np.array(holes, np.float64)
        else:
            values[metric] = np.asarray((of_judged if metric in judged_only else scores)[name], np.float64)
    return values


def _with_ranx(qrels: Sequence[Mapping[str, int]], ranked: list[list[str]], names: set[str]) -> dict[str, np.ndarray]:
    """Return ranx's metrics, float64 [queries] by ranx's name."""
    prepare_libraries()
    import ranx
    from numba.typed import List

    # ranx 0.3.21 fails on a list of one metric with return_mean=False; hits@1 makes it two.
    asked = sorted({*names, "hits@1", "hits@2"})
    if not qrels:
        return {name: np.zeros(0) for name in asked}
    # ranx compares document ids as numbers and wants qrels best first. Documents get numbers per
    # query; ranks stand in for scores, so no tie is left for ranx to break.
    judged, retrieved = List(), List()
    for grades, ids in zip(qrels, ranked, strict=True):
        number = {document: i for i, document in enumerate({**dict.fromkeys(grades), **dict.fromkeys(ids)})}
        relevant = sorted((-max(grade, 0), number[document]) for document, grade in grades.items())
        judged.append(np.array([(doc, -grade) for grade, doc in relevant], np.float64).reshape(-1, 2))
        order = [(number[document], len(ids) - rank) for rank, document in enumerate(ids)]
        retrieved.append(np.array(order, np.float64).reshape(-1, 2))
    values: dict[str, np.ndarray] = ranx.evaluate(judged, retrieved, asked, return_mean=False)
    return values


def _hole(judged: Container[str], ids: list[str], k: int) -> float:
    """Return the share of the top k that is not among the judged documents."""
    return sum(document not in judged for document in ids[:k]) / k
