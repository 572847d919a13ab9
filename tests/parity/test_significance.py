"""Compare statistics with independent computations: plain loops, exhaustive enumeration, closed forms, other libraries.

The expected values use nothing of beirgrid.
"""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Sequence

import numpy as np
import pandas as pd
import pytest
import scipy.stats
from helpers import ROOT
from statsmodels.stats.multitest import multipletests

from beirgrid.analysis import across, dataset_scores, significance, tables
from beirgrid.results.comparisons import student
from beirgrid.tools.compare import measure

SEED = 7


def rng() -> np.random.Generator:
    return significance.generator(SEED, "test")


def skewed(queries: int, systems: int, *, better: Sequence[float] = (0,)) -> np.ndarray:
    """Draw scores like those of nDCG, with many 0 and some 1; queries are hard or easy for all systems."""
    numbers = np.random.default_rng(queries * 100 + systems)
    difficulty = numbers.normal(size=(queries, 1))
    return np.clip(0.3 + 0.4 * difficulty + 0.3 * numbers.normal(size=(queries, systems)), 0, 1) + np.array(better)


# Bootstrap ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("queries", [5, 50, 300])
def test_bca_interval_of_a_mean_equals_scipys_on_the_same_resamples(queries):
    values = skewed(queries, 1)[:, 0]
    theirs = scipy.stats.bootstrap((values,), np.mean, n_resamples=9999, method="BCa", rng=1)
    influence = np.array([values.mean() - np.delete(values, i).mean() for i in range(queries)])
    ours = significance.bca_interval(
        theirs.bootstrap_distribution[:, None], np.array([values.mean()]), influence[:, None]
    )
    assert (ours.low[0], ours.high[0]) == pytest.approx(tuple(theirs.confidence_interval), abs=1e-12)


@pytest.mark.parametrize("queries", [20, 200])
def test_intervals_of_means_agree_with_scipys(queries):
    scores = skewed(queries, 4)
    ours = significance.mean_intervals(scores, rng())
    for column, low, high in zip(scores.T, *ours, strict=True):
        theirs = scipy.stats.bootstrap((column,), np.mean, n_resamples=20000, method="BCa", rng=2).confidence_interval
        assert (low, high) == pytest.approx(tuple(theirs), abs=0.04 * (theirs.high - theirs.low))


def test_an_interval_does_not_leave_the_range_of_the_values():
    """Six sixths add up to less than 1."""
    low, high = significance.mean_intervals(np.ones((6, 1)), rng())
    assert (low[0], high[0]) == (1, 1)


def cohen_d(values: np.ndarray, axis: int) -> np.ndarray:
    return values.mean(axis) / values.std(axis, ddof=1)


def test_effect_sizes_and_their_intervals_agree_with_scipys():
    scores = skewed(200, 2, better=(0, 0.05))
    differences = scores[:, 1] - scores[:, 0]
    ours = significance.effect_sizes(differences[:, None])
    assert ours.mean[0] == pytest.approx(statistics.fmean(differences) / statistics.stdev(differences))
    theirs = scipy.stats.bootstrap((differences,), cohen_d, n_resamples=20000, method="BCa", rng=3).confidence_interval
    assert np.ravel(ours.interval()) == pytest.approx(np.array(theirs), abs=0.05 * (theirs.high - theirs.low))


def test_intervals_of_a_mean_of_datasets_resample_within_each():
    """The standard error of a mean of means is the root of the sum of the parts' squared errors, divided by their
    number.
    """
    sizes = (40, 300, 90)
    parts = [skewed(size, 1)[:, 0] + shift for size, shift in zip(sizes, (0, 5, 10), strict=True)]
    distribution = significance.resampled_means(np.concatenate(parts)[:, None], rng(), parts=sizes, resamples=20000)
    error = math.sqrt(sum(np.var(part) / len(part) for part in parts)) / 3
    assert distribution.mean() == pytest.approx(np.mean([part.mean() for part in parts]), abs=4 * error / 141)
    assert distribution.std() == pytest.approx(error, rel=0.03)


