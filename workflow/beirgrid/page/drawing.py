"""Draw the figures of a report. Those of the paper's analyses have the same style, files and panels."""

from __future__ import annotations

import io
import math
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ..measures import written

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS = ("svg", "pdf", "png")
# Colours of texts and axes, and of lines behind the data. An SVG has them in the reader's colour scheme.
INK = "#17191c"
LINE = "#c9cdd3"
_THEME = (
    f"<style>svg {{ color: {INK}; --line: {LINE} }}"
    " @media (prefers-color-scheme: dark) { svg { color: #eceef1; --line: #3a3f47 } }</style>"
)
_STYLE: dict[str, Any] = {
    "figure.dpi": 150,
    "font.family": "sans-serif",
    "font.size": 8,
    "axes.titlesize": 8,
    "figure.labelsize": 8,
    "figure.constrained_layout.w_pad": 0.08,  # inches; a name is up to 3 % wider in one format than in another
    "axes.titleweight": "bold",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": LINE,
    **dict.fromkeys(("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), INK),
    **dict.fromkeys((f"boxplot.{part}props.color" for part in ("box", "whisker", "cap", "median")), INK),
    "legend.frameon": False,
    "legend.fontsize": 7,
    "text.parse_math": False,  # a $ in a name is a $
    "image.cmap": "cividis",
    "svg.fonttype": "none",  # letters stay letters: they can be searched and read aloud
    "svg.hashsalt": "beirgrid",  # the same figure has the same bytes
}
# Dates would make each run's files differ.
_METADATA: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}, "png": {}}
# How far a name moves up where it would cover another, in points.
_STEP = 3
_COLUMNS = 3
WIDTH = 7.2
# Most points of a curve over the queries of a dataset.
_DRAWN_QUERIES = 500


class DrawnFigure(NamedTuple):
    """A figure with its caption, the name of the table with its numbers, and its own name as a file, if it has one."""

    figure: Figure
    title: str
    caption: str
    table: str
    name: str = ""


def style() -> AbstractContextManager[None]:
    """Apply one style to the figures made in the block, with colours for colour-blind readers."""
    from matplotlib import style as styles

    return styles.context(["petroff10", _STYLE])


def content(figure: Figure, suffix: str) -> bytes:
    """Return a figure as a file of one of ``FORMATS``. An SVG follows the reader's colour scheme, light or dark."""
    file = io.BytesIO()
    figure.savefig(file, format=suffix, metadata=_METADATA[suffix], transparent=suffix == "svg")
    figure.set_layout_engine(None)  # nothing moves in the other formats
    if suffix != "svg":
        return file.getvalue()
    text = file.getvalue().decode().replace(INK, "currentColor").replace(LINE, "var(--line)")
    return re.sub("<svg [^>]*>", lambda start: start[0] + _THEME, text, count=1).encode()


