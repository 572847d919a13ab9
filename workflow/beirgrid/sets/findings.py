"""Report what the judgements of an evaluation set show: agreement, power, holes, ranks, and the means under a model.

Prediction-powered inference (Angelopoulos et al., Science 2023; PPI++, 2023) corrects the mean under a model's
judgements by the queries that people judged too.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from ..core.errors import quantity, table_lines
from ..measures import per_query, written
from ..results import comparisons
from ..results.comparisons import ROUNDING, student
from ..results.summary import GridSummary
from ..runs import runs
from . import agreement, pools
from .evaluation_set import EvaluationSet

METRIC = "ndcg@10"
_WRITTEN = written(METRIC)
HOLES = "hole@10"
# Numbers of queries for which the smallest difference is shown.
_SIZES = (50, 200, 1000)
# If a smaller share of a run's top 10 is judged, a deeper pool helps more than more queries.
_JUDGED_ENOUGH = 0.95
# With fewer queries that people judged too, an interval of a corrected mean covers less than it says.
_FEWEST_JUDGED = 15

Grades = Mapping[str, Mapping[str, int]]


def values(grades: Grades, rankings: pools.Rankings, name: str = METRIC) -> pd.DataFrame:
    """Compute a metric of each system (column) for each judged query (row)."""
    run_of = {
        system: {query: runs.EMPTY._replace(ids=list(ids)) for query, ids in of_queries.items()}
        for system, of_queries in rankings.items()
    }
    return pd.DataFrame({system: per_query(run, grades, [name])[name] for system, run in run_of.items()})


def judge_agreement(made: EvaluationSet) -> list[str]:
    """Report people's coefficients of agreement."""
    adjudicators = {version.adjudicator for version in made.description.versions}
    people = agreement.without_adjudicators(made.people(), adjudicators)
    return [coefficient_line(coefficient) for coefficient in agreement.coefficients(people) if coefficient.pairs]


def model_agreement(made: EvaluationSet, model: str) -> agreement.Coefficient:
    """Compute Cohen's kappa of a model and people's majority."""
    of_people, _ = agreement.resolve(made.people(), "majority")
    return agreement.coefficients({model: made.grades()[model], "people": of_people})[0]


def coefficient_line(coefficient: agreement.Coefficient) -> str:
    """Return a line with a coefficient, its judges and its interval."""
    name, judges, pairs, value, low, high = coefficient
    measured = "not defined" if math.isnan(value) else _interval(value, low, high)
    return f"  {name} of {', '.join(judges)}: {measured}, {quantity(pairs, 'pair')}"


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
            *(f"{version[system]:.1%}" for version in holes),
            " → ".join(f"{version[system]:.0f}" for version in ranks),
        ]
        for system in map(str, after.sort_values(ascending=False).index)
    ]
    named = [f"{written(metric)} v{number}" for metric in (METRIC, HOLES) for number, _ in versions]
    lines = [*table_lines(["system", *named[:2], "change", *named[2:], "ranks"], rows)]
    lines.append(f"{HOLES} is the share of the first 10 documents that nobody judged for the query.")
    first, second = (grades.keys() for _, grades in versions)
    if first != second:
        same = f"{len(first & second):,} of them the same"
        lines.append(f"The versions judge {len(first):,} and {quantity(len(second), 'query')}, {same}.")
    if len(after) > 1:
        lines.append(f"Kendall's tau of the two rankings: {before.corr(after, method='kendall'):.3f}")
    return lines


def verdict_changes(before: pd.DataFrame, after: pd.DataFrame) -> list[str]:
    """Report which pairs of systems have another verdict in the second result of ``paired_tests``."""
    first, second = (
        {frozenset((str(row.system), str(row.other))): _winner(row) for row in tested.itertuples()}
        for tested in (before, after)
    )
    changed = [pair for pair in first if first[pair] != second[pair]]
    lines = (f"  {' and '.join(sorted(pair))}: {first[pair]} → {second[pair]}" for pair in changed)
    return [
        f"Verdicts that change: {len(changed):,} of {quantity(len(first), 'pair')} of systems.",
        *lines,
    ]


def _winner(row: Any) -> str:
    """Name the better system of a pair, or its verdict where none is."""
    return f"{row.system} is better than {row.other}" if row.verdict == comparisons.BETTER else str(row.verdict)


