"""Agreement of judges: Cohen's kappa, Fleiss' kappa and Krippendorff's alpha, with bootstrap intervals over queries."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import Any, Literal, NamedTuple

import numpy as np

# Grades by judge and (query, document).
Grades = Mapping[str, Mapping[tuple[str, str], int]]
Resolution = Literal["majority", "strictest", "adjudicated"]
_RESAMPLES = 1000
_ALPHA = "Krippendorff's alpha (ordinal)"


class Coefficient(NamedTuple):
    """A coefficient of agreement with its 95 % interval; NaN where it is not defined."""

    name: str
    judges: tuple[str, ...]
    pairs: int
    value: float
    low: float
    high: float


def cohen(first: np.ndarray, second: np.ndarray) -> float:
    """Compute Cohen's kappa of two judges.

    Args:
        first, second: grades of the same pairs, int [pairs].
    """
    grades = np.union1d(first, second)
    observed = float(np.mean(first == second)) if len(first) else float("nan")
    expected = sum(float(np.mean(first == grade) * np.mean(second == grade)) for grade in grades)
    return (observed - expected) / (1 - expected) if expected < 1 else float("nan")


def fleiss(counts: np.ndarray) -> float:
    """Compute Fleiss' kappa.

    Args:
        counts: judges who gave each grade to each pair, int [pairs, grades]; all rows have the same sum.
    """
    judges = counts[0].sum() if len(counts) else 0
    if judges < 2:
        return float("nan")
    observed = float(np.mean(((counts**2).sum(1) - judges) / (judges * (judges - 1))))
    expected = float(((counts.sum(0) / counts.sum()) ** 2).sum())
    return (observed - expected) / (1 - expected) if expected < 1 else float("nan")


def krippendorff(values: np.ndarray) -> float:
    """Compute Krippendorff's alpha for ordinal grades. A judge may lack any pair.

    Args:
        values: grades, float [judges, pairs], NaN where a judge has none.
    """
    grades = np.unique(values[~np.isnan(values)])
    counts = np.stack([(values == grade).sum(0) for grade in grades], 1) if len(grades) else np.zeros((0, 0))
    counts = counts[counts.sum(1) >= 2] if len(counts) else counts
    if len(counts) == 0:
        return float("nan")
    sizes = counts.sum(1, keepdims=True)
    coincidences = (counts[:, :, None] * counts[:, None, :] - counts[:, :, None] * np.eye(len(grades))).astype(float)
    coincidences = (coincidences / (sizes[:, :, None] - 1)).sum(0)
    totals = coincidences.sum(0)
    sums = np.concatenate([[0.0], np.cumsum(totals)])
    # Ordinal distance of two grades: the number of values between them, with both end points counted half.
    between = np.abs(sums[None, 1:] - sums[:-1, None])
    between = np.maximum(between, between.T) - (totals[:, None] + totals[None, :]) / 2
    distance = np.where(np.eye(len(grades), dtype=bool), 0.0, between**2)
    expected = (np.outer(totals, totals) * distance).sum() / (totals.sum() - 1)
    observed = (coincidences * distance).sum()
    return float(1 - observed / expected) if expected > 0 else float("nan")


def coefficients(grades: Grades) -> list[Coefficient]:
    """Compute Cohen's kappa of each pair of judges, and Fleiss' kappa and Krippendorff's alpha of all judges.

    Intervals are percentiles of 1,000 bootstrap samples of queries. Fleiss' kappa uses the pairs that all judges
    graded.
    """
    found = []
    for judges in itertools.combinations(sorted(grades), 2):
        found.append(_kappa(judges, grades[judges[0]], grades[judges[1]]))
    if len(grades) < 2:
        return found
    everyone = tuple(sorted(grades))
    by_all = sorted(set.intersection(*(set(of_judge) for of_judge in grades.values())))
    by_two = _by_two(grades)
    scale = sorted({grade for of_judge in grades.values() for grade in of_judge.values()})

    def of_all(pairs: list[tuple[str, str]]) -> float:
        counts = [Counter(grades[judge][pair] for judge in everyone) for pair in pairs]
        return fleiss(np.array([[count[grade] for grade in scale] for count in counts]))

    if len(everyone) > 2:
        found.append(_with_interval("Fleiss' kappa", everyone, by_all, of_all))
    return [*found, _with_interval(_ALPHA, everyone, by_two, partial(_alpha, grades))]


def by_judge(grades: Grades) -> list[tuple[Coefficient, float]]:
    """Return each judge's kappa against the majority of the others, and how much higher the judge's mean grade is."""
    found = []
    for judge, of_judge in grades.items():
        others, _ = resolve({other: of_other for other, of_other in grades.items() if other != judge}, "majority")
        common = [pair for pair in of_judge if pair in others]
        first, second = np.array([[of_judge[pair], others[pair]] for pair in common]).reshape(-1, 2).T
        found.append((_kappa((judge, "the others"), of_judge, others), float(np.mean(first - second)) if common else 0))
    return found


def by_query(grades: Grades, most: int) -> list[tuple[str, Coefficient]]:
    """Return the queries on which judges agree least, with alpha; its interval is of samples of the query's pairs.

    Queries whose pairs all have one grade have no alpha.
    """
    pairs: dict[str, list[tuple[str, str]]] = {}
    for pair in _by_two(grades):
        pairs.setdefault(pair[0], []).append(pair)
    values = {query: _alpha(grades, of_query) for query, of_query in pairs.items()}
    least = sorted((query for query in pairs if not np.isnan(values[query])), key=lambda query: values[query])[:most]
    everyone = tuple(sorted(grades))
    return [
        (query, _with_interval(_ALPHA, everyone, pairs[query], partial(_alpha, grades), over_queries=False))
        for query in least
    ]


def without_adjudicators(grades: Grades, adjudicators: Collection[str]) -> Grades:
    """Leave out judges who graded where others disagree, if two others remain: they would lower each coefficient."""
    others = {judge: of_judge for judge, of_judge in grades.items() if judge not in adjudicators}
    return others if len(others) > 1 else grades


def disagreements(grades: Grades) -> list[tuple[tuple[str, str], dict[str, int]]]:
    """Return the pairs with different grades, with each judge's grade, largest disagreements first."""
    pairs = sorted({pair for of_judge in grades.values() for pair in of_judge})
    found = [
        (pair, {judge: of_judge[pair] for judge, of_judge in grades.items() if pair in of_judge}) for pair in pairs
    ]
    several = [(pair, of_pair) for pair, of_pair in found if len(set(of_pair.values())) > 1]
    return sorted(several, key=lambda item: min(item[1].values()) - max(item[1].values()))


