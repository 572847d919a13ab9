"""numba's cache of compiled functions: kills, damage and other processes never make a run use wrong code."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from helpers import ROOT

from beirgrid.core import compiled

# Compiles the function of a module for an integer or a real number, and prints its result for 1.
CALL = """
import os, sys, time
from pathlib import Path
from beirgrid.core.environment import prepare_libraries
prepare_libraries()
from numba.core.caching import IndexDataCacheFile

def meet(mine, other):
    Path(mine).touch()
    ends = time.monotonic() + 3
    while other and not Path(other).exists() and time.monotonic() < ends:
        time.sleep(0.01)

def stop(method, before):
    original = getattr(IndexDataCacheFile, method)
    def call(self, *arguments):
        before()
        return original(self, *arguments)
    setattr(IndexDataCacheFile, method, call)

{stops}
import function
print(function.value({argument}))
{end}
"""


def _start(folder: Path, argument: str, stops: str = "", end: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT / "workflow")])}
    environment |= {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-c", CALL.format(argument=argument, stops=stops, end=end)]
    return subprocess.Popen(
        command, env=environment, cwd=folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def _printed(folder: Path, argument: str) -> str:
    process = _start(folder, argument)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    return out.strip()


def _write(folder: Path, returned: str) -> None:
    code = f"import numba\n\n@numba.njit(cache=True)\ndef value(x):\n    return {returned}\n"
    (folder / "function.py").write_text(code)


@pytest.mark.slow
def test_a_process_that_is_killed_while_it_writes_leaves_no_older_code(tmp_path):
    _write(tmp_path, "x + 10")
    assert _printed(tmp_path, "1") == "11"
    _write(tmp_path, "x + 1000")
    killed = _start(tmp_path, "1", "stop('_save_data', lambda: os.kill(os.getpid(), 9))")
    assert killed.wait(timeout=120) == -signal.SIGKILL
    assert _printed(tmp_path, "1") == "1001"


@pytest.mark.slow
def test_two_processes_do_not_write_the_code_of_each_other(tmp_path):
    """One process waits while the other writes."""
    _write(tmp_path, "x / 2 if x > 0 else x * 1.0")
    one = _start(
        tmp_path,
        "3",
        "stop('_save_index', lambda: meet('one asked', 'two asked'))\n"
        "stop('_save_data', lambda: meet('one named', 'two done'))",
    )
    two = _start(
        tmp_path, "3.0", "stop('_save_index', lambda: meet('two asked', 'one named'))", "Path('two done').touch()"
    )
    for process in (one, two):
        out, err = process.communicate(timeout=120)
        assert (out.strip(), process.returncode) == ("1.5", 0), err
    assert [_printed(tmp_path, "3"), _printed(tmp_path, "3.0")] == ["1.5", "1.5"]


def test_threads_that_ask_at_once_build_a_function_once():
    built = []

    @compiled.once
    def build() -> int:
        time.sleep(0.05)
        built.append(1)
        return 7

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(lambda _: build(), range(4))) == [7] * 4
    assert built == [1]


def test_a_second_copy_of_the_module_does_not_wait_for_the_first(tmp_path):
    """A process may be forked after its server imported another checkout's package."""
    _write(tmp_path, "x + 10")
    second = "import importlib; del sys.modules['beirgrid.core.compiled']\n"
    second += "importlib.import_module('beirgrid.core.compiled').guard()"
    process = _start(tmp_path, "1", second)
    out, err = process.communicate(timeout=120)
    assert (out.strip(), process.returncode) == ("11", 0), err


@pytest.mark.slow
def test_a_damaged_file_is_compiled_anew(tmp_path):
    _write(tmp_path, "x + 10")
    assert _printed(tmp_path, "1") == "11"
    for pattern, kept in (("*.nbi", 40), ("*.nbc", 0)):
        (path,) = (tmp_path / "cache").rglob(pattern)
        path.write_bytes(path.read_bytes()[:kept])
        process = _start(tmp_path, "1")
        out, err = process.communicate(timeout=120)
        assert (out.strip(), process.returncode) == ("11", 0), err
        assert err.startswith(f"{path} is damaged (")
        assert err.count("\n") == 1


@pytest.mark.slow
def test_no_function_of_search_is_compiled_in_each_process():
    """The second process finds all functions in numba's cache. The first process fills the cache if it is empty."""
    program = (
        "import numpy as np; from beirgrid.search import flat, kernels; rng = np.random.default_rng(0); "
        "flat.search_exact(*(rng.standard_normal((rows, 64), np.float32) for rows in (3000, 20)), 10); "
        "called = [function for function in kernels.compiled() if function.signatures]; "
        "print(len(called), sum(function.stats.cache_misses.total() for function in called))"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    command = [sys.executable, "-c", program]
    _, second = (subprocess.run(command, env=environment, stdout=subprocess.PIPE, check=True) for _ in range(2))
    called, missed = map(int, second.stdout.split())
    assert called
    assert not missed
