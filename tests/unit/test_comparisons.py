"""The procedure behind planned comparisons: its size, coverage and power, by simulations of the project's functions."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
from statsmodels.stats.power import TTestPower

from beirgrid.analysis import across
from beirgrid.results import comparisons
from beirgrid.results.comparisons import BETTER, EQUIVALENT, OPEN, Student, decided, student
from beirgrid.results.summary import DatasetSummary, GridSummary

Draw = Callable[[np.ndarray, np.random.Generator, int], np.ndarray]


def normal(effects: np.ndarray, rng: np.random.Generator, queries: int) -> np.ndarray:
    """Draw normal differences, float64 [queries, *effects]."""
    return effects + rng.normal(0, 0.25, (queries, *effects.shape))


def tailed(effects: np.ndarray, rng: np.random.Generator, queries: int) -> np.ndarray:
    """Draw differences of nDCG-like scores, float64 [queries, *effects]: many are 0, the others have long tails."""
    shape = (queries, *effects.shape)
    differ = rng.random(shape) < 0.7
    return effects + 0.3 * differ * rng.standard_t(5, shape)


def plan_of(others: int, datasets: int, **facts: object) -> GridSummary:
    """Return a grid that plans to compare z with the others."""
    names = tuple(f"d{number}" for number in range(datasets))
    systems = ("z", *(f"s{number}" for number in range(others)))
    entries = {name: DatasetSummary(corpus=name) for name in names}
    return GridSummary(systems=systems, rows=names, datasets=entries, metrics=("ndcg@10",), compare=systems, **facts)


def is_decided(of: Student, tests: int) -> np.ndarray:
    """Tell which differences of estimates have a verdict other than open."""
    low, high = of.interval(tests)
    return (low > 0) | (high < 0)


def size_of(others: int, datasets: int, queries: int, repetitions: int, rng: np.random.Generator, draw: Draw) -> float:
    """Return the share of grids of equal systems in which any planned verdict is not open."""
    tests = comparisons.planned_tests(plan_of(others, datasets))
    scores = draw(np.zeros((repetitions, 1 + others, datasets)), rng, queries)
    shape = (repetitions, others, datasets)
    each = student((scores[:, :, :1] - scores[:, :, 1:]).reshape(queries, -1))
    false = is_decided(each, tests).reshape(repetitions, -1).any(axis=1)
    if datasets >= 5:
        over = student(np.moveaxis(each.mean.reshape(shape), 2, 0).reshape(datasets, -1))
        false |= is_decided(over, tests).reshape(repetitions, -1).any(axis=1)
    return float(false.mean())


@pytest.mark.parametrize(
    ("others", "datasets", "queries"), [(1, 5, 20), (5, 5, 50), (3, 14, 20), (6, 1, 50), (18, 1, 10)]
)
def test_equal_systems_have_a_planned_verdict_in_five_of_a_hundred_grids(others, datasets, queries):
    rng = np.random.default_rng(5)
    assert 0.03 <= size_of(others, datasets, queries, 2000, rng, normal) <= 0.07
    assert size_of(others, datasets, queries, 2000, rng, tailed) <= 0.07


@pytest.mark.full
@pytest.mark.parametrize("queries", [10, 20, 50, 300, 2000])
@pytest.mark.parametrize(
    ("others", "datasets"), [*itertools.product((1, 2, 3, 5), (5, 8, 14)), *((n, 1) for n in (1, 2, 3, 6, 18))]
)
def test_the_size_is_kept_by_each_number_of_systems_datasets_and_queries(others, datasets, queries):
    rng = np.random.default_rng(6)
    blocks = max(1, others * datasets * queries // 4000)
    for draw, least in ((normal, 0.03), (tailed, 0)):
        found = np.mean([size_of(others, datasets, queries, 4000 // blocks, rng, draw) for _ in range(blocks)])
        assert least <= found <= 0.07, draw


@pytest.mark.parametrize("datasets", [2, 3, 5, 8, 14])
@pytest.mark.parametrize(("queries", "draw"), [(20, normal), (60, normal), (20, tailed), (300, tailed)])
def test_the_intervals_over_datasets_cover(datasets, queries, draw):
    """The differences on the datasets vary around 0.02, and those of the queries around that of their dataset."""
    rng = np.random.default_rng(7)
    true = rng.normal(0.02, 0.03, (datasets, 2000))
    drawn = [(draw(of_dataset, rng, queries), None) for of_dataset in true]
    of_queries, of_datasets = across.mean_intervals(drawn)
    covered = [
        np.mean((of.low <= mean) & (mean <= of.high))
        for of, mean in ((of_queries, true.mean(axis=0)), (of_datasets, 0.02))
    ]
    assert 0.93 <= min(covered) <= max(covered) <= 0.97


@pytest.mark.parametrize("queries", [10, 20, 50, 300])
@pytest.mark.parametrize("draw", [normal, tailed])
def test_the_interval_of_a_difference_covers(queries, draw):
    low, high = student(draw(np.full(5000, 0.02), np.random.default_rng(9), queries)).interval()
    assert 0.93 <= np.mean((low <= 0.02) & (high >= 0.02)) <= 0.975


@pytest.mark.parametrize(("queries", "tests"), [(3, 1), *itertools.product((8, 30, 400), (1, 6, 18))])
def test_the_queries_that_would_decide_find_the_difference_with_power(queries, tests):
    """Checked with statsmodels, and with as many simulated verdicts as show a power of 0.8 to 0.02."""
    effect = comparisons.smallest_effect(queries, 0.05 / tests)
    assert TTestPower().power(effect, queries, 0.05 / tests) == pytest.approx(0.8, abs=1e-4)
    assert comparisons.queries_needed(-1.0001 * effect * 0.3, 0.3, 0.05 / tests) == queries
    assert comparisons.queries_needed(0.9999 * effect * 0.3, 0.3, 0.05 / tests) == queries + 1
    drawn = np.random.default_rng(3).normal(effect, 1, (queries, 8000))
    assert np.mean(is_decided(student(drawn), tests)) == pytest.approx(0.8, abs=0.02)


def test_interval_p_and_verdict_agree_in_each_of_10_000_cases():
    rng = np.random.default_rng(8)
    cases = 10_000
    estimate = Student(
        rng.normal(0, 0.03, cases), rng.choice([0, 1e-9, 0.005, 0.01, 0.02], cases), rng.integers(1, 99, cases)
    )
    estimate.mean[rng.random(cases) < 0.1] = 0
    tests, margins = rng.integers(1, 90, cases), rng.choice([0, 0.02, 0.05], cases)
    names = pd.DataFrame({"system": "z", "other": "s", "queries": 50}, index=range(cases))
    found = decided(names.assign(**estimate.columns()), tests, margins)
    assert ((found["verdict"] == BETTER) == (found["p"] < 0.05)).all()
    for row, margin in zip(found.itertuples(), margins, strict=True):
        outside = row.low > 0 or row.high < 0
        within = -margin < row.low and row.high < margin
        assert row.verdict == (BETTER if outside else EQUIVALENT if within else OPEN)
        assert pd.isna(row.needed) or (row.verdict == OPEN and row.needed > 0)
        better = "z is better" if row.difference > 0 else "s is better"
        assert comparisons.said(row).startswith(better if outside else str(row.verdict))
    assert found["verdict"].nunique() == 3
