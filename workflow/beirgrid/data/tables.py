"""Tables of a grid: datasets × systems of one metric, as CSV, Markdown and LaTeX."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pandas as pd

from ..config.metrics import LOWER_IS_BETTER, parse_metric
from ..core import files
from .summary import GridSummary

SCORE_COLUMNS = ["system", "dataset", "metric", "value", "queries", "precision"]
VERDICT_COLUMNS = [*SCORE_COLUMNS, "published", "difference", "tolerance", "verdict", "source", "note", "protocol"]
COST_COLUMNS = ["system", "dataset", "stage", "seconds", "rate", "unit", "bytes", "peak_memory_mb", "device", "record"]
# What a table says in place of a score where a collection that its user supplies is absent. In memory it is NaN.
NOT_SUPPLIED = "not supplied"


def write(table: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV; a score without a value reads ``not supplied``."""
    if "value" in table:
        missing = table["value"].isna()
        table = table.astype({"value": object, "queries": object})
        table.loc[missing, ["value", "queries"]] = NOT_SUPPLIED
    with files.atomic(path) as temporary:
        table.to_csv(temporary, index=False)


def read(path: Path) -> pd.DataFrame:
    """Read a table that ``write`` wrote. A dataset may be called 2019 or NA."""
    names = ["system", "dataset", "metric", "precision", "verdict", "source", "note", "protocol"]
    names += ["stage", "unit", "device", "record"]
    numbers = {"rate": "", "bytes": "", "published": "", "difference": "", "tolerance": ""}
    numbers |= dict.fromkeys(("value", "queries"), NOT_SUPPLIED)
    with files.reading(path):
        return pd.read_csv(path, dtype=dict.fromkeys(names, str), keep_default_na=False, na_values=numbers)


def wide(scores: pd.DataFrame, grid: GridSummary, metric: str) -> pd.DataFrame:
    """Return datasets × systems of one metric, in the grid's order, with a row of means if it has several."""
    of_metric = scores[scores["metric"] == metric]
    table = of_metric.pivot(index="dataset", columns="system", values="value")
    table = table.reindex(index=list(grid.rows), columns=list(grid.systems))
    averaged = averaged_rows(grid)
    if len(averaged) > 1:
        table.loc[mean_name(grid)] = table.loc[averaged].mean()
    return table


def averaged_rows(grid: GridSummary) -> list[str]:
    """Return the rows that the mean is over: supplied, not over MS MARCO, which models are trained on, none twice."""
    parts = {part for row in grid.rows for part in grid.datasets[row].mean_of}
    rows = [row for row in grid.rows if grid.datasets[row].corpus != "msmarco" and row not in parts]
    return [row for row in rows if not grid.datasets[row].not_supplied]


def mean_name(grid: GridSummary) -> str:
    """Return the name of the row of means: the datasets that it is over, or their number and what is left out."""
    averaged = averaged_rows(grid)
    missing = [row for row in grid.rows if grid.datasets[row].not_supplied]
    over = ", ".join(averaged) if len(averaged) < 4 else f"{len(averaged)} datasets"
    return f"mean of {over}" + (f" (without {', '.join(missing)})" if missing else "")


def shown(values: Iterable[float]) -> list[str]:
    """Return values as tables show them, with four decimals."""
    return [NOT_SUPPLIED if pd.isna(value) else f"{value:.4f}" for value in values]


def best(metric: str, shown: list[str]) -> str:
    """Return the best of a row of values as shown: the highest, of holes the lowest; none if none is supplied."""
    values = [text for text in shown if text != NOT_SUPPLIED]
    lower = parse_metric(metric).name in LOWER_IS_BETTER
    return (min if lower else max)(values, key=float, default="")


def precision_note(scores: pd.DataFrame, grid: GridSummary) -> str:
    """Return what a table says of scores that were not computed in float32, or an empty string."""
    shown = scores[scores["dataset"].isin(list(grid.rows)) & (scores["precision"] != "")]
    notes = []
    for precision, cells in shown[shown["precision"] != "float32"].groupby("precision"):
        systems = []
        for system, of_system in cells.groupby("system", sort=False):
            datasets = list(dict.fromkeys(of_system["dataset"]))
            whole = len(datasets) == shown.loc[shown["system"] == system, "dataset"].nunique()
            systems.append(str(system) if whole else f"{system} ({', '.join(datasets)})")
        notes.append(f"Computed in {precision}: {', '.join(systems)}.")
    return " ".join(notes)


def write_wide(scores: pd.DataFrame, grid: GridSummary, metric: str, folder: Path) -> None:
    """Write one metric's table as CSV, Markdown and LaTeX; the best of each row is bold in the last two."""
    table, note = wide(scores, grid, metric), precision_note(scores, grid)
    table.index.name = metric
    with files.atomic(folder / f"{metric}.csv") as temporary:
        table.to_csv(temporary, na_rep=NOT_SUPPLIED)
    for name, render in (("md", _markdown), ("tex", _latex)):
        with files.atomic(folder / f"{metric}.{name}") as temporary:
            temporary.write_text(render(table, note), encoding="utf-8")


def _cells(row: pd.Series, metric: str, bold: str) -> list[str]:
    """Return a row's values with four decimals, the best (all that show as equal to it) in bold."""
    cells = shown(row)
    return [bold.format(cell) if cell == best(metric, cells) else cell for cell in cells]


def _markdown(table: pd.DataFrame, note: str) -> str:
    lines = [[str(table.index.name), *table.columns], ["---", *["---:"] * len(table.columns)]]
    lines += [[str(name), *_cells(row, str(table.index.name), "**{}**")] for name, row in table.iterrows()]
    return "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + (f"\n{note}\n" if note else "")


def _latex(table: pd.DataFrame, note: str) -> str:
    def escape(text: str) -> str:
        return text.replace("_", r"\_").replace("@", r"{@}").replace("&", r"\&").replace("%", r"\%")

    rows = [[escape(str(table.index.name)), *map(escape, table.columns)]]
    rows += [
        [escape(str(name)), *_cells(row, str(table.index.name), r"\textbf{{{}}}")] for name, row in table.iterrows()
    ]
    body = [" & ".join(cells) + r" \\" for cells in rows]
    head = rf"\begin{{tabular}}{{l{'r' * len(table.columns)}}}"
    foot = [rf"\multicolumn{{{len(table.columns) + 1}}}{{l}}{{{escape(note)}}} \\"] if note else []
    lines = [head, r"\toprule", body[0], r"\midrule", *body[1:], r"\bottomrule", *foot, r"\end{tabular}"]
    return "\n".join(lines) + "\n"
