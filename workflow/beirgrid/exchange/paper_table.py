"""The table of a grid as a paper prints it: a row for each system, in LaTeX or Markdown."""

from __future__ import annotations

import string
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import pandas as pd

from ..config.metric_names import lower_is_better, metric_key, written
from ..core.errors import BeirgridError, nearest, show
from ..results import results_folder, summary, table_files
from ..results.answers import Answers
from ..results.summary import GridSummary

# Significance level for corrected p values.
_LEVEL = 0.05
# Digits after the point, and what stands where there is no score.
_DIGITS, _NOTHING = 3, "–"


class Paper(NamedTuple):
    """A table for a paper.

    ``rows`` has the name of each system and its cells.
    """

    columns: list[str]
    rows: list[tuple[str, list[PaperCell]]]
    caption: str
    label: str


class PaperCell(NamedTuple):
    """A score of a system. Texts are empty where there is nothing to say.

    Attributes:
        text: the score.
        place: 1 for the best of the column, 2 for the second best, else 0.
        letters: of the systems that it is significantly better than.
        mark: sign for training data.
        interval: of the score.
    """

    text: str
    place: int = 0
    letters: str = ""
    mark: str = ""
    interval: str = ""


def export_table(
    *,
    directory: Annotated[Path, results_folder.PLACE] = Path(),
    grid: Annotated[str, "name of the grid, where the folder has several"] = "",
    metric: Annotated[str, "metric, such as nDCG@10 (default: the first of the grid)"] = "",
    format: Annotated[Literal["latex", "markdown"], "what to print"] = "latex",
    intervals: Annotated[bool, "print the 95 % interval of each score"] = False,
    by_mean: Annotated[bool, "sort the systems by their means, best first"] = False,
) -> None:
    """Print a table of a grid for a paper: a row for each system, with superscripts, caption and label.

    Raises:
        BeirgridError: the folder has no such grid, or the grid has no such metric.
    """
    place = results_folder.only_grid(directory, grid)
    of_grid = summary.read(place)
    metric = metric_key(metric) or of_grid.metrics[0]
    if metric not in of_grid.metrics:
        raise BeirgridError(f"the grid {of_grid.name} has no metric {metric!r}{nearest(metric, of_grid.metrics)}")
    answers = table_files.read(of_grid, place.parent / "tables")
    table = paper_table(of_grid, answers, metric, by_mean=by_mean)
    show(*(latex if format == "latex" else markdown)(table, intervals=intervals))


def paper_table(grid: GridSummary, answers: Answers, metric: str, *, by_mean: bool = False) -> Paper:
    """Return the table of one metric."""
    wide = table_files.wide(answers, grid, metric)
    lower = lower_is_better(metric)
    values, systems = wide.values, list(grid.systems)
    if by_mean:  # the last row has the means, or the only dataset
        systems = list(values.iloc[-1].sort_values(ascending=lower, kind="stable").index)
    letters = dict(zip(systems, string.ascii_lowercase, strict=False)) if len(systems) <= 26 else {}
    better = _better(answers.pairs[answers.pairs["metric"] == metric], lower=lower)
    scores = answers.scores[answers.scores["metric"] == metric].set_index(["system", "dataset"])
    best_two = {
        row: sorted({_text(value) for value in of_row.dropna()}, key=float, reverse=not lower)[:2]
        for row, of_row in values.iterrows()
    }
    rows = []
    for system in systems:
        cells = []
        for row in values.index:
            value = values.loc[row, system]
            if pd.isna(value):
                cells.append(PaperCell(_NOTHING))
                continue
            place = dict(zip(best_two[row], (1, 2), strict=False)).get(_text(value), 0)
            than = "".join(letters[other] for other in systems if (system, other, row) in better and letters)
            mark = table_files.TRAINING[grid.trained(system, row)]
            score = scores.loc[(system, row)] if (system, row) in scores.index else None
            interval = (
                "" if score is None or pd.isna(score["low"]) else f"[{_text(score['low'])}, {_text(score['high'])}]"
            )
            cells.append(PaperCell(_text(value), place, than, mark, interval))
        rows.append((f"{system} ({letters[system]})" if letters else system, cells))
    columns = [_with_queries(str(row), scores) for row in values.index]
    return Paper(
        columns, rows, _caption(grid, answers, metric, wide, letters), f"tab:{grid.name}-{metric}".replace("@", "-")
    )


