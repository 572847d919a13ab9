"""One procedure for paired comparisons: Student's t interval of the mean difference, and the verdict that follows.

Of the tests on scores of queries, the t test keeps its level and has the most power (Urbano, Lima and Hanjalic, SIGIR
2019). Its interval covers from ten queries on, where bootstrap intervals are too narrow. Bonferroni's correction widens
all intervals of a family: with a probability of 0.95, all of them hold (Dunn, 1961).
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..core.errors import quantity
from .answers import LEAST_DATASETS, both_ways
from .summary import GridSummary

# The verdicts on a difference.
BETTER = "better"
EQUIVALENT = "equivalent"
OPEN = "open"
ALPHA = 0.05
# Probability with which a number of queries decides.
POWER = 0.8
# Tolerance between sums of the same values in another order.
ROUNDING = 1e-12
# The columns of ``Student`` in tables.
ESTIMATE = ["difference", "standard_error", "degrees_of_freedom"]


class Student(NamedTuple):
    """Means with their standard errors and degrees of freedom, float64 [columns].

    The error is NaN for a single value, and 0 for values that are all equal.
    """

    mean: np.ndarray
    error: np.ndarray
    freedom: np.ndarray

    def columns(self) -> dict[str, np.ndarray]:
        """Return the columns ``ESTIMATE`` of a table."""
        return dict(zip(ESTIMATE, self, strict=True))

    def interval(self, tests: int | np.ndarray = 1) -> tuple[np.ndarray, np.ndarray]:
        """Return low and high ends of the intervals; with ``tests`` of them, all hold together with 0.95.

        Values that all equal another value than 0 have no interval (NaN), as they have no test.
        """
        from scipy.special import stdtrit

        error = np.where(self._is_defined(), self.error, np.nan)
        half = error * stdtrit(self.freedom, 1 - ALPHA / (2 * tests))
        return self.mean - half, self.mean + half

    def p(self, tests: int | np.ndarray = 1) -> np.ndarray:
        """Return two-sided p values, corrected for the number of tests: 1 where all values are 0, NaN as above."""
        from scipy.special import stdtr

        statistic = np.abs(self.mean) / np.where(self.error > 0, self.error, np.inf)
        statistic = np.where(self._is_defined(), statistic, np.nan)
        p: np.ndarray = np.minimum(2 * stdtr(self.freedom, -statistic) * tests, 1)
        return p

    def _is_defined(self) -> np.ndarray:
        all_zero = (self.error == 0) & (np.abs(self.mean) <= ROUNDING)
        defined: np.ndarray = (self.error > 0) | all_zero
        return defined


def student(values: np.ndarray, parts: Sequence[int] | None = None) -> Student:
    """Return the means of float64 [rows, columns]; with the numbers of rows of ``parts``, the means of their means."""
    if parts:
        ends = np.cumsum(parts)[:-1]
        return mean_of([student(part) for part in np.split(values, ends)])
    count = len(values)
    mean = values.mean(axis=0)
    if count < 2:
        error = np.where(np.abs(mean) <= ROUNDING, 0.0, np.nan)
        return Student(mean, error, np.ones(len(mean)))
    deviation = values.std(axis=0, ddof=1)
    error = np.where(deviation > ROUNDING, deviation, 0) / math.sqrt(count)
    return Student(mean, error, np.full(len(mean), count - 1.0))


def mean_of(samples: Sequence[Student]) -> Student:
    """Return the unweighted mean of independent means, with Satterthwaite's degrees of freedom, as in Welch's test."""
    means, errors, freedoms = (np.stack(values) / 1.0 for values in zip(*samples, strict=True))
    squares = errors**2
    total = squares.sum(axis=0)
    spread = (squares**2 / freedoms).sum(axis=0)
    freedom = np.divide(total**2, spread, out=np.ones_like(total), where=spread > 0)
    return Student(means.mean(axis=0), np.sqrt(total) / len(samples), freedom)


def over_datasets(pairs: pd.DataFrame) -> Student:
    """Return the mean difference of two systems over several datasets (rows of ``pairs``).

    Of five or more datasets, each is one observation. Of fewer, the queries are, which say nothing of other datasets.
    """
    if len(pairs) >= LEAST_DATASETS:
        return student(pairs[["difference"]].to_numpy())
    return mean_of([Student(*row) for row in pairs[ESTIMATE].to_numpy()[:, :, None]])


def queries_needed(difference: float, deviation: float, alpha: float = ALPHA) -> int:
    """Return the number of queries with which a t test at a level finds a difference with a probability of 0.8.

    ``deviation`` is the standard deviation of the queries' differences.
    """
    sizes = range(10**12)  # more queries than anybody has
    return bisect_left(sizes, -abs(difference) / deviation, lo=2, key=lambda size: -smallest_effect(size, alpha))


def smallest_effect(queries: int, alpha: float = ALPHA) -> float:
    """Return the smallest mean difference, in standard deviations, that a two-sided paired t test finds with 0.8.

    It follows from Student's noncentral t distribution.
    """
    from scipy.special import nctdtrinc, stdtrit

    critical = stdtrit(queries - 1, 1 - alpha / 2)
    return float(nctdtrinc(queries - 1, 1 - POWER, critical)) / math.sqrt(queries)


def power_on(name: str, pairs: pd.DataFrame) -> str:
    """Phrase what the queries of a dataset can tell: the difference that a paired t test finds; empty without a pair.

    ``pairs`` are those of one metric on the dataset. The difference is the median of those of the pairs.
    """
    deviations = (pairs["standard_error"] * np.sqrt(pairs["queries"].astype("float64"))).dropna()
    if not (deviations > 0).any():
        return ""
    queries = int(pairs["queries"].iloc[0])
    least = float(deviations.median()) * smallest_effect(queries)
    found = f"a paired t test finds a difference of {least:.4f} with power {POWER}"
    return f"With {quantity(queries, 'query')} of {name}, {found}"


# Planned comparisons --------------------------------------------------------------------------------------------------


def decided(table: pd.DataFrame, tests: int | np.ndarray = 1, margin: float | np.ndarray = 0.0) -> pd.DataFrame:
    """Return differences with ``low``, ``high``, ``p``, ``verdict`` and, where it is open, the queries ``needed``.

    Args:
        table: the columns ``ESTIMATE``, and ``queries``, which is missing where no number of queries decides.
        tests: number of differences in the family of each row.
        margin: systems are equivalent if the interval lies between -margin and margin.
    """
    student = Student(*table[ESTIMATE].to_numpy(np.float64).T)
    low, high = student.interval(tests)
    differs = (low > 0) | (high < 0)
    alike = (low > -margin) & (high < margin)
    verdict = np.select([differs, alike], [BETTER, EQUIVALENT], OPEN)
    table = table.assign(low=low, high=high, p=student.p(tests), verdict=verdict)
    size = np.abs(student.mean)
    effect = np.maximum(size, margin - size)
    deviation = student.error * np.sqrt(table["queries"].to_numpy(np.float64))
    countable = (verdict == OPEN) & (deviation > 0) & (effect > ROUNDING)
    alphas = ALPHA / np.broadcast_to(tests, len(table))
    needed: list[int | None] = [None] * len(table)
    for row in np.flatnonzero(countable):
        needed[row] = queries_needed(effect[row], deviation[row], alphas[row])
    return table.assign(needed=pd.array(needed, "Int64"))


def said(row: Any, lower_is_better: bool = False) -> str:
    """Phrase the verdict of a row of ``decided`` on two systems."""
    if row.verdict == BETTER:
        first_wins = (row.difference > 0) != lower_is_better
        return f"{row.system if first_wins else row.other} is {BETTER}"
    return undecided(row.verdict, row.needed)


def undecided(text: str, needed: Any) -> str:
    """Add the number of queries that would decide, if there is one."""
    return text if pd.isna(needed) else f"{text} ({needed:,} queries would decide)"


def planned_tests(grid: GridSummary) -> int:
    """Count the differences that a planned comparison states: on each dataset and, from five on, on average."""
    datasets = len(grid.counted_once)
    return max(len(grid.compare) - 1, 0) * (datasets + (datasets >= LEAST_DATASETS))


def verdicts(grid: GridSummary, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return rows of the table ``pairs`` with ``p``, ``verdict``, ``needed``, and whether they are ``planned``.

    A planned difference has interval and verdict of the plan. The Tukey HSD test decides on every other one.
    """
    keys = ["metric", "system", "other", "dataset"]
    columns = ["difference_low", "difference_high", "p", "verdict", "needed", "planned"]
    unplanned = (pairs["p_tukey"] <= ALPHA).map({True: BETTER, False: OPEN})
    unknown = pd.Series(pd.NA, pairs.index, "Int64")
    table = pairs.assign(p=pairs["p_tukey"], verdict=unplanned, planned=False, needed=unknown).set_index(keys)
    of_plan = pd.concat([planned(grid, pairs), gains(grid, pairs)])
    of_plan = of_plan.assign(difference_low=of_plan["low"], difference_high=of_plan["high"], planned=True)
    table.update(both_ways(of_plan).set_index(keys)[columns])
    return table.reset_index().astype({"planned": bool, "needed": "Int64"})


