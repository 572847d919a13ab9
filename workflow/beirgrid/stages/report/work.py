"""Stage report: write a grid's self-contained HTML page, with its pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np

from ...core import files, paths
from ...core.provenance import Facts
from ...page import drawing, retrieved
from ...page.analyses import Figure
from ...page.drawing import DrawnFigure
from ...page.render import render
from ...page.sections import per_query
from ...results import efficiency, table_files
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
    files.write_text(output, illustrated(grid, table_files.read(grid, tables)))
    return {"bytes": files.size(output)}


def illustrated(grid: GridSummary, answers: Answers) -> str:
    """Render the HTML page of a grid, with the pictures of its first metric."""
    with drawing.style():
        drawn = [
            Figure(f"{picture.title}. {picture.caption}", drawing.content(picture.figure, "svg"))
            for picture in pictures(grid, answers)
        ]
    queries = {name: scores["ids"] for name, scores in per_query(grid, answers).items()}
    return render(grid, answers, drawn, retrieved.documents(grid, queries))


def pictures(grid: GridSummary, answers: Answers) -> Iterator[DrawnFigure]:
    """Draw each picture for which the grid has data."""
    metric = grid.metrics[0]
    latency = Path(paths.GRID_FOLDER.format(grid=grid.name)) / "tables/latency.csv"
    measured = efficiency.read_latency(latency) if latency.is_file() else None
    costs = efficiency.trade_offs(answers, grid, measured)
    for cost, label in efficiency.COSTS.items():
        if (costs.loc[costs["mean"].notna(), cost] > 0).any():
            yield drawing.trade_off(costs, cost, label, metric)
    if len(grid.systems) > 1:
        best = ranking(answers, grid.systems, metric)
        system, other = grid.compare[:2] or (best[0], grid.baseline if grid.baseline in best[1:] else best[1])
        differences = {
            row: (of_queries[system] - of_queries[other]).to_numpy(np.float64)
            for row in grid.rows
            if {system, other} <= {*(of_queries := answers.of_queries(row))}
        }
        if differences:
            yield drawing.by_query(differences, system, other, metric)
