"""Figures of a report. Each function draws one from the tables of a grid."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..config.metric_names import written
from ..results.efficiency import on_front
from . import drawing
from .drawing import DrawnFigure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Most points of a curve over the queries of a dataset.
_DRAWN_QUERIES = 500


def by_query(differences: Mapping[str, np.ndarray], system: str, other: str, metric: str) -> DrawnFigure:
    """Draw the difference of two systems for each query in descending order, a panel for each dataset.

    Args:
        differences: for each dataset, the values of ``system`` minus those of ``other``, float64 [queries].
    """
    measure = written(metric)
    rows = [pd.DataFrame({"dataset": name, "difference": values}) for name, values in differences.items()]
    figure = drawing.panels(
        pd.concat(rows),
        _draw_differences,
        height=1.5,
        sharex=False,
        x="queries, ordered by their difference",
        y=f"difference of {measure}",
    )
    text = f"{measure} of {system} minus {measure} of {other} for each query: blue above zero, orange below."
    return DrawnFigure(figure, f"{system} and {other}, query by query", text, "the files per query")


def _draw_differences(axis: Axes, rows: pd.DataFrame) -> None:
    ordered = np.sort(rows["difference"].to_numpy(np.float64))[::-1]
    above, below = int((ordered > 0).sum()), int((ordered < 0).sum())
    axis.set_title(f"{axis.get_title()}\n{above} higher, {len(ordered) - above - below} equal, {below} lower")
    at = np.linspace(0, len(ordered) - 1, min(_DRAWN_QUERIES, len(ordered))).round().astype(int)
    axis.fill_between(at, ordered[at].clip(min=0), step="mid", color="C0")
    axis.fill_between(at, ordered[at].clip(max=0), step="mid", color="C1")
    axis.grid(visible=False, axis="x")


def trade_off(points: pd.DataFrame, cost: str, label: str, metric: str) -> DrawnFigure:
    """Draw the mean of a metric against a cost on a logarithmic axis, and join the Pareto front.

    Args:
        points: a row per system with ``system``, ``mean`` and the column ``cost``.
        label: what the cost is, with its unit.
    """
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    points = points[(points[cost] > 0) & points["mean"].notna()].sort_values(cost)
    front = on_front(points[cost], points["mean"])
    figure = drawing.new_figure(drawing.WIDTH / 1.4, 3.4)
    axis = figure.subplots()
    axis.plot(points.loc[front, cost], points.loc[front, "mean"], "o-", label="Pareto front")
    axis.plot(points.loc[~front, cost], points.loc[~front, "mean"], "s", color="0.55", label="others")
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(EngFormatter(sep=""))
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.margins(x=0.15, y=0.1)
    axis.set_xlabel(label)
    axis.set_ylabel(f"mean {written(metric)}")
    figure.legend(loc="outside upper right", ncols=2)
    drawing.write_names(axis, points[["system", cost, "mean"]])
    caption = (
        f"Mean {written(metric)} against {label}. No system is both better and cheaper than a system on the front."
    )
    return DrawnFigure(figure, f"Effectiveness against {label.partition(',')[0]}", caption, "trade_offs.csv")
