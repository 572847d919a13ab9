"""How alike systems rank without judgements, and how many pairs a pool of them would have."""

from __future__ import annotations

import math

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


def test_systems_are_compared_on_their_common_queries():
    rankings = {"a": {"q1": ["a", "b", "c"], "q2": ["d"]}, "b": {"q1": ["c", "b", "e"], "q3": ["e"]}, "c": {}}
    _, *pairs = ranking_overlap.rows(rankings)
    assert pairs[0]["overlap@10"] == pytest.approx(0.2)
    assert all(math.isnan(row["overlap@10"]) for row in pairs[1:])
