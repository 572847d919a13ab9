"""Report what the judgements of an evaluation set show: agreement, power, holes and ranks."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..analysis import ranking_overlap
from ..analysis.significance import holm, student
from ..config.metric_names import parse_metric
from ..runs import metrics
from ..tools.text import columned
from . import agreement, calibration, estimates, pools

METRIC, HOLES = "ndcg@10", "hole@10"
# Queries with little agreement that are shown.
_LEAST = 5
# Numbers of queries for which the smallest difference is shown.
_SIZES = (50, 200, 1000)
_LEVEL = 0.05
# If a smaller share of a run's top 10 is judged, a deeper pool helps more than more queries.
_JUDGED_ENOUGH = 0.95

Grades = Mapping[str, Mapping[str, int]]


def values(grades: Grades, rankings: pools.Rankings, name: str = METRIC) -> dict[str, Any]:
    """Compute a metric of each system per query under given qrels: system to float64 [queries]."""
    metric = parse_metric(name)
    judged = [dict(of_query) for of_query in grades.values()]
    return {
        system: metrics.evaluate([metric], judged, [list(of_system.get(query, ())) for query in grades])[metric]
        for system, of_system in rankings.items()
    }


def alike(rankings: pools.Rankings) -> list[str]:
    """Report the similarity of each pair of rankings, which needs no judgements, and the sizes of pools."""
    whole, *pairs = ranking_overlap.rows(rankings)
    names = ["overlap@10", "rbo", "tau"]
    table = [[f"{row['system']} and {row['other']}", *(f"{row[name]:.3f}" for name in names)] for row in pairs]
    headings = ["systems", "common of the top 10", "RBO", "Kendall's tau"]
    lines = ["Agreement of the systems, without judgements:", *columned(headings, table)] if table else []
    numbers = (f"{whole[f'pool@{depth}']:,} to depth {depth}" for depth in ranking_overlap.DEPTHS)
    return [*lines, f"A pool of {len(rankings)} systems would have these pairs: {', '.join(numbers)}."]


def agreed(grades: agreement.Grades) -> list[str]:
    """Report the judges' coefficients of agreement."""
    return [_coefficient(found) for found in agreement.coefficients(grades) if found.pairs]


def agreed_in_parts(grades: agreement.Grades) -> list[str]:
    """Report each judge's agreement with the others, and the queries with the least agreement."""
    judges = [
        [found.judges[0], f"{found.pairs:,}", _interval(found), f"{higher:+.2f}"]
        for found, higher in agreement.by_judge(grades)
        if found.pairs
    ]
    queries = [[query, f"{found.pairs:,}", _interval(found)] for query, found in agreement.by_query(grades, _LEAST)]
    headings = ["judge", "pairs", "Cohen's kappa with the others' majority", "mean grade above theirs"]
    lines = list(columned(headings, judges)) if judges else []
    if queries:
        lines += columned(["queries with the least agreement", "pairs", "Krippendorff's alpha"], queries)
    return lines


def moved(
    versions: Sequence[tuple[int, Grades]],
    rankings: pools.Rankings,
) -> list[str]:
    """Report scores, holes and ranks of all systems under two versions of the qrels."""
    from scipy.stats import kendalltau

    means, holes = (
        [
            {system: float(found.mean()) for system, found in values(grades, rankings, metric).items()}
            for _, grades in versions
        ]
        for metric in (METRIC, HOLES)
    )
    ranks = [{system: 1 + sum(other > value for other in of.values()) for system, value in of.items()} for of in means]
    before, after = means
    rows = [
        [
            system,
            *(f"{of[system]:.4f}" for of in means),
            f"{after[system] - before[system]:+.4f}",
            *(f"{of[system]:.1%}" for of in holes),
            f"{ranks[0][system]} → {ranks[1][system]}",
        ]
        for system in sorted(after, key=lambda name: -after[name])
    ]
    named = [f"{metric} v{number}" for metric in (METRIC, HOLES) for number, _ in versions]
    lines = [*columned(["system", *named[:2], "change", *named[2:], "ranks"], rows)]
    lines.append(f"{HOLES} is the share of the first 10 documents that nobody judged for the query.")
    counts = [grades.keys() for _, grades in versions]
    if counts[0] != counts[1]:
        lines.append(
            f"The versions judge {len(counts[0]):,} and {len(counts[1]):,} queries, {len(counts[0] & counts[1]):,} of "
            "them the same."
        )
    if len(after) > 1:
        tau = kendalltau([before[system] for system in after], list(after.values())).statistic
        lines.append(f"Kendall's tau of the two rankings: {tau:.3f}")
    return lines


