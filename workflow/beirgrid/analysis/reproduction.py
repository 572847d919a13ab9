"""How far one experiment reproduces another: measures of Breuer et al. (SIGIR 2020), by their library repro_eval."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from ..core.errors import BeirgridError
from ..runs import runs

# repro_eval's own: weight of a rank against the one above it, and the deepest rank.
RBO = {"p": 0.95, "depth": 1000}
COLUMNS = ("ktu", "rbo", "effect_ratio", "p_paired")


def require() -> None:
    """Raise BeirgridError if repro_eval is not installed."""
    try:
        import repro_eval.measure.document_order  # noqa: F401
    except ImportError as error:
        raise BeirgridError(f"--reproduction: {error}: pip install 'beirgrid[reproduction]'") from None


def of_rankings(original: Path, reproduced: Path) -> dict[str, float]:
    """Return ``ktu`` (Kendall's tau union) and ``rbo`` (rank-biased overlap) of two runs: means over the queries.

    repro_eval takes no rankings of different lengths for ``ktu``, and no tau of one document: of each query, the longer
    ranking is cut, and queries with less than two documents in a run are left out. NaN if none is left.
    """
    from repro_eval.measure.document_order import KTU
    from repro_eval.measure.document_order import RBO as overlap

    first, second = (
        {query: dict(zip(ids, scores.tolist(), strict=True)) for query, (ids, scores) in runs.read(path).items()}
        for path in (original, reproduced)
    )
    queries = sorted(first.keys() | second.keys())
    whole = [{query: side.get(query, {}) for query in queries} for side in (first, second)]
    lengths = {query: min(len(side[query]) for side in whole) for query in queries}
    cut = [
        {query: dict(list(side[query].items())[:length]) for query, length in lengths.items() if length > 1}
        for side in whole
    ]
    tau = KTU(*cut) if cut[0] else float("nan")
    return {"ktu": tau, "rbo": overlap(*whole, **RBO, pbar=False, per_topic=False)}


def of_scores(scores: np.ndarray, baselines: np.ndarray | None) -> dict[str, list[float]]:
    """Return ``p_paired`` (paired t test, not corrected) and ``effect_ratio`` of each metric.

    Args:
        scores: float64 [units, 2, metrics]: the original and the reproduced experiment.
        baselines: the same of the baselines, of which the effect is the mean improvement. Without it, no ratio.
    """
    from repro_eval.measure.overall_effects import ER
    from repro_eval.measure.statistics import ttest

    original, reproduced = (_by_unit(scores[:, side]) for side in (0, 1))
    values = {"p_paired": list(ttest(original, reproduced).values())}
    if baselines is not None:
        first, second = (_by_unit(baselines[:, side]) for side in (0, 1))
        with np.errstate(divide="ignore", invalid="ignore"):  # an original without an effect has no ratio
            ratios = ER(orig_score_b=first, orig_score_a=original, rep_score_b=second, rep_score_a=reproduced)
        values["effect_ratio"] = list(ratios.values())
    return values


def _by_unit(scores: np.ndarray) -> dict[str, dict[str, Any]]:
    """Return scores [units, metrics] in repro_eval's form."""
    return {str(unit): {str(metric): value for metric, value in enumerate(row)} for unit, row in enumerate(scores)}
