"""Measure how closely a run reproduces a reference run, as Breuer et al. (SIGIR 2020) and repro_eval 0.5.0 do."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

DEPTH = 1000
PERSISTENCE = 0.95


def kendall_tau_union(reference: Sequence[str], run: Sequence[str], depth: int = DEPTH) -> float:
    """Return Kendall's tau union of two rankings of one query.

    The documents of both rankings are numbered in the order in which they first appear, those of the reference first.
    Kendall's tau (b) then correlates the numbers that stand at the same ranks. In the paper's example, d1 d2 d3 against
    d1 d2 d4, the numbers are 1 2 3 and 1 2 4, so tau is 1 although the rankings share two documents only. repro_eval
    numbers the documents in the alphabetical order of their ids, so its value changes when documents are renamed.

    Args:
        reference: document ids of the reference run, best first.
        run: document ids of the run, best first.
        depth: ranks to compare, at most as many as the shorter ranking has.

    Returns:
        -1 to 1; NaN below two ranks.
    """
    from scipy.stats import kendalltau

    ranks = min(depth, len(reference), len(run))
    if ranks < 2:
        return math.nan
    numbers = {document: i for i, document in enumerate(dict.fromkeys([*reference[:depth], *run[:depth]]))}
    return float(kendalltau(np.arange(ranks), [numbers[document] for document in run[:ranks]]).statistic)


def rank_biased_overlap(
    reference: Sequence[str], run: Sequence[str], persistence: float = PERSISTENCE, depth: int = DEPTH
) -> float:
    """Return the rank-biased overlap of two rankings of one query, cut off at a depth.

    It is the mean of the overlaps at depths 1 to ``depth`` (shared documents / depth), with weights persistence^(d - 1)
    that are scaled to add up to 1, so that equal rankings of ``depth`` documents have 1. Shorter rankings have less.
    """
    position = {document: rank for rank, document in enumerate(reference[:depth])}
    shared = [max(rank, position[document]) for rank, document in enumerate(run[:depth]) if document in position]
    overlap = np.cumsum(np.bincount(np.array(shared, np.int64), minlength=depth)) / np.arange(1, depth + 1)
    return float(np.average(overlap, weights=persistence ** np.arange(depth)))


class Rankings(NamedTuple):
    """Means over the queries: of Kendall's tau union over those with two ranks or more, of the overlap over all."""

    queries: int
    kendall_tau_union: float
    rank_biased_overlap: float


def compare_rankings(
    reference: Mapping[str, Sequence[str]], run: Mapping[str, Sequence[str]], depth: int = DEPTH
) -> Rankings:
    """Compare two runs (query to document ids, best first); a query that one run lacks has no documents there."""
    queries = [(reference.get(query, ()), run.get(query, ())) for query in {**reference, **run}]
    taus = [kendall_tau_union(*pair, depth=depth) for pair in queries]
    defined = [tau for tau in taus if not math.isnan(tau)]
    overlaps = [rank_biased_overlap(*pair, depth=depth) for pair in queries]
    return Rankings(
        queries=len(queries),
        kendall_tau_union=float(np.mean(defined)) if defined else math.nan,
        rank_biased_overlap=float(np.mean(overlaps)) if overlaps else math.nan,
    )


def root_mean_square_error(reference: np.ndarray, scores: np.ndarray) -> float:
    """Return the root mean square difference of the scores of the same queries, both float64 [queries]."""
    return float(np.sqrt(np.mean((reference - scores) ** 2)))


def effect_ratio(
    reference: np.ndarray, reference_baseline: np.ndarray, scores: np.ndarray, baseline: np.ndarray
) -> float:
    """Return the mean improvement over the baseline divided by that of the reference, all float64 [queries].

    1: the effect is as large; between 0 and 1: smaller; below 0: the other way round; NaN: the reference has none. The
    reference and its baseline share their queries, and so do the scores and theirs.
    """
    improvement = float(np.mean(reference - reference_baseline))
    return float(np.mean(scores - baseline)) / improvement if improvement else math.nan


def delta_relative_improvement(
    reference: np.ndarray, reference_baseline: np.ndarray, scores: np.ndarray, baseline: np.ndarray
) -> float:
    """Return the reference's relative improvement over its baseline minus that of the scores, all float64 [queries].

    0: as large; above 0: smaller than the reference's; NaN: a baseline is 0.
    """
    of_reference, of_baseline = float(np.mean(reference_baseline)), float(np.mean(baseline))
    if not of_reference or not of_baseline:
        return math.nan
    improvement = (float(np.mean(reference)) - of_reference) / of_reference
    return improvement - (float(np.mean(scores)) - of_baseline) / of_baseline
