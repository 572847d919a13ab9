"""Stage report: write a grid's self-contained HTML page, with its pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd

from ...core import files, paths
from ...core.provenance import Facts
from ...page import drawing, retrieved
from ...page.analyses import Figure
from ...page.drawing import DrawnFigure
from ...page.render import render
from ...page.sections import metric_tables, per_query
from ...results import comparisons, efficiency, table_files
from ...results.answers import Answers, ranking
from ...results.summary import GridSummary, SummaryFile


def report(
    *,
    grid: SummaryFile,
    tables: Annotated[Path, "folder of tables, from aggregate"],
    output: Annotated[Path, "HTML page to write"],
) -> Facts:
    """Write the page of a grid.

    Raises:
        DataError: a table is missing, damaged or of another grid.
    """
    files.write_text(output, illustrated(grid, table_files.read(grid, tables), output.parent))
    return {"bytes": files.size(output)}


def illustrated(grid: GridSummary, answers: Answers, folder: Path) -> str:
    """Render the HTML page of a grid, and write the pictures of its first metric to ``folder/figures``."""
    drawn = []
    with drawing.style():
        for picture in pictures(grid, answers):
            contents = {suffix: drawing.content(picture.figure, suffix) for suffix in drawing.FORMATS}
            drawn.append(Figure(picture.name, f"{picture.title}. {picture.caption}", contents))
            for suffix, content in contents.items():
                files.replace(folder / f"figures/{picture.name}.{suffix}", content)
    for name in {"planned", "scores", "by_query", *efficiency.COSTS} - {picture.name for picture in drawn}:
        for suffix in drawing.FORMATS:  # of an earlier page
            (folder / f"figures/{name}.{suffix}").unlink(missing_ok=True)
    queries = {name: scores["ids"] for name, scores in per_query(grid, answers).items()}
    return render(grid, answers, drawn, retrieved.documents(grid, queries))


def pictures(grid: GridSummary, answers: Answers) -> Iterator[DrawnFigure]:
    """Draw each picture for which the grid has data."""
    metric = grid.metrics[0]
    planned = comparisons.planned(grid, answers.pairs)
    if len(planned):
        yield drawing.planned(planned, metric)
    elif len(grid.systems) > 1 and len(scores := _scores(grid, answers)):
        yield drawing.means(scores, metric, scores["where"].iloc[0])
    latency = Path(paths.GRID_FOLDER.format(grid=grid.name)) / "tables/latency.csv"
    measured = efficiency.read_latency(latency) if latency.is_file() else None
    costs = efficiency.trade_offs(answers, grid, measured)
    for cost, label in efficiency.COSTS.items():
        if (costs.loc[costs["mean"].notna(), cost] > 0).any():
            yield drawing.trade_off(costs, cost, label, metric)
    if len(grid.systems) > 1:
        best = ranking(answers, grid.systems, metric)
        reference = grid.baseline if grid.baseline in best[1:] else best[1]
        system, other = grid.compare[:2] or (best[0], reference)
        differences = {
            row: (of_queries[system] - of_queries[other]).to_numpy(np.float64)
            for row in grid.rows
            if {system, other} <= {*(of_queries := answers.of_queries(row))}
        }
        if differences:
            yield drawing.by_query(differences, system, other, metric)


def _scores(grid: GridSummary, answers: Answers) -> pd.DataFrame:
    """Return the scores by which the systems are ordered, with their intervals and the name of their datasets."""
    (table, *_) = metric_tables(grid, answers)
    column = table.columns[0]
    facts = table_files.cell_facts(answers, grid, table.metric)
    key = f"{column.key}: {column.names}" if column.names else column.key
    systems = list(table_files.ordered(grid, answers).systems)
    rows = facts[facts["dataset"] == key].set_index("system").reindex(systems).dropna(subset="value")
    return rows[["value", "low", "high"]].reset_index().assign(where=column.title)
