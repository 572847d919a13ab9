"""Compute size, memory and speed of systems from the records of a grid, and the Pareto front (BEIR paper, Table 3)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..core import files
from .answers import Answers, main_comparison, typed
from .cells import Steps
from .summary import GridSummary

LATENCY_COLUMNS = [
    *("system", "dataset", "step", "depth", "documents", "as_run", "queries", "p50_ms", "p95_ms", "p99_ms", "mean_ms"),
    *("device", "hardware", "cpus", "precision", "recall_of_exact"),
]
# Costs on the x-axes of trade-offs, with their labels.
COSTS = {
    "index_bytes": "size of the indexes, bytes",
    "latency_ms": "latency of a query, milliseconds",
    "price_per_1000_queries": "price of 1,000 queries, in the currency of the endpoints",
}
# Costs from records, and how they are aggregated over a system's datasets.
_OF_CELLS: dict[str, Any] = {
    "index_bytes": lambda sizes: sizes.sum(min_count=1),
    "query_ms": "mean",
    "price_per_1000_queries": "mean",
}
# Kinds of jobs that answer the queries of a dataset with a model or an index.
_ANSWERING = ("search", "score")


def efficiency(steps: Mapping[tuple[str, str], Steps]) -> pd.DataFrame:
    """Return size and speed of each system on each dataset, from the steps behind each cell.

    ``index_bytes`` are of all shards that are searched; ``index_seconds`` of all jobs that encode, expand and index;
    ``query_ms`` is the time to encode and search all queries, and to score all pairs, by the number of queries, with
    models open and Java running: empty for programs, and for searches that an earlier version recorded;
    ``peak_memory_mb`` the most that a job for queries took; ``tokens`` and ``price`` are of all requests to servers of
    models, ``price_per_1000_queries`` of encoding and reranking alone. What no record says is empty.
    """
    rows = [
        {"system": system, "dataset": dataset, **_of_cell(behind)}
        for (system, dataset), behind in steps.items()
        if behind
    ]
    return typed("efficiency", pd.DataFrame(rows))


def _of_cell(steps: Steps) -> dict[str, Any]:
    steps = _without_tuning(steps)
    records = list(steps.values())
    facts = [record["facts"] for record in records]
    making = [record["seconds"] for record in records if record["kind"] in ("encode", "index")]
    return {
        "index_bytes": _searched_bytes(steps) or np.nan,
        "index_seconds": sum(making) if making else np.nan,
        "query_ms": _query_ms(records),
        "peak_memory_mb": max(
            (record["peak_memory_mb"] for record in records if record["kind"] in _ANSWERING), default=np.nan
        ),
        "device": ", ".join(sorted({step["device"] for step in facts if "device" in step})),
        "tokens": sum(step.get("tokens", 0) for step in facts) or np.nan,
        "price": sum(step.get("price", 0) for step in facts) or np.nan,
        "price_per_1000_queries": price_of_queries(records),
    }


def _without_tuning(steps: Steps) -> Steps:
    """Leave out the runs over other queries, on which a fusion was tuned."""
    *_, last = steps.values()
    asked = last.get("behind", {}).get("queries")  # earlier versions recorded none, and tuned nothing
    return {path: one for path, one in steps.items() if one.get("behind", {}).get("queries", asked) == asked}


def price_of_queries(records: Iterable[Mapping[str, Any]]) -> float:
    """Return the price of 1,000 queries from the records of a search; NaN without a price."""
    answering = (record["facts"] for record in records if record["kind"] in _ANSWERING)
    prices = [1000 * facts["price"] / facts["queries"] for facts in answering if facts.get("price")]
    return sum(prices) if prices else np.nan


def _searched_bytes(steps: Steps) -> float:
    """Return the bytes of the indexes that a cell searches, without those made only to build others or to mine."""
    searched = {
        os.path.normpath(Path(path).parent / Path(entry["path"]).with_suffix(".json"))
        for path, record in steps.items()
        if record["kind"] == "search"
        for entry in chain(*record.get("inputs", {}).values())
    }
    indexes = [steps[path] for path in searched & steps.keys() if steps[path]["kind"] == "index"]
    return float(sum(record["facts"].get("bytes", 0) for record in indexes))


def _query_ms(records: Sequence[Mapping[str, Any]]) -> float:
    """Return the time of a query in a batch: searches, and the pairs of each reranking; NaN for a foreign run."""
    seconds = pairs = speed = 0.0
    for kind, facts, settings in ((record["kind"], record["facts"], record["settings"]) for record in records):
        if kind in ("search", "adopt"):
            seconds += facts.get("query_seconds", np.nan) / facts["queries"]
        elif kind == "score":
            pairs = facts["pairs"]
            speed = facts["pairs_per_second"]
        elif kind == "rerank":
            # If another job had scored all pairs before, the speed is unknown.
            seconds += min(pairs / facts["queries"], settings["depth"]) / speed if speed else np.nan
    return 1000 * seconds


def trade_offs(answers: Answers, grid: GridSummary, latency: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return a row per system: its mean of the first metric over datasets, its costs, and which Pareto fronts it is on.

    A front is that of the mean and one cost. ``index_bytes`` are of all datasets together, the other costs are averages
    over the datasets; those of a system with seeds are those of one seed, on average. ``latency_ms`` and ``p95_ms`` are
    on the fastest hardware that was measured, from the table of the command ``latency``. A system is faster than
    another if its 95th percentile is below the other's median.
    """
    owners = {member: system for system, members in grid.seeds.items() for member in members}
    measured = answers.efficiency.assign(system=answers.efficiency["system"].replace(owners))
    of_cells = measured.groupby(["system", "dataset"], sort=False)[[*_OF_CELLS]].mean()
    costs = of_cells.groupby("system", sort=False).agg(_OF_CELLS)
    means = main_comparison(answers.across[answers.across["metric"] == grid.metrics[0]])
    means = means[["system", "metric", "mean", "datasets"]]
    table = means.merge(costs, "left", left_on="system", right_index=True).reset_index(drop=True)
    table = table.assign(latency_ms=np.nan, p95_ms=np.nan)
    if latency is not None:
        whole = latency[latency["as_run"]].sort_values("p50_ms")
        fastest_hardware = whole.drop_duplicates(["system", "dataset"])
        of_members = fastest_hardware.groupby("system")[["p50_ms", "p95_ms"]].mean()
        fastest = of_members.rename(owners).groupby(level=0).mean()
        table[["latency_ms", "p95_ms"]] = fastest.reindex(table["system"]).to_numpy()
    if (table["price_per_1000_queries"] > 0).any():  # what no endpoint runs has no price
        table["price_per_1000_queries"] = table["price_per_1000_queries"].fillna(0)
    for cost in COSTS:
        table[f"{cost}_front"] = on_front(table[cost], table["mean"], table["p95_ms" if cost == "latency_ms" else cost])
    return table