def _coefficient(found: agreement.Coefficient) -> str:
    return f"  {found.name} of {', '.join(found.judges)}: {_interval(found)}, {found.pairs:,} pairs"


def _interval(found: agreement.Coefficient) -> str:
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def reach(grades: Grades, rankings: pools.Rankings) -> list[str]:
    """Report the differences that these queries can show, which comparisons are open, and what would close them."""
    found = values(grades, rankings)
    pairs = list(itertools.combinations(sorted(found, key=lambda name: -found[name].mean()), 2))
    if not pairs:
        return []
    differences = [found[first] - found[second] for first, second in pairs]
    rows = [
        [
            f"{first} − {second}",
            f"{of_pair.mean():+.4f}",
            *(_smallest(of_pair, n) for n in (len(of_pair), *_SIZES)),
        ]
        for (first, second), of_pair in zip(pairs, differences, strict=True)
    ]
    headings = ["systems", "difference", "can be told now", *(f"with {n}" for n in _SIZES)]
    told = f"Differences of {METRIC} that a paired test finds with power 0.8:"
    corrected = holm(student(np.stack(differences, axis=1)))
    said = [
        _verdict(*pair, of_pair, float(p), len(pairs))
        for pair, of_pair, p in zip(pairs, differences, corrected, strict=True)
    ]
    tests = f"Paired t tests, p corrected for {len(pairs)} comparisons (Holm):"
    return [told, *columned(headings, rows), _deeper_or_more(grades, rankings), tests, *said]


def _smallest(differences: np.ndarray, queries: int) -> str:
    found = estimates.smallest_difference(differences, queries)
    return "" if math.isnan(found) else f"{found:.4f}"


def _verdict(first: str, second: str, differences: np.ndarray, p: float, comparisons: int) -> str:
    """Return whether a comparison is closed, in one sentence, and how many queries would close it."""
    low, high = estimates.interval(differences)
    seen = float(differences.mean())
    if math.isnan(p):
        return (
            f"Open: {first} is better than {second} by {seen:.4f} on each judged query ({len(differences)}). A t test "
            "needs differences that vary."
        )
    found = f"{seen:.4f} [{low:.4f}, {high:.4f}], p {p:.2g}"
    if p < _LEVEL:
        return f"Closed: {first} is better than {second} by {found}."
    if not seen:
        return f"Open: {first} and {second} have the same mean."
    if low > 0:
        needed = estimates.queries_needed(differences, seen, alpha=_LEVEL / comparisons)
        return (
            f"Open among {comparisons} comparisons: {first} and {second} differ by {found}. Closed if no other one was "
            f"planned. Otherwise {needed:,} queries find it with a probability of 0.8; there are {len(differences):,}."
        )
    needed = estimates.queries_needed(differences, seen, alpha=_LEVEL)
    return (
        f"Open: {first} and {second} differ by {found}. If this is the true difference, {needed:,} queries find it "
        f"with a probability of 0.8; there are {len(differences):,}."
    )


def _deeper_or_more(grades: Grades, rankings: pools.Rankings) -> str:
    """Report whether deeper pools or more queries help more."""
    shares = {}
    for system, of_system in rankings.items():
        judged = [document in grades[query] for query in grades for document in of_system.get(query, ())[:10]]
        shares[system] = float(np.mean(judged)) if judged else 1.0
    worst = min(shares, key=lambda system: shares[system])
    if shares[worst] < _JUDGED_ENOUGH:
        return (
            f"Judge deeper first: of the top 10 documents of {worst}, {shares[worst]:.0%} are judged. The others count "
            "as not relevant, and what follows may change with them."
        )
    return f"More queries buy more than deeper pools: of each system's top 10, at least {shares[worst]:.0%} are judged."


