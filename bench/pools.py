"""How many judgements are enough: pools of several sizes against the full qrels of a collection.

Usage: pools.py RESULTS DATASET QRELS. RESULTS is a folder with runs of several systems on the dataset. The qrels play
the judge of each pool. Prints a Markdown table: for each budget and each number of queries, Kendall's tau of the
systems' ranking by nDCG@10, the largest error of a mean, how many of the differences between two systems lie within the
confidence interval that the pool's judgements give, how many intervals name the wrong system as the better one, how
many name the right one, and half of an interval's length. A number of queries below all is drawn 20 times; the figures
are means. Rows of the budget "full" have the full qrels of the queries: what they lack in tau is due to the sample of
queries alone.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import numpy as np
from scipy import stats

from beirgrid.collections import qrels
from beirgrid.measures import per_query
from beirgrid.runs import runs
from beirgrid.sets import pools

BUDGETS = (100, 300, 1000, 3000)
QUERIES = (10, 25, 50, 100, 0)  # 0 for all
REPETITIONS = 20
DEPTH = 20
Values = dict[str, np.ndarray]
Grades = dict[str, dict[str, int]]


def values(found: dict[str, runs.Run], grades: Grades) -> Values:
    """Compute nDCG@10 of each system per query: float64 [queries]."""
    return {system: per_query(run, grades, ["ndcg@10"])["ndcg@10"] for system, run in found.items()}


def compared(by_pool: Values, truth: Values) -> tuple[float, float, float, float]:
    """Compare 95 % intervals of differences with the true differences, over all pairs of systems.

    Returns:
        Shares of pairs whose true difference is inside, of wrong and of right winners, and half of a mean length.
    """
    pairs = list(itertools.combinations(truth, 2))
    inside = wrong = right = length = 0.0
    for first, second in pairs:
        differences = by_pool[first] - by_pool[second]
        mean, half = float(np.mean(differences)), stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
        true = float(np.mean(truth[first]) - np.mean(truth[second]))
        inside += abs(mean - true) <= half
        wrong += abs(mean) > half and mean * true < 0
        right += abs(mean) > half and mean * true > 0
        length += half
    return inside / len(pairs), wrong / len(pairs), right / len(pairs), length / len(pairs)


def judged(rankings: pools.Rankings, full: Grades, budget: int) -> Grades:
    """Return the full qrels' judgements of a pool; pairs without a judgement are not relevant."""
    grades: Grades = {}
    for query, document in pools.pool(rankings, DEPTH, budget).pairs:
        grades.setdefault(query, {})[document] = full[query].get(document, 0)
    return grades


def main() -> None:
    """Print the table."""
    results, dataset, path = sys.argv[1:]
    full = qrels.read(path)
    found = {path.parent.name: runs.read(path) for path in sorted(Path(results).glob(f"runs/*/{dataset}.run.gz"))}
    truth = values(found, full)
    print(f"{len(found)} systems, {len(full)} queries, {sum(map(len, full.values()))} judgements in the qrels\n")
    print("| judgements | queries | budget | tau | largest error | inside | wrong winners | right winners | half |")
    print("|---:|---:|---|---:|---:|---:|---:|---:|---:|")
    for budget, number in itertools.product((*BUDGETS, 0), QUERIES):
        rows, spent = [], []
        for repetition in range(REPETITIONS if number else 1):
            order = sorted(full, key=lambda query: pools.draw(str(repetition), query))
            asked = order[: number or None]
            rankings = {system: {q: run[q].ids for q in asked if q in run} for system, run in found.items()}
            grades = judged(rankings, full, budget) if budget else {query: full[query] for query in asked}
            by_pool = values(found, grades)
            means = [(float(np.mean(by_pool[system])), float(np.mean(truth[system]))) for system in truth]
            tau = stats.kendalltau(*zip(*means, strict=True)).statistic
            rows.append((tau, max(abs(estimate - true) for estimate, true in means), *compared(by_pool, truth)))
            spent.append(sum(map(len, grades.values())))
        tau, error, inside, wrong, right, half = np.mean(rows, 0)
        asked_of = number or len(full)
        print(
            f"| {np.mean(spent):.0f} | {asked_of} | {budget or 'full'} | {tau:.2f} | {error:.3f} | {inside:.0%} | "
            f"{wrong:.0%} | {right:.0%} | {half:.3f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