def paired_tests(
    grades: Grades, rankings: pools.Rankings, name: str = "", grids: Collection[GridSummary] = ()
) -> pd.DataFrame:
    """Compare all pairs of systems, the better one first (``comparisons.decided``).

    Pairs that ``grids`` plan to compare on the set of this name are corrected as there (``planned``), and the others
    for their number; ``tests`` is the number of either.
    """
    measured = values(grades, rankings)
    order = measured.mean().sort_values(ascending=False, kind="stable").index
    pairs = pd.DataFrame([*itertools.combinations(order, 2)], columns=["system", "other"])
    estimate = student(measured[pairs["system"]].to_numpy() - measured[pairs["other"]].to_numpy())
    table = pairs.assign(queries=len(measured), **estimate.columns())
    judged = [_as_judged(grid, name) for grid in grids if name in grid.rows]
    plans = [comparisons.plan(judged, pair, name, METRIC) for pair in pairs.itertuples(index=False)]
    tests, margins = np.array(plans).reshape(-1, 2).T
    planned = tests > 0
    tests = np.where(planned, tests, (~planned).sum())
    return comparisons.decided(table.assign(planned=planned, tests=tests), tests, margins)


def _as_judged(grid: GridSummary, name: str) -> GridSummary:
    """Return a grid with the qrels of the set of this name, which may have run before there were any."""
    judged = grid.datasets[name].model_copy(update={"not_judged": False})
    return grid.model_copy(update={"datasets": {**grid.datasets, name: judged}})


def opening(grades: Grades, rankings: pools.Rankings, tested: pd.DataFrame) -> list[str]:
    """Report which system is best, which comparisons with it are open, and what to do next, in a sentence each."""
    means = values(grades, rankings).mean().sort_values(ascending=False, kind="stable")
    best, *others = map(str, means.index)
    rivals = tested[tested["system"] == best]
    unclear = rivals.loc[rivals["verdict"] != comparisons.BETTER, "other"]
    shares = {
        system: np.mean(
            [document in judged for query, judged in grades.items() for document in run.get(query, ())[:10]] or [True]
        )
        for system, run in rankings.items()
    }
    worst, share = min(shares.items(), key=lambda item: item[1])
    leader = f"{best} has the highest {_WRITTEN}, {means[best]:.4f} over {len(grades):,} judged queries."
    state = f"It is better than {', '.join(others)}: no comparison with it is open."
    step = "Next: nothing more needs to be judged to tell the best system."
    if not others:
        state = "No other system was run on the set."
    elif ((rivals["standard_error"] == 0) & (rivals["difference"].abs() <= ROUNDING)).all():
        leader = f"All systems have the same {_WRITTEN}, {means[best]:.4f} over {len(grades):,} judged queries."
        state = "Open: they are equal on each of these queries."
        step = "Next: judge other queries, since more judgements of these cannot tell the systems apart."
    elif len(unclear):
        state = f"Open against {', '.join(unclear)}."
        step = f"Next: judge more queries, since of each system's top 10 at least {share:.0%} are judged."
    if share < _JUDGED_ENOUGH:
        judged = f"of the top 10 documents of {worst} {share:.0%} are judged, and the others count as not relevant."
        step = f"Next: judge deeper, since {judged}"
    return [leader, state, step]


def comparison_lines(tested: pd.DataFrame) -> list[str]:
    """Report the differences that these queries can show, the verdicts, and what would decide what is open."""
    if tested.empty:
        return []
    rows = [
        [f"{row.system} − {row.other}", f"{row.difference:+.4f}", *(_smallest(row, n) for n in (row.queries, *_SIZES))]
        for row in tested.itertuples()
    ]
    headings = ["systems", "difference", f"with {tested['queries'].iloc[0]}", *(f"with {n}" for n in _SIZES)]
    power = f"Differences of {_WRITTEN} that the test finds with power {comparisons.POWER}, by the number of queries:"
    how = "Paired t tests, with Bonferroni's correction for the differences of the plan, or for the pairs without one:"
    return [power, *table_lines(headings, rows), how, *map(_verdict, tested.itertuples())]


def _smallest(row: Any, queries: Any) -> str:
    """Format the smallest difference of a pair that so many queries find with power 0.8."""
    if queries < 2 or not row.standard_error > 0:
        return ""
    deviation = row.standard_error * math.sqrt(row.queries)
    return f"{deviation * comparisons.smallest_effect(queries, comparisons.ALPHA / row.tests):.4f}"


def _verdict(row: Any) -> str:
    """Format the difference of a pair with its interval, p and verdict."""
    pair = f"{row.system} − {row.other}{' (planned)' if row.planned else ''}"
    if math.isnan(row.p):
        return (
            f"{pair}: {row.difference:+.4f} on each judged query ({row.queries}), {row.verdict}: a t test needs "
            "differences that vary."
        )
    size = _interval(row.difference, row.low, row.high, 4)
    return f"{pair}: {size}, p {row.p:.2g}, {comparisons.said(row)}."


