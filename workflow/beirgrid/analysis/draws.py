"""Compiled bootstrap resamples, random signs and random permutations.

Each draw depends only on a seed and its own number, so results do not depend on the division into blocks.
"""

from __future__ import annotations

import numpy as np
from numba import njit

# The generator is splitmix64 (Steele, Lea and Flood, 2014).
_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_27, _30, _31, _32, _LOW = (np.uint64(n) for n in (27, 30, 31, 32, 2**32 - 1))
# Permutations per block, and queries whose sign patterns are summed in a table.
_AT_ONCE = 32
_TABLED = 6


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def _mix(state: np.uint64) -> np.uint64:
    state = (state ^ (state >> _30)) * _FIRST
    state = (state ^ (state >> _27)) * _SECOND
    return state ^ (state >> _31)


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def resample_counts(seed: np.uint64, first: int, resamples: int, queries: int) -> np.ndarray:
    """Return how often each query is in each resample, float64 [resamples, queries].

    Args:
        first: number of the first resample.
        queries: queries to draw from, and to draw.
    """
    counts = np.zeros((resamples, queries))
    for resample in range(resamples):
        state = _mix(seed + np.uint64(first + resample) * _GOLDEN)
        for pair in range((queries + 1) // 2):
            state += _GOLDEN
            drawn = _mix(state)
            counts[resample, np.int64(((drawn & _LOW) * np.uint64(queries)) >> _32)] += 1
            if pair < queries // 2:
                counts[resample, np.int64(((drawn >> _32) * np.uint64(queries)) >> _32)] += 1
    return counts


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def count_extreme_signs(
    weighted: np.ndarray, least: np.ndarray, pairs: np.ndarray, seed: np.uint64, first: int, patterns: int
) -> np.ndarray:
    """Count the random sign patterns whose difference of two columns' sums is at least as large as observed.

    Args:
        weighted: float64 [queries, columns]; all columns of a query get the same sign.
        least: float64 [pairs], the distance.
        pairs: int64 [pairs, 2], columns.
        first: number of the first pattern.

    Returns:
        int64 [pairs].
    """
    queries, columns = weighted.shape
    table = np.empty((2**_TABLED, columns))
    sums = np.zeros((patterns, columns))
    for start in range(0, queries, _TABLED):
        size = min(_TABLED, queries - start)
        table[0] = 0
        for i in range(size):
            table[0] -= weighted[start + i]
        for i in range(size):
            for pattern in range(2**i):
                for column in range(columns):
                    table[pattern + 2**i, column] = table[pattern, column] + 2 * weighted[start + i, column]
        mask, base = np.uint64(2**size - 1), seed + np.uint64(start) * _FIRST
        for pattern in range(patterns):
            chosen = table[np.int64(_mix(base + np.uint64(first + pattern) * _GOLDEN) & mask)]
            into = sums[pattern]
            for column in range(columns):
                into[column] += chosen[column]
    extreme = np.zeros(len(pairs), np.int64)
    for pattern in range(patterns):
        into = sums[pattern]
        for pair in range(len(pairs)):
            if abs(into[pairs[pair, 0]] - into[pairs[pair, 1]]) >= least[pair]:
                extreme[pair] += 1
    return extreme


@njit(cache=True, nogil=True)  # type: ignore[untyped-decorator]
def permuted_ranges(weighted: np.ndarray, seed: np.uint64, permutations: int) -> np.ndarray:
    """Return the range (best minus worst sum) of the systems after random permutations of their scores within each
    query.

    Args:
        weighted: float64 [queries, systems, metrics]; a system's scores of all metrics move together.

    Returns:
        float64 [permutations, metrics].
    """
    queries, systems, metrics = weighted.shape
    ranges = np.empty((permutations, metrics))
    sums = np.empty((_AT_ONCE, systems, metrics))
    orders = np.empty((_AT_ONCE, systems), np.int64)
    for start in range(0, permutations, _AT_ONCE):
        sums[:] = 0
        for i in range(systems):
            orders[:, i] = i
        state = _mix(seed + np.uint64(start) * _FIRST)
        for query in range(queries):
            row = weighted[query]
            for number in range(_AT_ONCE):
                order, into = orders[number], sums[number]
                last = systems - 1
                while last > 0:  # Fisher and Yates: a uniform permutation of any given order
                    state += _GOLDEN
                    drawn = _mix(state)
                    other = np.int64(((drawn & _LOW) * np.uint64(last + 1)) >> _32)
                    order[last], order[other] = order[other], order[last]
                    last -= 1
                    if last > 0:
                        other = np.int64(((drawn >> _32) * np.uint64(last + 1)) >> _32)
                        order[last], order[other] = order[other], order[last]
                        last -= 1
                for system in range(systems):
                    place = order[system]
                    for metric in range(metrics):
                        into[system, metric] += row[place, metric]
        for number in range(min(_AT_ONCE, permutations - start)):
            for metric in range(metrics):
                column = sums[number, :, metric]
                ranges[start + number, metric] = column.max() - column.min()
    return ranges
