"""Compute metrics of a run: with ir_measures, which runs trec_eval's code, or from their definitions."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from pathlib import Path

import numpy as np

from ..collections import qrels as judgements
from ..config.metric_names import Metric, parse_metric, written
from ..core.errors import DataError, quoted
from . import runs

Grades = Mapping[str, int]
Qrels = Mapping[str, Grades]
# ir_measures has two more, whose programs do not serve: for RR@k one that takes half as long as all of these together,
# and for exponential gain one in Perl that prints five digits.
_MEASURES = ("ndcg", "ndcg_judged", "recall", "map", "p", "success")


def evaluate_run(
    run: str | Path | Mapping[str, Mapping[str, float]], qrels: str | Path | Qrels, metrics: Sequence[str]
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
        ranked = {query: runs.canonical(query, scores, list(scores.values())) for query, scores in run.items()}
    grades, changes = judgements.read_with_changes(qrels) if isinstance(qrels, str | Path) else (qrels, {})
    return {name: float(np.mean(values)) for name, values in per_query(ranked, grades, metrics, changes).items()}


def per_query(
    run: runs.Run, qrels: Qrels, metrics: Sequence[str], changes: Mapping[str, Collection[str]] | None = None
) -> dict[str, np.ndarray]:
    """Compute metrics (name@k) of a run per query with qrels. A query that the run lacks has no documents.

    ``ndcg_judged`` is nDCG after documents without a judgement for the query are removed, before the cut at k
    (trec_eval -J, for which a negative grade is no judgement). ``hole`` is the share of the top k without a judgement
    for the query; ``hole_corpus``, without one for any query, as in beir's ``custom_metrics.hole`` (BEIR paper, Table
    4).

    Args:
        run: rankings by query, in canonical order (``runs.read``).
        qrels: per query, document id to grade. A grade above 0 is relevant.
        changes: per query, the documents that p_mrr compares; those that are relevant for one query of a pair only,
            without a list.

    Returns:
        float64 [queries] by metric name, in the order of the qrels. Queries without a retrieved document score 0;
        queries without a relevant document score 0 in all but the holes.

    Raises:
        BeirgridError: a metric is unknown.
    """
    parsed = {name: parse_metric(name) for name in metrics}
    judged, ranked = list(qrels.values()), [run.get(query, runs.EMPTY).ids for query in qrels]
    values = _with_ir_measures([metric for metric in parsed.values() if metric.name in _MEASURES], judged, ranked)
    for metric in parsed.values():
        if metric.name in STEMS:
            values[metric] = _of_groups(metric, qrels, run, changes)
        elif metric.name in _OWN:
            of_all = [dict.fromkeys(chain.from_iterable(judged), 0)] * len(judged)
            pairs = zip(of_all if metric.name == "hole_corpus" else judged, ranked, strict=True)
            values[metric] = np.array([_OWN[metric.name](grades, ids, metric.k) for grades, ids in pairs], np.float64)
    return {name: values[metric] for name, metric in parsed.items()}


def _with_ir_measures(
    metrics: list[Metric], qrels: Sequence[Grades], ranked: Sequence[list[str]]
) -> dict[Metric, np.ndarray]:
    import ir_measures

    # Ranks in place of scores leave trec_eval no ties to break. It would cut ids at a zero byte. A grade of -1 is its
    # mark of a document that is not judged; with others below 0, pytrec_eval writes outside its memory.
    names = [{document: str(rank) for rank, document in enumerate(ids)} for ids in ranked]
    judged = {
        str(i): {names[i].get(document, f"-{n}"): max(grade, -1) for n, (document, grade) in enumerate(grades.items())}
        for i, grades in enumerate(qrels)
    }
    run = {str(i): {name: -float(name) for name in of.values()} for i, of in enumerate(names) if of}
    measures = {ir_measures.parse_measure(written(f"{name}@{k}")): Metric(name, k) for name, k in metrics}
    values = {metric: np.zeros(len(qrels)) for metric in metrics}
    if metrics:
        for query, measure, value in ir_measures.pytrec_eval.iter_calc(list(measures), judged, run):
            values[measures[measure]][int(query)] = value
    return values


def _of_groups(
    metric: Metric, qrels: Qrels, run: runs.Run, changes: Mapping[str, Collection[str]] | None
) -> np.ndarray:
    """Return the values of groups for their queries, weighted so that the mean over queries is that over groups.

    A query of a group without a value has 0.
    """
    groups: dict[str, list[str]] = {}
    for query in qrels:
        groups.setdefault(STEMS[metric.name](query), []).append(query)
    ends = _PAIRS.get(metric.name, ())
    for stem, queries in groups.items():
        if ends and {*queries} != {stem + end for end in ends}:
            pair = " and ".join(f"ID{end}" for end in ends)
            raise DataError(f"{metric.name} compares queries {pair}; {quoted(queries[0])} is in no such pair")
    if metric.name == "p_mrr":
        values = _p_mrr(groups, qrels, run, metric.k, changes)
    elif metric.name == "map_subqueries":
        values = _map_subqueries(groups, qrels, run, metric.k)
    else:  # of robustness the lowest nDCG; of paired_accuracy whether both relevant documents are found
        base = f"{'ndcg' if metric.name == 'robustness' else 'recall'}@{metric.k}"
        of_query = dict(zip(qrels, per_query(run, qrels, [base])[base].tolist(), strict=True))
        lowest = {stem: min(of_query[query] for query in queries) for stem, queries in groups.items()}
        values = {stem: low if metric.name == "robustness" else float(low == 1) for stem, low in lowest.items()}
    weights = {stem: len(qrels) / (len(values) * len(queries)) for stem, queries in groups.items()}
    return np.array([values.get(stem, 0.0) * weights[stem] for stem in map(STEMS[metric.name], qrels)])


def _p_mrr(
    groups: dict[str, list[str]], qrels: Qrels, run: runs.Run, k: int, changes: Mapping[str, Collection[str]] | None
) -> dict[str, float]:
    """Return how an instruction moves the documents whose relevance it changes, from -1 (the wrong way) to 1.

    The queries of a pair differ in their instruction. A pair without such documents has no value. A document that is
    not ranked stands after the last.
    """
    values = {}
    for stem, queries in groups.items():
        ids = [run.get(f"{stem}{end}", runs.EMPTY).ids[:k] for end in _PAIRS["p_mrr"]]
        ranks = [dict(zip(of_query, range(1, k + 1), strict=False)) for of_query in ids]
        relevant = [{document for document, grade in qrels[query].items() if grade > 0} for query in queries]
        listed = set[str]().union(*(changes.get(query, ()) for query in queries)) if changes else None
        if changed := relevant[0] ^ relevant[1] if listed is None else listed:
            pairs = [[of_query.get(one, len(of_query) + 1) for of_query in ranks] for one in sorted(changed)]
            moves = [after / before - 1 if before >= after else 1 - before / after for before, after in pairs]
            values[stem] = float(np.mean(moves))
    if not values:
        raise DataError("p_mrr compares documents whose relevance an instruction changes; no pair of queries has one")
    return values


def _map_subqueries(groups: dict[str, list[str]], qrels: Qrels, run: runs.Run, k: int) -> dict[str, float]:
    """Return AP of the queries of a group as one, in which a document has its highest score."""
    merged: runs.Run = {}
    for stem, queries in groups.items():
        best: dict[str, float] = {}
        for ids, scores in (run[query] for query in queries if query in run):
            for document, score in zip(ids, scores.tolist(), strict=True):
                best[document] = max(score, best.get(document, score))
        merged[stem] = runs.canonical(stem, best, list(best.values()))
    grades = {stem: qrels[queries[-1]] for stem, queries in groups.items()}
    return dict(zip(groups, per_query(merged, grades, [f"map@{k}"])[f"map@{k}"].tolist(), strict=True))


def _mrr(grades: Grades, ids: list[str], k: int) -> float:
    """Return 1 / the rank of the first relevant document within the top k. (trec_eval has no cut-off.)"""
    return next((1 / rank for rank, document in enumerate(ids[:k], 1) if grades.get(document, 0) > 0), 0.0)


def _recall_cap(grades: Grades, ids: list[str], k: int) -> float:
    """Return the relevant documents in the top k, divided by the largest possible number."""
    relevant = sum(grade > 0 for grade in grades.values())
    return sum(grades.get(document, 0) > 0 for document in ids[:k]) / max(1, min(relevant, k))


def _ndcg_burges(grades: Grades, ids: list[str], k: int) -> float:
    """Return nDCG with the gain 2^grade - 1 (Burges et al., 2005)."""
    best = sorted((grade for grade in grades.values() if grade > 0), reverse=True)
    return _dcg([grades.get(document, 0) for document in ids[:k]]) / _dcg(best[:k]) if best else 0.0


def _dcg(grades: list[int]) -> float:
    gains = 2.0 ** np.maximum(grades, 0) - 1
    return float((gains / np.log2(np.arange(2, len(gains) + 2))).sum())


def _hole(judged: Grades, ids: list[str], k: int) -> float:
    """Return the share of the top k that is not judged, also where fewer documents are retrieved."""
    return sum(document not in judged for document in ids[:k]) / k


# What the ids of the queries of a group have in common, by the metrics that have one value for a group, as in mteb: of
# FollowIR (Weller et al., 2024), InstructIR, NevIR and MindSmallReranking.
STEMS: dict[str, Callable[[str], str]] = {
    "p_mrr": lambda query: query.rpartition("-")[0],
    "robustness": lambda query: query.partition("_")[0],
    "paired_accuracy": lambda query: query.partition("_")[0],
    "map_subqueries": lambda query: query.rpartition("_")[0],
}
_PAIRS = {"p_mrr": ("-og", "-changed"), "paired_accuracy": ("_q1", "_q2")}
_OWN: dict[str, Callable[[Grades, list[str], int], float]] = {
    "ndcg_burges": _ndcg_burges,
    "recall_cap": _recall_cap,
    "mrr": _mrr,
    "hole": _hole,
    "hole_corpus": _hole,
}
