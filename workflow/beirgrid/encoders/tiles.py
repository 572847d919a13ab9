"""Attention within each text, compiled for a CPU. No text sees another one, and nothing is padded.

PyTorch's kernel multiplies narrow heads slowly. On one core of an AMD EPYC (AVX-512), the 12 heads of MiniLM attend
within 8 texts of 256 tokens in these times by PyTorch's kernel and by this one: in float32 12.5 ms and 6.5 ms, in
bfloat16 13.0 ms and 4.3 ms.

``LANES`` queries of a head are computed together, side by side in vectors: first their scores with all tokens of the
text, then the softmax, then the sums of the values. The matrix products keep ``ROWS`` rows of their result in
registers. numba's compiler does not do that, so ``_product`` is written in LLVM's language.

A word of 32 bits holds one float32, or a pair of bfloat16 where the processor multiplies and adds pairs. Scores,
softmax and sums are float32 in both cases. The weights of the softmax are rounded to bfloat16 before they multiply
values in bfloat16, as on a GPU.

numba compiles the functions when this module is imported, or loads them from its cache.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from llvmlite import binding, ir
from numba import config, njit, types
from numba.core import cgutils
from numba.extending import intrinsic

_FEATURES = binding.get_host_cpu_features()
# Whether the processor multiplies and adds pairs of bfloat16, and numba is not told to compile for another processor.
HAS_PAIRS = bool(
    _FEATURES.get("avx512f") and _FEATURES.get("avx512bf16") and not (config.CPU_NAME or config.CPU_FEATURES)
)
# A product keeps ROWS x LANES sums in registers: in 16 of 32 with AVX-512, in 8 of 16 with AVX2.
ROWS, LANES = 4, 64 if _FEATURES.get("avx512f") else 16
_VECTOR = 16  # words that are computed by one instruction with AVX-512
_BYTES = 4  # of a word
_LOG2_E = 1.4426950408889634
# 2^x for x from -0.5 to 0.5 is 1 and the sum of these times x, x^2 and so on, with a relative error of 1.1e-7.
_P1, _P2, _P3, _P4, _P5 = map(np.float32, (0.693147, 0.24022242, 0.055507336, 0.009671513, 0.0013264727))
_ZERO, _HALF, _ONE, _LEAST_POWER, _NEVER = map(np.float32, (0, 0.5, 1, -127, -np.inf))
_BIAS, _MANTISSA = np.int32(127), np.int32(23)  # of float32: the exponent's bias, and the bits behind the exponent
# bfloat16 is the high half of a float32: half of its last place, which rounds, the bits below it, and both halves.
_ROUND, _PLACE, _HIGH, _LOW = map(np.uint32, (0x8000, 16, 0xFFFF0000, 0xFFFF))
_WORDS = "u4[:, :, ::1]"  # the type of words [tokens, heads, words]
_compiled = partial(njit, cache=True, nogil=True, error_model="numpy", fastmath={"reassoc", "contract"})


class _Bfloat16(ir.Type):  # type: ignore[misc]
    """LLVM's type, which llvmlite lacks."""

    def _to_string(self) -> str:
        return "bfloat"