# Paired tests ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(12))
def test_exact_randomisation_equals_scipys_permutation_test(seed):
    numbers = random.Random(seed)
    draw = (lambda: numbers.choice((-0.5, 0, 0.1, 0.3))) if seed % 2 else (lambda: numbers.gauss(0.2, 1))
    differences = np.array([draw() for _ in range(numbers.randint(2, 11))])
    theirs = scipy.stats.permutation_test(
        (differences, np.zeros(len(differences))),
        lambda a, b, axis: np.round(np.sum(a - b, axis=axis), 9),
        permutation_type="samples",
        vectorized=True,
        n_resamples=np.inf,
    )
    assert significance.exact_randomisation(differences) == pytest.approx(theirs.pvalue, abs=1e-12)


@pytest.mark.parametrize(("better", "worse", "ties"), [(30, 12, 400), (25, 25, 0), (60, 25, 9), (8, 3, 40)])
def test_randomisation_of_hits_and_misses_is_the_binomial_test(better, worse, ties):
    differences = np.repeat([1.0, -1.0, 0.0], [better, worse, ties])
    expected = scipy.stats.binomtest(better, better + worse).pvalue
    result = significance.randomisation(np.stack([differences, 0 * differences], axis=1)[:, :, None], rng())
    spread = 0 if better + worse <= significance.ENUMERATED else 4.5 * math.sqrt(expected * (1 - expected) / 100_000)
    assert result.item() == pytest.approx(expected, rel=1e-9, abs=spread and spread + 1e-5)


def test_random_sign_patterns_agree_with_all_of_them():
    scores = skewed(19, 3, better=(0, 0.02, 0.1))
    result = significance.randomisation(scores[:, :, None], rng())
    patterns = ((np.arange(2**19)[:, None] >> np.arange(19)) & 1).astype(np.float32) * 2 - 1
    for p, (i, j) in zip(result[:, 0], itertools.combinations(range(3), 2), strict=True):
        differences = scores[:, i] - scores[:, j]
        assert np.count_nonzero(differences) > significance.ENUMERATED
        everything = np.mean(np.abs(patterns @ differences) >= abs(differences.sum()) - 1e-6)
        assert p == pytest.approx(everything, abs=4.5 * math.sqrt(everything * (1 - everything) / 100_000))


@pytest.mark.parametrize("queries", [2, 9, 400])
def test_students_intervals_and_p_values_equal_scipys(queries):
    scores = skewed(queries, 3)
    scores[:, 1] += 0.05
    differences = scores[:, [0, 0]] - scores[:, [1, 2]]
    expected = [scipy.stats.ttest_rel(scores[:, 0], scores[:, other]) for other in (1, 2)]
    found = student(differences)
    assert found.p() == pytest.approx(np.array([test.pvalue for test in expected]), rel=1e-9)
    assert found.p(3) == pytest.approx(np.minimum(3 * found.p(), 1))
    for tests in (1, 18):
        theirs = [test.confidence_interval(1 - 0.05 / tests) for test in expected]
        assert np.transpose(found.interval(tests)) == pytest.approx(np.array(theirs), rel=1e-9)


def test_the_interval_of_a_mean_of_two_datasets_is_welchs():
    """(a + b) / 2 is half the difference of a and -b."""
    first, second = skewed(9, 1) * 3, skewed(40, 1)
    theirs = scipy.stats.ttest_ind(first[:, 0], -second[:, 0], equal_var=False)
    found = student(np.concatenate([first, second]), (9, 40))
    assert found.p()[0] == pytest.approx(theirs.pvalue)
    assert np.ravel(found.interval()) == pytest.approx(np.array(theirs.confidence_interval()) / 2)


@pytest.mark.parametrize("seed", range(5))
def test_holms_correction_equals_that_of_statsmodels(seed):
    numbers = random.Random(seed)
    p = [numbers.choice((numbers.random(), 0.01, 1e-5)) for _ in range(numbers.randint(1, 20))]
    found = significance.holm(np.array([*p, math.nan]))
    assert found[:-1].tolist() == multipletests(p, method="holm")[1].tolist()
    assert math.isnan(found[-1])
    assert significance.holm(np.full(3, np.nan)).tolist() == pytest.approx([math.nan] * 3, nan_ok=True)


