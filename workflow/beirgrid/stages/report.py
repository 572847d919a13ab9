"""Stage report: write a grid's self-contained HTML page, with its pictures."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import numpy as np
import pandas as pd

from ..config.metric_names import lower_is_better
from ..core import files, paths, provenance
from ..core.provenance import Record
from ..page import documents, drawing, figures
from ..page.analyses import Figure
from ..page.drawing import DrawnFigure
from ..page.render import render
from ..page.sections import per_query
from ..pipeline.report import REPORT
from ..results import efficiency, table_files
from ..results.answers import LEAST_DATASETS, Answers, against_baseline, main_comparison
from ..results.summary import GridSummary, SummaryFile

# Largest number of systems × datasets in a forest plot; beyond it, the plot shows only means over datasets.
MOST_INTERVALS = 300


def page(
    *,
    grid: SummaryFile,
    tables: Annotated[Path, "folder of tables, from aggregate"],
    output: Annotated[Path, "HTML page to write"],
    record: Record,
) -> None:
    """Write the page of a grid.

    Raises:
        DataError: a table is missing, damaged or of another grid.
    """
    with provenance.record(REPORT, record, {}, [output]) as facts:
        files.write_text(output, illustrated(grid, table_files.read(grid, tables)))
        facts["bytes"] = files.size(output)


def illustrated(grid: GridSummary, answers: Answers) -> str:
    """Render the HTML page of a grid, with the pictures of its first metric."""
    with drawing.style():
        drawn = [
            Figure(
                name,
                f"{of.title}. {of.caption}",
                drawing.content(of.figure, "svg").decode(),
                drawing.content(of.figure, "pdf"),
            )
            for name, of in pictures(grid, answers)
        ]
    queries = {name: of["ids"] for name, of in per_query(grid, answers).items()}
    return render(grid, answers, drawn, documents.documents(grid, queries))


def pictures(grid: GridSummary, answers: Answers) -> Iterator[tuple[str, DrawnFigure]]:
    """Draw each picture for which the grid has data; yield its name and drawing."""
    grid, metric = table_files.ordered(grid, answers), grid.metrics[0]
    compared = main_comparison(answers.across[answers.across["metric"] == metric]).dropna(subset="mean")
    rows = answers.scores[(answers.scores["metric"] == metric) & answers.scores["value"].notna()]
    rows = rows[rows["system"].isin(list(grid.systems)) & rows["dataset"].isin(list(grid.rows))]
    if rows.empty:
        return
    lower = lower_is_better(metric)
    compared = compared.sort_values("mean", ascending=lower, kind="stable")
    yield "forest", figures.forest(_intervals(grid, rows.sort_values("value", ascending=lower), compared), metric)
    values = rows.pivot(index="system", columns="dataset", values="value")
    values = values.reindex(index=[name for name in grid.systems if name in values.index])
    values = values[[name for name in grid.rows if name in values]]
    if values.shape >= (3, 4):
        yield "heat", figures.heat_map(values, metric, lower_is_better=lower)
    against = against_baseline(answers.across)
    latency = Path(paths.GRID_FOLDER.format(grid=grid.name)) / "tables/latency.csv"
    measured = efficiency.read_latency(latency) if latency.is_file() else None
    costs = efficiency.trade_offs(answers.efficiency, against, metric, measured, grid.seeds)
    for cost, label in efficiency.COSTS.items():
        if (costs.loc[costs["mean"].notna(), cost] > 0).any():
            yield f"mean_against_{cost}", figures.trade_off(costs, cost, label, metric)
    others = (against["metric"] == metric) & (against["system"] != against["baseline"])
    if (against.loc[others, "datasets"] > 1).any() and against.loc[others, "wins"].notna().any():
        yield "wins", figures.wins(against, metric)
    if len(depths := documents.curves(grid, metric)):
        yield "rerank_depth", figures.depth_curves(depths)
    if len(compared) > 1 or grid.compare:
        system, other = grid.compare[:2] or _pair(compared)
        differences = {
            row: (of_queries[system] - of_queries[other]).to_numpy(np.float64)
            for row in grid.rows
            if {system, other} <= {*(of_queries := answers.of_queries(row))}
        }
        if differences:
            yield "queries", figures.by_query(differences, system, other, metric)


def _intervals(grid: GridSummary, rows: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of a forest plot: means over several datasets first, then each dataset if there is room."""
    means = compared[compared["datasets"] > 1]
    means = means.assign(dataset="mean of " + means["datasets"].astype(str) + " datasets", value=means["mean"])
    over = "datasets" if (means["datasets"] >= LEAST_DATASETS).all() else "queries"
    means = means.assign(low=means[f"low_{over}"], high=means[f"high_{over}"])
    rows = rows.sort_values("dataset", key=lambda names: names.map(list(grid.rows).index), kind="stable")
    shown = ["dataset", "system", "value", "low", "high"]
    parts = [means[shown]] if len(means) and len(rows) > MOST_INTERVALS else [means[shown], rows[shown]]
    return pd.concat([part for part in parts if len(part)], ignore_index=True)


def _pair(ordered: pd.DataFrame) -> tuple[str, str]:
    """Return the leader and its opponent: the baseline, or the second system."""
    lead, second = ordered["system"].iloc[:2]
    baseline = ordered["baseline"].iloc[0]
    return str(lead), str(baseline if baseline in set(ordered["system"]) - {lead} else second)
