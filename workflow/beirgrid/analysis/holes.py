"""Measure unjudged documents among the retrieved ones, and their effect on nDCG (BEIR paper, Table 4)."""

from __future__ import annotations

from collections.abc import Container, Mapping

import numpy as np
import pandas as pd

from ..runs import metrics, runs

HOLE_COLUMNS = ["dataset", "system", "k", "hole", "hole_corpus", "ndcg", "ndcg_judged", "queries"]


def of_run(run: runs.Run, qrels: Mapping[str, Mapping[str, int]], k: int = 10) -> dict[str, float]:
    """Compute both shares of holes in the top k, nDCG@k, and nDCG@k of judged documents only.

    ``hole`` counts documents not judged for the query, ``hole_corpus`` documents judged for no query of the dataset
    (the kind of the paper's Table 4). ``ndcg_judged`` is an estimate: it leaves the holes out, where the paper's
    annotators filled them.
    """
    names = {name: f"{name}@{k}" for name in ("hole", "hole_corpus", "ndcg", "ndcg_judged")}
    found = metrics.per_query(
        {query: _needed(run[query], grades, k) for query, grades in qrels.items() if query in run},
        qrels,
        list(names.values()),
    )
    return {name: float(np.mean(found[metric])) for name, metric in names.items()}


def _needed(ranking: runs.Ranking, judged: Container[str], k: int) -> runs.Ranking:
    """Return the documents on which the four metrics depend: the top k, and judged documents below."""
    places = [place for place, document in enumerate(ranking.ids) if place < k or document in judged]
    return runs.Ranking([ranking.ids[place] for place in places], ranking.scores[places])


def table(found: Mapping[tuple[str, str], dict[str, float]], queries: Mapping[str, int], k: int = 10) -> pd.DataFrame:
    """Tabulate the results of ``of_run``, a row per dataset and system."""
    rows = [
        {"dataset": dataset, "system": system, "k": k, **values, "queries": queries[dataset]}
        for (dataset, system), values in found.items()
    ]
    return pd.DataFrame(rows, columns=HOLE_COLUMNS)