def read_latency(path: Path) -> pd.DataFrame:
    """Read the table that the command ``latency`` wrote.

    Raises:
        DataError: it is missing or damaged.
    """
    texts = dict.fromkeys(["system", "dataset", "step", "device", "hardware", "precision"], str)
    with files.reading(path):
        table = pd.read_csv(path, dtype=texts, keep_default_na=False, na_values={"recall_of_exact": [""]})
        if "concurrency" in table:  # of an earlier version, which could measure several users at a time
            table = table[table["concurrency"] == 1].drop(columns=["concurrency", "queries_per_second"])
        if "recall_of_exact" not in table:  # of an earlier version
            table["recall_of_exact"] = np.nan
        if list(table.columns) != LATENCY_COLUMNS:
            raise ValueError(f"its columns must be {','.join(LATENCY_COLUMNS)}")
    return table


def on_front(cost: pd.Series, value: pd.Series, highest: pd.Series) -> pd.Series:
    """Tell which systems are on the Pareto front: no other is as cheap and as good, and cheaper or better.

    A system is cheaper if the ``highest`` that its cost may be is below the other's cost. One without cost or value is
    not on the front.
    """
    costs, values, most = (column.to_numpy(np.float64) for column in (cost, value, highest))
    dearer = costs[None] > most[:, None]
    cheaper = most[None] < costs[:, None]
    better = values[None] > values[:, None]
    beaten = (~dearer & (values[None] >= values[:, None]) & (cheaper | better)).any(axis=1)
    return pd.Series(~beaten & ~np.isnan(costs) & ~np.isnan(values), cost.index)
