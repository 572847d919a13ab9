"""Statistical power of a number of queries, and means under a model as judge.

Prediction-powered inference (Angelopoulos et al., Science 2023; PPI++, 2023) corrects the mean under a model's
judgements by the queries that people judged too.
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

# Standard deviations up to this are those of equal numbers, after rounding.
ROUNDING = 1e-12
# With fewer queries that people judged too, an interval of a corrected mean covers less than it says.
FEWEST_JUDGED = 15


class Estimate(NamedTuple):
    """An estimate of a mean, with its confidence interval; its ends are NaN where there is none."""

    mean: float
    low: float
    high: float


def _student_quantile(probability: float, degrees: int) -> float:
    from scipy.stats import t

    return float(t.ppf(probability, degrees))


def smallest_difference(differences: np.ndarray, queries: int, power: float = 0.8, alpha: float = 0.05) -> float:
    """Return the smallest mean difference that a paired two-sided t test detects with ``queries`` queries.

    It follows from Student's noncentral t distribution. It is NaN where the differences do not vary.

    Args:
        differences: differences of two systems per query, float [queries seen]; their standard deviation is used.
        queries: number of queries of the test.
        power: probability of detecting such a difference.
        alpha: level of the test.
    """
    from scipy.special import nctdtrinc

    spread = float(np.std(differences, ddof=1)) if len(differences) > 1 else 0.0
    if spread <= ROUNDING or queries < 2:
        return math.nan
    critical = _student_quantile(1 - alpha / 2, queries - 1)
    return float(nctdtrinc(queries - 1, 1 - power, critical)) * spread / math.sqrt(queries)


def interval(differences: np.ndarray, confidence: float = 0.95) -> tuple[float, float]:
    """Compute the confidence interval (low, high) of a mean difference, float [queries], by Student's t."""
    if len(differences) < 2:
        return -math.inf, math.inf
    half = _student_quantile((1 + confidence) / 2, len(differences) - 1) * float(np.std(differences, ddof=1))
    mean = float(np.mean(differences))
    return mean - half / math.sqrt(len(differences)), mean + half / math.sqrt(len(differences))


def queries_needed(differences: np.ndarray, difference: float, power: float = 0.8, alpha: float = 0.05) -> int:
    """Return the number of queries that a paired two-sided t test needs to detect a mean difference.

    Args:
        differences: differences of two systems per query, float [queries seen].
        difference: the mean difference to detect.
        power: probability of detecting it.
        alpha: level of the test.
    """
    if not difference:
        return 0
    quantiles = NormalDist().inv_cdf(1 - alpha / 2) + NormalDist().inv_cdf(power)
    needed = max(2, math.ceil((quantiles * float(np.std(differences, ddof=1)) / difference) ** 2))  # of a normal test
    while smallest_difference(differences, needed, power, alpha) > abs(difference):
        needed += 1
    return needed


def prediction_powered_mean(
    by_model: np.ndarray, model_where_judged: np.ndarray, by_people: np.ndarray, confidence: float = 0.95
) -> Estimate:
    """Estimate the mean under people's judgements of all queries, from a model's judgements and people's judgements of
    a sample. A sample of fewer than 15 queries gives no interval.

    Args:
        by_model: values of the queries that only the model judged, float [queries].
        model_where_judged: values under the model of the queries that people judged too, float [sample].
        by_people: values of these queries under people's judgements, float [sample], a random sample of all queries.
        confidence: coverage of the interval.

    Raises:
        ValueError: the sample has fewer than two queries.
    """
    sample, others = len(by_people), len(by_model)
    if sample < 2 or len(model_where_judged) != sample:
        raise ValueError("prediction-powered inference needs at least two queries that people judged")
    everything = np.concatenate([by_model, model_where_judged])
    variance = float(np.var(everything, ddof=1))
    covariance = float(np.cov(by_people, model_where_judged)[0, 1])
    # The weight of the model's values that minimises the interval (PPI++).
    weight = min(max(covariance / ((1 + sample / others) * variance), 0.0), 1.0) if others and variance else 0.0
    corrected = by_people - weight * model_where_judged
    mean = weight * float(np.mean(by_model)) + float(np.mean(corrected)) if others else float(np.mean(by_people))
    if sample < FEWEST_JUDGED:
        return Estimate(mean, math.nan, math.nan)
    error = float(np.var(corrected, ddof=1)) / sample
    if others > 1:
        error += weight**2 * float(np.var(by_model, ddof=1)) / others
    half = _student_quantile((1 + confidence) / 2, sample - 1) * math.sqrt(error)
    return Estimate(mean, mean - half, mean + half)
