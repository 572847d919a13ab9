"""Measure the lengths of retrieved and judged documents (BEIR paper, Figures 4 and 5, Table 10).

The length of a document is its number of words: title and text, cut at white space.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

# Kinds of documents: retrieved by a system, or judged with a grade.
RETRIEVED, JUDGED = "retrieved", "judged"
QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
LENGTH_COLUMNS = ["dataset", "kind", "system", "grade", "documents", "unknown", "mean", *QUANTILES]
HISTOGRAM_COLUMNS = ["dataset", "kind", "system", "grade", "low", "high", "documents"]
# Lengths at which the bins of a histogram begin: 0, 1, 2 and so on, then ten for each power of ten. The last bin has no
# end.
_BEGINS = np.unique(np.concatenate([[0], np.round(10 ** np.arange(0, 6.05, 0.1))])).astype(np.int64)
EDGES = np.append(_BEGINS, np.iinfo(np.int64).max)


class Lengths(NamedTuple):
    """Lengths of documents: ``summary`` has mean and quantiles, ``histogram`` the number of documents per bin."""

    summary: pd.DataFrame
    histogram: pd.DataFrame


class Group(NamedTuple):
    """A group of documents: retrieved by a system, or judged with a grade."""

    kind: str
    system: str = ""
    grade: int | None = None


class GroupLengths(NamedTuple):
    """The lengths of the documents of a group, int64 [documents], and how many documents are unknown."""

    words: np.ndarray
    unknown: int


def measure(
    retrieved: Mapping[str, Mapping[str, Sequence[str]]],
    qrels: Mapping[str, Mapping[str, int]],
    words: Mapping[str, int],
) -> dict[Group, GroupLengths]:
    """Return the lengths of retrieved documents by system, and of judged documents by grade.

    A document counts once for each query for which it was retrieved or judged.

    Args:
        retrieved: system to query to the ids of the top documents.
        qrels: query to document id to grade.
        words: document id to its number of words. Documents that are not here are unknown.
    """
    groups: dict[Group, list[str]] = {
        Group(RETRIEVED, system): [document for ids in of_query.values() for document in ids]
        for system, of_query in retrieved.items()
    }
    grades = sorted({grade for of_query in qrels.values() for grade in of_query.values()})
    groups |= {Group(JUDGED, grade=grade): [] for grade in grades}
    for of_query in qrels.values():
        for document, grade in of_query.items():
            groups[Group(JUDGED, grade=grade)].append(document)
    measured = {}
    for group, documents in groups.items():
        known = [words[document] for document in documents if document in words]
        measured[group] = GroupLengths(np.array(known, np.int64), len(documents) - len(known))
    return measured


def together(parts: Sequence[Mapping[Group, GroupLengths]]) -> dict[Group, GroupLengths]:
    """Combine the lengths of several datasets. A system that lacks one of them is left out."""
    groups = dict.fromkeys(group for part in parts for group in part)
    lengths: dict[Group, GroupLengths] = {}
    for group in groups:
        of_group = [part[group] for part in parts if group in part]
        if group.kind == RETRIEVED and len(of_group) < len(parts):
            continue  # a system without one of the datasets
        lengths[group] = GroupLengths(np.concatenate([m.words for m in of_group]), sum(m.unknown for m in of_group))
    return lengths


def describe(dataset: str, measured: Mapping[Group, GroupLengths]) -> Lengths:
    """Describe lengths.

    Returns:
        ``summary`` with the columns ``dataset``, ``kind`` (retrieved or judged), ``system``, ``grade``, ``documents``,
        ``unknown``, ``mean`` and quantiles of the lengths (empty without documents); ``histogram`` with a row for each
        bin from ``low`` to ``high`` (exclusive) that has documents.
    """
    summaries: list[tuple[object, ...]] = []
    bins: list[tuple[object, ...]] = []
    for group, (words, unknown) in measured.items():
        statistics = (words.mean(), *np.quantile(words, list(QUANTILES.values()))) if len(words) else ()
        absent = [np.nan] * (1 + len(QUANTILES) - len(statistics))
        summaries.append((dataset, *group, len(words), unknown, *statistics, *absent))
        places, counts = np.unique(np.searchsorted(EDGES, words, side="right") - 1, return_counts=True)
        bins += [
            (dataset, *group, EDGES[place], EDGES[place + 1], count)
            for place, count in zip(places, counts, strict=True)
        ]
    return Lengths(_frame(summaries, LENGTH_COLUMNS), _frame(bins, HISTOGRAM_COLUMNS))


def _frame(rows: list[tuple[object, ...]], columns: list[str]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=columns).astype({"grade": "Int64"})
