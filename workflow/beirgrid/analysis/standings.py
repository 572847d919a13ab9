"""Rank systems: the best and second best of each dataset, and each system against the baseline (BEIR paper, Tables 2
and 9, Figure 3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import pandas as pd

from ..config.metric_names import lower_is_better, written
from ..results.answers import DONE, ZERO_SHOT, main_comparison
from ..results.summary import UNKNOWN, YES

STANDING_COLUMNS = ["metric", "dataset", "system", "value", "place", "in_best_group", "in_domain"]
AGAINST_COLUMNS = ["metric", "over", "datasets", "system", "mean", "baseline", "change", "wins", "ties", "losses"]
# Values that round to the same text share a rank.
_DECIMALS = 4
_GROUP = "†"
# Signs of values on datasets that a system was trained on, or may have been trained on.
_TRAINING = {YES: "‡", UNKNOWN: "?"}
_LEGEND = (
    f"Bold: the best of the dataset; {{second}}: the second best; {_GROUP}: not distinguishable from the best "
    f"(randomised Tukey HSD test, p > 0.05); {_TRAINING[YES]}: the system was trained on the dataset; "
    f"{_TRAINING[UNKNOWN]}: it is not known whether it was."
)


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


class Printed(NamedTuple):
    """A table as the paper prints it, datasets × systems: ``cells`` as text, and ``places``, 0 below the second.

    Below several datasets stand the mean over them and, if there is a baseline, its change against the baseline.
    """

    cells: pd.DataFrame
    places: pd.DataFrame

    def markdown(self) -> str:
        """Return the table in Markdown: the best of each row bold, the second best in italics."""
        marks = {1: "**{}**", 2: "_{}_"}
        rows = zip(self.cells.to_numpy(), self.places.to_numpy(), strict=True)
        marked = [[marks.get(p, "{}").format(text) for text, p in zip(*row, strict=True)] for row in rows]
        cells = pd.DataFrame(marked, self.cells.index, self.cells.columns)
        align = ["left", *["right"] * len(cells.columns)]
        return f"{cells.to_markdown(colalign=align, disable_numparse=True)}\n\n{_LEGEND.format(second='italics')}\n"

    def latex(self) -> str:
        """Return the table in LaTeX, for the package booktabs: the best of each row bold, the second underlined."""
        marks = {1: "textbf:--rwrap", 2: "underline:--rwrap"}
        metric = str(self.cells.index.name).replace("_", r"\_")
        styled = self.cells.rename_axis(index=None, columns=metric).style.format(escape="latex")
        styled = styled.format_index(escape="latex", axis=0).format_index(escape="latex", axis=1)
        styles = self.places.map(lambda place: marks.get(place, ""))
        text = styled.apply(lambda _: styles, axis=None).to_latex(
            hrules=True, column_format="l" + "r" * len(styles.columns)
        )
        text = text.replace(_GROUP, r"$^\dagger$").replace(_TRAINING[YES], r"$^\ddagger$")
        return text + "% " + _LEGEND.format(second="underlined") + "\n"


def printed(
    standings: pd.DataFrame, against: pd.DataFrame, metric: str, rows: Sequence[str], systems: Sequence[str]
) -> Printed:
    """Return a metric's table as the paper prints Tables 2 and 9.

    Args:
        standings: output of ``standings``.
        against: output of ``against_baseline``.
        rows: datasets, in order.
        systems: systems, in order.
    """
    found = standings[standings["metric"] == metric]
    values, places, group, known = (
        found.pivot(index="dataset", columns="system", values=column).reindex(index=list(rows), columns=list(systems))
        for column in ("value", "place", "in_best_group", "in_domain")
    )
    cells = values.map(lambda value: "" if pd.isna(value) else f"{value:.{_DECIMALS}f}")
    cells = cells.where(group.ne(True) | (places == 1), cells + _GROUP)
    cells += known.map(lambda state: _TRAINING.get(state, ""))
    of_metric = against[against["metric"] == metric].set_index("system").reindex(list(systems))
    if len(stated := of_metric[(of_metric["datasets"] > 1) & of_metric["mean"].notna()]):
        over = f"{stated['datasets'].iloc[0]} {'zero-shot ' if stated['over'].iloc[0] == ZERO_SHOT else ''}datasets"
        cells.loc[f"mean of {over}"] = ["" if pd.isna(mean) else f"{mean:.{_DECIMALS}f}" for mean in of_metric["mean"]]
        if baseline := next((name for name in stated["baseline"] if isinstance(name, str) and name), ""):
            changes = ["" if pd.isna(change) else f"{change:+.1%}" for change in of_metric["change"]]
            cells.loc[f"change against {baseline}"] = changes
    cells.index.name, cells.columns.name = written(metric), None
    places = places.where(places <= 2, 0).fillna(0).astype("int64").reindex(cells.index, fill_value=0)
    return Printed(cells, places)
