"""Compiled loops of exact dense search: float64 scores of pairs, and the integer first pass.

No function calls another: numba would recompile the caller in each process.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..core.compiled import once
from ..core.environment import prepare_libraries

# Documents that ``scan`` tests together. Its output needs room for all of them.
WORD = 8


class Kernels(NamedTuple):
    """Compiled functions, which release the GIL."""

    scores: Any
    largest_components: Any
    quantise: Any
    scan: Any
    keep: Any
    settle: Any


@once
def compiled() -> Kernels:
    """Compile the functions, or load them from numba's cache."""
    prepare_libraries()
    import numba

    exactly = partial(numba.njit, nogil=True, cache=True)

    @exactly(fastmath={"reassoc", "contract"})
    def scores(queries, documents, query, rows):  # type: ignore[no-untyped-def]
        """Sum products in float64, in an order that depends only on the dimension."""
        ends = np.zeros(len(documents) + 1, np.int64)
        for row in rows:
            ends[row + 1] += 1
        ends = np.cumsum(ends)
        ordered, pairs = np.empty(len(rows), np.int64), np.empty(len(rows), np.int64)
        for pair in range(len(rows)):
            place = ends[rows[pair]]
            ordered[place], pairs[place] = query[pair], pair
            ends[rows[pair]] = place + 1
        found = np.empty(len(rows), np.float64)
        place = 0
        for row in range(len(documents)):  # each document is read once; pairs are read in order
            right = documents[row]
            while place < ends[row]:
                left, total = queries[ordered[place]], 0.0
                for at in range(len(left)):
                    total += np.float64(left[at]) * np.float64(right[at])
                found[pairs[place]] = total
                place += 1
        return found

    @exactly(fastmath={"nnan", "nsz"})
    def largest_components(vectors, shift, found):  # type: ignore[no-untyped-def]
        """Find the largest absolute component of each vector; undefined for vectors that are not finite."""
        for number in range(len(vectors)):
            row, most = vectors[number], np.float32(0)
            for at in range(len(row)):
                size = abs(row[at] - shift[at])
                most = size if size > most else most
            found[number] = most

    @exactly(fastmath={"reassoc", "contract"})
    def quantise(vectors, shift, components, low, steps, squares, losses):  # type: ignore[no-untyped-def]
        """Quantise vectors, given their largest components, to integers of at most 127.

        Also compute the squared norms of the vectors and of their rounding errors.
        """
        for number in range(len(vectors)):
            row, integers = vectors[number], low[number]
            step = components[number] * np.float32((1 + 2.0**-20) / 127)
            if not 2.0**-60 < components[number] < 2.0**60:
                step = np.float32(1)
            per = 1 / step
            square, loss = np.float32(0), np.float32(0)
            for at in range(len(row)):
                value = row[at] - shift[at]
                whole = np.rint(value * per)
                rest = value - step * whole
                square += value * value
                loss += rest * rest
                integers[at] = np.int8(np.int32(whole))
            steps[number], squares[number], losses[number] = step, square, loss

    @exactly()
    def scan(products, terms, others, query, rows):  # type: ignore[no-untyped-def]
        """Write the pairs whose products reach their thresholds, in query order; return their number."""
        ones, twos, threes = others[0], others[1], others[2]
        documents, taken = products.shape[1], 0
        passed = np.zeros((documents + WORD - 1) // WORD * WORD, np.uint8)
        words = passed.view(np.uint64)
        for number in range(len(products)):
            a, b, c = terms[0, number], terms[1, number], terms[2, number]
            sums = products[number]
            for at in range(documents):
                passed[at] = np.float32(sums[at]) >= a * ones[at] + b * twos[at] + c * threes[at]
            for word in range(len(words)):
                if words[word] == 0:
                    continue
                for at in range(WORD * word, WORD * word + WORD):  # written unconditionally, kept if it passed
                    query[taken], rows[taken] = number, at
                    taken += passed[at]
        return taken

    @exactly()
    def keep(query, rows, found, offset, scores, places, count, least, depth):  # type: ignore[no-untyped-def]
        """Append pairs that are among the best so far; return their number.

        A full query keeps only its best ``depth`` documents, in document order, and ``least`` becomes the lowest of
        their scores.
        """
        room, kept = scores.shape[1], 0
        for pair in range(len(query)):
            number, score = query[pair], found[pair]
            if score < least[number]:
                continue
            best, taken = scores[number], count[number]
            if taken == room:
                last = np.partition(best, room - depth)[room - depth]
                equal, taken = depth - (best > last).sum(), 0
                for at in range(room):
                    if best[at] > last or (best[at] == last and equal > 0):
                        equal -= best[at] == last
                        best[taken], places[number, taken] = best[at], places[number, at]
                        taken += 1
                least[number] = last
            best[taken], places[number, taken] = score, rows[pair] + offset
            count[number] = taken + 1
            kept += 1
        return kept

    @exactly()
    def settle(scores, places, count, least, depth):  # type: ignore[no-untyped-def]
        """Sort the kept documents, best first, and cut at ``depth``."""
        for number in range(len(count)):
            taken = min(count[number], depth)
            order = np.argsort(-scores[number, : count[number]], kind="mergesort")[:taken]
            scores[number, :taken] = scores[number][order]
            places[number, :taken] = places[number][order]
            count[number] = taken
            if taken == depth:
                least[number] = scores[number, depth - 1]

    return Kernels(scores, largest_components, quantise, scan, keep, settle)
