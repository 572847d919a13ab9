"""Values of metrics for one run, computed from the canonical order as trec_eval defines them.

They are written out here, because ranx takes two seconds to import and compile, longer than an evaluation. The tests
hold them against trec_eval, ranx and their definitions.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from itertools import accumulate
from pathlib import Path

import numpy as np

from ..config.metrics import Metric, parse_metric
from . import qrels as judgements
from . import runs


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
        metrics: names, name@k: ndcg, ndcg_burges, recall, recall_cap, mrr, map, p, success, hole or hole_corpus.

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

    ``recall_cap`` is recall with the denominator min(relevant documents, k). ``hole`` is the share of the top k that is
    not judged for the query; ``hole_corpus`` is the share that is judged for none of the queries, as beir's
    ``custom_metrics.hole`` computes it (BEIR paper, Table 4). Both divide by k however many documents were retrieved.

    Args:
        metrics: what to compute.
        qrels: per query, document id to grade. A grade above 0 is relevant.
        ranked: per query, document ids in canonical order (best first), empty if none was retrieved.

    Returns:
        float64 [queries] for each metric. Queries without a retrieved document have 0 of every metric, queries
        without a relevant document 0 of all but the holes.
    """
    judged_at_all = set().union(*qrels)
    values = {metric: np.zeros(len(qrels)) for metric in metrics}
    for query, (grades, ids) in enumerate(zip(qrels, ranked, strict=True)):
        found = _Found(grades, ids)
        for metric in metrics:
            if metric.name in ("hole", "hole_corpus"):
                known = grades if metric.name == "hole" else judged_at_all
                values[metric][query] = _hole(known, ids, metric.k)
            elif found.relevant:
                values[metric][query] = _VALUES[metric.name](found, metric.k)
    return values


class _Found:
    """What a query has and what of it was retrieved: what all metrics are computed from.

    Attributes:
        gains: grade of each retrieved document, 0 where it is not judged or the grade is negative: float64 [ranks].
        ideal: the positive grades, highest first.
        hits: relevant documents among the first so many retrieved: hits[k] for each k, hits[0] is 0.
    """

    def __init__(self, grades: Mapping[str, int], ids: list[str]) -> None:
        self.gains = np.array([max(grades.get(document, 0), 0) for document in ids], np.float64)
        self.ideal = np.array(sorted((grade for grade in grades.values() if grade > 0), reverse=True), np.float64)
        self.relevant = len(self.ideal)
        self.hits = [0, *accumulate(int(gain > 0) for gain in self.gains)]

    def found(self, k: int) -> int:
        """Return how many of the first k documents are relevant."""
        return self.hits[min(k, len(self.gains))]

    def ranks(self, k: int) -> np.ndarray:
        """Return the ranks of the relevant documents among the first k, from 1."""
        return np.flatnonzero(self.gains[:k]) + 1


def _discounted(gains: np.ndarray) -> float:
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


def _ndcg(found: _Found, k: int) -> float:
    return _discounted(found.gains[:k]) / _discounted(found.ideal[:k])


def _ndcg_burges(found: _Found, k: int) -> float:
    return _discounted(2 ** found.gains[:k] - 1) / _discounted(2 ** found.ideal[:k] - 1)


def _mrr(found: _Found, k: int) -> float:
    ranks = found.ranks(k)
    return 1 / ranks[0] if len(ranks) else 0.0


def _map(found: _Found, k: int) -> float:
    ranks = found.ranks(k)
    return float((np.arange(1, len(ranks) + 1) / ranks).sum()) / found.relevant


_VALUES: dict[str, Callable[[_Found, int], float]] = {
    "ndcg": _ndcg,
    "ndcg_burges": _ndcg_burges,
    "recall": lambda found, k: found.found(k) / found.relevant,
    "recall_cap": lambda found, k: found.found(k) / min(found.relevant, k),
    "mrr": _mrr,
    "map": _map,
    "p": lambda found, k: found.found(k) / k,
    "success": lambda found, k: float(found.found(k) > 0),
}


def _hole(judged: Container[str], ids: list[str], k: int) -> float:
    """Return the share of the top k that is not among the judged documents."""
    return sum(document not in judged for document in ids[:k]) / k
