"""Report what the judgements of an evaluation set show: agreement, power, holes and ranks."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from ..analysis.significance import holm, student
from ..runs import metrics, runs
from ..tools.text import table_lines
from . import agreement, estimates, pools
from .evaluation_set import EvaluationSet
from .store import MODEL

METRIC, HOLES = "ndcg@10", "hole@10"
# Numbers of queries for which the smallest difference is shown.
_SIZES = (50, 200, 1000)
_LEVEL = 0.05
# If a smaller share of a run's top 10 is judged, a deeper pool helps more than more queries.
_JUDGED_ENOUGH = 0.95

Grades = Mapping[str, Mapping[str, int]]


def values(grades: Grades, rankings: pools.Rankings, name: str = METRIC) -> pd.DataFrame:
    """Compute a metric of each system (column) for each judged query (row)."""
    run_of = {
        system: {query: runs.EMPTY._replace(ids=list(ids)) for query, ids in of_queries.items()}
        for system, of_queries in rankings.items()
    }
    return pd.DataFrame({system: metrics.per_query(run, grades, [name])[name] for system, run in run_of.items()})


def _tau(first: pd.Series, second: pd.Series) -> str:
    return f"{first.corr(second, method='kendall'):.3f}"


def judge_agreement(grades: agreement.Grades) -> list[str]:
    """Report the judges' coefficients of agreement."""
    return [_coefficient(coefficient) for coefficient in agreement.coefficients(grades) if coefficient.pairs]


def _coefficient(coefficient: agreement.Coefficient) -> str:
    name, judges, pairs, value, low, high = coefficient
    return f"  {name} of {', '.join(judges)}: {_interval(value, low, high)}, {pairs:,} pairs"


def _interval(value: float, low: float, high: float, digits: int = 3) -> str:
    return f"{value:.{digits}f}" + ("" if math.isnan(low) else f" [{low:.{digits}f}, {high:.{digits}f}]")


def changes(versions: Sequence[tuple[int, Grades]], rankings: pools.Rankings) -> list[str]:
    """Report scores, holes and ranks of all systems under two versions of the qrels."""
    (before, after), holes = (
        [values(grades, rankings, metric).mean() for _, grades in versions] for metric in (METRIC, HOLES)
    )
    ranks = [means.rank(ascending=False, method="min") for means in (before, after)]
    rows = [
        [
            *(system, f"{before[system]:.4f}", f"{after[system]:.4f}", f"{after[system] - before[system]:+.4f}"),
            *(f"{of[system]:.1%}" for of in holes),
            " → ".join(f"{of[system]:.0f}" for of in ranks),
        ]
        for system in map(str, after.sort_values(ascending=False).index)
    ]
    named = [f"{metric} v{number}" for metric in (METRIC, HOLES) for number, _ in versions]
    lines = [*table_lines(["system", *named[:2], "change", *named[2:], "ranks"], rows)]
    lines.append(f"{HOLES} is the share of the first 10 documents that nobody judged for the query.")
    first, second = (grades.keys() for _, grades in versions)
    if first != second:
        same = f"{len(first & second):,} of them the same"
        lines.append(f"The versions judge {len(first):,} and {len(second):,} queries, {same}.")
    return [*lines, f"Kendall's tau of the two rankings: {_tau(before, after)}"] if len(after) > 1 else lines


class PairedTest(NamedTuple):
    """A paired t test of two systems, the better one first: their differences, float64 [queries], and corrected p."""

    first: str
    second: str
    differences: np.ndarray
    p: float


def paired_tests(grades: Grades, rankings: pools.Rankings, planned: Sequence[set[str]] = ()) -> list[PairedTest]:
    """Test all pairs of systems. Holm's correction is for all pairs but the planned ones, which need none."""
    measured = values(grades, rankings)
    pairs = list(itertools.combinations(measured.mean().sort_values(ascending=False, kind="stable").index, 2))
    if not pairs:
        return []
    differences = np.stack([measured[first] - measured[second] for first, second in pairs], axis=1)
    p, others = student(differences), [set(pair) not in planned for pair in pairs]
    p[others] = holm(p[others])
    return [PairedTest(*pair, differences[:, at], float(p[at])) for at, pair in enumerate(pairs)]


def opening(grades: Grades, rankings: pools.Rankings, tested: Sequence[PairedTest]) -> list[str]:
    """Report in three sentences which system is best, which comparisons with it are open, and what to do next."""
    means = values(grades, rankings).mean().sort_values(ascending=False, kind="stable")
    best, *others = map(str, means.index)
    unclear = [test.second for test in tested if test.first == best and not test.p < _LEVEL]
    if not others:
        state = "No other system was run on the set."
    elif unclear:
        state = f"Open: whether it is better than {', '.join(unclear)}."
    else:
        state = f"It is better than {', '.join(others)}: no comparison with it is open."
    return [
        f"{best} has the highest {METRIC}, {means[best]:.4f} over {len(grades):,} judged queries.",
        state,
        _next_step(grades, rankings, bool(unclear)),
    ]


def comparisons(tested: Sequence[PairedTest], planned: Sequence[set[str]] = ()) -> list[str]:
    """Report the differences that these queries can show, which comparisons are open, and what would close them."""
    if not tested:
        return []
    rows = [
        [f"{first} − {second}", f"{of_pair.mean():+.4f}", *(_smallest(of_pair, n) for n in (len(of_pair), *_SIZES))]
        for first, second, of_pair, _ in tested
    ]
    headings = ["systems", "difference", "can be told now", *(f"with {n}" for n in _SIZES)]
    told = f"Differences of {METRIC} that a paired test finds with power 0.8:"
    number = sum({test.first, test.second} not in planned for test in tested)
    how = f"Paired t tests, p corrected for {number} comparisons (Holm){', but not if planned' if planned else ''}:"
    verdicts = (_verdict(*test, 1 if {test.first, test.second} in planned else number) for test in tested)
    return [told, *table_lines(headings, rows), how, *verdicts]


