"""Choose the parameter of a fusion on judged queries, and train the methods that estimate probabilities on them."""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

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
    depth = measures.parse_metric(metric).k or how.depth
    candidates = [how.arguments] if how.arguments else _candidates(how, len(parts))
    tries: list[_Try] = []
    for arguments in candidates:
        estimates = fuser.ranx.estimates(grades, **arguments) if how.of_method.trained else {}
        fused = fuser.fuse(depth, **arguments, **estimates)
        mean = float(measures.per_query(fused, grades, [metric])[metric].mean())
        tries.append(_Try(mean, arguments, estimates))
    best_of = min if measures.lower_is_better(metric) else max
    best = best_of(tries, key=operator.attrgetter("mean"))
    curve = [{**one.arguments, "value": one.mean} for one in tries]
    facts = {"queries": len(grades), "metric": metric, **best.arguments, "value": best.mean, "curve": curve}
    return {**best.arguments, **best.estimates}, facts


class _Try(NamedTuple):
    """Arguments of a fusion, what was estimated with them, and the mean of the metric."""

    mean: float
    arguments: dict[str, Any]
    estimates: dict[str, Any]


def _candidates(how: Fusion, parts: int) -> list[dict[str, Any]]:
    name = how.of_method.parameter
    return [{name: value} for value in how.of_method.candidates(parts) if value is not None] or [{}]


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
