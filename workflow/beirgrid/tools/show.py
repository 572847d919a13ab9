"""``beirgrid show SYSTEM DATASET [QUERY]``: the scores of a cell, or the documents of one query in all systems."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from ..config.metric_names import metric_key, written
from ..config.values import SizeOrZero
from ..core import lineage, paths, provenance
from ..core.errors import BeirgridError, nearest, show
from ..results import results_folder, scores
from ..results.results_folder import Result, Results
from .options import ResultsPlace
from .search import documents, excerpt, refuse_unknown
from .text import column_lines

if TYPE_CHECKING:
    import pandas as pd

# Number of queries to print with the lowest and with the highest values.
_QUERIES = 5


def show_cell(
    system: Annotated[str, "a system of a finished grid"],
    dataset: Annotated[str, "a dataset on which the system was run"],
    query: Annotated[str | None, "id of a query; without it, the scores and the extreme queries"] = None,
    *,
    metric: Annotated[str, "metric that orders the queries (default: the grid's first)"] = "",
    depth: Annotated[SizeOrZero, "documents to print of a query"] = 10,
    directory: ResultsPlace = Path(),
) -> None:
    """Print the scores of a cell, or the documents of one of its queries.

    Raises:
        BeirgridError: the cell has no scores, not this metric, or no such query.
    """
    os.chdir(results_folder.working_folder(directory)[0])
    refuse_unknown(system, dataset)
    results = results_folder.find(".")
    cell = results.cells.get((system, dataset))
    if cell is None:
        raise BeirgridError(f"{system!r} has no scores on {dataset!r}: run the grid, or judge its documents")
    lineage.check({"scores": cell.scores})
    _, values = scores.read_cell(cell.scores, cell.per_query, cell.system, cell.dataset)
    key = metric_key(metric) if metric else str(values.columns[0])
    if key not in values:
        known = ", ".join(written(str(name)) for name in values)
        raise BeirgridError(f"{cell.scores} has no metric {key!r} (it has {known})")
    if query is None:
        lines = _cell(cell, values, key)
    elif query in values.index:
        of_query = {str(name): value for name, value in values.loc[query].to_dict().items()}
        lines = _query(results, cell, of_query, query, depth)
    else:
        raise BeirgridError(f"{dataset!r} has no judged query {query!r}{nearest(query, map(str, values.index))}")
    show(*lines)


def _cell(cell: Result, values: pd.DataFrame, metric: str) -> Iterator[str]:
    """Yield the means of a cell with their intervals, and its lowest and highest queries."""
    import numpy as np

    from ..analysis.tables import intervals, stack
    from ..collections import collection

    measured = stack(cell.dataset, {cell.system: values}, scores.main_metric(cell.scores))
    ends = intervals(measured).set_index("metric")
    yield f"{cell.system} on {cell.dataset}, {len(values):,} queries"
    yield ""
    rows = [
        [written(str(name)), f"{mean:.4f}", "" if np.isnan(a) else f"[{a:.4f}, {b:.4f}]"]
        for name, mean, a, b in ends.loc[list(values), ["mean", "low", "high"]].itertuples()
    ]
    yield from column_lines([["metric", "mean", "interval (95 %)"], *rows], [True, False, True])
    texts = collection.read_queries(paths.QUERIES.format(dataset=cell.dataset))
    ordered = values[metric].sort_values(kind="stable")
    yield ""
    yield f"{written(metric)} is 0 for {int((ordered == 0).sum()):,} queries. The lowest and the highest:"
    yield ""
    extremes = ordered if len(ordered) <= 2 * _QUERIES else ordered.iloc[[*range(_QUERIES), *range(-_QUERIES, 0)]]
    rows = [[str(query), f"{value:.4f}", excerpt(texts.get(str(query), ""))[:80]] for query, value in extremes.items()]
    yield from column_lines([["query", written(metric), "text"], *rows], [True, False, True])


def _query(results: Results, cell: Result, values: dict[str, float], query: str, depth: int) -> Iterator[str]:
    """Yield a query's documents, with grades and with their ranks in the other systems of the dataset."""
    from ..collections import collection, qrels
    from ..runs import runs

    if not cell.run.is_file():
        raise BeirgridError(f"{cell.run} is missing: run the grid again")
    text = collection.read_queries(paths.QUERIES.format(dataset=cell.dataset)).get(query, "")
    yield f"query {query}: {text}"
    yield f"{cell.system}: " + ", ".join(f"{written(name)} {value:.4f}" for name, value in values.items())
    others = [system for system, dataset in results.cells if dataset == cell.dataset and system != cell.system]
    files = {system: results.cells[system, cell.dataset].run for system in [cell.system, *others]}
    rankings = {
        system: runs.read(provenance.artifact(run)).get(query, runs.EMPTY).ids
        for system, run in files.items()
        if run.is_file()
    }
    ranks = {system: {name: rank for rank, name in enumerate(ids, start=1)} for system, ids in rankings.items()}
    own, grades = rankings[cell.system], qrels.read(paths.QRELS.format(dataset=cell.dataset)).get(query, {})
    missed = [name for name in sorted(grades, key=lambda name: -grades[name]) if grades[name] > 0]
    shown = [*own[:depth], *(name for name in missed if name not in own[:depth])]
    texts = documents(cell.dataset, shown)
    rows = [
        [
            *(str(of_system.get(name, "-")) for of_system in ranks.values()),
            str(grades.get(name, "?")),
            name,
            texts[name].title or excerpt(texts[name].text)[:80],
        ]
        for name in shown
    ]
    yield ""
    columns = [*(f"rank in {system}" for system in ranks), "grade", "document", "title"]
    yield from column_lines([columns, *rows], [*(False for _ in ranks), False, True, True])
    yield ""
    yield "-: the system did not find the document. ?: nobody judged the document."
