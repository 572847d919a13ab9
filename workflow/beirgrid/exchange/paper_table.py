"""The table of a grid as a paper prints it: a row for each system, in LaTeX."""

from __future__ import annotations

import string
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import pandas as pd

from ..config.metric_names import lower_is_better, metric_key, written
from ..core.errors import BeirgridError, nearest, show
from ..results import results_folder, summary, table_files
from ..results.answers import Answers
from ..results.summary import GridSummary
from ..results.table_files import in_latex

# Significance level for corrected p values.
_LEVEL = 0.05
# How a score is written, and what stands where there is none.
_SCORE, _NOTHING = "{:.3f}".format, "--"


def export_table(
    *,
    directory: results_folder.Directory = Path(),
    grid: Annotated[str, "name of the grid, where the folder has several"] = "",
    metric: Annotated[str, "metric, such as nDCG@10 (default: the first of the grid)"] = "",
) -> None:
    """Print a table of a grid for a paper, in LaTeX: a row for each system, with superscripts, caption and label.

    Raises:
        BeirgridError: the folder has no such grid, or the grid has no such metric.
    """
    place = results_folder.only_grid(directory, grid)
    of_grid = summary.read(place)
    metric = metric_key(metric) or of_grid.metrics[0]
    if metric not in of_grid.metrics:
        raise BeirgridError(f"the grid {of_grid.name} has no metric {metric!r}{nearest(metric, of_grid.metrics)}")
    answers = table_files.read(of_grid, place.parent / "tables")
    show(*latex(of_grid, answers, metric).splitlines())


def latex(grid: GridSummary, answers: Answers, metric: str) -> str:
    """Return the table of one metric in LaTeX, for the package booktabs."""
    cells, caption = _cells(grid, answers, metric)
    form, label = f"l{'r' * cells.shape[1]}", f"tab:{grid.name}-{metric}".replace("@", "-")
    table: str = cells.style.to_latex(
        column_format=form, position_float="centering", hrules=True, label=label, caption=in_latex(caption)
    )
    return f"% \\usepackage{{booktabs}}\n{table}"


def _cells(grid: GridSummary, answers: Answers, metric: str) -> tuple[pd.DataFrame, str]:
    """Return the texts of a table, systems × datasets, and its caption. Systems are in the order of the grid's tables.

    The superscripts of a score are the letters of the systems that it is significantly better than.
    """
    wide, lower = table_files.wide(answers, grid, metric), lower_is_better(metric)
    values, systems = wide.values, list(map(str, wide.values))
    letters = dict(zip(systems, string.ascii_lowercase, strict=False)) if len(systems) <= 26 else {}
    better = _better(answers.pairs[answers.pairs["metric"] == metric], lower=lower)
    queries = answers.scores.dropna(subset="queries").groupby("dataset")["queries"].first()
    columns = {}
    for row in map(str, values.index):
        scores = values.loc[row].dropna().map(_SCORE)
        best, second, *_ = [*sorted({*scores}, key=float, reverse=not lower), "", ""]
        texts = dict.fromkeys(systems, _NOTHING)
        for system, score in zip(map(str, scores.index), scores, strict=True):
            than = "".join(letters[other] for other in letters if (system, other, row) in better)
            shape = r"\textbf{%s}" if score == best else r"\underline{%s}" if score == second else "%s"
            sign = in_latex(table_files.TRAINING[grid.trained(system, row)])
            texts[system] = shape % score + sign + (f"$^{{{than}}}$" if than else "")
        columns[in_latex(f"{row} ({queries[row]})" if row in queries else row)] = texts
    cells = pd.DataFrame(columns).rename_axis(columns="system")
    cells = cells.rename(lambda name: in_latex(f"{name} ({letters[name]})" if letters else name))
    return cells, _caption(metric, len(systems), bool(letters) and len(answers.pairs) > 0, wide.notes)


def _better(pairs: pd.DataFrame, *, lower: bool) -> set[tuple[str, str, str]]:
    """Return (system, other, dataset) where the system is significantly better than the other."""
    certain = pairs[pairs["p_tukey"] <= _LEVEL]
    ahead = (certain["difference"] < 0) if lower else (certain["difference"] > 0)
    named = zip(certain["system"], certain["other"], certain["dataset"], ahead, strict=True)
    return {(first, second, dataset) if wins else (second, first, dataset) for first, second, dataset, wins in named}


def _caption(metric: str, systems: int, superscripts: bool, notes: Iterable[str]) -> str:
    """Return what a reader needs to know of the table: metric, queries, test, signs."""
    sentences = [
        f"{written(metric)} of {systems} systems.",
        "In parentheses: the number of queries.",
        "Bold: the best of a column. Underlined: the second best.",
    ]
    if superscripts:
        sentences.append(
            "Superscripts: the systems that a system is significantly better than (randomised Tukey HSD test over the "
            f"queries of a dataset, p ≤ {_LEVEL:g})."
        )
    return " ".join([*sentences, *(note for note in notes if not note.startswith("†"))])
