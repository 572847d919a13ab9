"""The compiled attention within texts equals a softmax in float64."""

from __future__ import annotations

import itertools
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from helpers import ROOT

from beirgrid.core.environment import prepare_libraries

prepare_libraries()
from beirgrid.encoders import tiles  # noqa: E402 (numba's cache is made ready before)

LENGTHS = [130, 1, 64, 65, 3, 4, 0, 17, 63, 16]


def random(lengths: list[int], heads: int, width: int, key_heads: int | None = None) -> tuple[np.ndarray, ...]:
    """Return query, key, value and the texts' starts."""
    numbers, tokens = np.random.default_rng(sum(lengths) + width), sum(lengths)
    parts = [numbers.standard_normal((tokens, count or heads, width)) for count in (heads, key_heads, key_heads)]
    return *(part.astype(np.float32) for part in parts), np.cumsum([0, *lengths]).astype(np.int32)


Reach = tuple[int, int]
ALL = (10**9, 10**9)
needs_pairs = pytest.mark.skipif(not tiles.HAS_PAIRS, reason="this processor does not multiply pairs of bfloat16")
KINDS = [torch.float32, pytest.param(torch.bfloat16, marks=needs_pairs)]


def attended(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    starts: np.ndarray,
    scaling: float,
    reach: Reach = ALL,
    kind: torch.dtype = torch.float32,
) -> np.ndarray:
    """Return what the compiled function computes of float32 or of bfloat16."""
    words = [torch.from_numpy(part).to(kind).view(torch.uint32).numpy() for part in (query, key, value)]
    found = np.full(query.shape, 7, np.float32)
    tiles.attend(*words, starts, scaling, *reach, found)
    return found