def _text(value: float) -> str:
    return f"{value:.{_DIGITS}f}"


def _better(pairs: pd.DataFrame, *, lower: bool) -> set[tuple[str, str, str]]:
    """Return (system, other, dataset) where the system is significantly better than the other."""
    certain = pairs[pairs["p_tukey"] <= _LEVEL]
    ahead = (certain["difference"] < 0) if lower else (certain["difference"] > 0)
    named = zip(certain["system"], certain["other"], certain["dataset"], ahead, strict=True)
    return {(first, second, dataset) if wins else (second, first, dataset) for first, second, dataset, wins in named}


def _with_queries(row: str, scores: pd.DataFrame) -> str:
    """Return the title of a column: a dataset with its number of queries, or a mean."""
    of_row = scores[scores.index.get_level_values("dataset") == row]["queries"].dropna()
    return f"{row} ({int(of_row.iloc[0])})" if len(of_row) else row


def _caption(grid: GridSummary, answers: Answers, metric: str, wide: table_files.Wide, letters: dict[str, str]) -> str:
    """Return what a reader needs to know of the table: metric, queries, test, signs."""
    said = [
        f"{written(metric)} of {len(grid.systems)} systems.",
        "In parentheses: the number of queries.",
        "Bold: the best of a column. Underlined, or in italics: the second best.",
    ]
    if letters and len(answers.pairs):
        said.append(
            "Superscripts: the systems that a system is significantly better than (randomised Tukey HSD test over the "
            f"queries of a dataset, p ≤ {_LEVEL:g})."
        )
    notes = [note for note in wide.notes if not note.startswith("†")]
    return " ".join([*said, *notes])


def latex(table: Paper, *, intervals: bool = False) -> Iterable[str]:
    """Yield the lines of a table in LaTeX, for the package booktabs."""
    escape = table_files.in_latex
    yield r"% \usepackage{booktabs}"
    yield r"\begin{table}"
    yield r"\centering"
    yield rf"\caption{{{escape(table.caption + (_INTERVALS if intervals else ''))}}}"
    yield rf"\label{{{table.label}}}"
    yield rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}"
    yield r"\toprule"
    yield " & ".join(["system", *map(escape, table.columns)]) + r" \\"
    yield r"\midrule"
    for system, cells in table.rows:
        shown = []
        for cell in cells:
            text = _IN_LATEX[cell.place].format(escape(cell.text))
            text += escape(cell.mark) + (rf"$^{{{cell.letters}}}$" if cell.letters else "")
            shown.append(text + (rf" {{\scriptsize {cell.interval}}}" if intervals and cell.interval else ""))
        yield " & ".join([escape(system), *shown]) + r" \\"
    yield r"\bottomrule"
    yield r"\end{tabular}"
    yield r"\end{table}"


# Forms of a score by its place.
_IN_LATEX = ("{}", r"\textbf{{{}}}", r"\underline{{{}}}")
_IN_MARKDOWN = ("{}", "**{}**", "_{}_")
_INTERVALS = " In brackets: 95 % intervals (BCa bootstrap over the queries)."


def markdown(table: Paper, *, intervals: bool = False) -> Iterable[str]:
    """Yield the lines of a table in Markdown."""
    yield f"| {' | '.join(['system', *table.columns])} |"
    yield f"| {' | '.join(['---', *['---:'] * len(table.columns)])} |"
    for system, cells in table.rows:
        shown = []
        for cell in cells:
            text = _IN_MARKDOWN[cell.place].format(cell.text) + cell.mark
            text += f"<sup>{cell.letters}</sup>" if cell.letters else ""
            shown.append(text + (f" {cell.interval}" if intervals and cell.interval else ""))
        yield f"| {' | '.join([system, *shown])} |"
    yield ""
    yield table.caption + (_INTERVALS if intervals else "")
