"""Bootstrap resamples, random signs and random permutations.

Each draw depends only on a seed and its own number, so results do not depend on the division into blocks. numpy needs
4 to 6 times as long as numba for the permutations, whose swaps depend on each other, and hardly longer for the others.
"""

from __future__ import annotations

from pathlib import Path

import numba
import numpy as np
from numba.extending import register_jitable

from ..core.files import compiled_folder

# The generator is splitmix64 (Steele, Lea and Flood, 2014).
_GOLDEN, _FIRST, _SECOND = (np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_27, _30, _31, _32, _LOW = (np.uint64(n) for n in (27, 30, 31, 32, 2**32 - 1))
# Permutations per block.
_AT_ONCE = 32
# Signs taken from one random number, and the signs of each number of so many bits, float64.
_BITS = 6
_SIGNS = (np.arange(2**_BITS)[:, None] >> np.arange(_BITS) & 1) * 2.0 - 1

numba.config.CACHE_DIR = compiled_folder(Path(__file__), numba.__version__)


@register_jitable  # type: ignore[untyped-decorator]
def _mix(state: np.ndarray) -> np.ndarray:
    state = (state ^ (state >> _30)) * _FIRST
    state = (state ^ (state >> _27)) * _SECOND
    mixed: np.ndarray = state ^ (state >> _31)
    return mixed


def _steps(first: int, number: int) -> np.ndarray:
    steps: np.ndarray = np.arange(first, first + number, dtype=np.uint64) * _GOLDEN
    return steps


def resample_counts(seed: np.uint64, first: int, resamples: int, queries: int) -> np.ndarray:
    """Return how often each query is in each resample from number ``first`` on, float64 [resamples, queries]."""
    size = np.uint64(queries)
    drawn = _mix(_mix(seed + _steps(first, resamples))[:, None] + _steps(1, (queries + 1) // 2))
    pairs = ((drawn & _LOW) * size) >> _32, (((drawn >> _32) * size) >> _32)[:, : queries // 2]
    places = np.concatenate(pairs, axis=1)
    places += np.arange(0, resamples * queries, queries, dtype=np.uint64)[:, None]
    counts = np.bincount(places.ravel().view(np.int64), minlength=resamples * queries)
    return counts.reshape(resamples, queries).astype(np.float64)


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
    groups = np.arange(0, len(weighted), _BITS, dtype=np.uint64) * _FIRST
    drawn = _mix(seed + groups + _steps(first, patterns)[:, None]) & np.uint64(2**_BITS - 1)
    signs = _SIGNS[drawn.view(np.int64)].reshape(patterns, -1)[:, : len(weighted)]
    sums = (signs @ weighted).T
    differences = np.abs(sums[pairs[:, 0]] - sums[pairs[:, 1]])
    extreme: np.ndarray = (differences >= least[:, None]).sum(axis=1)
    return extreme


# One signature, so that processes which compile at once write the same code.
@numba.njit("f8[:, ::1](f8[:, :, ::1], u8, i8)", cache=True, nogil=True)  # type: ignore[untyped-decorator]
def permuted_ranges(weighted: np.ndarray, seed: np.uint64, permutations: int) -> np.ndarray:
    """Return the range (best minus worst sum) of the systems after random permutations of their scores within each
    query.

    Args:
        weighted: float64 [queries, systems, metrics], contiguous; a system's scores of all metrics move together.

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
                order = orders[number]
                into = sums[number]
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
