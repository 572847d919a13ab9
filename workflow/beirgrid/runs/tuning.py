"""Choose the parameter of a fusion on judged queries, and train the methods that estimate probabilities on them."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import measures
from ..core.errors import DataError
from .fusion import Fuser, Fusion
from .runs import Run

FOLDS = 5
Grades = Mapping[str, Mapping[str, int]]


def tuned(parts: Sequence[Run], how: Fusion, grades: Grades) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a fusion that are best on judged queries, and what the record tells of the choice.

    The best has the best mean of the metric over all these queries; of equals, the first candidate. A method is trained
    and chosen on the same queries.
    """
    metric = str(how.metric)
    judged = [{query: part[query] for query in grades if query in part} for part in parts]
    fuser = Fuser(judged, how)
    curve: list[tuple[float, dict[str, Any], dict[str, Any]]] = []
    name = how.of_method.parameter
    tries = [{name: value} for value in how.of_method.candidates(len(parts)) if value is not None]
    for given in [how.arguments] if how.arguments else tries or [{}]:
        estimates = fuser.ranx.estimates(grades, **given) if how.of_method.trained else {}
        fused = fuser.fuse(measures.parse_metric(metric).k or how.depth, **given, **estimates)
        mean = float(measures.per_query(fused, grades, [metric])[metric].mean())
        curve.append((mean, given, estimates))
    best = (min if measures.lower_is_better(metric) else max)(mean for mean, *_ in curve)
    _, chosen, estimates = next(one for one in curve if one[0] == best)
    tried = [{**given, "value": mean} for mean, given, _ in curve]
    return {**chosen, **estimates}, {"queries": len(grades), "metric": metric, **chosen, "value": best, "curve": tried}


def folds_of(queries: Iterable[str]) -> dict[str, int]:
    """Return the fold of each query. Folds differ by one query at most; which query is where follows from the ids."""
    shuffled = sorted(queries, key=lambda query: hashlib.sha256(query.encode()).digest())
    return {query: number % FOLDS for number, query in enumerate(shuffled)}


def fused_by_folds(parts: Sequence[Run], how: Fusion, grades: Grades) -> tuple[Run, list[dict[str, Any]]]:
    """Fuse the queries of each fold with what is best on the judged queries of the other folds.

    Returns:
        the fused run, and what the record tells of the choice for each fold.

    Raises:
        DataError: there are too few queries.
    """
    queries = dict.fromkeys([*grades, *(query for part in parts for query in part)])
    folds = folds_of(queries)
    if len(grades) < FOLDS:
        raise DataError(f"{len(grades)} judged queries are too few for {FOLDS} folds: give the fusion's parameters")
    of_folds: list[Run] = []
    told = []
    for fold in range(FOLDS):
        others = {query: of_query for query, of_query in grades.items() if folds[query] != fold}
        arguments, choice = tuned(parts, how, others)
        own = [{query: ranking for query, ranking in part.items() if folds[query] == fold} for part in parts]
        of_folds.append(Fuser(own, how).fuse(how.depth, **arguments))
        told.append({"fold": fold, "fused": len(of_folds[-1]), **choice})
    return {query: of_folds[folds[query]][query] for query in queries if query in of_folds[folds[query]]}, told
