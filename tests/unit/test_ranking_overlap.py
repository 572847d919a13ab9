"""How alike systems rank without judgements, and how many pairs a pool of them would have."""

from __future__ import annotations

import math

import numpy as np
import pytest

from beirgrid.analysis import ranking_overlap


def test_a_pool_has_each_pair_of_its_systems_once():
    many = [f"d{number}" for number in range(12)]
    rankings = {"a": {"q1": many, "q2": ["x"]}, "b": {"q1": many[::-1], "q2": ["y"]}, "c": {"q1": many, "q2": ["x"]}}
    whole, *pairs = ranking_overlap.rows(rankings)
    assert (whole["system"], whole["pool@5"], whole["pool@10"], whole["pool@50"]) == ("all", 12, 14, 14)
    assert [(row["system"], row["other"]) for row in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
    assert [row["pool@5"] for row in pairs] == [12, 6, 12]
    assert [row["overlap@10"] for row in pairs] == [pytest.approx(0.4), pytest.approx(0.55), pytest.approx(0.4)]
    assert [row["tau"] for row in pairs] == [pytest.approx(-1), pytest.approx(1), pytest.approx(-1)]


def test_rank_biased_overlap_equals_its_definition():
    """The sum of the agreements at all depths, weighted, with the last agreement for the depths beyond."""
    random, persistence = np.random.default_rng(6), 0.9
    for _ in range(20):
        first, second = (random.permutation(12)[:8].tolist() for _ in range(2))
        depths = range(1, 2000)
        agreements = [len(set(first[:d]) & set(second[:d])) / d if d <= 8 else None for d in depths]
        expected = sum(
            (1 - persistence) * persistence ** (d - 1) * (agreements[7] if agreed is None else agreed)
            for d, agreed in zip(depths, agreements, strict=True)
        )
        assert ranking_overlap.rank_biased_overlap(first, second) == pytest.approx(expected, abs=1e-9)
    assert ranking_overlap.rank_biased_overlap([], ["a"]) == 0


def test_systems_are_compared_on_their_common_queries():
    same = {"q1": ["a", "b", "c"], "q2": ["d"]}
    found = ranking_overlap.compare(same, {"q1": ["c", "b", "a"], "q3": ["e"]}, depth=2)
    assert (found[0], found[2]) == (0.5, -1)
    assert ranking_overlap.compare(same, same, depth=1) == (1, pytest.approx(1), 1)
    assert all(map(math.isnan, ranking_overlap.compare({}, same)))
