"""Random draws are those of splitmix64 and of no other block; compiled code is never older than its source."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from helpers import ROOT

from beirgrid.analysis import draws

WORD = 2**64


def _mix(state: int) -> int:
    """The output function of splitmix64, in whole numbers."""
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % WORD
    state = (state ^ state >> 27) * 0x94D049BB133111EB % WORD
    return state ^ state >> 31


@pytest.mark.parametrize("queries", [1, 2, 7, 64])
def test_resamples_are_those_of_splitmix64_in_any_block(queries):
    expected = np.zeros((9, queries))
    for resample in range(9):
        state = _mix((5 + resample * 0x9E3779B97F4A7C15) % WORD)
        drawn = [_mix((state + (pair + 1) * 0x9E3779B97F4A7C15) % WORD) for pair in range((queries + 1) // 2)]
        halves = [
            *((one & 0xFFFFFFFF) * queries >> 32 for one in drawn),
            *((one >> 32) * queries >> 32 for one in drawn),
        ]
        np.add.at(expected[resample], halves[:queries], 1)
    whole = draws.resample_counts(np.uint64(5), 0, 9, queries)
    parts = [draws.resample_counts(np.uint64(5), first, number, queries) for first, number in ((0, 4), (4, 5))]
    assert (whole == expected).all()
    assert (np.concatenate(parts) == whole).all()


@pytest.mark.parametrize("queries", [1, 6, 13])
def test_signs_are_those_of_splitmix64_in_any_block(queries):
    weighted = np.random.default_rng(queries).standard_normal((queries, 3))
    pairs = np.array([(0, 1), (0, 2), (1, 2)])
    least = np.array([0.5, 1, 2])
    expected = np.zeros(3, int)
    for pattern in range(500):
        signs = []
        for start in range(0, queries, 6):
            drawn = _mix((9 + start * 0xBF58476D1CE4E5B9 + pattern * 0x9E3779B97F4A7C15) % WORD)
            signs += [2 * (drawn >> bit & 1) - 1 for bit in range(6)]
        sums = np.array(signs[:queries]) @ weighted
        expected += np.abs(sums[pairs[:, 0]] - sums[pairs[:, 1]]) >= least
    whole = draws.count_extreme_signs(weighted, least, pairs, np.uint64(9), 0, 500)
    parts = [draws.count_extreme_signs(weighted, least, pairs, np.uint64(9), first, 250) for first in (0, 250)]
    assert whole.tolist() == expected.tolist() == sum(parts).tolist()


# Compiles the function of a module, and prints its result for 1. A process can be killed before it writes the code.
CALL = """
import os, sys
from numba.core.caching import IndexDataCacheFile
if sys.argv[1:] == ["killed"]:
    IndexDataCacheFile._save_data = lambda *_: os.kill(os.getpid(), 9)
import function
print(function.value(1), function.value.stats.cache_hits.total())
"""
FUNCTION = """
from pathlib import Path
import numba
from beirgrid.core.files import compiled_folder
numba.config.CACHE_DIR = compiled_folder(Path(__file__), numba.__version__)

@numba.njit("i8(i8)", cache=True)
def value(x):
    return x + {}
"""


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_writes_leaves_no_older_code(tmp_path):
    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        paths = os.pathsep.join([str(tmp_path), str(ROOT / "workflow")])
        environment = {**os.environ, "PYTHONPATH": paths, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
        command = [sys.executable, "-B", "-c", CALL, *arguments]
        return subprocess.run(command, env=environment, text=True, capture_output=True, timeout=120, check=False)

    (tmp_path / "function.py").write_text(FUNCTION.format(10))
    assert [call().stdout, call().stdout] == ["11 0\n", "11 1\n"]  # the second process finds the code of the first
    (tmp_path / "function.py").write_text(FUNCTION.format(1000))
    assert call("killed").returncode == -signal.SIGKILL
    assert call().stdout == "1001 0\n"
