"""How far a model's judgements can be trusted: against people's judgements of the same pairs.

The queries that people judged whole are a random sample of all, because judges get queries in random order
(``JudgementStore.next``). They correct what the model says of all queries (``estimates.prediction_powered_mean``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from .agreement import Coefficient, coefficients, resolve
from .sets import EvaluationSet
from .store import MODEL


class Calibration(NamedTuple):
    """A model against people.

    Attributes:
        kappa: Cohen's kappa of the model and people's majority, over all pairs that both graded.
        confusion: number of pairs by people's grade and the model's grade.
        by_people: people's grades by query, of the queries that they judged whole and the model judged too.
        by_model: the model's grades by query.
    """

    kappa: Coefficient
    confusion: Counter[tuple[int, int]]
    by_people: Mapping[str, Mapping[str, int]]
    by_model: Mapping[str, Mapping[str, int]]


def calibrate(made: EvaluationSet, model: str) -> Calibration:
    """Compare a judge that is a model with people's majority."""
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
