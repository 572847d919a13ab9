"""Write the page of a grid from published values only, before anything has run."""

from __future__ import annotations

import shutil
from collections.abc import Iterable, Mapping
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..analysis.tables import EvaluatedDataset, compare_across
from ..core import files, paths
from ..core.errors import DataError, show
from ..pipeline.grid import Grid
from ..pipeline.summaries import PUBLISHED, Summary
from ..results.answers import DONE, Answers, typed
from ..results.published import SCORE_IS_PUBLISHED, Published, read
from ..results.summary import GridSummary
from ..stages.report import illustrated
from .configfiles import merged
from .outline import outline

# Columns of intervals over queries, which published values lack.
_OF_QUERIES = ["low_queries", "high_queries", "difference_low_queries", "difference_high_queries"]


def write(configfile: Path, directory: Path) -> None:
    """Write the page of a grid with its published values, and print its summary."""
    grid = Grid(merged([configfile]))
    found = GridSummary.model_validate_json(Summary(grid).as_json({}))
    answers = tables(found, read(PUBLISHED, found.tolerances))
    page = directory / paths.REPORT.format(grid=found.name)
    files.replace_text(page, illustrated(found, answers))
    show(*outline(found, answers, page.absolute(), shutil.get_terminal_size((120, 24)).columns))


def tables(grid: GridSummary, values: Iterable[Published]) -> Answers:
    """Return the tables of a grid whose scores are published values.

    Of several values of a cell, the first that follows the protocol is the score. The verdicts list all of them. There
    are no tests on a dataset, because nobody publishes the values of single queries.

    Raises:
        DataError: a cell has no published value.
    """
    cells: dict[tuple[str, str, str], list[Published]] = {
        cell: [] for cell in product(grid.systems, grid.rows, grid.metrics)
    }
    for value in values:
        if not value.recorded:
            cells.get((value.system, value.dataset, value.metric), []).append(value)
    if missing := [cell for cell, found in cells.items() if not found]:
        raise DataError(f"no value of {missing[0][0]} on {missing[0][1]} is published ({missing[0][2]})")
    scores, verdicts = [], []
    for (system, dataset, metric), found in cells.items():
        found.sort(key=lambda value: bool(value.protocol))
        score = {"system": system, "dataset": dataset, "metric": metric, "value": found[0].value, "status": DONE}
        scores.append({**score, "detail": found[0].protocol.rstrip(".")})
        beside = {"verdict": SCORE_IS_PUBLISHED, "recorded": False}
        verdicts += [
            {**score, **beside, "published": of.value, "source": of.source, "note": of.note, "protocol": of.protocol}
            for of in found
        ]
    made: dict[str, Any] = {"scores": scores, "verdicts": verdicts, "across": _across(grid, cells)}
    return Answers(*(typed(name, pd.DataFrame(made.get(name, []))) for name in Answers._fields))


def _across(grid: GridSummary, cells: Mapping[tuple[str, str, str], list[Published]]) -> pd.DataFrame:
    """Return means over datasets, ranks and wins. Each dataset counts as one query."""
    systems = tuple(sorted(grid.systems))
    datasets = [
        EvaluatedDataset(
            row, systems, grid.metrics, np.array([[[cells[s, row, m][0].value for m in grid.metrics] for s in systems]])
        )
        for row in grid.counted_once
    ]
    options: dict[str, Any] = {
        "baseline": grid.baseline or None,
        "trained_on": grid.trained_on,
        "unknown": grid.training_unknown,
    }
    across = compare_across(datasets, systems=grid.systems, seed=grid.seed, **options)
    across[_OF_QUERIES] = np.nan
    return across
