"""Agreement of judges: Cohen's kappa and Krippendorff's alpha, with bootstrap intervals over queries."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from typing import Literal, NamedTuple

import numpy as np

# A query and a document.
Pair = tuple[str, str]
# Grades by judge and pair.
Grades = Mapping[str, Mapping[Pair, int]]
Resolution = Literal["majority", "strictest", "adjudicated"]
_RESAMPLES = 1000


class Coefficient(NamedTuple):
    """A coefficient of agreement with its 95 % interval; NaN where it is not defined."""

    name: str
    judges: tuple[str, ...]
    pairs: int
    value: float
    low: float
    high: float


def cohen(values: np.ndarray) -> float:
    """Compute Cohen's kappa of two judges.

    Args:
        values: grades, float [2, pairs].
    """
    first, second = values
    observed = float(np.mean(first == second))
    expected = sum(float(np.mean(first == grade) * np.mean(second == grade)) for grade in np.unique(values))
    return (observed - expected) / (1 - expected) if expected < 1 else float("nan")


def krippendorff(values: np.ndarray) -> float:
    """Compute Krippendorff's alpha for ordinal grades. A judge may lack any pair.

    Args:
        values: grades, float [judges, pairs], NaN where a judge has none.
    """
    of_grades = np.unique(values[~np.isnan(values)])
    counts: np.ndarray = (values[..., None] == of_grades).sum(0)  # judges who gave each grade to each pair
    counts = counts[counts.sum(1) >= 2]
    if not counts.size:
        return float("nan")
    sizes = counts.sum(1)[:, None, None]
    same = np.eye(counts.shape[1])
    pairs = counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * same  # of two different judges
    coincidences = (pairs / (sizes - 1)).sum(0)
    totals = coincidences.sum(0)
    sums = np.concatenate([[0.0], np.cumsum(totals)])
    # Ordinal distance of two grades: the number of values between them, with both end points counted half.
    between = np.abs(sums[None, 1:] - sums[:-1, None])
    between = np.maximum(between, between.T) - (totals[:, None] + totals[None, :]) / 2
    distance = (1 - same) * between**2
    expected = (np.outer(totals, totals) * distance).sum() / (totals.sum() - 1)
    return float(1 - (coincidences * distance).sum() / expected) if expected > 0 else float("nan")


def coefficients(grades: Grades) -> list[Coefficient]:
    """Compute Cohen's kappa of each pair of judges, and Krippendorff's alpha of all judges.

    Intervals are percentiles of 1,000 bootstrap samples of queries.
    """
    grades = dict(sorted(grades.items()))
    computed = [_with_interval("Cohen's kappa", cohen, dict(two)) for two in itertools.combinations(grades.items(), 2)]
    return [*computed, _with_interval("Krippendorff's alpha (ordinal)", krippendorff, grades)] if computed else []


def without_adjudicators(grades: Grades, adjudicators: Collection[str]) -> Grades:
    """Leave out judges who graded where others disagree, if two others remain: they would lower each coefficient."""
    others = {judge: of_judge for judge, of_judge in grades.items() if judge not in adjudicators}
    return others if len(others) > 1 else grades


def disagreements(grades: Grades) -> list[tuple[Pair, dict[str, int]]]:
    """Return the pairs with different grades, with each judge's grade, largest disagreements first."""
    of_pairs = sorted(_by_pair(grades).items())
    several = [(pair, given) for pair, given in of_pairs if len({*given.values()}) > 1]
    return sorted(several, key=lambda item: min(item[1].values()) - max(item[1].values()))


def resolve(grades: Grades, how: Resolution, adjudicator: str = "") -> tuple[dict[Pair, int], list[Pair]]:
    """Resolve the grades to one per pair; also return the pairs that still need the adjudicator.

    Args:
        grades: the grades of all judges.
        how: ``majority`` takes the most frequent grade, the lowest if several tie; ``strictest`` takes the lowest
            grade; ``adjudicated`` takes the grade that all judges agree on, otherwise the adjudicator's.
        adjudicator: the judge whose grade decides.
    """
    resolved: dict[Pair, int] = {}
    undecided = []
    for pair, given in _by_pair(grades).items():
        values = Counter(given.values())
        if len(values) == 1 or how == "strictest":
            resolved[pair] = min(values)
        elif how == "majority":
            resolved[pair] = min(grade for grade, number in values.items() if number == max(values.values()))
        elif adjudicator in given:
            resolved[pair] = given[adjudicator]
        else:
            undecided.append(pair)
    return resolved, undecided


def _by_pair(grades: Grades) -> dict[Pair, dict[str, int]]:
    """Return the grades of each pair by judge."""
    pairs: dict[Pair, dict[str, int]] = {}
    for judge, of_judge in grades.items():
        for pair, grade in of_judge.items():
            pairs.setdefault(pair, {})[judge] = grade
    return pairs


def _with_interval(name: str, statistic: Callable[[np.ndarray], float], grades: Grades) -> Coefficient:
    """Return a statistic of the pairs that two judges graded, with the percentiles of bootstrap samples of queries."""
    pairs = sorted(pair for pair, of_pair in _by_pair(grades).items() if len(of_pair) >= 2)
    if not pairs:
        return Coefficient(name, tuple(grades), 0, *[float("nan")] * 3)
    by_judge = [[of_judge.get(pair, np.nan) for pair in pairs] for of_judge in grades.values()]
    values = np.array(by_judge, np.float64)  # [judges, pairs]
    _, query = np.unique([query for query, _ in pairs], return_inverse=True)
    blocks = [np.flatnonzero(query == number) for number in range(query.max() + 1)]
    random = np.random.default_rng(0)
    samples = []
    for _ in range(_RESAMPLES):
        drawn = random.integers(len(blocks), size=len(blocks))
        columns = np.concatenate([blocks[number] for number in drawn])
        samples.append(statistic(values[:, columns]))
    low = high = float("nan")
    if not np.isnan(samples).all():
        low, high = np.nanpercentile(samples, [2.5, 97.5])
    return Coefficient(name, tuple(grades), len(pairs), statistic(values), float(low), float(high))
