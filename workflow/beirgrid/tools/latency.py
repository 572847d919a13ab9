"""``beirgrid latency``: measure the latency per query on this hardware (BEIR paper, Table 3): batch 1, warm."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd

from ..collections import collection
from ..config.models import CrossEncoder, DecoderReranker, Seq2SeqReranker
from ..config.values import Size
from ..core import files, paths
from ..core.errors import BeirgridError, warn
from ..encoders import open_scorer
from ..results import results_folder, summary
from ..results.efficiency import LATENCY_COLUMNS, read_latency
from ..results.summary import Cell
from .open_systems import (
    OpenSystem,
    Step,
    cpu_name,
    hardware,
    held_back,
    open_search,
    open_system,
    read_step,
    start,
)

# Reranking depths to measure, in addition to the system's own. Each depth is measured separately.
DEPTHS = (10, 50, 100, 200)
RETRIEVE, RERANK, BOTH, WHOLE = "retrieve", "rerank", "retrieve and rerank", "whole"
_KEY = ["system", "dataset", "step", "depth", "hardware", "cpus", "concurrency"]


def latency(
    *,
    directory: Annotated[Path, results_folder.PLACE] = Path(),
    grid: Annotated[str, "name of the grid, where the folder has several"] = "",
    dataset: Annotated[str, "dataset with the queries"],
    systems: Annotated[tuple[str, ...], "systems to measure (default: all of the grid)"] = (),
    queries: Annotated[Size, "queries to measure"] = 100,
    warm_up: Annotated[int, "warm-up queries, which are not counted"] = 20,
    device: Annotated[Literal["auto", "cpu", "cuda"], "where models run; auto takes a GPU where there is one"] = "auto",
    concurrency: Annotated[Size, "concurrent users, each with one query at a time"] = 1,
    output: Annotated[
        Path | None,
        "table to write; rows of other hardware, datasets and systems are kept (default: the grid's latency.csv)",
    ] = None,
) -> None:
    """Measure the latency of systems on this hardware, one query at a time.

    A system is opened from the record of its run, so its index must still exist. Reading ids of retrieved documents,
    and texts of documents to rerank, is not counted. Fused systems and those with an approximate or truncated index are
    left out. With several users, whole systems are measured, including the reading of ids and texts, and no system is
    left out.

    The table has p50, p95, p99 and the mean in milliseconds, of retrieval and of reranking the top 10, 50, 100 and 200.
    ``documents`` is the mean number of documents retrieved or reranked per query. ``as_run`` marks the depth that the
    system has in the grid. What Java and other libraries print goes to a log beside the table, latency.log.

    Raises:
        BeirgridError: the grid has no such system or dataset.
        DataError: a record, an index or a model is missing or damaged.
    """
    place = results_folder.only_grid(directory, grid).absolute()
    output = (output or place.parent / "tables" / "latency.csv").absolute()
    os.chdir(results_folder.working_folder(place)[0])
    measured_grid = summary.read(place)
    cells = {cell.system: cell for cell in (*measured_grid.cells, *measured_grid.unjudged) if cell.dataset == dataset}
    if unknown := [name for name in systems if name not in cells]:
        raise BeirgridError(f"the grid has no system {unknown[0]!r} on {dataset!r} (it has: {', '.join(cells)})")
    if not cells:
        raise BeirgridError(f"the grid has no dataset {dataset!r} (it has: {', '.join(measured_grid.datasets)})")
    measure = functools.partial(_measure_at_once, concurrency) if concurrency > 1 else _measure
    log = output.with_suffix(".log")
    tables = [measure(cells[name], queries, warm_up, device, log) for name in systems or cells]
    if not (measured := [table for table in tables if len(table)]):
        raise BeirgridError("none of these systems can be measured")
    write(pd.concat(measured, ignore_index=True), output)


def write(table: pd.DataFrame, path: Path) -> None:
    """Write measurements to a table, replacing rows of the same system, step and hardware."""
    if path.is_file():
        table = pd.concat([read_latency(path), table])
    table = table.drop_duplicates(_KEY, keep="last")
    files.write_text(path, table.to_csv(index=False, lineterminator="\n", columns=LATENCY_COLUMNS))


def _measure_at_once(concurrency: int, cell: Cell, queries: int, warm_up: int, device: str, log: Path) -> pd.DataFrame:
    """Measure one system under several concurrent users; return its row."""
    texts = _texts(cell, queries)
    with held_back(log), ExitStack() as stack, ThreadPoolExecutor(concurrency) as pool:
        opened = open_system(cell.system, cell.dataset, device, stack)
        list(pool.map(opened.rank, texts[:warm_up]))
        seconds, timed = _timed(lambda queries: list(pool.map(functools.partial(_timed, opened.rank), queries)), texts)
    about = {**_about(cell, texts), "concurrency": concurrency, "queries_per_second": len(texts) / seconds}
    found = [ranking.ids for _, ranking in timed]
    whole = _Timing(WHOLE, max(map(len, found)), np.array([of_query for of_query, _ in timed]), found, as_run=True)
    return _rows(about, opened, [whole])


def _texts(cell: Cell, queries: int) -> list[str]:
    return list(collection.read_queries(paths.QUERIES.format(dataset=cell.dataset)).values())[:queries]


def _about(cell: Cell, texts: Sequence[str]) -> dict[str, Any]:
    cpus = len(os.sched_getaffinity(0))
    return {"system": cell.system, "dataset": cell.dataset, "queries": len(texts), "cpus": cpus, "concurrency": 1}


def _measure(cell: Cell, queries: int, warm_up: int, device: str, log: Path) -> pd.DataFrame:
    """Measure one system; return its rows."""
    steps = [read_step(path) for path in cell.records]
    own = steps[-1]
    texts = _texts(cell, queries)
    about = _about(cell, texts)
    if any(step.values.get("index") and step.function == "retrieve_dense" for step in steps):
        # Such an index is read completely for each search, which does not represent a service that keeps it in memory.
        warn(f"{cell.system} is left out: only exact indexes are measured")
        return pd.DataFrame(columns=LATENCY_COLUMNS)
    first, scoring = _reranked(steps)
    if own.stage != "retrieve" and (own.stage != "rerank" or first is None or scoring is None):
        warn(f"{cell.system} is left out: only retrieval and reranking are measured")
        return pd.DataFrame(columns=LATENCY_COLUMNS)
    with held_back(log), ExitStack() as stack:
        search = open_search(first or own, device, stack)
        seconds, found = _time_searches(search, texts, warm_up)
        if scoring is None:
            return _rows(about, search, [_Timing(RETRIEVE, own.values["depth"], seconds, found, as_run=True)])
        reranked = _time_reranking(
            scoring, texts, found, {*DEPTHS, own.values["depth"]}, min(warm_up, len(texts)), device, stack
        )
        timings = []
        for depth, of_depth in reranked.seconds.items():
            timings.append(_Timing(RERANK, depth, of_depth, found))
            timings.append(_Timing(BOTH, depth, seconds + of_depth, found, as_run=depth == own.values["depth"]))
        return _rows(about, search._replace(hardware=reranked.hardware, precision=reranked.precision), timings)


class _Timing(NamedTuple):
    """A timed step: seconds per query, float64 [queries], and the documents of each query."""

    step: str
    depth: int
    seconds: np.ndarray
    found: Sequence[Sequence[str]]
    as_run: bool = False


def _reranked(steps: Sequence[Step]) -> tuple[Step | None, Step | None]:
    """Return the retrieval and the scoring behind a reranked system; None where another system comes between."""
    scoring = next((step for step in reversed(steps) if step.stage == "score"), None)
    run = str(scoring.values["run"]) if scoring else ""
    first = next((step for step in steps if step.stage == "retrieve" and str(step.values["output"]) == run), None)
    return first, scoring


def _time_searches(search: OpenSystem, texts: Sequence[str], warm_up: int) -> tuple[np.ndarray, list[list[str]]]:
    """Time each query; return the seconds, float64 [queries], and the ids of the documents to rerank."""
    for text in texts[:warm_up]:
        search.find(text)
    timed = [_timed(search.find, text) for text in texts]
    return np.array([seconds for seconds, _ in timed]), [search.ranking(found).ids for _, found in timed]


class _Reranking(NamedTuple):
    """Seconds per query by depth, float64 [queries], with the hardware."""

    seconds: dict[int, np.ndarray]
    hardware: str
    precision: str


def _time_reranking(
    step: Step,
    texts: Sequence[str],
    found: Sequence[Sequence[str]],
    depths: set[int],
    warm_up: int,
    device: str,
    stack: ExitStack,
) -> _Reranking:
    """Time the scoring of each query's top documents. If a query returned fewer documents, only those are scored."""
    model: CrossEncoder | Seq2SeqReranker | DecoderReranker = step.values["model"]
    runtime = start(step.values, device, stack)
    scorer = open_scorer(step.values["checkpoint"], model, runtime)
    wanted = {document for ids in found for document in ids[: max(depths)]}
    documents = {d.id: d.joined for d in collection.pick_documents(step.values["corpus"], wanted)}

    def rerank(depth: int, query: int) -> None:
        top = [documents[document] for document in found[query][:depth]]
        if top:
            scorer.score([texts[query]] * len(top), top)

    for query in range(warm_up):
        rerank(min(DEPTHS), query)
    seconds = {
        depth: np.array([_timed(functools.partial(rerank, depth), query)[0] for query in range(len(texts))])
        for depth in sorted(depths)
    }
    return _Reranking(seconds, hardware(runtime), scorer.precision)


def _timed(function: Callable[[Any], Any], argument: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    found = function(argument)
    return time.perf_counter() - started, found


def _rows(about: Mapping[str, Any], search: OpenSystem, timings: Sequence[_Timing]) -> pd.DataFrame:
    device = "cpu" if search.hardware == cpu_name() else "cuda"
    measured = {"device": device, "hardware": search.hardware, "precision": search.precision}
    rows = [
        {
            **about,
            **measured,
            "step": step,
            "depth": depth,
            "documents": np.mean([min(len(ids), depth) for ids in found]),
            "as_run": as_run,
            **_statistics(seconds),
            "queries_per_second": about.get("queries_per_second", 1 / seconds.mean()),
        }
        for step, depth, seconds, found, as_run in timings
    ]
    return pd.DataFrame(rows, columns=LATENCY_COLUMNS)


def _statistics(seconds: np.ndarray) -> dict[str, float]:
    """Return percentiles and mean in milliseconds."""
    p50, p95, p99 = np.percentile(seconds * 1000, [50, 95, 99])
    return {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "mean_ms": float(seconds.mean() * 1000)}
