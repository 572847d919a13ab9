"""Compiled loops of exact dense search: float64 scores of pairs, and the first pass by integers.

No function here calls another one: numba would compile the caller anew in each process.
"""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import numpy as np

from ..core.compiled import once
from ..core.environment import prepare_libraries

# Documents that ``scan`` looks at together. It needs room for all of them.
WORD = 8


class Kernels(NamedTuple):
    """Compiled functions; each releases Python's lock."""

    scores: Any
    largest_components: Any
    quantise: Any
    scan: Any
    largest: Any
    drop: Any
    merge: Any


@once
def compiled() -> Kernels:
    """Compile the functions, or load them from numba's cache."""
    prepare_libraries()
    import numba

    exactly = partial(numba.njit, nogil=True, cache=True)

    @exactly(fastmath={"reassoc", "contract"})
    def scores(queries, documents, query, rows):  # type: ignore[no-untyped-def]
        """Add up products in float64, in an order that depends on the dimension alone."""
        places = np.zeros(len(documents) + 1, np.int64)
        for pair in range(len(rows)):
            places[rows[pair] + 1] += 1
        places = np.cumsum(places)
        order = np.empty(len(rows), np.int64)
        for pair in range(len(rows)):
            order[places[rows[pair]]] = pair
            places[rows[pair]] += 1
        found = np.empty(len(rows), np.float64)
        for place in range(len(rows)):  # by documents, so that each is read once
            pair = order[place]
            left, right = queries[query[pair]], documents[rows[pair]]
            total = 0.0
            for at in range(len(left)):
                total += np.float64(left[at]) * np.float64(right[at])
            found[pair] = total
        return found

    @exactly(fastmath={"nnan", "nsz"})
    def largest_components(vectors, shift, found):  # type: ignore[no-untyped-def]
        """Find the largest absolute component of each vector; where one is not finite, the result means nothing."""
        for number in range(len(vectors)):
            row, most = vectors[number], np.float32(0)
            for at in range(len(row)):
                size = abs(row[at] - shift[at])
                most = size if size > most else most
            found[number] = most

    @exactly(fastmath={"reassoc", "contract"})
    def quantise(vectors, shift, components, low, steps, squares, losses):  # type: ignore[no-untyped-def]
        """Round vectors, given their largest components; no integer is beyond 127.

        Also find the squares of their lengths and of the lengths of what they lost.
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
    def scan(  # type: ignore[no-untyped-def]
        products, first, start, terms, others, step, length, lost, steps, lengths, losses, columns, lower, upper, count
    ):
        """Append the documents whose products pass their thresholds; return the first query without room."""
        ones, twos, threes = others[0], others[1], others[2]
        documents = products.shape[1]
        passed = np.zeros((documents + WORD - 1) // WORD * WORD, np.uint8)
        words = passed.view(np.uint64)
        for query in range(first, len(products)):
            a, b, c = terms[0, query], terms[1, query], terms[2, query]
            sums, column, taken = products[query], columns[query], count[query]
            for at in range(documents):
                passed[at] = np.float32(sums[at]) >= a * ones[at] + b * twos[at] + c * threes[at]
            for word in range(len(words)):
                if words[word] == 0:
                    continue
                if taken + WORD > len(column):
                    return query
                for at in range(WORD * word, WORD * word + WORD):  # each is written, and kept if it passed
                    column[taken] = start + at
                    taken += passed[at]
            for place in range(count[query], taken):
                at = column[place] - start
                score = step[query] * steps[at] * sums[at]
                error = length[query] * losses[at] + lost[query] * lengths[at]
                error += 2.0**-22 * (abs(score) + error)
                lower[query, place] = score - error
                upper[query, place] = score + error
            count[query] = taken
        return len(products)

    @exactly()
    def largest(some, more, count, depth):  # type: ignore[no-untyped-def]
        """Return the value at rank ``depth`` of each row of both arrays together; -inf where there are fewer."""
        found = np.full(len(some), np.float32(-np.inf))
        values = np.empty(some.shape[1] + more.shape[1], np.float32)
        for query in range(len(some)):
            taken = 0
            for value in some[query]:
                if value > -np.inf:
                    values[taken] = value
                    taken += 1
            for value in more[query, : count[query]]:
                if value > -np.inf:
                    values[taken] = value
                    taken += 1
            if taken >= depth:
                found[query] = np.partition(values[:taken], taken - depth)[taken - depth]
        return found

    @exactly()
    def drop(floor, columns, lower, upper, count):  # type: ignore[no-untyped-def]
        """Keep what waits and may reach the floor."""
        for query in range(len(count)):
            kept = 0
            for at in range(count[query]):
                if upper[query, at] >= floor[query]:
                    columns[query, kept] = columns[query, at]
                    lower[query, kept] = lower[query, at]
                    upper[query, kept] = upper[query, at]
                    kept += 1
            count[query] = kept

    @exactly()
    def merge(scores, rows, found, columns, offset):  # type: ignore[no-untyped-def]
        """Merge found scores (NaN: none) into the best ones. Their rows ascend, and follow those of the best ones."""
        depth = scores.shape[1]
        joined = np.empty(depth + found.shape[1])
        places = np.empty(depth + found.shape[1], np.int64)
        for query in range(len(scores)):
            taken = depth
            joined[:depth], places[:depth] = scores[query], rows[query]
            for at in range(found.shape[1]):
                if found[query, at] >= joined[depth - 1]:
                    joined[taken], places[taken] = found[query, at], columns[query, at] + offset
                    taken += 1
            least = np.partition(joined[:taken], taken - depth)[taken - depth]
            kept = np.flatnonzero(joined[:taken] >= least)
            order = kept[np.argsort(-joined[kept], kind="mergesort")[:depth]]
            scores[query] = joined[order]
            rows[query] = places[order]

    return Kernels(scores, largest_components, quantise, scan, largest, drop, merge)
