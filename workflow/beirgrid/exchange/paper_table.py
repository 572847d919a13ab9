"""The table of a grid as a paper prints it: a row for each system, in LaTeX or Markdown."""

from __future__ import annotations

import string
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

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


class PaperCell(NamedTuple):
    """A score of a system: its place in the column (1 for the best, 2 for the second best, else 0), the letters of the
    systems that it is significantly better than, the sign for training data, and its interval.
    """

    text: str
    place: int = 0
    letters: str = ""
    mark: str = ""
    interval: str = ""


class Paper(NamedTuple):
    """A table for a paper. ``rows`` has the name of each system and its cells."""

    columns: list[str]
    rows: list[tuple[str, list[PaperCell]]]
    caption: str
    label: str


class Form(NamedTuple):
    """How a format writes a cell: a score by its place, letters and interval; and how it escapes texts."""

    places: tuple[str, str, str]
    letters: str
    interval: str
    escape: Callable[[str], str]


LATEX = Form(("{}", r"\textbf{{{}}}", r"\underline{{{}}}"), r"$^{{{}}}$", r" {{\scriptsize {}}}", table_files.in_latex)
MARKDOWN = Form(("{}", "**{}**", "_{}_"), "<sup>{}</sup>", " {}", str)
_INTERVALS = " In brackets: 95 % intervals (BCa bootstrap over the queries)."


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
    systems = list(grid.systems)
    if by_mean:  # the last row has the means, or the only dataset
        systems = list(wide.values.iloc[-1].sort_values(ascending=lower, kind="stable").index)
    letters = dict(zip(systems, string.ascii_lowercase, strict=False)) if len(systems) <= 26 else {}
    better = _better(answers.pairs[answers.pairs["metric"] == metric], lower=lower)
    scores = answers.scores[answers.scores["metric"] == metric].set_index(["system", "dataset"])
    intervals: dict[Any, Any] = scores[["low", "high"]].dropna().T.to_dict("list")
    columns: dict[str, list[PaperCell]] = {}
    for row, values in zip(map(str, wide.values.index), wide.values.to_dict("records"), strict=True):
        texts = {_text(value) for value in values.values() if not pd.isna(value)}
        places = dict(zip(sorted(texts, key=float, reverse=not lower), (1, 2), strict=False))
        queries = scores[scores.index.get_level_values("dataset") == row]["queries"].dropna()
        cells = columns[f"{row} ({int(queries.iloc[0])})" if len(queries) else row] = []
        for system in systems:
            if pd.isna(values[system]):
                cells.append(PaperCell(_NOTHING))
                continue
            text = _text(values[system])
            than = "".join(letters[other] for other in letters if (system, other, row) in better)
            ends = ", ".join(map(_text, intervals.get((system, row), ())))
            mark = table_files.TRAINING[grid.trained(system, row)]
            cells.append(PaperCell(text, places.get(text, 0), than, mark, f"[{ends}]" if ends else ""))
    names = [f"{system} ({letters[system]})" if letters else system for system in systems]
    rows = [(name, list(cells)) for name, *cells in zip(names, *columns.values(), strict=True)]
    label = f"tab:{grid.name}-{metric}".replace("@", "-")
    return Paper(list(columns), rows, _caption(grid, answers, metric, wide, letters), label)


def _text(value: float) -> str:
    return f"{value:.{_DIGITS}f}"


def _better(pairs: pd.DataFrame, *, lower: bool) -> set[tuple[str, str, str]]:
    """Return (system, other, dataset) where the system is significantly better than the other."""
    certain = pairs[pairs["p_tukey"] <= _LEVEL]
    ahead = (certain["difference"] < 0) if lower else (certain["difference"] > 0)
    named = zip(certain["system"], certain["other"], certain["dataset"], ahead, strict=True)
    return {(first, second, dataset) if wins else (second, first, dataset) for first, second, dataset, wins in named}


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
    yield from (r"% \usepackage{booktabs}", r"\begin{table}", r"\centering")
    yield rf"\caption{{{LATEX.escape(table.caption + _INTERVALS * intervals)}}}"
    yield rf"\label{{{table.label}}}"
    yield from (rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}", r"\toprule")
    yield " & ".join(["system", *map(LATEX.escape, table.columns)]) + r" \\"
    yield r"\midrule"
    yield from (" & ".join(row) + r" \\" for row in _rows(table, LATEX, intervals))
    yield from (r"\bottomrule", r"\end{tabular}", r"\end{table}")


def markdown(table: Paper, *, intervals: bool = False) -> Iterable[str]:
    """Yield the lines of a table in Markdown."""
    lines = [["system", *table.columns], ["---", *["---:"] * len(table.columns)], *_rows(table, MARKDOWN, intervals)]
    yield from (f"| {' | '.join(line)} |" for line in lines)
    yield from ("", table.caption + _INTERVALS * intervals)


def _rows(table: Paper, form: Form, intervals: bool) -> Iterator[list[str]]:
    for system, cells in table.rows:
        texts = [form.escape(system)]
        for cell in cells:
            text = form.places[cell.place].format(form.escape(cell.text)) + form.escape(cell.mark)
            text += form.letters.format(cell.letters) if cell.letters else ""
            texts.append(text + (form.interval.format(cell.interval) if intervals and cell.interval else ""))
        yield texts