# Tukey's HSD ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("seed", "queries", "systems"), [*((seed, 4, 3) for seed in range(4)), (4, 10, 2)])
def test_tukeys_p_values_agree_with_all_permutations(seed, queries, systems):
    numbers, places = random.Random(seed), range(systems)
    scores = [[numbers.choice((0.0, 0.5, numbers.random())) + s * 0.2 for s in places] for _ in range(queries)]
    ranges = []
    for choice in itertools.product(itertools.permutations(places), repeat=queries):
        means = [sum(row[order[s]] for row, order in zip(scores, choice, strict=True)) / queries for s in places]
        ranges.append(max(means) - min(means))
    found = significance.tukey(np.array(scores)[:, :, None], rng(), permutations=40_000)[:, 0]
    for p, (i, j) in zip(found, itertools.combinations(places, 2), strict=True):
        distance = abs(sum(row[i] - row[j] for row in scores)) / queries
        expected = sum(value >= distance - 1e-9 for value in ranges) / len(ranges)
        assert p == pytest.approx(expected, abs=4.5 * math.sqrt(expected * (1 - expected) / 40_000) + 1 / 40_000)


def test_tukeys_test_keeps_its_level():
    """Among equal systems, one sample in 20 has a pair that seems to differ."""
    numbers = np.random.default_rng(9)
    samples = 400
    seeming = 0
    for _ in range(samples):
        scores = numbers.exponential(size=(15, 1)) * numbers.exponential(size=(15, 4))
        seeming += significance.tukey(scores[:, :, None], numbers, permutations=199).min() <= 0.05
    assert seeming / samples == pytest.approx(0.05, abs=3.5 * math.sqrt(0.05 * 0.95 / samples))


def test_tukeys_p_values_of_a_metric_do_not_depend_on_the_others():
    scores = np.stack([skewed(40, 4), skewed(40, 4) ** 2], axis=2)
    both = significance.tukey(scores, rng(), permutations=3000)
    alone = [significance.tukey(scores[:, :, [i]], rng(), permutations=3000)[:, 0] for i in range(2)]
    assert both.T.tolist() == [p.tolist() for p in alone]


# Several datasets -----------------------------------------------------------------------------------------------------


def test_intervals_over_datasets_are_welchs_over_queries_and_students_over_datasets():
    """That over queries agrees with a bootstrap, as each dataset has 100 queries or more."""
    datasets = [(skewed(size, 2) * scale, None) for size, scale in ((100, 0.3), (250, 1.0), (400, 0.6), (150, 0.8))]
    of_queries, of_datasets = across.mean_intervals(datasets)
    distribution = np.mean([significance.resampled_means(values, rng()) for values, _ in datasets], axis=0)
    low, high = np.quantile(distribution[:, 1], [0.025, 0.975])
    assert (of_queries.low[1], of_queries.high[1]) == pytest.approx((low, high), abs=0.05 * (high - low))
    theirs = scipy.stats.ttest_1samp([values[:, 1].mean() for values, _ in datasets], 0).confidence_interval()
    assert (of_datasets.low[1], of_datasets.high[1]) == pytest.approx(tuple(theirs))


def test_ranks_and_borda_counts():
    means = np.array([[0.1, 0.3, 0.3, 0.2], [0.5, 0.4, 0.6, 0.6], [0.0, 0.9, 0.8, 0.7]])
    beaten = [[sum((a > b) + (a == b) / 2 for b in row) - 0.5 for a in row] for row in means.tolist()]
    found = across.ranks(means)
    assert found["borda"].tolist() == [sum(column) for column in zip(*beaten, strict=True)]
    assert found["mean_rank"] == pytest.approx(np.array([4 - sum(column) / 3 for column in zip(*beaten, strict=True)]))
    turned = across.ranks(-means, lower_is_better=True)
    assert turned["borda"].tolist() == found["borda"].tolist()
    # Means of the same values, added up in another order.
    assert across.ranks(np.array([[0.1 + 0.2, 0.3, 0.4]]))["mean_rank"].tolist() == [2.5, 2.5, 1]


