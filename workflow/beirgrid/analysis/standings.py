"""Who wins: the best and the second best of each dataset, and each system against the baseline (BEIR paper, Tables 2
and 9, Figure 3).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import pandas as pd

from ..config.metrics import LOWER_IS_BETTER, parse_metric
from ..data.answers import DONE
from .tables import ALL, ZERO_SHOT

STANDING_COLUMNS = ["metric", "dataset", "system", "value", "place", "in_domain"]
AGAINST_COLUMNS = ["metric", "over", "datasets", "system", "mean", "baseline", "change", "wins", "ties", "losses"]
# Values that tables show as equal share a place.
_DECIMALS = 4


def standings(
    scores: pd.DataFrame, rows: Sequence[str], trained_on: Mapping[str, Collection[str]] | None = None
) -> pd.DataFrame:
    """Return the place of each system on each dataset: 1 is the best, 2 the second best.

    Values that are equal to four decimals share a place.

    Args:
        scores: the table ``scores`` of a grid. Cells that are not done have no place.
        rows: the datasets of the grid.
        trained_on: system to the datasets that it was trained on: there, it is ``in_domain``.
    """
    done = scores[(scores["status"] == DONE) & scores["dataset"].isin(list(rows))]
    table = done[["metric", "dataset", "system", "value"]].copy()
    lower = table["metric"].map(lambda metric: parse_metric(metric).name in LOWER_IS_BETTER).astype(bool)
    shown = table["value"].round(_DECIMALS).where(lower, -table["value"].round(_DECIMALS))
    table["place"] = shown.groupby([table["metric"], table["dataset"]]).rank(method="min").astype("int64")
    known = {(system, dataset) for system, datasets in (trained_on or {}).items() for dataset in datasets}
    table["in_domain"] = [pair in known for pair in zip(table["system"], table["dataset"], strict=True)]
    return table.reset_index(drop=True)[STANDING_COLUMNS]


def against_baseline(across: pd.DataFrame) -> pd.DataFrame:
    """Return each system's mean over the datasets, its change against the baseline, and on how many datasets it wins.

    Over the zero-shot datasets where the table ``across`` has them, as in the paper, and over all datasets otherwise.
    """
    zero_shot = set(across.loc[across["over"] == ZERO_SHOT, "metric"])
    over = across["metric"].map(lambda metric: ZERO_SHOT if metric in zero_shot else ALL)
    return across.loc[across["over"] == over, AGAINST_COLUMNS].reset_index(drop=True)
