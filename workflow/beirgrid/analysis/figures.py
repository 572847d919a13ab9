"""Figures of a grid. Each function draws one figure from the tables of the other modules."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..config.metric_names import written
from . import drawing
from .efficiency import on_front
from .lengths import JUDGED, RETRIEVED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Most points of a curve over the queries of a dataset.
_DRAWN_QUERIES = 500
# Scores ---------------------------------------------------------------------------------------------------------------


def forest(scores: pd.DataFrame, metric: str) -> drawing.DrawnFigure:
    """Draw scores with their intervals, a panel for each dataset and a line for each system.

    Args:
        scores: columns ``dataset``, ``system``, ``value``, ``low`` and ``high``; without an end, there is no interval.
    """
    figure, _ = drawing.panels_by_system(scores, _draw_interval, sharex=False)
    figure.supxlabel(written(metric))
    text = f"{written(metric)} of each system with its 95 % interval. The line is the highest value."
    return drawing.DrawnFigure(figure, "Scores with intervals", text, "scores.csv, across.csv")


def _draw_interval(axis: Axes, rows: pd.DataFrame, at: np.ndarray) -> None:
    axis.axvline(rows["value"].max(), color=drawing.LINE)
    axis.hlines(at, rows["low"], rows["high"], color="C0")
    axis.plot(rows["value"], at, "o", color="C0", markersize=4)
    axis.grid(visible=False)


def heat_map(values: pd.DataFrame, metric: str, *, lower_is_better: bool = False) -> drawing.DrawnFigure:
    """Draw float64 systems × datasets; the shade of a cell is its place between worst and best of its column."""
    worst, best = (values.max(), values.min()) if lower_is_better else (values.min(), values.max())
    shares = (values - worst) / (best - worst).replace(0, np.nan)
    figure = drawing.new_figure(0.4 * len(values.columns) + 2, 0.22 * len(values) + 1.5)
    axis = figure.subplots()
    axis.imshow(np.ma.masked_invalid(shares.to_numpy(np.float64)), vmin=0, vmax=1, aspect="auto")
    drawing.write_values(axis, values.to_numpy(np.float64), shares.fillna(0).to_numpy() < 0.5)
    axis.set_xticks(range(len(values.columns)), values.columns, rotation=90)
    axis.set_yticks(range(len(values)), values.index)
    axis.grid(visible=False)
    text = f"{written(metric)} of each system on each dataset. The brightest cell of a column has its best value."
    return drawing.DrawnFigure(figure, "Systems and datasets", text, "scores.csv")


def by_query(differences: Mapping[str, np.ndarray], system: str, other: str, metric: str) -> drawing.DrawnFigure:
    """Draw the difference of two systems for each query in descending order, a panel for each dataset.

    Args:
        differences: for each dataset, the values of ``system`` minus those of ``other``, float64 [queries].
    """
    figure, panels = drawing.make_panels(list(differences), 1.5, sharex=False)
    for dataset, axis in panels.items():
        ordered = np.sort(differences[dataset])[::-1]
        above, below = int((ordered > 0).sum()), int((ordered < 0).sum())
        axis.set_title(f"{dataset}\n{above} higher, {len(ordered) - above - below} equal, {below} lower")
        at = np.linspace(0, len(ordered) - 1, min(_DRAWN_QUERIES, len(ordered))).round().astype(int)
        ordered = ordered[at]
        axis.fill_between(at, ordered.clip(min=0), step="mid", color="C0")
        axis.fill_between(at, ordered.clip(max=0), step="mid", color="C1")
        axis.grid(visible=False, axis="x")
    figure.supxlabel("queries, ordered by their difference")
    measure = written(metric)
    figure.supylabel(f"difference of {measure}")
    text = f"{measure} of {system} minus {measure} of {other} for each query: blue above zero, orange below."
    return drawing.DrawnFigure(figure, f"{system} and {other}, query by query", text, "the files per query")


# Who wins -------------------------------------------------------------------------------------------------------------


def wins(against: pd.DataFrame, metric: str) -> drawing.DrawnFigure:
    """Draw on how many datasets each system is above and below the baseline (the paper's Figure 3)."""
    from matplotlib.ticker import MaxNLocator

    rows = against[(against["metric"] == metric) & against["wins"].notna() & (against["system"] != against["baseline"])]
    rows = rows.sort_values(["wins", "mean"])
    figure = drawing.new_figure(drawing.WIDTH / 1.6, 0.22 * len(rows) + 0.9)
    axis = figure.subplots()
    better, worse = rows["wins"].astype(float), rows["losses"].astype(float)
    above = axis.barh(rows["system"], better, label="better")
    below = axis.barh(rows["system"], -worse, label="worse", hatch="///", edgecolor="white")
    for bars, counts in ((above, better), (below, worse)):
        axis.bar_label(bars, [f"{count:.0f}" if count else "" for count in counts], padding=2)
    axis.axvline(0, color="0.3", linewidth=0.8)
    axis.margins(x=0.12)
    axis.xaxis.set_major_locator(MaxNLocator(integer=True))
    axis.xaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    axis.set_xlabel(f"datasets on which {written(metric)} is better or worse")
    axis.grid(visible=False, axis="y")
    figure.legend(loc="outside upper right", ncols=2)
    baseline, count, over = rows[["baseline", "datasets", "over"]].iloc[0]
    text = (
        f"Number of datasets on which the mean {written(metric)} of a system is above or below the mean of {baseline}"
    )
    return drawing.DrawnFigure(
        figure, f"Wins against {baseline}", f"{text} ({over}, {count} datasets).", "against_baseline.csv"
    )


def trade_off(points: pd.DataFrame, cost: str, label: str, metric: str) -> drawing.DrawnFigure:
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
    return drawing.DrawnFigure(figure, f"Effectiveness against {label.partition(',')[0]}", caption, "trade_offs.csv")


# Runs -----------------------------------------------------------------------------------------------------------------


def depth_curves(depth: pd.DataFrame) -> drawing.DrawnFigure:
    """Draw the metric by the depth to which a first stage is reranked, a panel for each dataset."""
    datasets, systems = drawing.unique_names(depth["dataset"]), drawing.unique_names(depth["system"])
    figure, panels = drawing.make_panels(datasets, 1.7)
    for dataset, axis in panels.items():
        for place, system in enumerate(systems):
            rows = depth[(depth["dataset"] == dataset) & (depth["system"] == system)]
            if len(rows):
                marker = drawing.MARKERS[place % len(drawing.MARKERS)]
                axis.plot(rows["depth"], rows["value"], marker=marker, markersize=3, color=f"C{place}", label=system)
        axis.set_xscale("symlog", linthresh=1)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    metric = written(str(depth["metric"].iloc[0]))
    figure.supxlabel("documents reranked")
    figure.supylabel(metric)
    drawing.add_legend(figure, panels)
    caption = f"{metric} by the number of reranked documents. 0 is the first stage alone."
    return drawing.DrawnFigure(figure, "Rerank depth", caption, "depth.csv")


def hole_rates(holes: pd.DataFrame) -> drawing.DrawnFigure:
    """Draw both shares of unjudged documents, a panel for each dataset."""
    k = int(holes["k"].iloc[0])
    figure, panels = drawing.panels_by_system(holes, lambda axis, rows, at: _draw_holes(axis, rows, at, k))
    figure.supxlabel(f"share of the top {k} that is not judged")
    drawing.add_legend(figure, panels)
    caption = (
        f"Share of the top {k} documents that is not judged for the query, and share that is not judged for any "
        "query of the dataset, as in Table 4 of the BEIR paper."
    )
    return drawing.DrawnFigure(figure, "Holes", caption, "holes.csv")


def _draw_holes(axis: Axes, rows: pd.DataFrame, at: np.ndarray, k: int) -> None:
    axis.barh(at + 0.2, rows["hole"], 0.38, color="C0", label=f"hole@{k}: for the query")
    axis.barh(at - 0.2, rows["hole_corpus"], 0.38, color="C1", label=f"hole_corpus@{k}: for no query")


def judged_only(holes: pd.DataFrame) -> drawing.DrawnFigure:
    """Draw nDCG of all documents and of judged documents only, a panel for each dataset."""
    k = int(holes["k"].iloc[0])
    figure, panels = drawing.panels_by_system(holes, _draw_judged)
    figure.supxlabel(f"nDCG@{k}")
    drawing.add_legend(figure, panels)
    caption = (
        f"nDCG@{k} of all retrieved documents, of which those not judged count as irrelevant, and of the judged "
        "documents only."
    )
    return drawing.DrawnFigure(figure, "nDCG of judged documents", caption, "holes.csv")


def _draw_judged(axis: Axes, rows: pd.DataFrame, at: np.ndarray) -> None:
    axis.hlines(at, rows["ndcg"], rows["ndcg_judged"], color="0.6")
    axis.plot(rows["ndcg"], at, "o", color="C0", markersize=4, label="all documents")
    axis.plot(rows["ndcg_judged"], at, "D", color="C1", markersize=4, label="judged documents alone")


# Lengths --------------------------------------------------------------------------------------------------------------


def retrieved_lengths(summary: pd.DataFrame, histogram: pd.DataFrame) -> drawing.DrawnFigure:
    """Draw the lengths of each system's top documents, a panel for each dataset (the paper's Figure 4)."""
    rows = summary[summary["kind"] == RETRIEVED].assign(label=summary["system"])
    figure = _violins(rows, histogram, drawing.unique_names(rows["label"]), lambda row: "C0")
    caption = "Lengths in words of the top 10 documents of all queries, by system. The mark is the median."
    return drawing.DrawnFigure(figure, "Lengths of retrieved documents", caption, "lengths.csv")


def similarity_lengths(summary: pd.DataFrame, histogram: pd.DataFrame) -> drawing.DrawnFigure | None:
    """Draw the lengths for dense systems by similarity (the paper's Table 10), if a grid has both similarities.

    If a model has both, only the systems of such models are drawn: other models differ in more than the similarity.
    """
    rows = summary[(summary["kind"] == RETRIEVED) & summary["similarity"].isin(["cosine", "dot"])]
    if rows["similarity"].nunique() < 2:
        return None
    rows = rows.assign(label=rows["system"] + " (" + rows["similarity"] + ")")
    of_both = rows[rows.groupby("model")["similarity"].transform("nunique") > 1]
    order, which = ["similarity"], "dense models, which differ in more than their similarity:"
    if len(of_both):
        rows, order, which = of_both, ["model", "similarity"], "models that the grid has with both similarities:"
    labels = drawing.unique_names(rows.sort_values(order, kind="stable")["label"])
    figure = _violins(rows, histogram, labels, lambda row: "C0" if row["similarity"] == "cosine" else "C1")
    caption = (
        f"Lengths in words of the top 10 documents of {which} cosine (blue) and dot product (orange). The mark is the "
        "median."
    )
    return drawing.DrawnFigure(figure, "Cosine against dot product", caption, "lengths.csv")


def judged_lengths(summary: pd.DataFrame, histogram: pd.DataFrame) -> drawing.DrawnFigure:
    """Draw the lengths of judged documents by grade, a panel for each dataset (the paper's Figure 5)."""
    rows = summary[summary["kind"] == JUDGED]
    rows = rows.assign(label="grade " + rows["grade"].astype(str))
    labels = drawing.unique_names(rows.sort_values("grade")["label"])
    figure = _violins(rows, histogram, labels, lambda row: "C0" if row["grade"] > 0 else "0.6")
    caption = "Lengths in words of judged documents, by their grade. Above 0 is relevant. The mark is the median."
    return drawing.DrawnFigure(figure, "Lengths of judged documents", caption, "lengths.csv")


def _violins(
    summary: pd.DataFrame, histogram: pd.DataFrame, labels: Sequence[str], colour: Callable[[pd.Series], str]
) -> Figure:
    """Draw distributions from their histograms: a panel for each dataset, a line for each label."""
    summary = summary[summary["documents"] > 0]
    figure, panels = drawing.make_panels(drawing.unique_names(summary["dataset"]), 0.22 * len(labels) + 0.5)
    for dataset, axis in panels.items():
        for _, row in summary[summary["dataset"] == dataset].iterrows():
            at = len(labels) - 1 - labels.index(row["label"])
            same = (histogram["dataset"] == dataset) & (histogram["kind"] == row["kind"])
            of_row = "grade" if row["kind"] == JUDGED else "system"
            places, density = _density(histogram[same & (histogram[of_row] == row[of_row])])
            height = 0.42 * density / density.max()
            axis.fill_between(places, at - height, at + height, color=colour(row), alpha=0.75, linewidth=0)
            axis.plot(np.log10(1 + row["median"]), at, "|", color=drawing.INK, markersize=7)
        axis.set_yticks(range(len(labels)), labels[::-1])
        ticks = [0, 10, 100, 1000, 10_000, 100_000]
        longest = summary["p95"].max() * 3
        axis.set_xticks(np.log10([1 + t for t in ticks if t <= longest]), [f"{t:,}" for t in ticks if t <= longest])
        axis.set_xlim(0, np.log10(1 + longest))
        axis.grid(visible=False, axis="y")
    figure.supxlabel("words (logarithmic)")
    return figure


def _density(bins: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Return the outline of a histogram over log10(1 + words): bin centres and densities.

    The density is 0 outside the bins and in the gaps between them.
    """
    bins = bins.sort_values("low")
    low, high = (np.log10(1 + bins[end].to_numpy(np.float64)) for end in ("low", "high"))
    density = bins["documents"].to_numpy(np.float64) / (high - low)
    gaps = np.flatnonzero(low[1:] > high[:-1])
    ends = np.concatenate([low[:1], high[gaps], low[gaps + 1], high[-1:]])
    places = np.concatenate([(low + high) / 2, ends])
    order = np.argsort(places)
    return places[order], np.concatenate([density, np.zeros(len(ends))])[order]


# Vocabularies ---------------------------------------------------------------------------------------------------------


def overlap_heatmap(overlap: pd.DataFrame) -> drawing.DrawnFigure:
    """Draw the similarity of each pair of datasets (the paper's Figure 2, left)."""
    datasets = drawing.unique_names(pd.concat([overlap["dataset"], overlap["other"]]))
    values = np.ones((len(datasets), len(datasets)))
    for dataset, other, similarity in overlap[["dataset", "other", "similarity"]].itertuples(index=False):
        i, j = datasets.index(dataset), datasets.index(other)
        values[i, j] = values[j, i] = similarity
    side = min(drawing.WIDTH, 0.36 * len(datasets) + 2)
    figure = drawing.new_figure(side, 0.85 * side)
    axis = figure.subplots()
    shown = np.ma.masked_where(np.eye(len(datasets), dtype=bool), values)
    image = axis.imshow(shown, vmin=0, vmax=float(shown.max()))
    drawing.write_values(axis, shown.filled(np.nan), values < shown.max() / 2)
    axis.set_xticks(range(len(datasets)), datasets, rotation=90)
    axis.set_yticks(range(len(datasets)), datasets)
    axis.grid(visible=False)
    figure.colorbar(image, shrink=0.6, label="weighted Jaccard similarity")
    caption = (
        "Weighted Jaccard similarity of the words of each pair of corpora, by their frequencies. A word is a "
        "sequence of letters and digits, in lower case."
    )
    return drawing.DrawnFigure(figure, "Overlap of vocabularies", caption, "overlap.csv")


def overlap_map(places: pd.DataFrame, domains: Mapping[str, str]) -> drawing.DrawnFigure:
    """Draw the datasets in the plane, similar vocabularies close together (the paper's Figure 2, right)."""
    figure = drawing.new_figure(drawing.WIDTH / 1.4, 4.2)
    axis = figure.subplots()
    known = places["dataset"].map(domains).fillna("").replace("", "no domain given")
    for place, domain in enumerate(drawing.unique_names(known)):
        rows = places[known == domain]
        axis.plot(rows["x"], rows["y"], drawing.MARKERS[place % len(drawing.MARKERS)], color=f"C{place}", label=domain)
    axis.set_axis_off()
    axis.margins(0.15)
    figure.legend(loc="outside upper center", ncols=4)
    drawing.write_names(axis, places[["dataset", "x", "y"]])
    caption = (
        "Datasets whose corpora share more words are closer: a force-directed layout by networkx. Only distances "
        "mean something."
    )
    return drawing.DrawnFigure(figure, "Map of vocabularies", caption, "map.csv")
