"""Figures of the paper's analyses. Each function draws one from the tables of the other modules."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ..core import files
from ..page import drawing
from ..page.drawing import DrawnFigure
from .words import JUDGED, RETRIEVED, matrix

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# What a box of lengths shows, and the quantiles at which it ends.
_BOXES = "A box ends at the quartiles, its line is the median, and 90 % of the documents lie between the whiskers."
_ENDS = {"p5": "whislo", "p25": "q1", "median": "med", "p75": "q3", "p95": "whishi"}


def retrieved_lengths(lengths: pd.DataFrame) -> DrawnFigure:
    """Draw the lengths of each system's top documents, a panel for each dataset (the paper's Figure 4)."""
    rows = lengths[lengths["kind"] == RETRIEVED]
    figure = _boxes(rows.assign(line=rows["system"], colour="C0"), drawing.unique_names(rows["system"]))
    caption = f"Lengths in words of the top 10 documents of all queries, by system. {_BOXES}"
    return DrawnFigure(figure, "Lengths of retrieved documents", caption, "lengths.csv")


def judged_lengths(lengths: pd.DataFrame) -> DrawnFigure:
    """Draw the lengths of judged documents by grade, a panel for each dataset (the paper's Figure 5)."""
    rows = lengths[lengths["kind"] == JUDGED]
    colours = np.where(rows["grade"] > 0, "C0", "0.6")
    rows = rows.assign(line="grade " + rows["grade"].astype(str), colour=colours)
    figure = _boxes(rows, drawing.unique_names(rows.sort_values("grade")["line"]))
    caption = f"Lengths in words of judged documents, by their grade. Above 0 is relevant. {_BOXES}"
    return DrawnFigure(figure, "Lengths of judged documents", caption, "lengths.csv")


def _boxes(lengths: pd.DataFrame, lines: Sequence[str]) -> Figure:
    """Draw a box for each row (columns line, colour), and a panel for each dataset."""

    def draw(axis: Axes, rows: pd.DataFrame) -> None:
        boxes: Any = rows.rename(columns=_ENDS).to_dict("records")
        at = rows["at"].tolist()
        drawn = axis.bxp(
            boxes, at, widths=0.6, orientation="horizontal", patch_artist=True, showfliers=False, manage_ticks=False
        )
        for box, colour in zip(drawn["boxes"], rows["colour"], strict=True):
            box.set_facecolor(colour)
        axis.set_xscale("symlog", linthresh=1, linscale=0.3)
        axis.set_xlim(left=0)
        axis.xaxis.set_major_formatter(lambda value, _: f"{value:,g}")

    return drawing.panels(lengths[lengths["documents"] > 0], draw, lines=lines, x="words (logarithmic)")


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
