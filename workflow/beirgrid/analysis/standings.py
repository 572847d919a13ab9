"""Rank systems: the best and second best of each dataset, and each system against the baseline (BEIR paper, Tables 2
and 9, Figure 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from ..config.metric_names import lower_is_better
from ..results.answers import DONE, main_comparison

STANDING_COLUMNS = ["metric", "dataset", "system", "value", "place", "in_best_group", "in_domain"]
AGAINST_COLUMNS = ["metric", "over", "datasets", "system", "mean", "baseline", "change", "wins", "ties", "losses"]
# Values that round to the same text share a rank.
_DECIMALS = 4


def standings(
    scores: pd.DataFrame,
    groups: pd.DataFrame,
    rows: Sequence[str],
    trained: Callable[[str, str], str],
) -> pd.DataFrame:
    """Rank the systems on each dataset: 1 is the best, 2 the second best. Values that are equal to four decimals share
    a place.

    Args:
        scores: the table ``scores`` of a grid. Cells that are not done have no place.
        groups: the table ``groups`` of the grid: who is not distinguishable from the best, ``in_best_group``.
        trained: tells of a system and a dataset whether the system was trained on it: ``in_domain`` is yes, no or
            unknown.
    """
    done = scores[(scores["status"] == DONE) & scores["dataset"].isin(list(rows))]
    table = done[["metric", "dataset", "system", "value"]].copy()
    lower = table["metric"].map(lower_is_better).astype(bool)
    shown = table["value"].round(_DECIMALS).where(lower, -table["value"].round(_DECIMALS))
    table["place"] = shown.groupby([table["metric"], table["dataset"]]).rank(method="min").astype("int64")
    table["in_domain"] = [trained(*pair) for pair in zip(table["system"], table["dataset"], strict=True)]
    keys = ["metric", "dataset", "system"]
    of_best = pd.MultiIndex.from_frame(groups.loc[groups["in_best_group"].fillna(value=False), keys])
    table["in_best_group"] = pd.MultiIndex.from_frame(table[keys]).isin(of_best)
    return table.reset_index(drop=True)[STANDING_COLUMNS]


def against_baseline(across: pd.DataFrame) -> pd.DataFrame:
    """Tabulate each system's mean over datasets, its change against the baseline, and the datasets on which it wins."""
    return main_comparison(across)[AGAINST_COLUMNS].reset_index(drop=True)
