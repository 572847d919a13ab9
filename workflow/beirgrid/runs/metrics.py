"""Evaluate a run outside of a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from ..collections import qrels as judgements
from ..measures import Qrels, per_query
from . import runs


def evaluate_run(
    run: str | Path | Mapping[str, Mapping[str, float]], qrels: str | Path | Qrels, metrics: Sequence[str]
) -> dict[str, float]:
    """Compute the metrics of a run. The mean is over all queries with qrels, whether the run has them or not.

    Args:
        run: a TREC run (plain or .gz), or query id to document id to score. Scores are compared as float32; of equal
            scores the larger document id comes first, as in trec_eval 9.
        qrels: qrels in BEIR's or TREC's layout (plain or .gz), or query id to document id to grade. A grade above 0 is
            relevant.
        metrics: names, name@k: ndcg, ndcg_burges, ndcg_judged, recall, recall_cap, mrr, map, p, success, hole,
            hole_corpus, p_mrr, robustness, paired_accuracy or map_subqueries; or a measure as ir_measures writes it:
            nDCG@10, R@100, Bpref, P(rel=2)@10.

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
