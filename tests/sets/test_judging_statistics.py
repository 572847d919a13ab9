"""Compare pools, agreement and findings with independent implementations, worked examples and simulation."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pandas as pd
import pytest
from scipy import stats
from sklearn.metrics import cohen_kappa_score

from beirgrid.results.summary import DatasetSummary, GridSummary
from beirgrid.sets import agreement, findings, pools

RUNS = {
    "a": {"q1": ["d1", "d2", "d3"], "q2": ["e1", "e2"]},
    "b": {"q1": ["d3", "d1", "d4"], "q2": ["e3"]},
    "c": {"q1": ["d1", "d3", "d2"]},
}


def by_place(systems: dict[str, list[bool]]) -> tuple[dict, dict]:
    """Return the grades of queries with one relevant document, and rankings that have it first or second."""
    orders = {True: ["r", "x"], False: ["x", "r"]}
    rankings = {name: {f"q{n}": orders[bool(first)] for n, first in enumerate(of)} for name, of in systems.items()}
    return {query: {"r": 1, "x": 0} for query in next(iter(rankings.values()))}, rankings


def test_a_depth_pool_has_the_top_documents_of_every_run():
    found = pools.pool(RUNS, 2)
    assert set(found.pairs) == {("q1", "d1"), ("q1", "d2"), ("q1", "d3"), ("q2", "e1"), ("q2", "e2"), ("q2", "e3")}
    assert found.candidates == 6
    assert found.coverage == dict.fromkeys("abc", (2, 0))


def test_a_budget_takes_first_ranks_first_and_alternates_between_queries():
    assert pools.pool(RUNS, 3, budget=4).pairs == [("q1", "d1"), ("q2", "e1"), ("q1", "d3"), ("q2", "e3")]
    assert pools.pool(RUNS, 3, budget=1).coverage == {"a": (0, 4 / 5), "b": (0, 3 / 4), "c": (1, 2 / 3)}
    second = pools.pool(RUNS, 3, budget=2, earlier=[("q1", "d1"), ("q2", "e1")])
    assert second.pairs == [("q1", "d3"), ("q2", "e3")]
    assert second.coverage == pools.pool(RUNS, 3, budget=4).coverage


def test_a_budget_takes_the_same_pairs_in_any_order_of_the_systems():
    expected = pools.pool(RUNS, 3).pairs
    for names in itertools.permutations(RUNS):
        of_names = {name: RUNS[name] for name in names}
        assert [pools.pool(of_names, 3, budget).pairs for budget in range(9)] == [expected[:n] for n in range(9)]


def test_kappa_equals_another_implementation():
    random = np.random.default_rng(1)
    for _ in range(20):
        first, second = random.integers(0, 4, (2, 50))
        assert agreement.cohen(np.array([first, second])) == pytest.approx(cohen_kappa_score(first, second), abs=1e-12)


def test_alpha_equals_the_worked_example():
    """Data and value are those of Krippendorff, "Computing Krippendorff's Alpha-Reliability" (2011)."""
    lack = np.nan
    values = np.array(
        [
            [1, 2, 3, 3, 2, 1, 4, 1, 2, lack, lack, lack],
            [1, 2, 3, 3, 2, 2, 4, 1, 2, 5, lack, 3],
            [lack, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, lack],
            [1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, lack],
        ]
    )
    assert agreement.krippendorff(values) == pytest.approx(0.815, abs=5e-4)
    assert agreement.krippendorff(np.array([[0, 1, 2.0], [0, 1, 2.0]])) == 1
    assert math.isnan(agreement.krippendorff(np.array([[0, lack], [lack, 1]])))


def test_coefficients_have_intervals_and_name_their_judges():
    random = np.random.default_rng(2)
    truth = {(f"q{query}", f"d{rank}"): int(random.integers(0, 4)) for query in range(20) for rank in range(5)}
    noisy = {pair: grade if random.random() < 0.8 else int(random.integers(0, 4)) for pair, grade in truth.items()}
    found = agreement.coefficients({"ann": truth, "ben": noisy, "cem": dict(list(truth.items())[:50])})
    names = [(coefficient.name, coefficient.judges, coefficient.pairs) for coefficient in found]
    assert names == [
        ("Cohen's kappa", ("ann", "ben"), 100),
        ("Cohen's kappa", ("ann", "cem"), 50),
        ("Cohen's kappa", ("ben", "cem"), 50),
        ("Krippendorff's alpha (ordinal)", ("ann", "ben", "cem"), 100),
    ]
    assert all(coefficient.low <= coefficient.value <= coefficient.high for coefficient in found)
    assert found[1].value == found[1].low == found[1].high == 1
    assert agreement.coefficients({"ann": truth}) == []


def test_disagreements_are_resolved_as_asked_and_who_adjudicates_does_not_count_as_a_judge():
    two = {"ann": {("q", "a"): 2, ("q", "b"): 0, ("q", "c"): 1}, "ben": {("q", "a"): 2, ("q", "b"): 3}}
    grades = {**two, "cem": {("q", "b"): 3}}
    assert agreement.disagreements(grades) == [(("q", "b"), {"ann": 0, "ben": 3, "cem": 3})]
    same = {("q", "a"): 2, ("q", "c"): 1}
    assert agreement.resolve(grades, "majority") == ({**same, ("q", "b"): 3}, [])
    assert agreement.resolve(grades, "strictest") == ({**same, ("q", "b"): 0}, [])
    assert agreement.resolve(grades, "adjudicated", "cem") == ({**same, ("q", "b"): 3}, [])
    assert agreement.resolve(grades, "adjudicated", "dan") == (same, [("q", "b")])
    assert agreement.without_adjudicators(grades, {"cem"}) == two
    assert agreement.without_adjudicators(two, {"ben"}) == two, "nothing would be left to compare"


@pytest.mark.parametrize("queries", [1, 2, 5])
def test_a_comparison_is_open_where_each_query_has_the_same_difference(queries):
    """Also after rounding: 0.1 + 0.2 is not 0.3."""
    grades, rankings = by_place({"a": [True] * queries, "b": [False] * queries})
    *_, said = findings.comparison_lines(findings.paired_tests(grades, rankings))
    assert said == (
        f"a − b: +{1 - 1 / math.log2(3):.4f} on each judged query ({queries}), open: a t test needs differences that "
        "vary."
    )


def test_the_status_says_of_a_planned_pair_what_its_grid_says():
    """Three systems put the one relevant document at rank 1 or 2. One difference is planned, in a grid with others."""
    random = np.random.default_rng(27)
    first = {"a": random.random(60) < 0.85, "b": random.random(60) < 0.65, "c": random.random(60) < 0.45}
    grades, rankings = by_place(first)
    measured = {name: np.where(won, 1.0, 1 / math.log2(3)) for name, won in first.items()}
    names = ("own", "other")
    entries = {name: DatasetSummary(corpus=name) for name in names}
    grid = GridSummary(systems=tuple("abc"), rows=names, datasets=entries, metrics=("ndcg@10",), compare=("a", "c"))
    order = sorted(measured, key=lambda name: -measured[name].mean())
    for grids, corrections in (([], (3, 3, 3)), ([grid], (2, 2, 2))):  # 2 planned: a pair × 2 sets; the 2 other pairs
        tested = findings.paired_tests(grades, rankings, "own", grids)
        lines = findings.comparison_lines(tested)[-3:]
        for pair, tests, line in zip(itertools.combinations(order, 2), corrections, lines, strict=True):
            test = stats.ttest_rel(*(measured[name] for name in pair))
            low, high = test.confidence_interval(1 - 0.05 / tests)
            planned = " (planned)" if grids and {*pair} == {"a", "c"} else ""
            verdict = f"{pair[0]} is better" if low > 0 else "open ("
            size = f"{np.mean(measured[pair[0]] - measured[pair[1]]):.4f}"
            p = min(1, tests * test.pvalue)
            assert line.startswith(f"{' − '.join(pair)}{planned}: {size} [{low:.4f}, {high:.4f}], p {p:.2g}, {verdict}")


def test_the_status_opens_with_the_best_what_is_open_and_the_next_step():
    grades, rankings = by_place({"a": [True] * 30, "b": [False] * 30, "c": [n % 3 > 0 for n in range(30)]})
    first, state, step = findings.opening(grades, rankings, findings.paired_tests(grades, rankings))
    assert first == "a has the highest nDCG@10, 1.0000 over 30 judged queries."
    assert state == "Open against b."  # a is better on each query by the same, so there is no test
    assert step == "Next: judge more queries, since of each system's top 10 at least 100% are judged."
    shallow = {query: {"r": 1} for query in grades}
    *_, step = findings.opening(shallow, rankings, findings.paired_tests(shallow, rankings))
    assert step.startswith("Next: judge deeper, since of the top 10 documents of a 50% are judged")
    two = {name: rankings[name] for name in "ac"}
    *_, state, step = findings.opening(grades, two, findings.paired_tests(grades, two))
    assert (state, step) == (
        "It is better than c: no comparison with it is open.",
        "Next: nothing more needs to be judged to tell the best system.",
    )
    same = dict.fromkeys("ab", rankings["a"])
    assert findings.opening(grades, same, findings.paired_tests(grades, same)) == [
        "All systems have the same nDCG@10, 1.0000 over 30 judged queries.",
        "Open: they are equal on each of these queries.",
        "Next: judge other queries, since more judgements of these cannot tell the systems apart.",
    ]
    *_, said = findings.comparison_lines(findings.paired_tests(grades, same))
    assert said == "a − b: 0.0000 [0.0000, 0.0000], p 1, open."


@pytest.mark.parametrize("judged", [15, 40])
def test_the_prediction_powered_interval_covers_the_truth_and_the_plain_mean_does_not(judged):
    """A model that overrates every second query, and people who judge 15 or 40 of 400 queries."""
    random = np.random.default_rng(4)
    covered = plain = 0
    widths = []
    for _ in range(200):
        truth = random.beta(2, 3, 400)
        by_model = np.clip(truth + 0.15 * (random.random(400) < 0.5) + random.normal(0, 0.05, 400), 0, 1)
        sample = random.permutation(400)
        people, others = sample[:judged], sample[judged:]
        _, low, high = findings.prediction_powered_mean(by_model[others], by_model[people], truth[people])
        covered += low <= 0.4 <= high  # the mean of the distribution
        half = stats.t.ppf(0.975, 399) * np.std(by_model, ddof=1) / 20
        plain += abs(np.mean(by_model) - 0.4) <= half
        alone = stats.t.interval(0.95, judged - 1, np.mean(truth[people]), stats.sem(truth[people]))
        widths.append((high - low) / (alone[1] - alone[0]))
    assert covered / 200 == pytest.approx(0.95, abs=3 * math.sqrt(0.95 * 0.05 / 200))
    assert plain / 200 < 0.2
    assert np.mean(widths) < 0.75  # the model's judgements make the interval narrower than the sample alone


@pytest.mark.parametrize(("judged", "has_interval"), [(14, False), (15, True)])
def test_fewer_than_fifteen_judged_queries_give_no_interval(judged, has_interval):
    random = np.random.default_rng(5)
    sizes = (judged, judged, 100)
    people, both, rest = (pd.DataFrame({name: random.random(size) for name in "ab"}) for size in sizes)
    heading, _, *rows = findings._corrections("model:m", people, both, rest)
    assert ("95 %" in heading) is ("no interval below 15" not in heading) is has_interval
    assert [("[" in row) for row in rows if row.split()[0] in "ab"] == [has_interval] * 2


def test_a_model_that_knows_nothing_does_no_harm():
    random = np.random.default_rng(27)
    people, noise = random.random(50), random.random(500)
    _, low, high = findings.prediction_powered_mean(noise[50:], noise[:50], people)
    alone = stats.t.interval(0.95, 49, np.mean(people), stats.sem(people))
    assert high - low == pytest.approx(alone[1] - alone[0], rel=0.1)
