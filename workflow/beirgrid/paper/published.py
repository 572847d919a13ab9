"""Put the BEIR paper's own Tables 3, 4 and 10 beside what a grid measured."""

from __future__ import annotations

from collections.abc import Mapping

import pandas as pd

from ..core.checkout import CHECKOUT
from ..results.summary import GridSummary

TABLES = CHECKOUT / "config" / "published" / "analyses" / "beir_paper.csv"
_KEYS = ["dataset", "system", "measure"]


def beside(
    grid: GridSummary, holes: pd.DataFrame, efficiency: pd.DataFrame, latency: pd.DataFrame | None
) -> pd.DataFrame:
    """Return the paper's values on the datasets of a grid, with the grid's own value of the same system in ``here``.

    Holes and nDCG are shares, indexes in GB, latencies the median of a query in milliseconds.
    """
    rows = pd.read_csv(TABLES, keep_default_na=False)
    own = {
        "hole_corpus@10": holes.set_index(_KEYS[:2])["hole_corpus"],
        "ndcg@10": holes.set_index(_KEYS[:2])["ndcg"],
        "index_gb": efficiency.set_index(_KEYS[:2])["index_bytes"] / 1e9,
        **_latencies(latency),
    }
    here = pd.concat(own, names=["measure"]).rename("here").reset_index()
    return rows[rows["dataset"].isin(list(grid.rows))].merge(here, "left", on=_KEYS)


def _latencies(latency: pd.DataFrame | None) -> Mapping[str, pd.Series]:
    """Return the shortest measured latency of each system on each dataset, on a GPU and on a CPU."""
    if latency is None:
        return {}
    whole = latency[latency["as_run"]]
    on_gpu = whole["device"].str.startswith("cuda")
    return {
        f"latency_ms ({device})": whole[chosen].groupby(_KEYS[:2])["p50_ms"].min()
        for device, chosen in (("GPU", on_gpu), ("CPU", ~on_gpu))
    }
