"""Figures of the paper's analyses. Each function draws one from the tables of the other modules."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..core import files
from ..measures import lower_is_better, written
from ..page import drawing
from ..page.drawing import DrawnFigure
from ..results.answers import Answers, main_comparison
from ..results.comparisons import ROUNDING
from ..results.summary import GridSummary
from .words import GROUP, JUDGED, RETRIEVED, matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

# What a distribution of lengths shows, and how far each length is spread, in powers of e: a tenth of a power of ten.
_VIOLINS = (
    "The height of a shape is the share of documents of that length, smoothed over a tenth of a power of ten. The "
    "thick line ends at the quartiles, and the dot is the median."
)
_SPREAD = math.log(10) / 10
# The tables of lengths.
_LENGTHS = "lengths.csv and length_histogram.csv"
_MARKERS = "osD^vP*X<>"


def draw(grid: GridSummary, answers: Answers, tables: Mapping[str, pd.DataFrame]) -> dict[str, DrawnFigure]:
    """Draw the figures for which a grid has data, by name."""
    lengths = tables["lengths"][tables["lengths"]["dataset"].isin(list(grid.rows))]
    histogram = tables["length_histogram"]
    overlap = tables["overlap"]
    metric = grid.metrics[0]
    drawn: dict[str, DrawnFigure] = {}
    with drawing.style():
        scores = answers.scores[answers.scores["dataset"].isin(list(grid.rows)) & answers.scores["value"].notna()]
        if len(scores := scores[(scores["metric"] == metric) & scores["system"].isin(list(grid.systems))]):
            drawn["effectiveness"] = effectiveness(scores, grid)
        if len(differences := against(scores, answers.across, grid)) > 1:
            drawn["wins"] = wins(differences, grid)
        if (lengths["kind"] == RETRIEVED).any():
            drawn["lengths_retrieved"] = retrieved_lengths(lengths, histogram)
        if lengths.loc[lengths["similarity"] != "", "similarity"].nunique() > 1:
            drawn["lengths_similarity"] = similarity_lengths(lengths, histogram)
        if (lengths["kind"] == JUDGED).any():
            drawn["lengths_judged"] = judged_lengths(lengths, histogram)
        if len(overlap):
            drawn["overlap"] = overlap_heatmap(overlap)
        if len(tables["map"]) > 2:
            domains = {name: dataset.domain for name, dataset in grid.datasets.items()}
            drawn["overlap_map"] = overlap_map(tables["map"], domains)
    return drawn


# Effectiveness --------------------------------------------------------------------------------------------------------


def effectiveness(scores: pd.DataFrame, grid: GridSummary) -> DrawnFigure:
    """Draw the score of each system on each dataset (rows) with its interval, a panel for each dataset."""
    metric = written(grid.metrics[0])

    def draw(axis: Axes, rows: pd.DataFrame) -> None:
        ends = [rows["value"] - rows["low"], rows["high"] - rows["value"]]
        axis.errorbar(rows["value"], rows["at"], xerr=ends, fmt="o", markersize=3.5, capsize=2, color="C0")
        for value in rows.loc[rows["system"] == grid.baseline, "value"]:
            axis.axvline(value, color="0.5", linestyle="--", linewidth=0.8, zorder=1)

    lines = [name for name in grid.systems if name in set(scores["system"])]
    order = {name: place for place, name in enumerate(grid.rows)}
    rows = scores.assign(line=scores["system"]).sort_values("dataset", key=lambda names: names.map(order))
    figure = drawing.panels(rows, draw, lines=lines, x=metric)
    caption = f"{metric} of each system, with the 95 % interval of its mean over the queries."
    if grid.baseline in lines:
        caption += f" The dashed line is at {grid.baseline}."
    return DrawnFigure(figure, "Effectiveness", caption, "scores.csv")


def against(scores: pd.DataFrame, across: pd.DataFrame, grid: GridSummary) -> pd.DataFrame:
    """Return each system's difference to the baseline: datasets × systems; positive is better.

    The datasets are those over which ``against_baseline.csv`` counts wins and losses.
    """
    counted = main_comparison(across[(across["metric"] == grid.metrics[0]) & across["mean"].notna()])
    names = {name for row in counted["names"] for name in row.split(", ")}
    values = scores.pivot(index="dataset", columns="system", values="value")
    values = values.reindex([row for row in grid.rows if row in names and row in values.index])
    if grid.baseline not in values:
        return pd.DataFrame()
    differences = values.sub(values[grid.baseline], axis=0) * (-1 if lower_is_better(grid.metrics[0]) else 1)
    return differences[[name for name in grid.systems if name in values and name != grid.baseline]]


def wins(differences: pd.DataFrame, grid: GridSummary) -> DrawnFigure:
    """Draw on how many datasets each system is better and worse than the baseline (the paper's Figure 3), and by how
    much on each of them.
    """
    from matplotlib.ticker import MaxNLocator

    size = differences.shape
    metric = written(grid.metrics[0])
    tall = max(0.2 * size[0], 1.2)
    figure = drawing.new_figure(max(4.0, 0.42 * size[1] + 2), tall + 2.6)
    counts, cells = figure.subplots(2, 1, sharex=True, height_ratios=[1.2, tall])
    better = (differences > ROUNDING).sum()
    worse = (differences < -ROUNDING).sum()
    for heights, label, colour in ((better, "better", "C0"), (-worse, "worse", "C1")):
        bars = counts.bar(range(size[1]), heights, label=label, color=colour)
        counts.bar_label(bars, [str(abs(height)) if height else "" for height in heights], padding=1)
    counts.axhline(0, color="0.5", linewidth=0.8)
    counts.margins(y=0.2)
    counts.grid(visible=False, axis="x")
    counts.yaxis.set_major_locator(MaxNLocator(integer=True))
    counts.yaxis.set_major_formatter(lambda value, _: f"{abs(value):g}")
    counts.set_ylabel("datasets")
    figure.legend(loc="outside upper right", ncols=2)
    most = float(np.nanmax(np.abs(differences.to_numpy()), initial=ROUNDING))
    image = _cells(cells, differences, "+.3f", cmap="PuOr", vmin=-most, vmax=most)
    figure.colorbar(image, ax=cells, label=f"difference of {metric}")
    caption = (
        f"Above: the number of datasets on which the mean {metric} of a system is better or worse than that of "
        f"{grid.baseline}. Below: by how much, on each of these datasets; positive is better."
    )
    return DrawnFigure(figure, f"Better and worse than {grid.baseline}", caption, "scores.csv and against_baseline.csv")


def _cells(axis: Axes, table: pd.DataFrame, form: str, **options: Any) -> AxesImage:
    """Draw a table as coloured cells with their numbers, and name its rows and columns."""
    shades = np.ma.masked_invalid(table.to_numpy(np.float64))
    image = axis.imshow(shades, aspect="auto", **options)
    for i, j in zip(*np.nonzero(~shades.mask), strict=True):
        red, green, blue, _ = image.to_rgba(shades[i, j])
        colour = "black" if 0.3 * red + 0.6 * green + 0.1 * blue > 0.5 else "white"
        axis.text(j, i, f"{shades[i, j]:{form}}", ha="center", va="center", fontsize=6, color=colour)
    axis.set_xticks(range(table.shape[1]), table.columns, rotation=90)
    axis.set_yticks(range(table.shape[0]), table.index)
    axis.grid(visible=False)
    return image


# Lengths --------------------------------------------------------------------------------------------------------------


def retrieved_lengths(lengths: pd.DataFrame, histogram: pd.DataFrame) -> DrawnFigure:
    """Draw the lengths of each system's top documents, a panel for each dataset (the paper's Figure 4)."""
    rows = lengths[lengths["kind"] == RETRIEVED]
    rows = rows.assign(line=rows["system"], colour="C0")
    figure = _violins(rows, histogram, drawing.unique_names(rows["line"]))
    caption = f"Lengths in words of the top 10 documents of all queries, by system. {_VIOLINS}"
    return DrawnFigure(figure, "Lengths of retrieved documents", caption, _LENGTHS)


def similarity_lengths(lengths: pd.DataFrame, histogram: pd.DataFrame) -> DrawnFigure:
    """Draw the lengths of dense systems' top documents by similarity (the paper's Table 10 and Appendix H)."""
    rows = lengths[lengths["similarity"].isin(["cosine", "dot"])]
    colours = rows["similarity"].map({"cosine": "C0", "dot": "C1"})
    rows = rows.assign(line=rows["system"] + " (" + rows["similarity"] + ")", colour=colours)
    figure = _violins(rows, histogram, drawing.unique_names(rows.sort_values("similarity", kind="stable")["line"]))
    caption = (
        "Lengths in words of the top 10 documents of dense systems that compare vectors by cosine (blue) or by dot "
        f"product (orange). Systems of different models differ in more than that. {_VIOLINS}"
    )
    return DrawnFigure(figure, "Cosine against dot product", caption, _LENGTHS)


def judged_lengths(lengths: pd.DataFrame, histogram: pd.DataFrame) -> DrawnFigure:
    """Draw the lengths of judged documents by grade, a panel for each dataset (the paper's Figure 5)."""
    rows = lengths[lengths["kind"] == JUDGED]
    colours = np.where(rows["grade"] > 0, "C0", "0.6")
    rows = rows.assign(line="grade " + rows["grade"].astype(str), colour=colours)
    figure = _violins(rows, histogram, drawing.unique_names(rows.sort_values("grade")["line"]))
    caption = f"Lengths in words of judged documents, by their grade. Above 0 is relevant. {_VIOLINS}"
    return DrawnFigure(figure, "Lengths of judged documents", caption, _LENGTHS)


def _violins(lengths: pd.DataFrame, histogram: pd.DataFrame, lines: Sequence[str]) -> Figure:
    """Draw a distribution for each row (columns line, colour), and a panel for each dataset."""
    lengths = lengths[lengths["documents"] > 0]
    bins = histogram.merge(lengths[[*GROUP, "line"]], on=GROUP)
    shapes = {key: _density(rows) for key, rows in bins.groupby(["dataset", "line"])}
    ends = np.array([(shape["min"], shape["max"]) for shape in shapes.values()])

    def draw(axis: Axes, rows: pd.DataFrame) -> None:
        stats: Any = [shapes[key] for key in zip(rows["dataset"], rows["line"], strict=True)]
        at = rows["at"].tolist()
        colours = rows["colour"].tolist()
        axis.violin(stats, at, widths=0.9, orientation="horizontal", showextrema=False, facecolor=colours)
        axis.hlines(at, rows["p25"], rows["p75"], color=drawing.INK, linewidth=2)
        axis.plot(rows["median"], at, "o", color="white", markeredgecolor=drawing.INK, markersize=4)
        axis.set_xscale("function", functions=(np.log1p, np.expm1))
        axis.set_xlim(ends[:, 0].min(), ends[:, 1].max())
        axis.set_xticks(_ticks(*axis.get_xlim()))
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")

    return drawing.panels(lengths, draw, lines=lines, x="length in words (logarithmic)")


def _density(bins: pd.DataFrame) -> dict[str, Any]:
    """Return the shape of a distribution as matplotlib's ``violin`` takes it, from bins of a histogram."""
    places = np.log1p((bins["low"] + bins["high"]).to_numpy(np.float64) / 2)
    at = np.linspace(max(places.min() - 3 * _SPREAD, 0), places.max() + 3 * _SPREAD, 300)
    kernels = np.exp(-(((at[:, None] - places) / _SPREAD) ** 2) / 2)
    heights = kernels @ bins["documents"].to_numpy(np.float64)
    words = np.expm1(at)
    middle = float(np.median(words))  # violin asks for it, and draws it only on demand
    return {"coords": words, "vals": heights, "min": words[0], "max": words[-1], "mean": middle, "median": middle}


def _ticks(low: float, high: float) -> list[float]:
    """Return the numbers to write at an axis: powers of ten, and where there are few, 2 and 5 times these."""
    steps = (1,) if high > 100 * (low + 1) else (1, 2, 5)
    numbers = [0.0, *(step * 10.0**power for power in range(8) for step in steps)]
    return [number for number in numbers if low <= number <= high]


# Vocabularies ---------------------------------------------------------------------------------------------------------


def overlap_heatmap(overlap: pd.DataFrame) -> DrawnFigure:
    """Draw the similarity of each pair of datasets (the paper's Figure 2, left)."""
    values = matrix(overlap)
    side = min(drawing.WIDTH, 0.36 * len(values) + 2)
    most = float(overlap["similarity"].max())
    figure = drawing.new_figure(side, 0.85 * side)
    axis = figure.subplots()
    image = _cells(axis, values, ".2f", vmin=0, vmax=most)
    figure.colorbar(image, shrink=0.6, label="weighted Jaccard similarity")
    caption = (
        "Weighted Jaccard similarity of the words of each pair of corpora, by their frequencies. A word is a "
        "sequence of letters and digits, in lower case."
    )
    return DrawnFigure(figure, "Overlap of vocabularies", caption, "overlap.csv")


def overlap_map(places: pd.DataFrame, domains: Mapping[str, str]) -> DrawnFigure:
    """Draw the datasets in the plane, similar vocabularies close together (the paper's Figure 2, right)."""
    figure = drawing.new_figure(drawing.WIDTH / 1.4, 4.6)
    axis = figure.subplots()
    known = places["dataset"].map(domains).fillna("").replace("", "no domain given")
    for place, (domain, rows) in enumerate(places.groupby(known, sort=False)):
        marker = _MARKERS[place % len(_MARKERS)]
        axis.plot(rows["x"], rows["y"], marker, color=f"C{place}", label=domain)
    axis.set_aspect("equal", adjustable="datalim")
    axis.margins(0.2)
    axis.set_xlabel("distance (1 − similarity)")
    axis.set_ylabel("distance (1 − similarity)")
    figure.legend(loc="outside upper center", ncols=3)
    drawing.write_names(axis, places[["dataset", "x", "y"]])
    caption = (
        "Datasets whose corpora share more words are closer: classical multidimensional scaling of 1 − similarity. "
        "Only distances mean something, and a plane shows them approximately."
    )
    return DrawnFigure(figure, "Map of vocabularies", caption, "map.csv")


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