def test_tests_over_datasets():
    means = np.random.default_rng(3).random((12, 3))
    means[4, 1] = means[4, 0]
    found = across.against(means, 0)
    for system in (1, 2):
        wins = sum(row[system] > row[0] for row in means)
        losses = sum(row[system] < row[0] for row in means)
        counts = [found[kind][system] for kind in ("wins", "ties", "losses")]
        assert counts == [wins, 12 - wins - losses, losses]
        tail = sum(math.comb(wins + losses, k) for k in range(min(wins, losses) + 1)) / 2 ** (wins + losses)
        assert found["p_sign"][system] == pytest.approx(min(1, 2 * tail))
        assert found["p_t"][system] == pytest.approx(scipy.stats.ttest_rel(means[:, system], means[:, 0]).pvalue)
    assert across.against(-means, 0, lower_is_better=True)["wins"].tolist() == found["wins"].tolist()
    assert found["note"] == ""
    assert "datasets here: 9" in across.against(means[:9], 0)["note"]


@pytest.mark.parametrize("lower", [False, True])
def test_the_best_over_datasets_is_tested_against_each_other_system(lower):
    means = skewed(9, 5, better=(0.2, 0, 0.1, 0.6, 0.15)) * (-1 if lower else 1)
    pairs = list(itertools.combinations(range(5), 2))
    theirs = [scipy.stats.ttest_rel(means[:, i], means[:, j]).pvalue for i, j in pairs]
    corrected = dict(zip(pairs, multipletests(theirs, method="holm")[1], strict=True))
    best = 3
    expected = [corrected[min(i, best), max(i, best)] if i != best else 1 for i in range(5)]
    assert across.against_best(means, lower_is_better=lower) == pytest.approx(np.array(expected))
    assert min(expected) < 0.05 < max(expected[:3])
    assert np.isnan(across.against_best(means[:4])).all()


def test_the_best_of_equal_systems_is_told_apart_in_five_of_a_hundred_cases():
    numbers = np.random.default_rng(3)
    for datasets, systems in ((5, 2), (14, 2), (14, 6)):
        told = [(across.against_best(numbers.random((datasets, systems))) <= 0.05).any() for _ in range(300)]
        assert np.mean(told) <= 0.085, (datasets, systems)


def test_the_papers_own_table_2():
    """Treats BEIR's Table 2 as results: the changes computed from its values differ from the printed ones."""
    rows = pd.read_csv(ROOT / "config/published/beir_paper.csv")
    rows = rows[(rows["metric"] == "ndcg@10") & rows["source"].str.contains("Table 2")]
    means = rows.pivot(index="dataset", columns="system", values="value").drop("msmarco")
    assert len(means) == 18
    table = tables.summarise(means.to_numpy(), list(means), "bm25").set_index("system")
    order = ["deepct", "sparta", "doct5query", "dpr", "ance", "tas-b", "genq", "colbert", "bm25+ce"]
    changes = [-27.5, -19.9, 2.5, -44.0, -8.2, -2.0, -3.1, 1.7, 12.5]
    assert (100 * table["change"]).round(1)[order].tolist() == changes
    assert table["wins"][order].tolist() == [0, 2, 12, 1, 4, 8, 6, 9, 16]
    assert table["note"].unique().tolist() == [""]


# Reproducibility ------------------------------------------------------------------------------------------------------


def test_scores_compare_as_in_repro_eval():
    effectiveness = pytest.importorskip("repro_eval.measure.effectiveness")
    scores = skewed(50, 2)
    reference, other = ({f"q{i}": {"ndcg": value} for i, value in enumerate(column)} for column in scores.T)
    ours = measure(dataset_scores.EvaluatedDataset("x", tuple("ab"), ("ndcg",), scores[:, :, None])).iloc[0]
    assert ours["rmse"] == pytest.approx(effectiveness.RMSE(reference, other)["ndcg"])
