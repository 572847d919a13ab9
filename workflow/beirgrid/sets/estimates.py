"""Statistical power of a number of queries, and means under a model as judge.

Prediction-powered inference (Angelopoulos et al., Science 2023; PPI++, 2023) corrects the mean under a model's
judgements by the queries that people judged too.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from typing import NamedTuple

import numpy as np

from ..analysis.significance import ROUNDING

# Probability with which a test detects a difference.
_POWER = 0.8
_MOST_QUERIES = 10**12
# With fewer queries that people judged too, an interval of a corrected mean covers less than it says.
FEWEST_JUDGED = 15


class Estimate(NamedTuple):
    """An estimate of a mean, with its 95 % interval; its ends are NaN where there is none."""

    mean: float
    low: float
    high: float


def smallest_difference(differences: np.ndarray, queries: int, alpha: float = 0.05) -> float:
    """Return the smallest mean difference that a paired two-sided t test detects with a probability of 0.8.

    It follows from Student's noncentral t distribution. It is NaN where the differences do not vary.

    Args:
        differences: differences of two systems per query, float [queries seen]; their standard deviation is used.
        queries: number of queries of the test.
        alpha: level of the test.
    """
    from scipy.special import nctdtrinc, stdtrit

    spread = float(np.std(differences, ddof=1)) if len(differences) > 1 else 0.0
    if spread <= ROUNDING or queries < 2:
        return math.nan
    critical = float(stdtrit(queries - 1, 1 - alpha / 2))
    return float(nctdtrinc(queries - 1, 1 - _POWER, critical)) * spread / math.sqrt(queries)


def queries_needed(differences: np.ndarray, difference: float, alpha: float = 0.05) -> int:
    """Return the number of queries with which ``smallest_difference`` is at most a difference."""
    sizes = range(_MOST_QUERIES)
    return bisect_left(sizes, -abs(difference), lo=2, key=lambda size: -smallest_difference(differences, size, alpha))


def prediction_powered_mean(by_model: np.ndarray, model_where_judged: np.ndarray, by_people: np.ndarray) -> Estimate:
    """Estimate the mean under people's judgements of all queries, from a model's judgements and people's judgements of
    a sample. A sample of fewer than 15 queries gives no interval.

    Args:
        by_model: values of the queries that only the model judged, float [queries].
        model_where_judged: values under the model of the queries that people judged too, float [sample].
        by_people: values of these queries under people's judgements, float [sample], a random sample of all queries,
            at least two.
    """
    from scipy.special import stdtrit

    sample, others = len(by_people), len(by_model)
    everything = np.concatenate([by_model, model_where_judged])
    variance = float(np.var(everything, ddof=1))
    covariance = float(np.cov(by_people, model_where_judged)[0, 1])
    # The weight of the model's values that minimises the interval (PPI++).
    weight = min(max(covariance / ((1 + sample / others) * variance), 0.0), 1.0) if others and variance else 0.0
    corrected = by_people - weight * model_where_judged
    mean = float(np.mean(corrected)) + (weight * float(np.mean(by_model)) if others else 0.0)
    if sample < FEWEST_JUDGED:
        return Estimate(mean, math.nan, math.nan)
    error = float(np.var(corrected, ddof=1)) / sample
    if others > 1:
        error += weight**2 * float(np.var(by_model, ddof=1)) / others
    half = float(stdtrit(sample - 1, 0.975)) * math.sqrt(error)
    return Estimate(mean, mean - half, mean + half)