def tests_of(grid: GridSummary, metric: str) -> str:
    """Name the tests behind ``verdicts`` in a metric."""
    tukey = f"randomised Tukey HSD test over the queries of a dataset, at {ALPHA:g}"
    if not families(grid) or metric != grid.metrics[0]:
        return tukey
    return f"{tukey}; planned differences: paired t test, Bonferroni's correction"


def is_planned(grid: GridSummary, systems: Collection[str]) -> bool:
    """Tell whether a grid plans to compare two systems."""
    return {*systems} in [{grid.compare[0], other} for other in grid.compare[1:]]


def plan(grids: Iterable[GridSummary], systems: Collection[str], dataset: str, metric: str) -> tuple[int, float]:
    """Return with how many tests and which margin grids plan to compare two systems on a dataset; (0, 0) if none does.

    Of several grids, the one with the most tests counts.
    """
    none = (0, 0.0)
    plans = [none]
    for grid in grids:
        if dataset in grid.counted_once and metric == grid.metrics[0]:
            plans.append(families(grid).get(frozenset(systems), none))
    return max(plans)


def families(grid: GridSummary) -> dict[frozenset[str], tuple[int, float]]:
    """Return the pairs that a grid plans to compare, each with the tests of its family and the margin.

    What a system with a change of queries gains over its first stage is planned by it, unless the grid plans it, too.
    """
    own = {}
    for other in grid.compare[1:]:
        own[frozenset((grid.compare[0], other))] = (planned_tests(grid), grid.margin)
    stages = map(frozenset, grid.first_stages.items())
    systems = {*grid.systems}
    others = [pair for pair in stages if pair <= systems and pair not in own]
    tests = len(others) * len(grid.counted_once)
    return own | dict.fromkeys(others, (tests, 0.0))