def new_figure(width: float, height: float) -> Figure:
    """Create an empty figure; width and height are in inches."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def panels(
    table: pd.DataFrame,
    draw: Callable[[Axes, pd.DataFrame], None],
    *,
    lines: Sequence[str] = (),
    height: float = 0.0,
    sharex: bool = True,
    x: str = "",
    y: str = "",
) -> Figure:
    """Return a figure with a panel for each dataset, drawn by ``draw`` from the rows of the dataset.

    Panels of a row share their y-axis, with ``sharex`` those of a column their x-axis. One legend has all labels.

    Args:
        lines: names at the y-axis, the first on top. The column ``line`` of the table has that of a row; ``draw`` gets
            its place on the axis in the column ``at``.
        height: of a panel, in inches; by default, as the lines need.
    """
    names = unique_names(table["dataset"])
    rows = math.ceil(len(names) / _COLUMNS)
    columns = math.ceil(len(names) / rows)
    height = height or 0.2 * len(lines) + 0.5
    figure = new_figure(WIDTH if columns > 1 else WIDTH / 1.6, rows * height + 0.4)
    axes = figure.subplots(rows, columns, sharex=sharex, sharey=True, squeeze=False).ravel()
    if lines:
        table = table.assign(at=[len(lines) - 1 - list(lines).index(line) for line in table["line"]])
    for axis, name in zip(axes, names, strict=False):
        axis.set_title(name)
        if lines:
            axis.set_yticks(range(len(lines)), lines[::-1])
            axis.set_ylim(-0.6, len(lines) - 0.4)
            axis.grid(visible=False, axis="y")
        draw(axis, table[table["dataset"] == name])
    for place, unused in enumerate(axes[len(names) :], len(names)):
        axes[place - columns].tick_params(labelbottom=True)  # it is the last of its column now
        unused.remove()
    figure.supxlabel(x)
    figure.supylabel(y)
    handles = [axis.get_legend_handles_labels() for axis in figure.axes]
    if entries := {label: handle for pair in handles for handle, label in zip(*pair, strict=True)}:
        figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=min(4, len(entries)))
    return figure


def unique_names(column: pd.Series) -> list[str]:
    """Return the different values of a column as texts, in their first order."""
    return list(dict.fromkeys(column.astype(str)))


def write_names(axis: Axes, points: pd.DataFrame) -> None:
    """Write the names of points (columns name, x, y) beside them, inside the axis, above all that they would cover."""
    from matplotlib.transforms import Bbox

    figure = axis.get_figure(root=True)
    assert figure is not None
    figure.draw_without_rendering()  # fixes the positions of points
    reach = _STEP * figure.dpi / 72  # of a marker, in pixels
    boxes = [Bbox([place, place]).padded(reach) for place in axis.transData.transform(points.iloc[:, 1:])]
    for name, x, y in points.itertuples(index=False):
        note = axis.annotate(name, (x, y), xytext=(4, 3), textcoords="offset points", fontsize=7)
        note.set_in_layout(False)  # a name on the right would make the axis smaller
        if note.get_window_extent().x1 > axis.bbox.x1:
            note.set(position=(-4, 3), horizontalalignment="right")
        while any(note.get_window_extent().overlaps(box) for box in boxes):
            right, up = note.get_position()
            note.set_position((right, up + _STEP))
        boxes.append(note.get_window_extent())


# Figures of a report --------------------------------------------------------------------------------------------------


def planned(rows: pd.DataFrame, metric: str) -> DrawnFigure:
    """Draw planned differences with intervals: a panel for each other system, or for a single dataset."""
    system = rows["system"].iloc[0]
    lines = rows.assign(dataset=f"{system} minus " + rows["other"], line=rows["dataset"].replace("", "average"))
    if rows["dataset"].nunique() == 1:  # a line for each other system
        lines = lines.rename(columns={"dataset": "line", "line": "dataset"})
    lines = lines.rename(columns={"difference": "value"})
    names = unique_names(lines["line"].sort_values(key=lambda name: name == "average", kind="stable"))
    figure = panels(lines, _draw_intervals, lines=names, x=f"difference of {written(metric)}")
    for axis in figure.axes:
        axis.axvline(0, color=INK, linewidth=0.8)
    text = (
        f"{written(metric)} of {system} minus that of each other system, with intervals that all hold together (95 %)."
    )
    return DrawnFigure(figure, "Planned differences", text, "pairs.csv", "planned")


def means(rows: pd.DataFrame, metric: str, where: str) -> DrawnFigure:
    """Draw the scores of systems, the columns system, value, low and high in the order of tables, on one axis."""
    rows = rows.assign(dataset=where, line=rows["system"])
    figure = panels(rows, _draw_intervals, lines=unique_names(rows["line"]), x=written(metric))
    text = f"{written(metric)} on {where}, with 95 % intervals."
    return DrawnFigure(figure, "Scores", text, "scores.csv", "scores")


def _draw_intervals(axis: Axes, rows: pd.DataFrame) -> None:
    """Draw points, and the intervals that are known."""
    reach = [rows["value"] - rows["low"], rows["high"] - rows["value"]]
    axis.errorbar(rows["value"], rows["at"], xerr=np.nan_to_num(reach), fmt="o", color="C0", markersize=4)


def by_query(differences: Mapping[str, np.ndarray], system: str, other: str, metric: str) -> DrawnFigure:
    """Draw the difference of ``system`` to ``other`` for each query, in descending order, a panel for each dataset.

    ``differences`` has float64 [queries] of each dataset.
    """
    measure = written(metric)
    rows = pd.concat([pd.DataFrame({"dataset": name, "difference": values}) for name, values in differences.items()])
    axes = {"x": "queries, ordered by their difference", "y": f"difference of {measure}"}
    figure = panels(rows, _draw_differences, height=1.5, sharex=False, **axes)
    text = f"{measure} of {system} minus {measure} of {other} for each query: blue above zero, orange below."
    return DrawnFigure(figure, f"{system} and {other}, query by query", text, "the files per query", "by_query")


def _draw_differences(axis: Axes, rows: pd.DataFrame) -> None:
    ordered = np.sort(rows["difference"].to_numpy(np.float64))[::-1]
    above = int((ordered > 0).sum())
    below = int((ordered < 0).sum())
    axis.set_title(f"{axis.get_title()}\n{above} higher, {len(ordered) - above - below} equal, {below} lower")
    at = np.linspace(0, len(ordered) - 1, min(_DRAWN_QUERIES, len(ordered))).round().astype(int)
    axis.fill_between(at, ordered[at].clip(min=0), step="mid", color="C0")
    axis.fill_between(at, ordered[at].clip(max=0), step="mid", color="C1")
    axis.grid(visible=False, axis="x")


def trade_off(points: pd.DataFrame, cost: str, label: str, metric: str) -> DrawnFigure:
    """Draw the mean of a metric of each system (a row) against a column of costs, and join the Pareto front."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    points = points[(points[cost] >= 0) & points["mean"].notna()].sort_values(cost)
    free = points[cost] == 0
    # A logarithmic axis has no zero: what costs nothing stands at its left end.
    points = points.assign(at=points[cost].mask(free, points.loc[~free, cost].min() / 4))
    front = points[f"{cost}_front"].astype(bool)
    figure = new_figure(WIDTH / 1.4, 3.4)
    axis = figure.subplots()
    axis.plot(points.loc[front, "at"], points.loc[front, "mean"], "o-", label="Pareto front")
    axis.plot(points.loc[~front, "at"], points.loc[~front, "mean"], "s", color="0.55", label="others")
    if free.any():
        axis.plot(points.loc[free, "at"], points.loc[free, "mean"], "<", color="C2", label="costs nothing")
    axis.set_xscale("log")
    axis.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axis.xaxis.set_major_formatter(EngFormatter(unit="B") if cost == "index_bytes" else "{x:g}")
    axis.xaxis.set_minor_formatter(NullFormatter())
    axis.margins(x=0.15, y=0.1)
    axis.set_xlabel(label)
    axis.set_ylabel(f"mean {written(metric)}")
    figure.legend(loc="outside upper right", ncols=3)
    write_names(axis, points[["system", "at", "mean"]])
    caption = f"Mean {written(metric)} against {label}. A system on the front is the best of those that cost no more."
    if cost == "latency_ms":
        caption += " One is faster than another if its 95th percentile is below the other's median."
    return DrawnFigure(figure, f"Effectiveness against {label.rpartition(',')[0]}", caption, "trade_offs.csv", cost)