def calibration(made: EvaluationSet, model: str, rankings: pools.Rankings) -> list[str]:
    """Report how far a model's judgements can be trusted, and the means that people's sample corrects.

    The sample is the queries that people judged whole, since judges get queries in random order.
    """
    of_model = made.grades()[model]
    of_people, _ = agreement.resolve(made.people(), "majority")
    kappa = model_agreement(made, model)
    if not kappa.pairs:
        return [f"No pair was judged by {model} and by people: nothing says how far the model can be trusted."]
    lines = [coefficient_line(kappa), f"Pairs by people's grade and that of {model}:"]
    lines += _confusion(of_people, of_model)
    waiting = made.waiting_queries()
    by_model = _by_query(of_model)
    by_people = _by_query(of_people)
    whole = [query for query in by_model if query in by_people and query not in waiting]
    if len(whole) < 2:
        return [*lines, "People judged fewer than two queries whole: the model's bias cannot be corrected."]
    rest = {query: grades for query, grades in by_model.items() if query not in whole}
    parts = ({query: by_people[query] for query in whole}, {query: by_model[query] for query in whole}, rest)
    return lines + _corrections(model, *(values(part, rankings) for part in parts))


def _confusion(of_people: Mapping[agreement.Pair, int], of_model: Mapping[agreement.Pair, int]) -> Iterator[str]:
    """Yield a table that counts the pairs of both by people's grade and the model's."""
    counts = Counter((of_people[pair], of_model[pair]) for pair in of_model.keys() & of_people.keys())
    grades = sorted({grade for pair in counts for grade in pair})
    rows = [[str(grade), *(f"{counts[grade, other]:,}" for other in grades)] for grade in grades]
    yield from table_lines(["people's grade", *(f"model's {grade}" for grade in grades)], rows)


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
        estimate = prediction_powered_mean(*(sample[system].to_numpy() for sample in (rest, both, people)))
        lead = prediction_powered_mean(*((sample[best] - sample[system]).to_numpy() for sample in (rest, both, people)))
        means = f"{whole[system]:.4f}", f"{people[system].mean():.4f}"
        rows.append([system, *means, _interval(*estimate, 4), _interval(*lead, 4) if system != best else ""])
    number = len(people)
    interval = "prediction-powered, 95 %" if number >= _FEWEST_JUDGED else f"no interval below {_FEWEST_JUDGED} of them"
    how = f"corrected by the {number:,} that people judged whole ({interval})"
    columns = ["system", "by the model", "by people", "corrected", f"{best} leads by"]
    if rest.empty:
        how = "and people judged all of them: nothing is corrected"
        columns = columns[:3]
        rows = [row[:3] for row in rows]
    lines = [
        f"{_WRITTEN} of {quantity(number + len(rest), 'query')} that {model} judged, {how}:",
        *table_lines(columns, rows),
    ]
    if others:
        tau = both.mean().corr(people.mean(), method="kendall")
        lines.append(f"Kendall's tau of the systems under the model and under people, on these queries: {tau:.3f}")
    return lines


def prediction_powered_mean(
    by_model: np.ndarray, model_where_judged: np.ndarray, by_people: np.ndarray
) -> tuple[float, float, float]:
    """Estimate the mean under people's judgements of all queries, with its 95 % interval.

    The ends of the interval are NaN for a sample of fewer than 15 queries.

    Args:
        by_model: values of the queries that only the model judged, float [queries].
        model_where_judged: values under the model of the queries that people judged too, float [sample].
        by_people: values of these queries under people's judgements, float [sample], a random sample of all queries,
            at least two.
    """
    from scipy.special import stdtrit

    sample = len(by_people)
    others = len(by_model)
    variance = float(np.var(np.concatenate([by_model, model_where_judged]), ddof=1))
    covariance = float(np.cov(by_people, model_where_judged)[0, 1])
    # The weight of the model's values that minimises the interval (PPI++).
    weight = min(max(covariance / ((1 + sample / others) * variance), 0.0), 1.0) if others and variance else 0.0
    corrected = by_people - weight * model_where_judged
    mean = float(np.mean(corrected)) + (weight * float(np.mean(by_model)) if others else 0.0)
    error = float(np.var(corrected, ddof=1)) / sample
    if others > 1:
        error += weight**2 * float(np.var(by_model, ddof=1)) / others
    half = float(stdtrit(sample - 1, 0.975)) * math.sqrt(error) if sample >= _FEWEST_JUDGED else math.nan
    return mean, mean - half, mean + half