def gains(grid: GridSummary, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return each system whose queries change minus its first stage, on each dataset, in the grid's first metric, as
    ``decided``: one family of differences, without those of ``planned``.
    """
    own = {name: first for name, first in grid.first_stages.items() if not is_planned(grid, {name, first})}
    rows = both_ways(pairs[pairs["metric"] == grid.metrics[0]])
    of_stage = rows["system"].map(own) == rows["other"]
    rows = rows[of_stage & rows["dataset"].isin(grid.counted_once)]
    known = families(grid)
    tests = []
    for pair in zip(rows["system"], rows["other"], strict=True):
        of_pair, _ = known[frozenset(pair)]
        tests.append(of_pair)
    return decided(rows.reset_index(drop=True), np.array(tests, int))


def planned(grid: GridSummary, pairs: pd.DataFrame) -> pd.DataFrame:
    """Return the first planned system minus each other one, in the grid's first metric, as ``decided``.

    There is a row per dataset and, with an empty ``dataset``, one for the mean over five or more.
    """
    mine, *others = grid.compare or ("",)
    datasets = grid.counted_once
    rows = both_ways(pairs[pairs["metric"] == grid.metrics[0]])
    rows = rows[(rows["system"] == mine) & rows["other"].isin(others) & rows["dataset"].isin(datasets)]
    rows = rows.sort_values(["other", "dataset"], key=lambda names: names.map([*others, *datasets].index))
    tables = [rows]
    for other, of_pair in rows.groupby("other", sort=False):
        if len(of_pair) >= LEAST_DATASETS:
            mean = over_datasets(of_pair).columns()
            tables.append(pd.DataFrame({**mean, "system": mine, "other": other, "dataset": ""}))
    tests = max(planned_tests(grid), 1)  # without a plan, there are no rows
    return decided(pd.concat(tables, ignore_index=True), tests, grid.margin)