def _smallest(differences: np.ndarray, queries: int) -> str:
    difference = estimates.smallest_difference(differences, queries)
    return "" if math.isnan(difference) else f"{difference:.4f}"


def _verdict(first: str, second: str, differences: np.ndarray, p: float, tests: int) -> str:
    """Return whether a comparison is closed, in one sentence, and how many queries would close it."""
    from scipy.stats import ttest_1samp

    seen = float(differences.mean())
    if math.isnan(p):
        return (
            f"Open: {first} is better than {second} by {seen:.4f} on each judged query ({len(differences)}). A t test "
            "needs differences that vary."
        )
    if not seen:
        return f"Open: {first} and {second} have the same mean."
    low, high = ttest_1samp(differences, 0).confidence_interval()
    size = f"{_interval(seen, low, high, 4)}, p {p:.2g}"
    if p < _LEVEL:
        return f"Closed: {first} is better than {second} by {size}."
    level = _LEVEL / tests if low > 0 else _LEVEL
    queries = estimates.queries_needed(differences, seen, level)
    needed = f"{queries:,} queries find it with a probability of 0.8; there are {len(differences):,}."
    state = f"{first} and {second} differ by {size}."
    if low > 0:
        return f"Open among {tests} comparisons: {state} Closed if no other one was planned. Otherwise {needed}"
    return f"Open: {state} If this is the true difference, {needed}"


def _next_step(grades: Grades, rankings: pools.Rankings, is_open: bool) -> str:
    """Return whether deeper pools or more queries help more, as the next step."""
    shares = {
        system: np.mean(
            [document in grades[query] for query in grades for document in of.get(query, ())[:10]] or [True]
        )
        for system, of in rankings.items()
    }
    worst = min(shares, key=lambda system: shares[system])
    if shares[worst] < _JUDGED_ENOUGH:
        return (
            f"Next: judge deeper, since of the top 10 documents of {worst} {shares[worst]:.0%} are judged, and the "
            "others count as not relevant."
        )
    if is_open:
        return f"Next: judge more queries, since of each system's top 10 at least {shares[worst]:.0%} are judged."
    return "Next: nothing more needs to be judged to tell the best system."


def calibration(made: EvaluationSet, model: str, rankings: pools.Rankings) -> list[str]:
    """Report how far a model's judgements can be trusted, and the means that people's sample corrects.

    The sample is the queries that people judged whole, since judges get queries in random order.
    """
    of_model, (of_people, _) = made.grades()[model], agreement.resolve(made.people(), "majority")
    kappa, *_ = agreement.coefficients({model: of_model, "people": of_people})
    if not kappa.pairs:
        return [f"No pair was judged by {model} and by people: nothing says how far the model can be trusted."]
    counts = Counter((of_people[pair], of_model[pair]) for pair in of_model.keys() & of_people.keys())
    grades = sorted({grade for pair in counts for grade in pair})
    rows = [[str(grade), *(f"{counts[grade, other]:,}" for other in grades)] for grade in grades]
    table = table_lines(["people's grade", *(f"model's {grade}" for grade in grades)], rows)
    lines = [_coefficient(kappa), f"Pairs by people's grade and that of {model}:", *table]
    judged = {tuple(of[1:3]) for of in made.store.judgements() if not of.judge.startswith(MODEL)}
    begun = {query for query, document in made.store.pool() if (query, document) not in judged}
    by_model, by_people = _by_query(of_model), _by_query(of_people)
    whole = [query for query in by_model if query in by_people and query not in begun]
    if len(whole) < 2:
        return [*lines, "People judged fewer than two queries whole: the model's bias cannot be corrected."]
    rest = {query: of for query, of in by_model.items() if query not in whole}
    parts = ({query: by_people[query] for query in whole}, {query: by_model[query] for query in whole}, rest)
    return lines + _corrections(model, *(values(part, rankings) for part in parts))


def _by_query(grades: Mapping[agreement.Pair, int]) -> dict[str, dict[str, int]]:
    """Group the grades of pairs: query to document to grade."""
    groups: dict[str, dict[str, int]] = {}
    for (query, document), grade in grades.items():
        groups.setdefault(query, {})[document] = grade
    return groups


def _corrections(model: str, people: pd.DataFrame, both: pd.DataFrame, rest: pd.DataFrame) -> list[str]:
    """Report each system's mean by model and by people, the corrected mean, and corrected differences to the best."""
    whole = pd.concat([rest, both]).mean().sort_values(ascending=False)
    best, *others = whole.index
    rows = []
    for system in whole.index:
        estimate = estimates.prediction_powered_mean(*(of[system].to_numpy() for of in (rest, both, people)))
        lead = estimates.prediction_powered_mean(*((of[best] - of[system]).to_numpy() for of in (rest, both, people)))
        means = f"{whole[system]:.4f}", f"{people[system].mean():.4f}"
        rows.append([system, *means, _interval(*estimate, 4), _interval(*lead, 4) if system != best else ""])
    least, number = estimates.FEWEST_JUDGED, len(people[best])
    interval = "prediction-powered, 95 %" if number >= least else f"no interval below {least} of them"
    lines = [
        f"{METRIC} of {number + len(rest[best]):,} queries that {model} judged, corrected by the {number:,} that "
        f"people judged whole ({interval}):",
        *table_lines(["system", "by the model", "by people", "corrected", f"{best} leads by"], rows),
    ]
    if others:
        tau = _tau(both.mean(), people.mean())
        lines.append(f"Kendall's tau of the systems under the model and under people, on these queries: {tau}")
    return lines
