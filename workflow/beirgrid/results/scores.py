"""Read the scores of runs, which evaluate writes to metrics/{system}/{dataset}.json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict

from ..core import files, lineage, provenance
from ..core.errors import DataError, quantity, quoted
from ..measures import USUAL
from . import results_folder

if TYPE_CHECKING:
    import pandas as pd

    from .results_folder import Result
    from .summary import Cell

# Tolerance between two copies of one computed value.
_ROUNDING = 1e-9


class Scores(BaseModel):
    """Means of the metrics, by name@k, over all ``queries`` with qrels."""

    model_config = ConfigDict(frozen=True)

    system: str
    dataset: str
    queries: int
    means: dict[str, float]


def read(path: str | Path) -> Scores:
    """Read the scores of one run.

    Raises:
        DataError: the file is missing, damaged, or has no scores.
    """
    with files.reading(path):
        return Scores.model_validate(files.read_json(path)["scores"])


def read_per_query(path: str | Path, metrics: Sequence[str]) -> pd.DataFrame:
    """Read the values per query of one run: queries × metrics, float64.

    Raises:
        DataError: the file cannot be read, lacks a metric, has a query twice or a value that is not a number.
    """
    import numpy as np
    import pandas as pd

    with files.reading(path):
        table = pd.read_parquet(path)
    if missing := [name for name in ["query", *metrics] if name not in table]:
        raise DataError(
            f"{path} has no column {missing[0]!r}: the run was evaluated with other metrics. {files.REMEDY}"
        )
    table = table.set_index("query")[list(metrics)].astype(np.float64)
    if table.empty:
        flaw = "no queries"
    elif not np.isfinite(table).all(axis=None):
        flaw = "a value that is not a finite number"
    elif len(twice := table.index[table.index.duplicated()]):
        flaw = f"the query {quoted(str(twice[0]))} twice"
    else:
        return table
    raise DataError(f"{path} has {flaw}. {files.REMEDY}")


def read_cell(
    cell: Cell | Result, metrics: Sequence[str] = (), ancestry: lineage.Ancestry | None = None
) -> tuple[Scores, pd.DataFrame]:
    """Read the scores of a cell and its values per query, and check that they match.

    Args:
        metrics: metrics to read; by default, those with a mean.
        ancestry: what is known of artifacts already.

    Raises:
        DataError: a file is damaged, or belongs to another run, dataset or grid; another grid has replaced the cell;
            or something behind the scores was made again since.
    """
    if isinstance(cell, results_folder.Result):
        cell.refuse_replaced()
    path = cell.scores
    per_query = cell.per_query
    scores = read(path)
    if (scores.system, scores.dataset) != (cell.system, cell.dataset):
        raise DataError(
            f"{path} has the scores of {scores.system} on {scores.dataset}: it was copied or renamed. Move it out of "
            "the results"
        )
    lineage.check({"scores": Path(path)}, ancestry=ancestry)
    metrics = metrics or list(scores.means)
    table = read_per_query(provenance.artifact(per_query), metrics)
    if len(table) != scores.queries:
        raise DataError(
            f"{per_query} has {quantity(len(table), 'query')}, {path} says {scores.queries}. {files.REMEDY}"
        )
    for metric in metrics:
        if not abs(scores.means.get(metric, float("nan")) - table[metric].mean()) <= _ROUNDING:
            raise DataError(f"{per_query} and {path} have different means of {metric}. {files.REMEDY}")
    return scores, table


def main_metric(path: str | Path) -> str:
    """Return the metric that ``main`` is in the scores of a run, from their record."""
    return str(provenance.read_record(path)["settings"].get("main", USUAL))


def unanswered(evaluation: Mapping[str, Any]) -> str:
    """Phrase how many queries count 0 because the run has no documents for them, from the record of an evaluation."""
    number, total = (evaluation["facts"].get(name, 0) for name in ("queries_without_documents", "queries"))
    verbs = "has no documents and counts" if number == 1 else "have no documents and count"
    return f"{number:,} of {quantity(total, 'query')} {verbs} 0" if number else ""


def load_scores(grid: str | Path) -> pd.DataFrame:
    """Return the scores of a grid, one row per system, dataset and metric.

    Args:
        grid: the working folder of grids, its results folder, the folder of one grid, or the name of a grid of the
            working directory.

    Returns:
        columns ``system``, ``dataset``, ``metric``, ``value`` and ``queries``. Means of datasets are not included.

    Raises:
        DataError: there are no scores, or ``read_cell`` refuses a cell.

    Example:
        >>> scores = load_scores("results")  # doctest: +SKIP
        >>> scores.pivot(index="dataset", columns=["metric", "system"], values="value")  # doctest: +SKIP
    """
    import pandas as pd

    cells = [cell for cell in results_folder.find(grid).cells.values() if cell.scores.is_file()]
    if not cells:
        raise DataError(f"{grid} has no scores: no cell of the grid is finished")
    ancestry = lineage.Ancestry()
    rows = [
        (scores.system, scores.dataset, metric, value, scores.queries)
        for scores, _ in (read_cell(cell, ancestry=ancestry) for cell in cells)
        for metric, value in scores.means.items()
    ]
    return pd.DataFrame(rows, columns=["system", "dataset", "metric", "value", "queries"])
