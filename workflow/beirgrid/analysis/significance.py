"""Confidence intervals and significance tests on one dataset.

Every test is paired: all systems answer the same queries, so queries are resampled as rows, and scores are permuted
within a query. A dataset may be the unweighted mean of several (CQADupStack is the mean of 12 forums): ``parts`` then
has the number of queries of each, in the order of the rows. Queries are resampled within their part, and each query
weighs 1 / (parts × queries of its part).

Random numbers depend only on the generator, never on a score. So a system's interval, and all values of a pair except
the Tukey HSD test, do not depend on the other systems.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from ..results.comparisons import ROUNDING, Student, student
from ..results.permutations import PERMUTATIONS, permutations_of

RESAMPLES = 10_000
CONFIDENCE = 0.95
# Shares of the distribution below and above an interval.
LEVELS = ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2)
# Draws in a block of resamples (1 MB), and sign patterns in a block.
BLOCK = 2**17
AT_ONCE = 512
# Most differences whose sign patterns are all enumerated.
ENUMERATED = 18


# The first and the second columns of pairs.
Pairs = tuple[np.ndarray, np.ndarray]


class Interval(NamedTuple):
    """Lower and upper ends, float64 [columns]; NaN where there is no interval."""

    low: np.ndarray
    high: np.ndarray


def generator(seed: int, *names: str) -> np.random.Generator:
    """Return a generator that depends only on a seed and on the purpose of the numbers."""
    return np.random.default_rng([seed, *(zlib.crc32(name.encode()) for name in names)])


def query_weights(queries: int, parts: Sequence[int] | None = None) -> np.ndarray:
    """Return the weight of each query in the dataset's mean, float64 [queries], of sum 1."""
    sizes = np.array(parts or [queries])
    return np.repeat(1 / (len(sizes) * sizes), sizes)


def mean(values: np.ndarray, parts: Sequence[int] | None = None) -> np.ndarray:
    """Return the means of float64 [queries, columns] in the dataset, float64 [columns]."""
    means: np.ndarray = query_weights(len(values), parts) @ values
    return means


# Bootstrap ------------------------------------------------------------------------------------------------------------


