"""``beirgrid latency``: measure the latency per query on this hardware (BEIR paper, Table 3): warm, one by one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from ..collections import collection
from ..config.values import Size, SizeOrZero
from ..core import files, paths, provenance
from ..core.errors import BeirgridError, warn
from ..results import results_folder, summary
from ..results.efficiency import LATENCY_COLUMNS, read_latency
from ..results.summary import Cell
from .open_systems import OpenSystem, cpu_name, hold_back_output, is_foreign, open_system

# Reranking depths to measure, in addition to the system's own. Each depth is measured separately.
DEPTHS = (10, 50, 100, 200)
RETRIEVE, RERANK, BOTH, WHOLE = "retrieve", "rerank", "retrieve and rerank", "whole"
_KEY = ["system", "dataset", "step", "depth", "hardware", "cpus", "concurrency"]


def latency(
    *,
    directory: Annotated[Path, results_folder.PLACE] = Path(),
    grid: Annotated[str, "name of the grid, where the folder has several"] = "",
    dataset: Annotated[str, "dataset with the queries"],
    systems: Annotated[
        tuple[str, ...], "systems to measure (default: all of the grid but programs, which start only if named)"
    ] = (),
    queries: Annotated[Size, "queries to measure"] = 100,
    warm_up: Annotated[SizeOrZero, "warm-up queries, which are not counted"] = 20,
    device: Annotated[Literal["auto", "cpu", "cuda"], "where models run; auto takes a GPU where there is one"] = "auto",
    concurrency: Annotated[Size, "concurrent users, each with one query at a time"] = 1,
    output: Annotated[
        Path | None,
        "table to write; rows of other hardware, datasets and systems are kept (default: the grid's latency.csv)",
    ] = None,
) -> None:
    """Measure the latency of systems on this hardware, one query at a time.

    A system is opened from the record of its run, so its index must still exist. A program starts anew for each query.
    Texts of documents to rerank are read before the time begins. Systems with an approximate or truncated index, which
    is read from disk for each query, are left out. With several users, whole systems are measured, including the
    reading of texts and indexes.

    The table has p50, p95, p99 and the mean in milliseconds, of retrieval and of reranking the top 10, 50, 100 and 200.
    ``documents`` is the mean number of documents retrieved or reranked per query. ``as_run`` marks the depth that the
    system has in the grid.

    Raises:
        BeirgridError: the grid has no such system or dataset.
        DataError: a record, an index or a model is missing or damaged.
    """
    place = results_folder.only_grid(directory, grid).absolute()
    output = (output or place.parent / "tables" / "latency.csv").absolute()
    os.chdir(results_folder.working_folder(place)[0])
    of_grid = summary.read(place)
    cells = {cell.system: cell for cell in (*of_grid.cells, *of_grid.unjudged) if cell.dataset == dataset}
    if unknown := [name for name in systems if name not in cells]:
        raise BeirgridError(f"the grid has no system {unknown[0]!r} on {dataset!r} (it has: {', '.join(cells)})")
    if not cells:
        raise BeirgridError(f"the grid has no dataset {dataset!r} (it has: {', '.join(of_grid.datasets)})")
    rows: list[dict[str, Any]] = []
    for name in systems or cells:
        if why := _obstacle(cells[name], named=bool(systems), at_once=concurrency > 1):
            warn(f"{name} is left out: {why}")
            continue
        with hold_back_output(), ExitStack() as stack, ThreadPoolExecutor(concurrency) as users:
            opened = open_system(name, dataset, device, stack, programs=True)
            texts = list(collection.read_queries(paths.QUERIES.format(dataset=dataset)).values())[:queries]
            list(users.map(opened.rank, texts[:warm_up]))
            timings = list(_whole(opened, texts, users) if concurrency > 1 else _steps(opened, texts))
        about = {"system": name, "dataset": dataset, "cpus": len(os.sched_getaffinity(0)), "concurrency": concurrency}
        rows += [about | row for row in _rows(opened, timings)]
    if not rows:
        raise BeirgridError("none of these systems can be measured")
    write(pd.DataFrame(rows, columns=LATENCY_COLUMNS), output)


def _obstacle(cell: Cell, *, named: bool, at_once: bool) -> str:
    """Return why a system is not measured; empty if it is."""
    records = list(map(provenance.read_record, cell.records))
    if any(map(is_foreign, records)):
        return "its run is of other software"
    if any("command" in record["settings"] for record in records) and not named:
        return f"it starts a program; --systems {cell.system} measures it"
    searches = [record["settings"] for record in records if "search_seconds" in record["facts"]]
    if any("index" in settings for settings in searches) and not at_once:
        return "only exact indexes are measured"
    return ""


class _Timing(NamedTuple):
    """A timed step: seconds per query, float64 [queries], the documents of each query, and the seconds of them all."""

    step: str
    depth: int
    seconds: np.ndarray
    documents: Sequence[Sequence[str]]
    total: float
    as_run: bool = True


def _whole(opened: OpenSystem, texts: Sequence[str], users: ThreadPoolExecutor) -> Iterator[_Timing]:
    """Time a system under several users."""
    total, timed = _stopwatch(lambda queries: list(users.map(partial(_stopwatch, opened.rank), queries)), texts)
    ids = [ranking.ids for _, ranking in timed]
    yield _Timing(WHOLE, max(map(len, ids)), np.array([seconds for seconds, _ in timed]), ids, total)


def _steps(opened: OpenSystem, texts: Sequence[str]) -> Iterator[_Timing]:
    """Time a system, and reranking at several depths apart from its first stage.

    If a query found fewer documents, only those are reranked.
    """
    search = opened.first or opened
    timed = [_stopwatch(search.rank, text) for text in texts]
    seconds, ids = np.array([of_query for of_query, _ in timed]), [ranking.ids for _, ranking in timed]
    if not opened.first:
        yield _Timing(RETRIEVE, opened.depth, seconds, ids, seconds.sum())
        return
    depths = sorted({*DEPTHS, opened.depth})
    documents = opened.read({document for of_query in ids for document in of_query[: depths[-1]]})
    for depth in depths:
        tops = [[documents[document] for document in of_query[:depth]] for of_query in ids]
        pairs = zip(texts, tops, strict=True)
        of_depth = np.array([_stopwatch(partial(opened.score, text), top)[0] for text, top in pairs])
        yield _Timing(RERANK, depth, of_depth, ids, of_depth.sum(), as_run=False)
        both = seconds + of_depth
        yield _Timing(BOTH, depth, both, ids, both.sum(), as_run=depth == opened.depth)


def _stopwatch(function: Callable[[Any], Any], argument: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    result = function(argument)
    return time.perf_counter() - started, result


def _rows(opened: OpenSystem, timings: Iterable[_Timing]) -> Iterator[dict[str, Any]]:
    """Yield a row per timing, with percentiles and mean in milliseconds."""
    device = "cpu" if opened.hardware == cpu_name() else "cuda"
    for step, depth, seconds, ids, total, as_run in timings:
        p50, p95, p99 = np.percentile(seconds * 1000, [50, 95, 99])
        times = {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "mean_ms": seconds.mean() * 1000}
        about = {"step": step, "depth": depth, "as_run": as_run, "queries": len(ids)}
        about |= {"device": device, "hardware": opened.hardware, "precision": opened.precision}
        documents = np.mean([min(len(of_query), depth) for of_query in ids])
        yield about | times | {"documents": documents, "queries_per_second": len(ids) / total}


def write(table: pd.DataFrame, path: Path) -> None:
    """Write measurements to a table, replacing rows of the same system, step and hardware."""
    if path.is_file():
        table = pd.concat([read_latency(path), table])
    table = table.drop_duplicates(_KEY, keep="last")
    files.write_text(path, table.to_csv(index=False, lineterminator="\n", columns=LATENCY_COLUMNS))
