"""Write the page of a grid from published values only, before anything has run."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..analysis.tables import EvaluatedDataset, compare_across
from ..core import files, paths
from ..core.errors import show
from ..pipeline.grid import Grid
from ..pipeline.summaries import PUBLISHED, Summary
from ..results.answers import DONE, Answers, typed
from ..results.published import SCORE_IS_PUBLISHED, Published, read
from ..results.summary import GridSummary
from ..stages.report import illustrated
from .configfiles import merged
from .reporting import outline

_CELL = ["system", "dataset", "metric"]
# Columns of intervals over queries, which published values lack.
_OF_QUERIES = ["low_queries", "high_queries", "difference_low_queries", "difference_high_queries"]


def write(configfile: Path, directory: Path) -> None:
    """Write the page of a grid with its published values, and print its summary."""
    grid = GridSummary.model_validate_json(Summary(Grid(merged([configfile]))).as_json({}))
    answers = tables(grid, read(PUBLISHED, grid.tolerances))
    page = directory / paths.REPORT.format(grid=grid.name)
    files.replace_text(page, illustrated(grid, answers))
    show(*outline(grid, answers, page.absolute()))


def tables(grid: GridSummary, values: Iterable[Published]) -> Answers:
    """Return the tables of a grid whose scores are published values.

    Of several values of a cell, the first that follows the protocol is the score. The verdicts list all of them. There
    are no tests on a dataset, because nobody publishes the values of single queries. Each dataset counts as one query.
    """
    published = pd.DataFrame([value._asdict() for value in values if not value.recorded])
    for column, order in zip(_CELL, (grid.systems, grid.rows, grid.metrics), strict=True):
        published[column] = pd.Categorical(published[column], order)  # others are not of the grid
    published = published.dropna(subset=_CELL).assign(other=published["protocol"] != "")
    published = published.sort_values([*_CELL, "other"], kind="stable")
    published["detail"], published["status"] = published["protocol"].str.rstrip("."), DONE
    scores = published.drop_duplicates(_CELL)
    verdicts = published.rename(columns={"value": "published"}).merge(scores[[*_CELL, "value"]], on=_CELL)
    verdicts = verdicts.assign(verdict=SCORE_IS_PUBLISHED, recorded=False)
    of_cell, systems = scores.set_index(_CELL)["value"], tuple(sorted(grid.systems))
    datasets = [
        EvaluatedDataset(
            row, systems, grid.metrics, np.array([[[of_cell[s, row, m] for m in grid.metrics] for s in systems]])
        )
        for row in grid.counted_once
    ]
    training: dict[str, Any] = {"trained_on": grid.trained_on, "unknown": grid.training_unknown}
    across = compare_across(
        datasets, systems=grid.systems, seed=grid.seed, baseline=grid.baseline or None, **training
    ).assign(**dict.fromkeys(_OF_QUERIES, np.nan))
    made = {"scores": scores, "verdicts": verdicts, "across": across}
    return Answers(*(typed(name, made.get(name, pd.DataFrame())) for name in Answers._fields))
