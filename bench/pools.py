"""How many judgements are enough: pools of several sizes against the full qrels of a collection.

Usage: pools.py RESULTS DATASET QRELS. RESULTS is a folder with runs of several systems on the dataset. The qrels play
the judge of each pool. Prints a Markdown table: for each way to choose pairs and each budget, Kendall's tau of the
systems' ranking by nDCG@10, the largest error of a mean, and how many of the differences between two systems lie within
the confidence interval that the pool's judgements give.
"""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from typing import get_args

import numpy as np
from scipy import stats

from beirgrid.collections import qrels
from beirgrid.config.metric_names import parse_metric
from beirgrid.judging import pools
from beirgrid.runs import metrics, runs

BUDGETS = (100, 300, 1000, 3000)
METRIC = parse_metric("ndcg@10")
Values = dict[str, np.ndarray]


def values(found: dict[str, runs.Run], grades: dict[str, dict[str, int]]) -> Values:
    """Return nDCG@10 of each system per query: float64 [queries]."""
    return {
        system: metrics.evaluate(
            [METRIC], list(grades.values()), [run[query].ids if query in run else [] for query in grades]
        )[METRIC]
        for system, run in found.items()
    }


def covered(by_pool: Values, truth: Values) -> tuple[int, int]:
    """Return how many true differences of two systems lie in the 95 % interval of the pool, and the number of pairs."""
    pairs = list(itertools.combinations(truth, 2))
    inside = 0
    for first, second in pairs:
        differences = by_pool[first] - by_pool[second]
        half = stats.t.ppf(0.975, len(differences) - 1) * stats.sem(differences)
        true = float(np.mean(truth[first]) - np.mean(truth[second]))
        inside += abs(float(np.mean(differences)) - true) <= half
    return inside, len(pairs)


def main() -> None:
    """Print the table."""
    results, dataset, judged = sys.argv[1:]
    full = qrels.read(judged)
    found = {path.parent.name: runs.read(path) for path in sorted(Path(results).glob(f"runs/*/{dataset}.run.gz"))}
    truth = values(found, full)
    rankings = {system: {query: ranking.ids for query, ranking in run.items()} for system, run in found.items()}
    print(f"{len(found)} systems, {len(full)} queries, {sum(map(len, full.values()))} judgements in the qrels\n")
    print("| method | judgements | queries with a relevant one | tau | largest error | differences in the interval |")
    print("|---|---:|---:|---:|---:|---:|")
    for method, budget in itertools.product(get_args(pools.Method), BUDGETS):
        pool = pools.pool(rankings, method, 20, budget)
        grades: dict[str, dict[str, int]] = {}
        for query, document, _ in pool.pairs:
            if query in full:
                grades.setdefault(query, {})[document] = full[query].get(document, 0)
        by_pool = values(found, grades)
        means = [(float(np.mean(by_pool[system])), float(np.mean(truth[system]))) for system in truth]
        tau = stats.kendalltau(*zip(*means, strict=True)).statistic
        error = max(abs(estimate - true) for estimate, true in means)
        inside, number = covered(by_pool, truth)
        useful = sum(max(of_query.values()) > 0 for of_query in grades.values())
        print(f"| {method} | {len(pool.pairs)} | {useful} | {tau:.2f} | {error:.3f} | {inside} of {number} |")


if __name__ == "__main__":
    main()
