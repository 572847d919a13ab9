"""Agreement of judges: Cohen's kappa, Fleiss' kappa and Krippendorff's alpha, with bootstrap intervals over queries."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Literal, NamedTuple

import numpy as np

# Judge to (query, document) to grade.
Grades = Mapping[str, Mapping[tuple[str, str], int]]
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


def cohen(first: np.ndarray, second: np.ndarray) -> float:
    """Return Cohen's kappa of two judges.

    Args:
        first, second: grades of the same pairs, int [pairs].
    """
    grades = np.union1d(first, second)
    observed = float(np.mean(first == second)) if len(first) else float("nan")
    expected = sum(float(np.mean(first == grade) * np.mean(second == grade)) for grade in grades)
    return (observed - expected) / (1 - expected) if expected < 1 else float("nan")


def fleiss(counts: np.ndarray) -> float:
    """Return Fleiss' kappa.

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
    """Return Krippendorff's alpha for ordinal grades; a judge may lack any pair.

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
    # The ordinal distance of two grades: the values from one to the other, half of both ends.
    between = np.abs(sums[None, 1:] - sums[:-1, None])
    between = np.maximum(between, between.T) - (totals[:, None] + totals[None, :]) / 2
    distance = np.where(np.eye(len(grades), dtype=bool), 0.0, between**2)
    expected = (np.outer(totals, totals) * distance).sum() / (totals.sum() - 1)
    observed = (coincidences * distance).sum()
    return float(1 - observed / expected) if expected > 0 else float("nan")


def coefficients(grades: Grades, seed: int = 0) -> list[Coefficient]:
    """Return Cohen's kappa of each two judges, and over all judges Fleiss' kappa and Krippendorff's alpha.

    Intervals are percentiles of 1,000 bootstrap samples of queries. Fleiss' kappa is of the pairs that all judged.
    """
    found = []
    for judges in itertools.combinations(sorted(grades), 2):
        first, second = (grades[judge] for judge in judges)
        common = sorted(first.keys() & second.keys())

        def kappa(pairs: list[tuple[str, str]], first: Mapping = first, second: Mapping = second) -> float:  # type: ignore[type-arg]
            return cohen(np.array([first[pair] for pair in pairs]), np.array([second[pair] for pair in pairs]))

        found.append(_with_interval("Cohen's kappa", judges, common, kappa, seed))
    if len(grades) < 2:
        return found
    everyone = tuple(sorted(grades))
    by_all = sorted(set.intersection(*(set(of_judge) for of_judge in grades.values())))
    scale = sorted({grade for of_judge in grades.values() for grade in of_judge.values()})

    def of_all(pairs: list[tuple[str, str]]) -> float:
        counts = [Counter(grades[judge][pair] for judge in everyone) for pair in pairs]
        return fleiss(np.array([[count[grade] for grade in scale] for count in counts]))

    def alpha(pairs: list[tuple[str, str]]) -> float:
        return krippendorff(np.array([[grades[judge].get(pair, np.nan) for pair in pairs] for judge in everyone]))

    by_two = sorted(pair for pair, number in Counter(itertools.chain(*grades.values())).items() if number > 1)
    if len(everyone) > 2:
        found.append(_with_interval("Fleiss' kappa", everyone, by_all, of_all, seed))
    return [*found, _with_interval("Krippendorff's alpha (ordinal)", everyone, by_two, alpha, seed)]


def disagreements(grades: Grades) -> list[tuple[tuple[str, str], dict[str, int]]]:
    """Return the pairs that judges grade differently, with each judge's grade; the widest disagreements first."""
    pairs = sorted({pair for of_judge in grades.values() for pair in of_judge})
    found = [
        (pair, {judge: of_judge[pair] for judge, of_judge in grades.items() if pair in of_judge}) for pair in pairs
    ]
    several = [(pair, of_pair) for pair, of_pair in found if len(set(of_pair.values())) > 1]
    return sorted(several, key=lambda item: min(item[1].values()) - max(item[1].values()))


def resolve(
    grades: Grades, how: Resolution, adjudicator: str = ""
) -> tuple[dict[tuple[str, str], int], list[tuple[str, str]]]:
    """Return one grade per pair, and the pairs that stay open because an adjudicator has to decide.

    Args:
        grades: the grades of all judges.
        how: ``majority`` takes the most frequent grade, of several the lowest; ``strictest`` takes the lowest grade;
            ``adjudicated`` takes a grade that all judges share, or else the adjudicator's.
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


def _with_interval(
    name: str,
    judges: tuple[str, ...],
    pairs: list[tuple[str, str]],
    statistic: Callable[[list[tuple[str, str]]], float],
    seed: int,
) -> Coefficient:
    by_query: dict[str, list[tuple[str, str]]] = {}
    for pair in pairs:
        by_query.setdefault(pair[0], []).append(pair)
    blocks = list(by_query.values())
    if not blocks:
        return Coefficient(name, judges, 0, *[float("nan")] * 3)
    random = np.random.default_rng(seed)
    samples = [
        statistic([pair for at in random.integers(len(blocks), size=len(blocks)) for pair in blocks[at]])
        for _ in range(_RESAMPLES)
    ]
    low, high = np.nanpercentile(samples, [2.5, 97.5]) if not np.isnan(samples).all() else [float("nan")] * 2
    return Coefficient(name, judges, len(pairs), statistic(pairs), float(low), float(high))