def rounded(given: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Return query, key and value rounded to bfloat16, and the starts."""
    return *(torch.from_numpy(part).bfloat16().float().numpy() for part in given[:3]), given[3]


def expected(
    query: np.ndarray, key: np.ndarray, value: np.ndarray, starts: np.ndarray, scaling: float, reach: Reach = ALL
) -> np.ndarray:
    """Return what attention is, in float64."""
    query, key, value = (part.astype(np.float64) for part in (query, key, value))
    key, value = (part.repeat(query.shape[1] // part.shape[1], axis=1) for part in (key, value))
    found = np.empty(query.shape)
    for start, stop in itertools.pairwise(starts):
        scores = np.einsum("qhw,thw->hqt", query[start:stop], key[start:stop]) * scaling
        apart = np.arange(stop - start) - np.arange(stop - start)[:, None]
        scores[:, (apart < -reach[0]) | (apart > reach[1])] = -np.inf
        weights = np.exp(scores - scores.max(axis=2, keepdims=True)) if stop > start else scores
        found[start:stop] = np.einsum("hqt,thw->qhw", weights / weights.sum(2, keepdims=True), value[start:stop])
    return found


@pytest.mark.parametrize(("heads", "key_heads", "width"), [(3, 3, 32), (2, 2, 64), (4, 2, 8), (6, 1, 5), (1, 1, 1)])
@pytest.mark.parametrize("scaling", [0.125, 1.0, 40.0])
def test_attention_equals_float64(heads, key_heads, width, scaling):
    """Scores of up to some thousands; widths and lengths that are no multiples of ROWS or LANES."""
    given = random(LENGTHS, heads, width, key_heads)
    found, exact = attended(*given, scaling), expected(*given, scaling)
    # Scores are rounded to float32, relative to their size.
    np.testing.assert_allclose(found, exact, atol=3e-6 * max(scaling * width**0.5, 1), rtol=0)


def most_rounded(found: np.ndarray, given: tuple[np.ndarray, ...], *options: object) -> float:
    """Return how far numbers are from float64, in the most that the rounding of all weights to bfloat16 can do."""
    query, key, value, starts = given
    most = 2**-8 * expected(query, key, abs(value), starts, *options) + 2e-6
    return float((abs(found - expected(*given, *options)) / most).max())


@needs_pairs
@pytest.mark.parametrize(("heads", "key_heads", "width"), [(3, 3, 32), (2, 2, 64), (4, 2, 8), (6, 1, 6), (1, 1, 2)])
@pytest.mark.parametrize("scaling", [0.125, 1.0, 40.0])
def test_attention_in_bfloat16_equals_float64_but_for_the_rounding_of_weights(heads, key_heads, width, scaling):
    given = rounded(random(LENGTHS, heads, width, key_heads))
    assert most_rounded(attended(*given, scaling, kind=torch.bfloat16), given, scaling) < 1


@needs_pairs
@pytest.mark.parametrize("reach", [(10**9, 0), (0, 0), (5, 5), (63, 64), (70, 0), (0, 3), (7, 8)])
def test_windows_and_causal_attention_in_bfloat16_equal_float64(reach):
    given = rounded(random(LENGTHS, 4, 16, 2))
    assert most_rounded(attended(*given, 0.5, reach, torch.bfloat16), given, 0.5, reach) < 1


@pytest.mark.parametrize("key_heads", [4, 2])
@pytest.mark.parametrize("reach", [(10**9, 0), (0, 0), (5, 5), (63, 64), (70, 0), (0, 3)])
def test_windows_and_causal_attention_equal_float64(reach, key_heads):
    given = random(LENGTHS, 4, 16, key_heads)
    np.testing.assert_allclose(attended(*given, 0.5, reach), expected(*given, 0.5, reach), atol=3e-6, rtol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_a_text_is_the_same_bit_for_bit_in_any_batch(kind):
    query, key, value, starts = random(LENGTHS, 2, 16)
    together = attended(query, key, value, starts, 0.25, kind=kind)
    for start, stop in itertools.pairwise(starts):
        part = slice(start, stop)
        own = np.array([0, stop - start], np.int32)
        alone = attended(query[part], key[part], value[part], own, 0.25, kind=kind)
        np.testing.assert_array_equal(alone, together[part])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("part", [0, 1, 2])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_shows_in_its_text_alone(part, bad, kind):
    *parts, starts = random(LENGTHS, 2, 16)
    whole = attended(*parts, starts, 0.25, kind=kind)
    text = LENGTHS.index(65)
    parts[part][starts[text] + 3, 1, 2] = bad
    found = attended(*parts, starts, 0.25, kind=kind)
    own = slice(starts[text], starts[text + 1])
    assert not np.isfinite(found[own, 1]).all()
    np.testing.assert_array_equal(found[own, 0], whole[own, 0])
    np.testing.assert_array_equal(np.delete(found, own, 0), np.delete(whole, own, 0))


@pytest.mark.parametrize("kind", KINDS)
def test_threads_do_not_disturb_each_other(kind):
    given = [random([length, 3, 70], 3, 32) for length in range(20, 60)]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda parts: attended(*parts, 0.2, kind=kind), given * 4))
    for number, result in enumerate(found):
        np.testing.assert_array_equal(result, attended(*given[number % len(given)], 0.2, kind=kind))


@pytest.mark.parametrize("kind", KINDS)
def test_scores_far_below_the_largest_count_nothing(kind):
    query, key, value, starts = random([9], 1, 4)
    query[:], key[:], key[4] = 1, -1e4, 1e4
    value = rounded((query, key, value, starts))[2]
    np.testing.assert_array_equal(attended(query, key, value, starts, 1.0, kind=kind), value[[4]].repeat(9, 0))


@pytest.mark.slow  # compiles again
@pytest.mark.parametrize("without", ["avx512f", "nothing"])
def test_processors_without_long_vectors(tmp_path, without):
    """The same numbers, but for the rounding of other instructions; also if only numba is told of such a processor."""
    given = random(LENGTHS, 2, 32)
    np.savez(tmp_path / "given.npz", *given, attended(*given, 0.2))
    code = f"""
import sys
from llvmlite import binding
features = binding.get_host_cpu_features()
binding.get_host_cpu_features = lambda: {{**features, {without!r}: False}}
sys.path[:0] = [{str(ROOT / "workflow")!r}]
import numpy as np
from beirgrid.encoders import tiles
assert not tiles.HAS_PAIRS and (tiles.LANES == 16 or {without != "avx512f"})
*given, starts, expected = np.load("given.npz").values()
found = np.empty_like(expected)
tiles.attend(*(part.view(np.uint32) for part in given), starts, 0.2, 10**9, 10**9, found)
np.testing.assert_allclose(found, expected, atol=2e-6)
"""
    environment = {"NUMBA_CACHE_DIR": str(tmp_path), "NUMBA_CPU_NAME": "x86-64-v3", "NUMBA_CPU_FEATURES": ""}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True, timeout=300)
