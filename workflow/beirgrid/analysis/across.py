"""Compare systems over several datasets, by means and scores per query; compare rankings without judgements."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from ..results.answers import LEAST_DATASETS
from ..results.comparisons import ROUNDING, mean_of, student
from . import significance

# With fewer datasets than this, a test over datasets has little power and depends on Student's assumptions.
FEW_DATASETS = 10
# Depths of the pools of rankings.
DEPTHS = (5, 10, 20, 50)
# Depth of their overlap.
_OVERLAP = 10


def mean_intervals(
    datasets: Sequence[tuple[np.ndarray, Sequence[int] | None]],
) -> tuple[significance.Interval, significance.Interval]:
    """Return Student's t intervals of each column's unweighted mean over the datasets.

    The first is that of Welch's test of the queries: the variation over queries of the same datasets. The second takes
    each dataset as one observation: the variation over datasets of the same kind; it is NaN for a single dataset.

    Args:
        datasets: of each dataset, the scores, float64 [queries, columns], and the number of queries of its parts, if it
            is a mean of datasets.
    """
    samples = [student(*dataset) for dataset in datasets]
    over = student(np.stack([sample.mean for sample in samples]))
    return significance.Interval(*mean_of(samples).interval()), significance.Interval(*over.interval())


def ranks(means: np.ndarray, *, lower_is_better: bool = False) -> dict[str, np.ndarray]:
    """Rank the systems of float64 [datasets, systems] by their mean on each dataset.

    ``mean_rank`` is 1 for the best; tied systems share the mean of their ranks. ``borda``, the Borda count, is the
    number of systems that a system beats, added up over the datasets; a tie counts one half. Means that differ only by
    rounding tie.
    """
    from scipy.stats import rankdata

    better = means if lower_is_better else -means
    rows = rankdata((better / ROUNDING).round(), axis=1)
    return {"mean_rank": rows.mean(axis=0), "borda": (means.shape[1] - rows).sum(axis=0)}


def against_best(means: np.ndarray, *, lower_is_better: bool = False) -> np.ndarray:
    """Return the p value of each system's difference to the best, from float64 [datasets, systems]; 1 for the best.

    It is of the paired t test over the datasets. Holm's correction is for all pairs, because the data chose the best.
    Over fewer than five datasets, there is none (NaN).
    """
    if len(means) < LEAST_DATASETS:
        return np.full(means.shape[1], np.nan)
    first, second = significance.pairs_of(means.shape[1])
    p = significance.holm(student(means[:, first] - means[:, second]).p())
    best = int(np.argmin(means.mean(axis=0) * (1 if lower_is_better else -1)))
    of_best = (first == best) | (second == best)
    p_best = np.ones(means.shape[1])
    p_best[(first + second - best)[of_best]] = p[of_best]
    return p_best


def against(means: np.ndarray, baseline: int, *, lower_is_better: bool = False) -> dict[str, Any]:
    """Compare the means of systems, float64 [datasets, systems], with those of the system in column ``baseline``.

    ``change`` is the relative difference of the means over the datasets (0.1: ten percent higher; NaN for a baseline of
    0). ``p_t`` (paired t test) and ``p_sign`` (exact sign test, ties left out) take each dataset as one observation.
    ``note`` warns of few datasets.
    """
    from scipy.stats import binomtest

    differences = means - means[:, [baseline]]
    better = -differences if lower_is_better else differences
    wins = (better > ROUNDING).sum(axis=0)
    losses = (better < -ROUNDING).sum(axis=0)
    overall = means.mean(axis=0)
    reference = overall[baseline]
    decided = zip(wins, wins + losses, strict=True)
    p_sign = [binomtest(int(won), int(number)).pvalue if number else 1.0 for won, number in decided]
    few = f"a test over fewer than {FEW_DATASETS} datasets finds only large differences (datasets here: {len(means)})"
    return {
        "difference": overall - reference,
        "change": overall / reference - 1 if reference else np.full(len(overall), np.nan),
        "wins": wins,
        "ties": len(means) - wins - losses,
        "losses": losses,
        "p_t": student(differences).p(),
        "p_sign": np.array(p_sign),
        "note": few if len(means) < FEW_DATASETS else "",
    }


def agreement(rankings: Mapping[str, Mapping[str, Sequence[str]]]) -> Iterator[dict[str, Any]]:
    """Yield a row for all systems and for each pair of them, with the sizes of their pools and the pair's overlap.

    ``pool@5`` counts the pairs of a query and a document in the top 5 of any of the systems. ``overlap@10`` is the
    share of common documents of the top 10, as a mean over the queries that both systems have.

    Args:
        rankings: by system and query, the ids of the documents, best first.
    """
    queries = list(dict.fromkeys(itertools.chain(*rankings.values())))

    def top(system: str, depth: int) -> list[set[str]]:
        return [set(rankings[system].get(query, ())[:depth]) for query in queries]

    def row(system: str, other: str, systems: Sequence[str]) -> dict[str, Any]:
        of_systems: dict[str, Any] = {"system": system, "other": other, "queries": len(queries)}
        for depth in DEPTHS:
            by_query = zip(*(top(name, depth) for name in systems), strict=True)
            of_systems[f"pool@{depth}"] = sum(len(set().union(*tops)) for tops in by_query)
        return of_systems

    yield row("all", "", [*rankings])
    for system, other in itertools.combinations(rankings, 2):
        tops = zip(top(system, _OVERLAP), top(other, _OVERLAP), strict=True)
        shares = [len(first & second) / _OVERLAP for first, second in tops if first and second]
        overlap = np.mean(shares) if shares else np.nan
        yield row(system, other, [system, other]) | {f"overlap@{_OVERLAP}": overlap}
