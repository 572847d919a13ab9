"""Measure unjudged documents among the retrieved ones, and their effect on nDCG (BEIR paper, Table 4)."""

from __future__ import annotations

from collections.abc import Mapping

from ..runs import metrics, runs

METRICS = ("hole", "hole_corpus", "ndcg", "ndcg_judged")
HOLE_COLUMNS = ["dataset", "system", "k", *METRICS, "queries"]


def holes(run: runs.Run, qrels: Mapping[str, Mapping[str, int]], k: int = 10) -> dict[str, float]:
    """Compute both shares of holes in the top k, nDCG@k, and nDCG@k of judged documents only.

    ``hole`` counts documents not judged for the query, ``hole_corpus`` documents judged for no query of the dataset
    (the kind of the paper's Table 4). ``ndcg_judged`` is an estimate: it leaves the holes out, where the paper's
    annotators filled them.
    """
    needed = {}  # documents on which the four metrics depend: the top k, and judged documents below
    for query, judged in qrels.items():
        ranking = run.get(query, runs.EMPTY)
        places = [place for place, document in enumerate(ranking.ids) if place < k or document in judged]
        needed[query] = runs.Ranking([ranking.ids[place] for place in places], ranking.scores[places])
    values = metrics.per_query(needed, qrels, [f"{name}@{k}" for name in METRICS])
    return {name: float(values[f"{name}@{k}"].mean()) for name in METRICS}