def _product(*, pairs: bool) -> Any:
    """Return what multiplies matrices of words, float32 or pairs of bfloat16: [ROWS, count] times [count, LANES]."""
    word, address = ir.IntType(32), ir.IntType(64)
    words, sums = ir.VectorType(word, _VECTOR), ir.VectorType(ir.FloatType(), _VECTOR)
    factors = ir.VectorType(_Bfloat16(), 2 * _VECTOR) if pairs else sums
    name = "llvm.x86.avx512bf16.dpbf16ps.512" if pairs else f"llvm.fma.v{_VECTOR}f32"
    order = [sums, factors, factors] if pairs else [factors, factors, sums]

    @intrinsic  # type: ignore[untyped-decorator]
    def multiply(typing: Any, left: Any, row: Any, step: Any, right: Any, result: Any, count: Any) -> Any:
        """Store a product.

        Args:
            typing: numba's.
            left: address of the left matrix.
            row: bytes between its rows.
            step: bytes between its columns.
            right: address of the right matrix, whose rows follow each other.
            result: address of the result, float32 [ROWS, LANES], whose rows follow each other.
            count: columns of the left matrix, at least one.
        """

        def generate(context: Any, build: Any, signature: Any, arguments: Any) -> Any:
            left, row, step, right, result, count = arguments
            add = cgutils.get_or_insert_function(build.module, ir.FunctionType(sums, order), name)

            def pointer(start: Any, index: Any, size: Any, kind: Any) -> Any:
                return build.inttoptr(build.add(start, build.mul(index, size)), kind.as_pointer())

            def load(start: Any, index: Any, size: Any, kind: Any) -> Any:
                return build.load(pointer(start, index, size, kind), align=_BYTES)

            def repeated(factor: Any) -> Any:
                first = build.insert_element(words(ir.Undefined), factor, word(0))
                return build.bitcast(build.shuffle_vector(first, words(ir.Undefined), words([0] * _VECTOR)), factors)

            vectors, size = LANES // _VECTOR, address(_VECTOR * _BYTES)
            before, loop, after = build.block, *map(build.append_basic_block, ("loop", "after"))
            build.branch(loop)
            build.position_at_end(loop)
            column = build.phi(address)
            column.add_incoming(address(0), before)
            totals = [build.phi(sums) for _ in range(ROWS * vectors)]
            place = build.add(right, build.mul(column, address(LANES * _BYTES)))
            numbers = [build.bitcast(load(place, address(at), size, words), factors) for at in range(vectors)]
            start = build.add(left, build.mul(column, step))
            multiples = [repeated(load(start, address(at), row, word)) for at in range(ROWS)]
            for at, total in enumerate(totals):
                given = [multiples[at // vectors], numbers[at % vectors]]
                added = build.call(add, [total, *given] if pairs else [*given, total])
                total.add_incoming(sums([0.0] * _VECTOR), before)
                total.add_incoming(added, loop)
            following = build.add(column, address(1))
            column.add_incoming(following, loop)
            build.cbranch(build.icmp_signed("<", following, count), loop, after)
            build.position_at_end(after)
            for at, total in enumerate(totals):
                build.store(total.incomings[-1][0], pointer(result, address(at), size, sums), align=_BYTES)
            return context.get_dummy_value()

        return types.void(*[types.intp] * 6), generate

    return multiply


_multiply_numbers, _multiply_pairs = _product(pairs=False), _product(pairs=HAS_PAIRS)


@_compiled("void(b1, i8, i8, i8, i8, i8, i8)")  # type: ignore[untyped-decorator]
def _multiply(pairs: bool, left: int, row: int, step: int, right: int, result: int, count: int) -> None:
    """Store the product of matrices of words: see ``_product``."""
    if pairs:
        _multiply_pairs(left, row, step, right, result, count)
    else:
        _multiply_numbers(left, row, step, right, result, count)


@_compiled("void(f4[:, ::1], i8, f4, f4[::1], f4[::1])")  # type: ignore[untyped-decorator]
def _exponentials(scores: np.ndarray, tokens: int, factor: float, largest: np.ndarray, sums: np.ndarray) -> None:
    """Replace scores by 2^(factor · (score - the largest of the lane)), and add those up.

    Args:
        scores: float32 [at least tokens + 3, LANES]; a number that is not finite makes its lane's sum NaN. Three rows
            after the last one are overwritten.
        tokens: how many scores a lane has.
        factor: of the scores, positive.
        largest: float32 [LANES], room for the largest scores.
        sums: float32 [LANES].
    """
    scores[tokens : tokens + 3] = _NEVER
    largest[:] = _NEVER
    for token in range(0, tokens, 4):
        for lane in range(LANES):
            one, two = scores[token, lane], scores[token + 1, lane]
            three, four = scores[token + 2, lane], scores[token + 3, lane]
            one, three = one if one > two else two, three if three > four else four
            one = one if one > three else three
            largest[lane] = one if one > largest[lane] else largest[lane]
    sums[:] = 0
    for token in range(tokens):
        for lane in range(LANES):
            power = (scores[token, lane] - largest[lane]) * factor
            power = _LEAST_POWER if power < _LEAST_POWER else power  # of which the scale is 0
            whole = np.floor(power + _HALF)
            rest = power - whole
            whole = _ZERO if np.isnan(whole) else whole  # which has no integer; the rest stays NaN
            scale = np.int32((np.int32(whole) + _BIAS) << _MANTISSA).view(np.float32)
            found = scale * (_ONE + rest * (_P1 + rest * (_P2 + rest * (_P3 + rest * (_P4 + rest * _P5)))))
            scores[token, lane] = found
            sums[lane] += found


@_compiled("void(f4[:, ::1], i8, u4[:, ::1])")  # type: ignore[untyped-decorator]
def _pair_weights(weights: np.ndarray, tokens: int, pairs: np.ndarray) -> None:
    """Round the weights of each two tokens to bfloat16, as a word; a last token alone is paired with 0.

    Args:
        weights: float32 [at least tokens + 1, LANES], at least 0; the row after the last one is overwritten.
        tokens: how many weights a lane has.
        pairs: words [at least tokens / 2, LANES].
    """
    weights[tokens] = 0
    words = weights.view(np.uint32)
    for pair in range((tokens + 1) // 2):
        for lane in range(LANES):
            low = (words[2 * pair, lane] + _ROUND) >> _PLACE
            pairs[pair, lane] = low | ((words[2 * pair + 1, lane] + _ROUND) & _HIGH)


@_compiled(f"void({_WORDS}, i8, i8, i8, u4[:, ::1])")  # type: ignore[untyped-decorator]
def _copy(words: np.ndarray, first: int, tokens: int, head: int, copied: np.ndarray) -> None:
    """Copy a head's words of a text, [tokens, heads, words], to where its tokens follow each other."""
    for token in range(tokens):
        for at in range(words.shape[2]):
            copied[token, at] = words[first + token, head, at]


@_compiled(f"void({_WORDS}, i8, i8, i8, u4[:, ::1])")  # type: ignore[untyped-decorator]
def _pair_values(value: np.ndarray, first: int, tokens: int, head: int, pairs: np.ndarray) -> None:
    """Pair the values of each two tokens of a text; a last token alone is paired with 0.

    Args:
        value: pairs of neighbouring values of a token, [tokens, heads, width / 2].
        first, tokens: where the text starts, and how many tokens it has.
        head: the head of the values.
        pairs: words [at least tokens / 2, width].
    """
    for pair in range((tokens + 1) // 2):
        for at in range(value.shape[2]):
            one = value[first + 2 * pair, head, at]
            two = value[first + 2 * pair + 1, head, at] if 2 * pair + 1 < tokens else np.uint32(0)
            pairs[pair, 2 * at] = (one & _LOW) | (two << _PLACE)
            pairs[pair, 2 * at + 1] = (one >> _PLACE) | (two & _HIGH)


@_compiled("void(f4[:, ::1], i8, i8, i8, i8, i8)")  # type: ignore[untyped-decorator]
def _mask(scores: np.ndarray, low: int, high: int, query: int, before: int, after: int) -> None:
    """Make the scores of tokens that a query does not attend to -inf.

    Args:
        scores: float32 [at least high - low, LANES], of the tokens from ``low`` to ``high``.
        low, high: places within the text.
        query: the place of the first lane's query.
        before, after: tokens before and after itself that a query attends to.
    """
    for token in range(low, high):
        for lane in range(LANES):
            apart = token - query - lane
            seen = -before <= apart <= after
            scores[token - low, lane] = scores[token - low, lane] if seen else _NEVER


@_compiled(f"void({_WORDS}, {_WORDS}, {_WORDS}, i4[::1], f8, i8, i8, f4[:, :, ::1])")  # type: ignore[untyped-decorator]
def attend(
    query: np.ndarray,
    key: np.ndarray,
    value: np.ndarray,
    starts: np.ndarray,
    scaling: float,
    before: int,
    after: int,
    found: np.ndarray,
) -> None:
    """Compute softmax(query · key · scaling) · value within each text.

    Args:
        query: words [tokens, heads, words]. They are float32 if there are as many as the heads are wide. If there are
            half as many, they are pairs of bfloat16, which need ``HAS_PAIRS``.
        key, value: as the query, [tokens, heads of keys, words]. Neighbouring heads of queries share one, equally many
            each.
        starts: int32 [texts + 1], where the tokens of each text start, and how many there are.
        scaling: of the scores, positive.
        before, after: tokens before and after itself that a token attends to.
        found: float32 [tokens, heads, width], to which the result is written.
    """
    heads, width = found.shape[1:]
    words, shared = query.shape[2], heads // key.shape[1]
    together = width // words
    pairs = together == 2
    most = np.diff(starts).max() + ROWS  # products compute whole tiles
    keys, values = np.zeros((most, words), np.uint32), np.zeros((most, width), np.uint32)
    scores, weights = np.zeros((most, LANES), np.float32), np.zeros((most // 2 + 1, LANES), np.uint32)
    largest, sums = np.zeros(LANES, np.float32), np.zeros(LANES, np.float32)
    queries, products = np.zeros((words, LANES), np.uint32), np.zeros((width + ROWS, LANES), np.float32)
    factor = np.float32(scaling * _LOG2_E)
    row, wide, line = words * _BYTES, width * _BYTES, LANES * _BYTES
    for text in range(len(starts) - 1):
        first, tokens = starts[text], starts[text + 1] - starts[text]
        for head in range(heads):
            _copy(key, first, tokens, head // shared, keys)
            if pairs:
                _pair_values(value, first, tokens, head // shared, values)
            else:
                _copy(value, first, tokens, head // shared, values)
            for start in range(0, tokens, LANES):
                lanes = min(LANES, tokens - start)
                low, high = max(start - before, 0) // 2 * 2, min(start + lanes + after, tokens)
                for lane in range(lanes):
                    for at in range(words):
                        queries[at, lane] = query[first + start + lane, head, at]
                for token in range(low, high, ROWS):
                    place = scores.ctypes.data + (token - low) * line
                    _multiply(pairs, keys.ctypes.data + token * row, row, _BYTES, queries.ctypes.data, place, words)
                if min(before, after) < tokens - 1:
                    _mask(scores, low, high, start, before, after)
                _exponentials(scores, high - low, factor, largest, sums)
                factors = scores.ctypes.data
                if pairs:
                    _pair_weights(scores, high - low, weights)
                    factors = weights.ctypes.data
                count = (high - low + together - 1) // together
                for at in range(0, width, ROWS):
                    place = values.ctypes.data + low // together * wide + at * _BYTES
                    _multiply(pairs, place, _BYTES, wide, factors, products.ctypes.data + at * line, count)
                for lane in range(lanes):
                    inverse = _ONE / sums[lane]
                    for at in range(width):
                        found[first + start + lane, head, at] = products[at, lane] * inverse
