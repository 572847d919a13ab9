"""Calibrate a model's judgements against people's judgements of the same pairs.

Judges get queries in random order (``JudgementStore.next``), so the queries that people judged completely are a random
sample. They correct the model's judgements of all queries (``estimates.prediction_powered_mean``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from .agreement import Coefficient, coefficients, resolve
from .evaluation_set import EvaluationSet
from .store import MODEL


class Calibration(NamedTuple):
    """Agreement of a model with people.

    Attributes:
        kappa: Cohen's kappa of the model and people's majority, over all pairs that both graded.
        confusion: number of pairs by people's grade and the model's grade.
        by_people: people's grades by query, for queries that people judged completely and the model judged too.
        by_model: the model's grades by query.
    """

    kappa: Coefficient
    confusion: Counter[tuple[int, int]]
    by_people: Mapping[str, Mapping[str, int]]
    by_model: Mapping[str, Mapping[str, int]]


def calibrate(made: EvaluationSet, model: str) -> Calibration:
    """Compare a model as judge with the majority of people."""
    of_model, (of_people, _) = made.grades()[model], resolve(made.people(), "majority")
    both = of_model.keys() & of_people.keys()
    seen = {(given.query, given.document) for given in made.store.judgements() if not given.judge.startswith(MODEL)}
    begun = {query for query, document in made.store.pool() if (query, document) not in seen}
    by_model = _by_query(of_model)
    by_people = {
        query: grades for query, grades in _by_query(of_people).items() if query in by_model and query not in begun
    }
    (kappa, *_) = coefficients({model: of_model, "people": of_people})
    return Calibration(kappa, Counter((of_people[pair], of_model[pair]) for pair in both), by_people, by_model)


def _by_query(grades: Mapping[tuple[str, str], int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (query, document), grade in grades.items():
        found.setdefault(query, {})[document] = grade
    return found
