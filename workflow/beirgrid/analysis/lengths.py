"""How long the documents are that systems retrieve, and those that were judged (BEIR paper, Figures 4 and 5, Table 10).

The length of a document is its number of words: title and text, cut at white space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

# Whose lengths: documents that a system retrieved, or documents that were judged with some grade.
RETRIEVED, JUDGED = "retrieved", "judged"
QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
LENGTH_COLUMNS = ["dataset", "kind", "system", "grade", "documents", "unknown", "mean", *QUANTILES]
HISTOGRAM_COLUMNS = ["dataset", "kind", "system", "grade", "low", "high", "documents"]
# Lengths at which the bins of a histogram begin: 0, 1, 2 and so on, then ten for each power of ten. The last bin has no
# end.
_BEGINS = np.unique(np.concatenate([[0], np.round(10 ** np.arange(0, 6.05, 0.1))])).astype(np.int64)
EDGES = np.append(_BEGINS, np.iinfo(np.int64).max)


class Lengths(NamedTuple):
    """Lengths of documents: ``summary`` has their mean and quantiles, ``histogram`` how many are in each bin."""

    summary: pd.DataFrame
    histogram: pd.DataFrame


def of_dataset(
    dataset: str,
    retrieved: Mapping[str, Mapping[str, Sequence[str]]],
    qrels: Mapping[str, Mapping[str, int]],
    words: Mapping[str, int],
) -> Lengths:
    """Describe the lengths of the documents that systems retrieved and of those that were judged, by their grade.

    A document counts once for each query for which it was retrieved or judged.

    Args:
        dataset: name of the dataset.
        retrieved: system to query to the ids of the top documents.
        qrels: query to document id to grade.
        words: document id to its number of words. Documents that are not here are counted as ``unknown``.

    Returns:
        ``summary`` with the columns ``dataset``, ``kind`` (retrieved or judged), ``system``, ``grade``, ``documents``,
        ``unknown``, ``mean`` and quantiles of the lengths (empty without documents); ``histogram`` with a row for each
        bin from ``low`` to ``high`` (exclusive) that has documents.
    """
    groups: list[tuple[str, str, int | None, list[str]]] = [
        (RETRIEVED, system, None, [document for ids in of_query.values() for document in ids])
        for system, of_query in retrieved.items()
    ]
    by_grade: dict[int, list[str]] = {}
    for of_documents in qrels.values():
        for document, judged in of_documents.items():
            by_grade.setdefault(judged, []).append(document)
    groups += [(JUDGED, "", judged, by_grade[judged]) for judged in sorted(by_grade)]
    summaries: list[tuple[object, ...]] = []
    bins: list[tuple[object, ...]] = []
    for kind, system, grade, documents in groups:
        found = np.array([words[document] for document in documents if document in words], np.int64)
        unknown = len(documents) - len(found)
        statistics = (found.mean(), *np.quantile(found, list(QUANTILES.values()))) if len(found) else ()
        absent = [np.nan] * (1 + len(QUANTILES) - len(statistics))
        summaries.append((dataset, kind, system, grade, len(found), unknown, *statistics, *absent))
        places, counts = np.unique(np.searchsorted(EDGES, found, side="right") - 1, return_counts=True)
        bins += [
            (dataset, kind, system, grade, EDGES[place], EDGES[place + 1], count)
            for place, count in zip(places, counts, strict=True)
        ]
    return Lengths(_frame(summaries, LENGTH_COLUMNS), _frame(bins, HISTOGRAM_COLUMNS))


def _frame(rows: list[tuple[object, ...]], columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=columns).astype({"grade": "Int64"})