def resolve(
    grades: Grades, how: Resolution, adjudicator: str = ""
) -> tuple[dict[tuple[str, str], int], list[tuple[str, str]]]:
    """Resolve the grades to one per pair; also return the pairs that still need the adjudicator.

    Args:
        grades: the grades of all judges.
        how: ``majority`` takes the most frequent grade, the lowest if several tie; ``strictest`` takes the lowest
            grade; ``adjudicated`` takes the grade that all judges agree on, otherwise the adjudicator's.
        adjudicator: the judge whose grade decides.
    """
    resolved: dict[tuple[str, str], int] = {}
    undecided = []
    for pair in dict.fromkeys(pair for of_judge in grades.values() for pair in of_judge):
        given = {judge: of_judge[pair] for judge, of_judge in grades.items() if pair in of_judge}
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


def _by_two(grades: Grades) -> list[tuple[str, str]]:
    """Return the pairs that at least two judges graded."""
    return sorted(pair for pair, number in Counter(itertools.chain(*grades.values())).items() if number > 1)


def _alpha(grades: Grades, pairs: list[tuple[str, str]]) -> float:
    """Return Krippendorff's alpha of all judges on some pairs."""
    return krippendorff(np.array([[of_judge.get(pair, np.nan) for pair in pairs] for of_judge in grades.values()]))


def _kappa(
    judges: tuple[str, ...], first: Mapping[tuple[str, str], int], second: Mapping[tuple[str, str], int]
) -> Coefficient:
    """Return Cohen's kappa of two judges on the pairs that both graded, with its interval."""

    def kappa(pairs: list[tuple[str, str]]) -> float:
        return cohen(np.array([first[pair] for pair in pairs]), np.array([second[pair] for pair in pairs]))

    return _with_interval("Cohen's kappa", judges, sorted(first.keys() & second.keys()), kappa)


def _with_interval(
    name: str,
    judges: tuple[str, ...],
    pairs: list[tuple[str, str]],
    statistic: Callable[[list[tuple[str, str]]], float],
    over_queries: bool = True,
) -> Coefficient:
    """Return a statistic with the percentiles of bootstrap samples of queries, or of the pairs of one query."""
    grouped: dict[Any, list[tuple[str, str]]] = {}
    for pair in pairs:
        grouped.setdefault(pair[0] if over_queries else pair, []).append(pair)
    blocks = list(grouped.values())
    if not blocks:
        return Coefficient(name, judges, 0, *[float("nan")] * 3)
    random = np.random.default_rng(0)
    samples = [
        statistic([pair for at in random.integers(len(blocks), size=len(blocks)) for pair in blocks[at]])
        for _ in range(_RESAMPLES)
    ]
    low, high = np.nanpercentile(samples, [2.5, 97.5]) if not np.isnan(samples).all() else [float("nan")] * 2
    return Coefficient(name, judges, len(pairs), statistic(pairs), float(low), float(high))
