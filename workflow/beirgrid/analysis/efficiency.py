"""What systems cost: size, memory and speed from the records of a grid, and the best trade-offs (BEIR paper,
Table 3).
"""

from __future__ import annotations

import numpy as np
import pandas as pd

EFFICIENCY_COLUMNS = [
    "system",
    "dataset",
    "index_bytes",
    "index_seconds",
    "documents_per_second",
    "query_ms",
    "pairs_per_second",
    "peak_memory_mb",
    "device",
]
# Costs that a mean is held against, and what they are.
COSTS = {
    "index_bytes": "size of the indexes, bytes",
    "query_ms": "search time of a query in a batch, milliseconds",
    "latency_ms": "latency of a query, milliseconds",
}
# Stages that make the index of a corpus, in which models read its documents or not.
_INDEXING = ("expand", "encode", "index")


def efficiency(costs: pd.DataFrame) -> pd.DataFrame:
    """Return size and speed of each system on each dataset, from the records of its steps.

    Args:
        costs: the table ``costs`` of a grid.

    Returns:
        ``index_bytes`` of all shards; ``index_seconds`` of all jobs that encode, expand and index;
        ``documents_per_second`` that models encode, and ``pairs_per_second`` that rerankers score: the lowest of all
        jobs; ``query_ms``, the search of all queries together by their number (a batch: latency is measured apart);
        ``peak_memory_mb``, the most that a job for queries took; ``device`` of models. What a system does not do is
        empty.
    """
    rows = []
    for (system, dataset), steps in costs.groupby(["system", "dataset"], sort=False):
        of_unit = {unit: found["rate"].min() for unit, found in steps.groupby("unit")}
        queries = steps[steps["unit"] == "queries/s"]["rate"]
        making = steps[steps["stage"].isin(_INDEXING)]
        rows.append(
            {
                "system": system,
                "dataset": dataset,
                "index_bytes": steps.loc[steps["stage"] == "index", "bytes"].sum(min_count=1),
                "index_seconds": making["seconds"].sum(min_count=1),
                "documents_per_second": of_unit.get("documents/s"),
                "query_ms": (1000 / queries).sum(min_count=1),
                "pairs_per_second": of_unit.get("pairs/s"),
                "peak_memory_mb": steps.loc[steps["stage"].isin(["retrieve", "score"]), "peak_memory_mb"].max(),
                "device": ", ".join(sorted(set(steps["device"]) - {""})),
            }
        )
    return pd.DataFrame(rows, columns=EFFICIENCY_COLUMNS)


def trade_offs(
    efficiency: pd.DataFrame, against: pd.DataFrame, metric: str, latency: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Return the mean of a metric beside what it costs, a row per system.

    Args:
        efficiency: what ``efficiency`` returns.
        against: means over the datasets, as ``standings.against_baseline`` returns them.
        metric: name of the metric.
        latency: what the command ``latency`` measured, if it was run.

    Returns:
        columns ``system``, ``metric``, ``mean``, ``datasets``; ``index_bytes`` of all datasets together; ``query_ms``
        and ``latency_ms``, the median on the fastest hardware that was measured, on average over the datasets; and for
        each of them, whether the system is on the Pareto front.
    """
    costs = efficiency.groupby("system", sort=False).agg(
        index_bytes=("index_bytes", lambda sizes: sizes.sum(min_count=1)), query_ms=("query_ms", "mean")
    )
    means = against.loc[against["metric"] == metric, ["system", "metric", "mean", "datasets"]]
    table = means.merge(costs, "left", left_on="system", right_index=True).reset_index(drop=True)
    table["latency_ms"] = np.nan if latency is None else table["system"].map(_fastest(latency))
    for cost in COSTS:
        table[f"{cost}_front"] = on_front(table[cost], table["mean"])
    return table


def _fastest(latency: pd.DataFrame) -> pd.Series:
    """Return the median latency of each system as it runs in the grid, on the fastest hardware that was measured."""
    fastest = latency[latency["as_run"]].groupby(["system", "dataset"])["p50_ms"].min()
    return fastest.groupby("system").mean()


def on_front(cost: pd.Series, value: pd.Series) -> pd.Series:
    """Tell which systems are on the Pareto front: no other is as cheap and as good, and cheaper or better.

    A system without cost or value is not on the front.
    """
    costs, values = cost.to_numpy(np.float64), value.to_numpy(np.float64)
    as_good = (costs[None] <= costs[:, None]) & (values[None] >= values[:, None])
    better = (costs[None] < costs[:, None]) | (values[None] > values[:, None])
    beaten = (as_good & better).any(axis=1)
    return pd.Series(~beaten & ~np.isnan(costs) & ~np.isnan(values), cost.index)
