"""Compute metrics of a run, by trec_eval's code where it has the metric.

trec_eval takes milliseconds for a run. ranx agrees (the tests compare), but takes two seconds to import.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from ..collections import qrels as judgements
from ..config.metric_names import Metric, parse_metric
from ..core.errors import DataError, quoted
from . import runs

# Our metric name to trec_eval's, without the cut-off.
_TREC_EVAL = {"ndcg": "ndcg_cut", "recall": "recall", "map": "map_cut", "p": "P", "success": "success"}


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
        metrics: names, name@k: ndcg, ndcg_burges, ndcg_judged, recall, recall_cap, mrr, map, p, success, hole,
            hole_corpus, p_mrr, robustness, paired_accuracy or map_subqueries; or as ir_measures writes them: nDCG@10,
            R@100, RR@10, AP@1000, P@10, Success@1.

    Returns:
        the mean by the name of the metric, as the caller writes it.

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
    """Compute metrics of a run per query with qrels. A query that the run lacks has no documents.

    Args:
        run: rankings by query, in canonical order (``runs.read``).
        qrels: per query, document id to grade. A grade above 0 is relevant.
        metrics: names, name@k.

    Returns:
        float64 [queries] by metric name, in the order of the qrels.

    Raises:
        BeirgridError: a metric is unknown.
    """
    parsed = {name: parse_metric(name) for name in metrics}
    ranked = [run[query].ids if query in run else [] for query in qrels]
    of_groups = [metric for metric in parsed.values() if metric.name in _OF_GROUPS]
    values = evaluate([metric for metric in parsed.values() if metric not in of_groups], list(qrels.values()), ranked)
    for metric in of_groups:
        values[metric] = _OF_GROUPS[metric.name](qrels, run, metric.k)
    return {name: values[metric] for name, metric in parsed.items()}


def evaluate(
    metrics: Sequence[Metric], qrels: Sequence[Mapping[str, int]], ranked: list[list[str]]
) -> dict[Metric, np.ndarray]:
    """Compute metrics for each query.

    ``recall_cap`` is recall with the denominator min(relevant documents, k). ``ndcg_judged`` is nDCG after documents
    without a judgement for the query are removed, before the cut at k (trec_eval -J). ``hole`` is the share of the top
    k without a judgement for the query; ``hole_corpus``, without a judgement for any query, as in beir's
    ``custom_metrics.hole`` (BEIR paper, Table 4). Both divide by k even if fewer documents were retrieved.

    Args:
        qrels: per query, document id to grade. A grade above 0 is relevant.
        ranked: per query, document ids in canonical order (best first), empty if none was retrieved.

    Returns:
        float64 [queries] for each metric. Queries without a retrieved document score 0 in every metric; queries without
        a relevant document score 0 in all but the holes.
    """
    judged_at_all = set().union(*qrels)
    values = _with_trec_eval(qrels, ranked, [metric for metric in metrics if metric.name in _TREC_EVAL])
    for metric in metrics:
        name, k = metric
        if name in _TREC_EVAL:
            continue
        if name == "ndcg_judged":
            condensed = [
                [document for document in ids if document in of] for of, ids in zip(qrels, ranked, strict=True)
            ]
            values[metric] = _with_trec_eval(qrels, condensed, [Metric("ndcg", k)])[Metric("ndcg", k)]
        elif name == "hole_corpus":
            values[metric] = np.array([_hole(judged_at_all, ids, k) for ids in ranked], np.float64)
        else:
            pairs = zip(qrels, ranked, strict=True)
            values[metric] = np.array([_OWN[name](grades, ids, k) for grades, ids in pairs], np.float64)
    return values


def _with_trec_eval(
    qrels: Sequence[Mapping[str, int]], ranked: list[list[str]], metrics: list[Metric]
) -> dict[Metric, np.ndarray]:
    """Compute the metrics that trec_eval implements, float64 [queries]."""
    if not metrics:
        return {}
    import pytrec_eval

    # We pass ranks instead of scores, so trec_eval has no ties to break, and instead of ids, which it truncates at a
    # zero byte.
    names = [{document: str(rank) for rank, document in enumerate(ids)} for ids in ranked]
    judged = {
        str(i): {names[i].get(document, f"-{n}"): max(grade, 0) for n, (document, grade) in enumerate(grades.items())}
        for i, grades in enumerate(qrels)
    }
    run = {str(i): {name: -float(name) for name in of.values()} for i, of in enumerate(names) if of}
    found = pytrec_eval.RelevanceEvaluator(judged, {f"{_TREC_EVAL[name]}.{k}" for name, k in metrics}).evaluate(run)
    values = {metric: np.zeros(len(qrels)) for metric in metrics}
    for query, of_query in found.items():
        for metric in metrics:
            values[metric][int(query)] = of_query[f"{_TREC_EVAL[metric.name]}_{metric.k}"]
    return values


def _p_mrr(qrels: Mapping[str, Mapping[str, int]], run: runs.Run, k: int) -> np.ndarray:
    """Return for both queries of a pair how an instruction moves what it excludes (FollowIR, Weller et al., 2024).

    The queries ``{id}-og`` and ``{id}-changed`` differ in their instruction. The documents that are relevant for one of
    them only should move. A pair has the mean over these documents, from -1 (all move the wrong way) to 1.
    """
    values = np.zeros(len(qrels))
    for number, query in enumerate(qrels):
        stem = STEMS["p_mrr"](query)
        first, second = f"{stem}-og", f"{stem}-changed"
        if first not in qrels or second not in qrels or query not in (first, second):
            raise DataError(f"p_mrr compares queries ID-og and ID-changed; {quoted(query)} has no such name")
        relevant = [{document for document, grade in qrels[one].items() if grade > 0} for one in (first, second)]
        moves = [
            _move(*(_rank(run[one].ids[:k] if one in run else [], document) for one in (first, second)))
            for document in relevant[0] ^ relevant[1]
        ]
        values[number] = np.mean(moves) if moves else 0.0
    return values


def _rank(ids: list[str], document: str) -> int:
    """Return the rank of a document; one that is not ranked stands after the last."""
    return ids.index(document) + 1 if document in ids else len(ids) + 1


def _move(before: int, after: int) -> float:
    """Return 1 - before / after for a document that falls, and after / before - 1 for one that rises."""
    return after / before - 1 if before >= after else 1 - before / after


def _robustness(qrels: Mapping[str, Mapping[str, int]], run: runs.Run, k: int) -> np.ndarray:
    """Return the lowest nDCG of the queries ``{id}_…``, which differ in their instruction (InstructIR)."""
    values = per_query(run, qrels, [f"ndcg@{k}"])[f"ndcg@{k}"]
    groups = _groups(qrels, STEMS["robustness"])
    return _spread(groups.values(), [min(values[numbers]) for numbers in groups.values()])


def _paired_accuracy(qrels: Mapping[str, Mapping[str, int]], run: runs.Run, k: int) -> np.ndarray:
    """Return 1 if recall is 1 for both queries ``{id}_q1`` and ``{id}_q2`` of a pair (NevIR)."""
    values = per_query(run, qrels, [f"recall@{k}"])[f"recall@{k}"]
    groups = _groups(qrels, STEMS["paired_accuracy"])
    for stem, numbers in groups.items():
        if len(numbers) != 2 or not {f"{stem}_q1", f"{stem}_q2"} <= qrels.keys():
            raise DataError(f"paired_accuracy compares queries ID_q1 and ID_q2; {quoted(stem)} has no such pair")
    return _spread(groups.values(), [float(min(values[numbers]) == 1) for numbers in groups.values()])


def _map_subqueries(qrels: Mapping[str, Mapping[str, int]], run: runs.Run, k: int) -> np.ndarray:
    """Return AP of queries ``{id}_…`` as one: a document has its highest score (MindSmallReranking)."""
    groups = _groups(qrels, STEMS["map_subqueries"])
    names, merged, grades = list(qrels), dict[str, runs.Ranking](), dict[str, Mapping[str, int]]()
    for stem, numbers in groups.items():
        best: dict[str, float] = {}
        for ids, scores in (run[names[number]] for number in numbers if names[number] in run):
            for document, score in zip(ids, scores.tolist(), strict=True):
                best[document] = max(score, best.get(document, score))
        merged[stem] = runs.canonical(stem, best, list(best.values()))
        grades[stem] = qrels[names[numbers[-1]]]
    return _spread(groups.values(), per_query(merged, grades, [f"map@{k}"])[f"map@{k}"])


def _groups(qrels: Iterable[str], stem: Callable[[str], str]) -> dict[str, list[int]]:
    """Return the numbers of the queries by their stems."""
    found: dict[str, list[int]] = {}
    for number, query in enumerate(qrels):
        found.setdefault(stem(query), []).append(number)
    return found


def _spread(groups: Collection[list[int]], values: Iterable[float]) -> np.ndarray:
    """Return the values of groups for their queries, weighted so that the mean over queries is that over groups."""
    queries = sum(map(len, groups))
    spread = np.zeros(queries)
    for numbers, value in zip(groups, values, strict=True):
        spread[numbers] = value * queries / (len(groups) * len(numbers))
    return spread


def _mrr(grades: Mapping[str, int], ids: list[str], k: int) -> float:
    """Return 1 / the rank of the first relevant document within the top k. (trec_eval has no cut-off.)"""
    return next((1 / rank for rank, document in enumerate(ids[:k], 1) if grades.get(document, 0) > 0), 0.0)


def _recall_cap(grades: Mapping[str, int], ids: list[str], k: int) -> float:
    """Return the relevant documents in the top k, divided by the largest possible number."""
    relevant = sum(grade > 0 for grade in grades.values())
    return sum(grades.get(document, 0) > 0 for document in ids[:k]) / max(1, min(relevant, k))


def _ndcg_burges(grades: Mapping[str, int], ids: list[str], k: int) -> float:
    """Return nDCG with the gain 2^grade - 1 (Burges et al., 2005)."""
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    return _dcg([grades.get(document, 0) for document in ids[:k]]) / _dcg(best[:k]) if best else 0.0


def _dcg(grades: list[int]) -> float:
    gains = 2.0 ** np.maximum(grades, 0) - 1
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


def _hole(judged: Container[str], ids: list[str], k: int) -> float:
    """Return the share of the top k that is not judged."""
    return sum(document not in judged for document in ids[:k]) / k


# What the ids of the queries of a group have in common, by the metrics that have one value for a group.
STEMS: dict[str, Callable[[str], str]] = {
    "p_mrr": lambda query: query.rpartition("-")[0],
    "robustness": lambda query: query.partition("_")[0],
    "paired_accuracy": lambda query: query.partition("_")[0],
    "map_subqueries": lambda query: query.rpartition("_")[0],
}
_OF_GROUPS: dict[str, Callable[[Mapping[str, Mapping[str, int]], runs.Run, int], np.ndarray]] = {
    "p_mrr": _p_mrr,
    "robustness": _robustness,
    "paired_accuracy": _paired_accuracy,
    "map_subqueries": _map_subqueries,
}
_OWN: dict[str, Callable[[Mapping[str, int], list[str], int], float]] = {
    "ndcg_burges": _ndcg_burges,
    "recall_cap": _recall_cap,
    "mrr": _mrr,
    "hole": _hole,
}
