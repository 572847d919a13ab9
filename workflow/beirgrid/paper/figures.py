"""Figures of the paper's analyses. Each function draws one from the tables of the other modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from ..config.metric_names import written
from ..core import files
from ..page import drawing
from ..page.drawing import DrawnFigure
from .lengths import JUDGED, RETRIEVED
from .term_overlap import matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def depth_curves(depth: pd.DataFrame) -> DrawnFigure:
    """Draw the metric by the depth to which a first stage is reranked, a panel for each dataset."""
    systems = drawing.unique_names(depth["system"])

    def draw(axis: Axes, rows: pd.DataFrame) -> None:
        for system, of_system in rows.groupby("system", sort=False):
            place = systems.index(str(system))
            marker = drawing.MARKERS[place % len(drawing.MARKERS)]
            points = (of_system["depth"], of_system["value"])
            axis.plot(*points, marker=marker, markersize=3, color=f"C{place}", label=system)
        axis.set_xscale("symlog", linthresh=1)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:g}")

    metric = written(str(depth["metric"].iloc[0]))
    figure = drawing.panels(depth, draw, height=1.7, x="documents reranked", y=metric)
    caption = f"{metric} by the number of reranked documents. 0 is the first stage alone."
    return DrawnFigure(figure, "Rerank depth", caption, "depth.csv")


def retrieved_lengths(summary: pd.DataFrame, histogram: pd.DataFrame) -> DrawnFigure:
    """Draw the lengths of each system's top documents, a panel for each dataset (the paper's Figure 4)."""
    rows = summary[summary["kind"] == RETRIEVED]
    rows = rows.assign(line=rows["system"], colour="C0")
    figure = _violins(rows, histogram, drawing.unique_names(rows["line"]))
    caption = "Lengths in words of the top 10 documents of all queries, by system. The mark is the median."
    return DrawnFigure(figure, "Lengths of retrieved documents", caption, "lengths.csv")


def similarity_lengths(summary: pd.DataFrame, histogram: pd.DataFrame) -> DrawnFigure | None:
    """Draw the lengths for dense systems by similarity (the paper's Table 10), if a grid has both similarities.

    If a model has both, only the systems of such models are drawn: other models differ in more than the similarity.
    """
    rows = summary[(summary["kind"] == RETRIEVED) & summary["similarity"].isin(["cosine", "dot"])]
    if rows["similarity"].nunique() < 2:
        return None
    colours = rows["similarity"].map({"cosine": "C0", "dot": "C1"})
    rows = rows.assign(line=rows["system"] + " (" + rows["similarity"] + ")", colour=colours)
    of_both = rows[rows.groupby("model")["similarity"].transform("nunique") > 1]
    order, which = ["similarity"], "dense models, which differ in more than their similarity:"
    if len(of_both):
        rows, order, which = of_both, ["model", "similarity"], "models that the grid has with both similarities:"
    figure = _violins(rows, histogram, drawing.unique_names(rows.sort_values(order, kind="stable")["line"]))
    caption = (
        f"Lengths in words of the top 10 documents of {which} cosine (blue) and dot product (orange). The mark is the "
        "median."
    )
    return DrawnFigure(figure, "Cosine against dot product", caption, "lengths.csv")


def judged_lengths(summary: pd.DataFrame, histogram: pd.DataFrame) -> DrawnFigure:
    """Draw the lengths of judged documents by grade, a panel for each dataset (the paper's Figure 5)."""
    rows = summary[summary["kind"] == JUDGED]
    colours = np.where(rows["grade"] > 0, "C0", "0.6")
    rows = rows.assign(line="grade " + rows["grade"].astype(str), colour=colours)
    figure = _violins(rows, histogram, drawing.unique_names(rows.sort_values("grade")["line"]))
    caption = "Lengths in words of judged documents, by their grade. Above 0 is relevant. The mark is the median."
    return DrawnFigure(figure, "Lengths of judged documents", caption, "lengths.csv")


def _violins(summary: pd.DataFrame, histogram: pd.DataFrame, lines: Sequence[str]) -> Figure:
    """Draw distributions from their histograms: a panel for each dataset; ``summary`` has the columns line, colour."""
    summary = summary[summary["documents"] > 0]
    longest = summary["p95"].max() * 3
    ticks = [tick for tick in (0, 10, 100, 1000, 10_000, 100_000) if tick <= longest]

    def draw(axis: Axes, rows: pd.DataFrame) -> None:
        for _, row in rows.iterrows():
            same = (histogram["dataset"] == row["dataset"]) & (histogram["kind"] == row["kind"])
            of_row = "grade" if row["kind"] == JUDGED else "system"
            places, density = _density(histogram[same & (histogram[of_row] == row[of_row])])
            height = 0.42 * density / density.max()
            low, high = row["at"] - height, row["at"] + height
            axis.fill_between(places, low, high, color=row["colour"], alpha=0.75, linewidth=0)
            axis.plot(np.log10(1 + row["median"]), row["at"], "|", color=drawing.INK, markersize=7)
        axis.set_xticks(np.log10([1 + tick for tick in ticks]), [f"{tick:,}" for tick in ticks])
        axis.set_xlim(0, np.log10(1 + longest))

    return drawing.panels(summary, draw, lines=lines, x="words (logarithmic)")


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


def overlap_heatmap(overlap: pd.DataFrame) -> DrawnFigure:
    """Draw the similarity of each pair of datasets (the paper's Figure 2, left)."""
    values = matrix(overlap)
    side, most = min(drawing.WIDTH, 0.36 * len(values) + 2), float(overlap["similarity"].max())
    figure = drawing.new_figure(side, 0.85 * side)
    axis = figure.subplots()
    shades = np.ma.masked_invalid(values.to_numpy(np.float64))
    image = axis.imshow(shades, vmin=0, vmax=most, aspect="auto")
    for i, j in zip(*np.nonzero(~shades.mask), strict=True):
        colour = "white" if shades[i, j] < most / 2 else "black"
        axis.text(j, i, f"{shades[i, j]:.2f}", ha="center", va="center", fontsize=6, color=colour)
    axis.set_xticks(range(len(values)), values.columns, rotation=90)
    axis.set_yticks(range(len(values)), values.index)
    axis.grid(visible=False)
    figure.colorbar(image, shrink=0.6, label="weighted Jaccard similarity")
    caption = (
        "Weighted Jaccard similarity of the words of each pair of corpora, by their frequencies. A word is a "
        "sequence of letters and digits, in lower case."
    )
    return DrawnFigure(figure, "Overlap of vocabularies", caption, "overlap.csv")


def overlap_map(places: pd.DataFrame, domains: Mapping[str, str]) -> DrawnFigure:
    """Draw the datasets in the plane, similar vocabularies close together (the paper's Figure 2, right)."""
    figure = drawing.new_figure(drawing.WIDTH / 1.4, 4.2)
    axis = figure.subplots()
    known = places["dataset"].map(domains).fillna("").replace("", "no domain given")
    for place, (domain, rows) in enumerate(places.groupby(known, sort=False)):
        marker = drawing.MARKERS[place % len(drawing.MARKERS)]
        axis.plot(rows["x"], rows["y"], marker, color=f"C{place}", label=domain)
    axis.set_axis_off()
    axis.margins(0.15)
    figure.legend(loc="outside upper center", ncols=4)
    drawing.write_names(axis, places[["dataset", "x", "y"]])
    caption = (
        "Datasets whose corpora share more words are closer: classical multidimensional scaling. Only distances mean "
        "something."
    )
    return DrawnFigure(figure, "Map of vocabularies", caption, "map.csv")


def wins(against: pd.DataFrame, metric: str) -> DrawnFigure:
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
    return DrawnFigure(
        figure, f"Wins against {baseline}", f"{text} ({over}, {count} datasets).", "against_baseline.csv"
    )


def write(drawn: Mapping[str, DrawnFigure], folder: Path) -> None:
    """Write figures as SVG, PDF and PNG, and ``captions.json``, by name the text below each: title, caption and table.

    The folder is replaced, so it has no figure of an earlier grid.
    """
    captions = {name: f"{figure.title}. {figure.caption} Numbers: {figure.table}." for name, figure in drawn.items()}
    with drawing.style(), files.atomic(folder, directory=True) as temporary:
        for name, (figure, *_) in drawn.items():
            for suffix in drawing.FORMATS:
                (temporary / f"{name}.{suffix}").write_bytes(drawing.content(figure, suffix))
        files.write_json(temporary / "captions.json", captions)
