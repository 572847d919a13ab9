"""``beirgrid latency``: measure the latency per query on this hardware (BEIR paper, Table 3): warm, one by one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd

from ..collections import collection
from ..config.values import Size, SizeOrZero
from ..core import files, paths
from ..core.compute import cpu_name
from ..core.errors import BeirgridError, show, suggestion, table_lines
from ..execution.open_systems import hold_back_output, open_system
from ..options import NameLists
from ..results import results_folder, summary
from ..results.efficiency import LATENCY_COLUMNS, read_latency
from ..runs.opened import OpenSystem

# Reranking depths to measure, in addition to the system's own. Each depth is measured separately.
DEPTHS = (10, 50, 100, 200)
# Documents of the exact index that are looked for among as many of an approximate one.
COMPARED = 10
RETRIEVE = "retrieve"
RERANK = "rerank"
BOTH = "retrieve and rerank"
_SHOWN = ("system", "step", "depth", "p50_ms", "p95_ms", "p99_ms", "mean_ms")
_KEY = ["system", "dataset", "step", "depth", "hardware", "cpus"]


def latency(
    *,
    directory: results_folder.Directory = Path(),
    grid: Annotated[str, "name of the grid, where the folder has several"] = "",
    dataset: Annotated[str, "dataset with the queries"],
    systems: Annotated[NameLists, "systems to measure (default: all of the grid)"] = (),
    queries: Annotated[Size, "queries to measure"] = 100,
    warm_up: Annotated[SizeOrZero, "warm-up queries, which are not counted"] = 20,
    device: Annotated[Literal["auto", "cpu", "cuda"], "where models run; auto takes a GPU where there is one"] = "auto",
    trust_remote_code: Annotated[bool, "run programs, and the code of checkpoints (read it first)"] = False,
    ask_endpoint: Annotated[bool, "send queries, and your key, to the server that the results name"] = False,
    output: Annotated[
        Path | None,
        "table to write; rows of other hardware, datasets and systems are kept (default: the grid's latency.csv)",
    ] = None,
) -> None:
    """Measure the latency of systems on this hardware, one query at a time.

    A system is opened from the record of its run, so its index must still exist. Texts of documents to rerank are read
    before the time begins. A program starts for each query, which counts: its step is ``start, retrieve``. Lines
    below the table name the systems that cannot be opened, and why.

    The table has p50, p95, p99 and the mean in milliseconds, of retrieval and of reranking the top 10, 50, 100 and 200.
    ``documents`` is the mean number of documents retrieved or reranked per query. ``as_run`` marks the depth that the
    system has in the grid. ``recall_of_exact`` is the share of the top 10 of the exact index that an approximate or
    truncated one finds in its own top 10.

    Raises:
        BeirgridError: the grid has no such system or dataset, or none of the systems can be measured.
    """
    place = results_folder.only_grid(directory, grid).absolute()
    output = (output or place.parent / "tables" / "latency.csv").absolute()
    os.chdir(results_folder.working_folder(place)[0])
    of_grid = summary.read(place)
    cells = {cell.system: cell for cell in (*of_grid.cells, *of_grid.unjudged) if cell.dataset == dataset}
    if not cells:
        raise BeirgridError(f"the grid has no dataset {dataset!r}{suggestion(dataset, of_grid.datasets)}")
    if unknown := [name for name in systems if name not in cells]:
        raise BeirgridError(f"the grid has no system {unknown[0]!r} on {dataset!r}{suggestion(unknown[0], cells)}")
    measured: list[pd.DataFrame] = []
    left_out: list[str] = []
    for name in systems or cells:
        try:
            with hold_back_output():
                opened = open_system(
                    name, dataset, device, trust_remote_code=trust_remote_code, ask_endpoint=ask_endpoint
                )
                texts = list(collection.read_queries(paths.QUERIES.format(dataset=dataset)).values())[:queries]
                for text in texts[:warm_up]:
                    opened.rank({"": text})
                steps = pd.DataFrame(measure(opened, texts)).assign(system=name, dataset=dataset, **_where(opened))
        except BeirgridError as error:
            left_out.append(f"{name} is not measured: {error}")
            continue
        write(steps, output)  # now: what ends the next system loses nothing
        measured.append(steps)
    if not measured:
        raise BeirgridError("\n".join(left_out))
    table = pd.concat(measured)
    shown = table[list(_SHOWN)].map(lambda value: f"{value:.1f}" if isinstance(value, float) else str(value))
    if table["recall_of_exact"].notna().any():
        shown["recall_of_exact"] = table["recall_of_exact"].map("{:.3f}".format, na_action="ignore").fillna("")
    show(*table_lines(list(shown.columns), shown.to_numpy().tolist()), *left_out)


def _where(opened: OpenSystem) -> dict[str, Any]:
    """Return the hardware and the precision of a system's first model, or of the first one of its parts."""
    models = (each for system in opened.whole for each in (system, system.writer) if each and each.precision)
    model = next(models, opened)
    hardware = {"device": "cpu", "hardware": cpu_name()}
    if model.hardware != "cpu":
        hardware = {"device": "cuda", "hardware": model.hardware}
    return {**hardware, "cpus": len(os.sched_getaffinity(0)), "precision": model.precision}


