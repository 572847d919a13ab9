"""Tabulate the hardest and the easiest queries of a dataset, by their mean over the systems."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ..page.documents import CHARACTERS, cut

QUERY_COLUMNS = ["dataset", "kind", "query", "text", "mean", "low", "low_system", "high", "high_system", "relevant"]
# Hardest queries of a dataset, and as many of the easiest.
MOST = 5
# Values that differ by less count as equal, so that rounding does not choose queries.
_DECIMALS = 9


def table(
    dataset: str,
    scores: pd.DataFrame,
    texts: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    most: int = MOST,
    lower_is_better: bool = False,
) -> pd.DataFrame:
    """Return a row for each of the hardest and easiest queries: its mean, and the systems with the extreme values.

    Equal queries are chosen in the order of the file; of equal systems, the first has the highest value, and the last
    the lowest. A query without a relevant document is not hard.

    Args:
        scores: values of a metric, queries × systems.
        texts: query to its text.
        qrels: query to document id to grade.
        most: queries of each kind.
        lower_is_better: whether less is better in that metric.
    """
    answerable = [query for query in scores.index if max(qrels[query].values()) > 0]
    means = scores.loc[answerable].mean(axis=1).round(_DECIMALS)
    rows = []
    for kind, ascending in (("hardest", not lower_is_better), ("easiest", lower_is_better)):
        for query in means.sort_values(ascending=ascending, kind="stable").index[:most]:
            values = scores.loc[query].astype(float)
            high, low = values.idxmax(), values[::-1].idxmin()
            relevant = sum(grade > 0 for grade in qrels[query].values())
            text = cut(texts[query], CHARACTERS)
            rows.append((dataset, kind, query, text, values.mean(), values[low], low, values[high], high, relevant))
    return pd.DataFrame(rows, columns=QUERY_COLUMNS)