def calibrated(found: calibration.Calibration, rankings: pools.Rankings) -> list[str]:
    """Return how far a model's judgements can be trusted, and the means that people's sample corrects."""
    model = found.kappa.judges[0]  # "model:…" sorts before "people"
    if not found.kappa.pairs:
        return [f"No pair was judged by {model} and by people: nothing says how far the model can be trusted."]
    grades = sorted({grade for pair in found.confusion for grade in pair})
    rows = [[str(grade), *(f"{found.confusion[grade, other]:,}" for other in grades)] for grade in grades]
    headings = ["people's grade", *(f"model's {grade}" for grade in grades)]
    lines = [_coefficient(found.kappa), f"Pairs by people's grade and that of {model}:", *columned(headings, rows)]
    sample, others = list(found.by_people), [query for query in found.by_model if query not in found.by_people]
    if len(sample) < 2:
        return [*lines, "People judged fewer than two queries whole: the model's bias cannot be corrected."]
    people = values(found.by_people, rankings)
    both = values({query: found.by_model[query] for query in sample}, rankings)
    rest = values({query: found.by_model[query] for query in others}, rankings)
    return lines + _corrected(model, people, both, rest)


def _corrected(
    model: str, people: Mapping[str, np.ndarray], both: Mapping[str, np.ndarray], rest: Mapping[str, np.ndarray]
) -> list[str]:
    """Return each system's mean by model and by people, the corrected mean, and corrected differences to the best."""
    from scipy.stats import kendalltau

    whole = {system: float(np.concatenate([rest[system], both[system]]).mean()) for system in both}
    order = sorted(whole, key=lambda system: -whole[system])
    rows = []
    for system in order:
        estimate = estimates.prediction_powered_mean(rest[system], both[system], people[system])
        parts = [of[order[0]] - of[system] for of in (rest, both, people)]
        behind = _estimate(estimates.prediction_powered_mean(*parts)) if system != order[0] else ""
        rows.append([system, f"{whole[system]:.4f}", f"{people[system].mean():.4f}", _estimate(estimate), behind])
    least = estimates.FEWEST_JUDGED
    interval = "prediction-powered, 95 %" if len(people[order[0]]) >= least else f"no interval below {least} of them"
    number, all_queries = len(people[order[0]]), len(people[order[0]]) + len(rest[order[0]])
    lines = [
        f"{METRIC} of {all_queries:,} queries that {model} judged, corrected by the {number:,} that people judged "
        f"whole ({interval}):",
        *columned(["system", "by the model", "by people", "corrected", f"{order[0]} leads by"], rows),
    ]
    if len(order) > 1:
        tau = kendalltau([both[name].mean() for name in order], [people[name].mean() for name in order]).statistic
        lines.append(f"Kendall's tau of the systems under the model and under people, on these queries: {tau:.3f}")
    return lines


def _estimate(found: estimates.Estimate) -> str:
    interval = "" if math.isnan(found.low) else f" [{found.low:.4f}, {found.high:.4f}]"
    return f"{found.mean:.4f}{interval}"


def reusable(grades: Grades, rankings: pools.Rankings, families: Mapping[str, str], depth: int) -> list[str]:
    """Report how each system would score if the system, or its family, had not been in the pool.

    A fusion or a reranker belongs to the family of a system whose name it has before or after a +.
    """
    means = {system: float(of_system.mean()) for system, of_system in values(grades, rankings).items()}
    parts = {system: {families.get(part, part) for part in (system, *system.split("+"))} for system in rankings}
    rows = []
    for system in sorted(means, key=lambda name: -means[name]):
        family = families.get(system, "")
        relatives = [name for name, found in parts.items() if name == system or family in found]
        row = [system, family]
        for without in ([system], relatives):
            row += _without(grades, rankings, means, system, without, depth)
        rows.append(row)
    columns = ["system", "family", "alone: pairs", "change", "rank", "with its family: pairs", "change", "rank"]
    told = f"Had a system, or its family, not been in the pool (judged pairs lost, its {METRIC}, its rank):"
    return [told, *columned(columns, rows)] if len(rows) > 1 else []


def _without(
    grades: Grades,
    rankings: pools.Rankings,
    means: Mapping[str, float],
    system: str,
    without: Sequence[str],
    depth: int,
) -> list[str]:
    """Return pairs lost, change of the score, and ranks of a system when some systems were not in the pool."""
    if len(without) == len(rankings):
        return ["all", "", ""]
    absent = pools.leave_out(rankings, without, "depth", depth)
    kept = {
        query: {document: grade for document, grade in of_query.items() if (query, document) not in absent}
        for query, of_query in grades.items()
    }
    lost = sum(map(len, grades.values())) - sum(map(len, kept.values()))
    less = {name: float(of_system.mean()) for name, of_system in values(kept, rankings).items()}
    ranks = [1 + sum(value > found[system] for value in found.values()) for found in (means, less)]
    return [f"{lost:,}", f"{less[system] - means[system]:+.4f}", f"{ranks[0]} → {ranks[1]}"]