def measure(opened: OpenSystem, texts: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a row per timed step of a system: its retrieval, or reranking at several depths apart from its first stage.

    If a query found fewer documents, only those are reranked.
    """
    first = opened.parts[0] if opened.scorer else opened
    timed = [_stopwatch(first.rank, {"": text}) for text in texts]
    seconds = np.array([of_query for of_query, _ in timed])
    ids = [run[""].ids for _, run in timed]
    starting = "start, " if any(system.starts for system in opened.whole) else ""  # a program, for one query
    if not opened.scorer:
        searched = row(starting + RETRIEVE, opened.depth, seconds, ids)
        yield searched | {"recall_of_exact": recall_of_exact(opened, texts, ids)}
        return
    depths = sorted({*DEPTHS, opened.depth})
    documents = opened.scorer.read({document for of_query in ids for document in of_query[: depths[-1]]})
    for depth in depths:
        tops = [[documents[document] for document in of_query[:depth]] for of_query in ids]
        scoring = np.array([_stopwatch(opened.scorer.score, *pair)[0] for pair in zip(texts, tops, strict=True)])
        yield row(RERANK, depth, scoring, ids, as_run=False)
        yield row(starting + BOTH, depth, seconds + scoring, ids, as_run=depth == opened.depth)


def recall_of_exact(opened: OpenSystem, texts: Sequence[str], ids: Sequence[Sequence[str]]) -> float:
    """Return the mean share of the top 10 of the exact index that a system has in its own top 10.

    Args:
        ids: the documents that the system ranked for each of the texts.

    Returns:
        NaN if the system searches an exact index, or the exact one is gone.
    """
    if not opened.exact:
        return np.nan
    best = [opened.exact({"": text})[""].ids[:COMPARED] for text in texts]
    shares = []
    for exact, own in zip(best, ids, strict=True):
        if exact:
            shares.append(len({*exact} & {*own[:COMPARED]}) / len(exact))
    return float(np.mean(shares)) if shares else np.nan


def _stopwatch(function: Callable[..., Any], *arguments: Any) -> tuple[float, Any]:
    started = time.perf_counter()
    result = function(*arguments)
    return time.perf_counter() - started, result


def row(
    step: str, depth: int, seconds: np.ndarray, ids: Sequence[Sequence[str]], *, as_run: bool = True
) -> dict[str, Any]:
    """Return the row of a timed step, with percentiles and mean in milliseconds.

    Args:
        seconds: float64 [queries].
        ids: the documents of each query, of which the step takes the first ``depth``.
    """
    p50, p95, p99 = np.percentile(seconds * 1000, [50, 95, 99])
    times = {"p50_ms": p50, "p95_ms": p95, "p99_ms": p99, "mean_ms": seconds.mean() * 1000}
    documents = np.mean([min(len(of_query), depth) for of_query in ids])
    about = {"step": step, "depth": depth, "documents": documents, "as_run": as_run, "queries": len(ids)}
    return about | times | {"recall_of_exact": np.nan}


def write(table: pd.DataFrame, path: Path) -> None:
    """Write measurements to a table, replacing rows of the same system, step and hardware."""
    if path.is_file():
        table = pd.concat([read_latency(path), table])
    table = table.drop_duplicates(_KEY, keep="last")
    files.write_text(path, table.to_csv(index=False, lineterminator="\n", columns=LATENCY_COLUMNS))