def resampled_means(
    values: np.ndarray, rng: np.random.Generator, *, parts: Sequence[int] | None = None, resamples: int = RESAMPLES
) -> np.ndarray:
    """Return the means of bootstrap resamples of the queries, float64 [resamples, columns].

    All columns of ``values``, float64 [queries, columns], get the same resamples.
    """
    from . import draws  # numba is slow to import

    weighted = values * query_weights(len(values), parts)[:, None]
    means = np.zeros((resamples, values.shape[1]))
    for start, end in itertools.pairwise(np.cumsum([0, *(parts or [len(values)])])):
        seed = _seed(rng)
        size = end - start
        step = max(1, BLOCK // size)
        for first in range(0, resamples, step):
            counts = draws.resample_counts(seed, first, min(step, resamples - first), size)
            means[first : first + step] += counts @ weighted[start:end]
    return means


def _seed(rng: np.random.Generator) -> np.uint64:
    return rng.integers(2**64, dtype=np.uint64)


def bca_interval(distribution: np.ndarray, estimates: np.ndarray, influence: np.ndarray) -> Interval:
    """Return bias-corrected and accelerated bootstrap intervals (Efron, 1987).

    A column that never varies has an interval of no width; a column with values that are not finite, or with all
    resamples on one side of the estimate, has none.

    Args:
        distribution: float64 [resamples, columns], the statistic of each resample.
        estimates: float64 [columns], the statistic of the sample.
        influence: float64 [queries, columns], influence of each query on the statistic, up to a factor.
    """
    from scipy.stats import norm

    slack = ROUNDING * np.maximum(1, np.abs(estimates))
    below = ((distribution < estimates - slack).mean(axis=0) + (distribution <= estimates + slack).mean(axis=0)) / 2
    squares = (influence**2).sum(axis=0)
    with np.errstate(all="ignore"):
        acceleration = (influence**3).sum(axis=0) / (6 * squares**1.5)
        bias = norm.ppf(below)
        z = bias + norm.ppf(LEVELS)[:, None]
        levels = norm.cdf(bias + z / (1 - acceleration * z))  # [2, columns]
    ends = np.full((2, len(estimates)), np.nan)
    for column, level in enumerate(levels.T):
        if np.isfinite(level).all() and np.isfinite(distribution[:, column]).all():
            ends[:, column] = np.quantile(distribution[:, column], level)
    constant = np.ptp(distribution, axis=0) <= slack
    ends[:, constant] = estimates[constant]
    return Interval(*ends)


def mean_intervals(
    values: np.ndarray,
    rng: np.random.Generator,
    *,
    parts: Sequence[int] | None = None,
    resamples: int = RESAMPLES,
) -> Interval:
    """Return BCa bootstrap intervals of the means of float64 [queries, columns].

    There is no interval (NaN) where a part has a single query. The interval of values that are all equal has no width.
    """
    if min(parts or [len(values)]) < 2:
        return Interval(*np.full((2, values.shape[1]), np.nan))
    distribution = resampled_means(values, rng, parts=parts, resamples=resamples)
    interval = bca_interval(distribution, mean(values, parts), _mean_influence(values, parts))
    # Rounded sums can leave the range of the values, which no mean leaves.
    return Interval(*(np.clip(end, values.min(axis=0), values.max(axis=0)) for end in interval))


def _mean_influence(values: np.ndarray, parts: Sequence[int] | None) -> np.ndarray:
    """Return each query's weighted influence on the mean of its part."""
    ends = np.cumsum(parts or [len(values)])
    centred = [rows - rows.mean(axis=0) for rows in np.split(values, ends[:-1])]
    influence: np.ndarray = query_weights(len(values), parts)[:, None] * np.concatenate(centred)
    return influence


def effect_sizes(differences: np.ndarray) -> Student:
    """Return effect sizes of float64 [queries, pairs], with the standard errors of the delta method.

    The effect size is Cohen's d of paired samples (d_z): the mean difference divided by the standard deviation of the
    differences (denominator queries - 1). It is 0 where all differences are 0, and NaN where they all equal another
    value and where there is a single query.
    """
    means = differences.mean(axis=0)
    count = len(differences)
    deviations = differences.std(axis=0, ddof=1) if count > 1 else np.zeros(len(means))
    varies = deviations > ROUNDING
    standard = (differences - means) / np.where(varies, deviations, 1)
    constant = np.where(np.abs(means) <= ROUNDING, 0, np.nan)
    effects = np.where(varies, means / np.where(varies, deviations, 1), constant)
    return student(standard - effects * (standard**2 - 1) / 2)._replace(mean=effects)


# Tests ----------------------------------------------------------------------------------------------------------------


def pairs_of(systems: int) -> Pairs:
    """Return the first and the second column of each pair of systems, int64 [pairs]."""
    return np.triu_indices(systems, 1)


def pairs_of_each(systems: int, metrics: int) -> Pairs:
    """Return the pairs of the columns of a flattened [systems, metrics] with the same metric, [pairs × metrics]."""
    first, second = ((column[:, None] * metrics + np.arange(metrics)).ravel() for column in pairs_of(systems))
    return first, second


def randomisation(
    scores: np.ndarray,
    rng: np.random.Generator,
    *,
    parts: Sequence[int] | None = None,
    permutations: int = PERMUTATIONS,
) -> np.ndarray:
    """Test each pair of systems of float64 [queries, systems, metrics] with Fisher's paired randomisation test.

    If two systems do not differ, their scores of a query may be swapped, so each difference may have either sign
    (Smucker et al., 2007). The p value is the share of all sign patterns whose mean difference is at least as large as
    the observed one. It is exact where at most 18 differences are not 0. Otherwise m = ``permutations`` patterns are
    drawn, the same for all pairs, b of them are as extreme, and p is (b + 1) / (m + 1): never 0.

    Returns:
        two-sided p values, float64 [pairs, metrics], in the order of ``pairs_of(systems)``.
    """
    from . import draws

    queries, systems, metrics = scores.shape
    weighted = scores.reshape(queries, -1) * (queries * query_weights(queries, parts))[:, None]
    first, second = pairs_of_each(systems, metrics)
    differences = (weighted[:, i] - weighted[:, j] for i, j in zip(first, second, strict=True))
    p = np.array([exact_randomisation(of_queries) for of_queries in differences])
    rest = np.isnan(p)
    if rest.any():
        pairs = np.stack([first[rest], second[rest]], axis=1)
        sums = weighted.sum(axis=0)
        least = np.abs(sums[first[rest]] - sums[second[rest]]) - ROUNDING * queries
        seed = _seed(rng)
        extreme = np.zeros(len(pairs), np.int64)
        for start in range(0, permutations, AT_ONCE):
            size = min(AT_ONCE, permutations - start)
            extreme += draws.count_extreme_signs(weighted, least, pairs, seed, start, size)
        p[rest] = (extreme + 1) / (permutations + 1)
    return p.reshape(-1, metrics)


def exact_randomisation(differences: np.ndarray) -> float:
    """Return the exact two-sided p value of the sign patterns of float64 [queries]; NaN if that takes too long."""
    nonzero = differences[np.abs(differences) > ROUNDING]
    if len(nonzero) > ENUMERATED:
        return math.nan
    sums = np.zeros(1)
    for value in nonzero:
        sums = np.concatenate([sums + value, sums - value])
    return float((np.abs(sums) >= abs(nonzero.sum()) - ROUNDING * len(differences)).mean())


def holm(p: np.ndarray) -> np.ndarray:
    """Return p values corrected for their number (Holm, 1979), float64 [tests]; NaN is no test and stays NaN."""
    tests = np.flatnonzero(~np.isnan(p))
    order = tests[np.argsort(p[tests])]
    corrected = np.full(len(p), np.nan)
    multiplied = p[order] * np.arange(len(order), 0, -1)
    corrected[order] = np.minimum(np.maximum.accumulate(multiplied), 1)
    return corrected


def tukey(
    scores: np.ndarray,
    rng: np.random.Generator,
    *,
    parts: Sequence[int] | None = None,
    permutations: int | None = None,
) -> np.ndarray:
    """Test all pairs of float64 [queries, systems, metrics] at once with the randomised Tukey HSD test.

    If no systems differ, the scores of a query may be permuted among the systems (Carterette, 2012). The p value of a
    pair is the share of m permutations (of all queries at once) in which the best and the worst mean lie at least as
    far apart as the means of the pair: (b + 1) / (m + 1). The test so corrects for the number of pairs. Unless given,
    m is that of ``permutations_of``. No metric's p values depend on the other metrics.

    Returns:
        p values, float64 [pairs, metrics], in the order of ``pairs_of(systems)``.
    """
    from . import draws

    queries, systems, metrics = scores.shape
    permutations = permutations or permutations_of(queries)
    first, second = pairs_of(systems)
    if systems < 2:
        return np.zeros((0, metrics))
    weighted = scores * query_weights(queries, parts)[:, None, None]
    observed = weighted.sum(axis=0)
    least = np.abs(observed[first] - observed[second]) - ROUNDING
    ranges = np.sort(draws.permuted_ranges(np.ascontiguousarray(weighted), _seed(rng), permutations), axis=0)
    extreme = [permutations - np.searchsorted(null, wanted) for null, wanted in zip(ranges.T, least.T, strict=True)]
    p: np.ndarray = (np.stack(extreme, axis=1) + 1) / (permutations + 1)
    return p
