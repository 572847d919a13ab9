"""Measure the lengths of retrieved and judged documents (BEIR paper, Figures 4 and 5, Table 10).

The length of a document is its number of words: title and text, cut at white space.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

# Kinds of documents: retrieved by a system, or judged with a grade.
RETRIEVED, JUDGED = "retrieved", "judged"
QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
_GROUP = ["dataset", "kind", "system", "grade"]


def measure(
    dataset: str,
    retrieved: Mapping[str, Mapping[str, Sequence[str]]],
    qrels: Mapping[str, Mapping[str, int]],
    words: Mapping[str, int],
) -> pd.DataFrame:
    """Return a row for each document that a system retrieved or that is judged, once for each query.

    Args:
        retrieved: system to query to the ids of the top documents.
        qrels: query to document id to grade.
        words: document id to its number of words. Documents that are not here are unknown.

    Returns:
        columns ``dataset``, ``kind``, ``system``, ``grade`` and ``words``, NaN for an unknown document.
    """
    rows: list[tuple[Any, ...]] = [
        (dataset, RETRIEVED, system, None, words.get(document))
        for system, of_query in retrieved.items()
        for ids in of_query.values()
        for document in ids
    ]
    judged = sorted((grade, document) for grades in qrels.values() for document, grade in grades.items())
    rows += [(dataset, JUDGED, "", grade, words.get(document)) for grade, document in judged]
    return pd.DataFrame(rows, columns=[*_GROUP, "words"]).astype({"grade": "Int64", "words": "float64"})


def together(name: str, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Combine the lengths of several datasets. A system that lacks one of them is left out."""
    systems = set.intersection(*(set(part["system"]) for part in parts))
    whole = pd.concat(parts, ignore_index=True)
    whole = whole[(whole["kind"] == JUDGED) | whole["system"].isin(list(systems))]
    return whole.assign(dataset=name).sort_values(["kind", "grade"], ascending=[False, True], kind="stable")


def describe(lengths: pd.DataFrame) -> pd.DataFrame:
    """Describe the lengths that ``measure`` returns.

    Returns:
        a row for each dataset and system or grade: ``documents``, ``unknown`` ones, ``mean`` and quantiles of the
        lengths.
    """
    groups = lengths.groupby(_GROUP, sort=False, dropna=False)["words"]
    measures: dict[str, Any] = {"documents": "count", "unknown": lambda words: words.isna().sum(), "mean": "mean"}
    measures |= {name: functools.partial(pd.Series.quantile, q=share) for name, share in QUANTILES.items()}
    described: pd.DataFrame = groups.agg(**measures).reset_index()
    return described
