"""Exact maximum inner product search on a CPU with 8-bit integer products (AVX-512 VNNI).

The method is that of ``search.exact``: a first pass bounds all scores, and only documents that may be among the best
are scored in float64. Here the first pass multiplies integers, whose sums are exact. A block's candidates are scored at
once, while the block is in the processor's cache.

The bound. Let q be a query, c any vector, x a document less c, and let s q' and t x' be q and x as integers times a
step. By the inequality of Cauchy and Schwarz,

    |q·x - s t q'·x'| <= |q| |x - t x'| + |q - s q'| |t x'|,

and t x' is no longer than x and x - t x' together. The lengths of these two are computed in float32 and raised by what
rounding can have taken from them; D 2^-48 (|x| + |c|) is added to the second, for rounding of the scores in float64. A
document may be among the best if

    q'·x' >= floor / (s t) - |q| |x - t x'| / (s t) - |q - s q'| |t x'| / (s t),

where the floor is a lower bound of the score at rank ``depth``, less q·c. The right side adds up three products of a
number of the query and a number of the document. It is computed in float32, with margins for the rounding.

A floor rises slowly at first. So the floors of the first shard are guessed from a sample of it. If a query's score at
rank ``depth`` turns out to be below its guessed floor, the first shard is searched again for this query without a
guess.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from typing import NamedTuple

import numpy as np
import torch

from . import exact, kernels

# Documents and queries of a matrix product.
BLOCK, QUERIES = 2048, 512
# Sample size for guessing floors, and the standard deviations by which a guess is lowered.
SAMPLE, _DEVIATIONS = 16384, 5
# Blocks that all threads prepare before they search them.
_BLOCKS = 8
# Upper bounds of relative errors: of a vector in float32 before it is rounded to integers, and of a float64 score per
# dimension.
_LENGTH, _DOUBLE = 2.0**-22, 2.0**-48
# Upper bound of the relative error of a threshold, or of a stored bound, in float32.
_THRESHOLD, _STORED = 2.0**-18, 2.0**-22
# Vector norms between which nothing overflows or underflows in float32.
_SHORT, _LONG = 2.0**-30, 2.0**30
# Largest dimension whose sums fit into 32 bits.
_DIMENSIONS = 2**31 // 127**2
# Minimum queue length per query. A shorter queue would often be full and have to be sorted.
_ROOM = 64
# If more than this share of the products leads to useless scores, float32 products are faster.
_WASTE = 1 / 8


class Quantised(NamedTuple):
    """Vectors as integers.

    Attributes:
        low: int8 [vectors, dimension].
        step: float64 [vectors], the scale of ``low``.
        length: float64 [vectors], upper bounds of the norms; infinite for a vector that cannot be quantised.
        lost: float64 [vectors], upper bounds of the norms of the rounding errors.
    """

    low: np.ndarray
    step: np.ndarray
    length: np.ndarray
    lost: np.ndarray


class Int8Block(NamedTuple):
    """A block of a shard's documents minus the shift, prepared for the first pass.

    Attributes:
        start: the block's first row in the shard.
        vectors: the quantised documents.
        terms: float32 [3, documents], the documents' factors in the thresholds.
    """

    start: int
    vectors: Quantised
    terms: np.ndarray


class Sample(NamedTuple):
    """A sample of a shard.

    Attributes:
        blocks: the sampled documents.
        rank: with high probability, at least ``depth`` documents of the shard score higher than the sample's rank
            ``rank``.
    """

    blocks: list[Int8Block]
    rank: int


def usable(queries: np.ndarray) -> bool:
    """Tell whether this CPU has 8-bit products, and whether queries [queries, dimension] can be quantised."""
    if not torch.cpu._is_vnni_supported() or queries.shape[1] > _DIMENSIONS or not _sums_are_right(queries.shape[1]):
        return False
    lengths = np.linalg.norm(queries.astype(np.float64), axis=1)
    return bool(((lengths >= _SHORT) & (lengths <= _LONG)).all())


@cache
def _sums_are_right(dimension: int) -> bool:
    """Compare PyTorch's products with numpy's: PyTorch 2.13 is wrong for dimension 1."""
    rng = np.random.default_rng(0)
    left, right = (rng.integers(-127, 128, (rows, dimension), np.int8) for rows in (4, 64))
    left[:2], right[:2] = 127, [[127], [-127]]
    products = torch._int_mm(torch.from_numpy(left), torch.from_numpy(right).T).numpy()
    return bool((products == left.astype(np.int64) @ right.T.astype(np.int64)).all())


def search(
    shards: Iterable[np.ndarray], queries: np.ndarray, depth: int
) -> tuple[np.ndarray, np.ndarray, Counter[str]]:
    """Like ``exact.search``, for arrays in memory and queries that are ``usable``."""
    tops: list[Int8Top] = []
    documents = 0
    with exact.workers(torch.device("cpu")) as (pool, number):
        for shard in shards:
            if not tops:
                shift = exact.shift_of(torch.from_numpy(shard)).numpy()
                size = min(QUERIES, math.ceil(len(queries) / number) or 1)
                tops = [Int8Top(queries[at : at + size], shift, depth) for at in range(0, max(1, len(queries)), size)]
                if sample := _sample(shard, shift, depth, pool):
                    list(pool.map(partial(Int8Top.guess, sample=sample), tops))
            _search_shard(shard, documents, tops, pool, number)
            if missed := [(top, which) for top in tops if (which := top.missed()).any()]:
                again = [Int8Top(top.queries[which], shift, depth) for top, which in missed]
                _search_shard(shard, documents, again, pool, number)
                for (top, which), found in zip(missed, again, strict=True):
                    top.take(which, found)
            documents += len(shard)
            del shard  # so that it is unmapped before the next one is mapped
    depth = min(depth, documents)
    scores, rows = (np.concatenate([getattr(top, name)[:, :depth] for top in tops]) for name in ("scores", "rows"))
    return scores, rows, sum((top.counts for top in tops), Counter())


def _sample(shard: np.ndarray, shift: np.ndarray, depth: int, pool: ThreadPoolExecutor) -> Sample | None:
    """Sample at most an eighth of a shard; None if the shard is too small."""
    step = max(8, len(shard) // SAMPLE)
    chosen = shard[::step][:SAMPLE]
    share = depth * len(chosen) / max(1, len(shard))
    if (rank := math.ceil(share + _DEVIATIONS * (1 + math.sqrt(share)))) > len(chosen) / 2:
        return None
    return Sample(list(pool.map(partial(_block, chosen, shift), range(0, len(chosen), BLOCK))), rank)


def _search_shard(shard: np.ndarray, offset: int, tops: list[Int8Top], pool: ThreadPoolExecutor, number: int) -> None:
    """Search a shard for all queries with ``number`` threads."""
    groups = [tops[at::number] for at in range(number)]
    for at in range(0, len(shard), _BLOCKS * BLOCK):
        starts = range(at, min(at + _BLOCKS * BLOCK, len(shard)), BLOCK)
        blocks = list(pool.map(partial(_block, shard, tops[0].shift), starts))
        list(pool.map(partial(_add, shard, offset, blocks), groups))
    list(pool.map(partial(_settle, shard, offset), groups))


def _add(shard: np.ndarray, offset: int, blocks: list[Int8Block], tops: list[Int8Top]) -> None:
    for block in blocks:
        for top in tops:
            top.add(shard, offset, block)


def _settle(shard: np.ndarray, offset: int, tops: list[Int8Top]) -> None:
    for top in tops:
        top.settle(shard, offset)


def _block(shard: np.ndarray, shift: np.ndarray, start: int) -> Int8Block:
    vectors = quantise(np.ascontiguousarray(shard[start : start + BLOCK]), shift)
    # Rounding errors of a float64 score and of its estimate.
    vectors.lost[:] += _DOUBLE * len(shift) * (vectors.length + np.linalg.norm(shift.astype(np.float64)))
    vectors.length[:] += vectors.lost  # the bound must hold for rounded vectors too
    terms = np.stack([np.ones(len(vectors.step)), vectors.lost, vectors.length]) / vectors.step
    return Int8Block(start, vectors, terms.astype(np.float32))


def quantise(vectors: np.ndarray, shift: np.ndarray) -> Quantised:
    """Quantise float32 [vectors, dimension] minus the shift, float32 [dimension]."""
    low = np.empty(vectors.shape, np.int8)
    components = np.empty(len(vectors), np.float32)
    step, square, loss = np.empty((3, len(vectors)))
    kernels.compiled().largest_components(vectors, shift, components)
    kernels.compiled().quantise(vectors, shift, components, low, step, square, loss)
    # Rounding of float32 sums of squares, and squares that underflow to 0.
    summed, none = 1 + (vectors.shape[1] + 4) * 2.0**-23, math.sqrt(vectors.shape[1]) * 2.0**-60
    length = np.sqrt(square) * summed + none
    lost = np.sqrt(loss) * summed + none + _LENGTH * length
    short, long = length < _SHORT, ~(length <= _LONG)
    low[short | long], step[short | long] = 0, 1
    lost[short] = length[short]
    length[long] = lost[long] = math.inf
    return Quantised(low, step, length, lost)


class Int8Top:
    """The best documents of some queries, with their scores in float64.

    Attributes:
        scores: float64 [queries, room], scores of the best documents so far, best first after ``settle``.
        rows: int64 [queries, room], their corpus rows.
        count: int64 [queries], number of kept documents; at least ``depth`` once as many were added.
        counts: number of products computed in each format.
    """

    def __init__(self, queries: np.ndarray, shift: np.ndarray, depth: int) -> None:
        number, room = len(queries), max(2 * depth, _ROOM)
        self.queries, self.shift, self.depth = queries, shift, depth
        self.vectors = quantise(queries, np.zeros_like(shift))
        # q·c, common to all scores of a query. Floors exclude it.
        self.common = queries.astype(np.float64) @ shift.astype(np.float64)
        self.scores = np.full((number, room), -math.inf)
        self.rows = np.full((number, room), -1)
        self.count = np.zeros(number, np.int64)
        # The latest exact score at rank ``depth``.
        self.least = np.full(number, -math.inf)
        # Floors: lower bounds of the scores at rank ``depth``, without the common term. In the first shard they may be
        # guesses, which are verified at its end.
        self.floor = np.full(number, -math.inf, np.float32)
        self.guessed = self.floor.copy()
        self.counts: Counter[str] = Counter()
        # Scored documents that were not among the best.
        self.wasted = 0
        # Takes over if integers exclude too few documents.
        self.other: exact.Top | None = None

    def guess(self, sample: Sample) -> None:
        """Guess the floors from a sample's estimated scores."""
        scores = [self._products(block) * torch.from_numpy(block.vectors.step).float() for block in sample.blocks]
        least = torch.cat(scores, dim=1).topk(sample.rank, sorted=False).values.amin(1).numpy()
        self.floor = (least * self.vectors.step).astype(np.float32)
        self.guessed = self.floor.copy()

    def missed(self) -> np.ndarray:
        """Tell, after ``settle``, which queries' floors were guessed too high: bool [queries]."""
        return self._known() < self.guessed

    def take(self, missed: np.ndarray, found: Int8Top) -> None:
        """Replace the results of the missed queries, bool [queries], by those of a search without a guess."""
        for name in ("scores", "rows", "count", "least", "floor"):
            getattr(self, name)[missed] = getattr(found, name)
        self.guessed[missed] = -math.inf
        self.counts += found.counts
        if self.other is not None:
            self.other.floor = torch.from_numpy(self.floor)

    def add(self, shard: np.ndarray, offset: int, block: Int8Block) -> None:
        """Keep the block's documents that are among the best so far."""
        if self.other is not None:
            shift = torch.from_numpy(self.shift)
            self.other.add(exact.block_of(torch.from_numpy(shard), offset, block.start, BLOCK, shift, torch.float32))
            return
        selective = np.isfinite(self.floor).all()
        query, rows = self._candidates(block)
        documents = shard[block.start : block.start + BLOCK]
        scores = kernels.compiled().scores(self.queries, documents, query, rows)
        exact.checked(torch.from_numpy(scores))
        best = self.scores, self.rows, self.count, self.least, self.depth
        kept = kernels.compiled().keep(query, rows, scores, offset + block.start, *best)
        self.floor = np.maximum(self.floor, self._known())
        self.counts["float64"] += len(query)
        if selective:
            self.wasted += len(query) - kept
        if self.wasted > _WASTE * self.counts["int8"]:
            self._go_on_in_float32()

    def settle(self, shard: np.ndarray, offset: int) -> None:
        """Sort the kept documents, at the end of a shard."""
        if self.other is None:
            self._sort()
        else:  # it writes into this object's arrays
            self.other.settle(torch.from_numpy(shard), offset)
            self.least, self.floor = self.scores[:, self.depth - 1].copy(), self.other.floor.numpy().copy()
            self.count = (self.rows[:, : self.depth] >= 0).sum(1)

    def _candidates(self, block: Int8Block) -> tuple[np.ndarray, np.ndarray]:
        """Return the queries and block rows, int64 [pairs] each, above the floors."""
        products = self._products(block).numpy()
        self.counts["int8"] += products.size
        query, rows = np.empty((2, products.size + kernels.WORD), np.int64)
        pairs = kernels.compiled().scan(products, self._terms(), block.terms, query, rows)
        return query[:pairs], rows[:pairs]

    def _products(self, block: Int8Block) -> torch.Tensor:
        """Return the integer products, int32 [queries, documents]."""
        return torch._int_mm(torch.from_numpy(self.vectors.low), torch.from_numpy(block.vectors.low).T)

    def _terms(self) -> np.ndarray:
        """Return the queries' factors in the thresholds, float32 [3, queries]."""
        own, terms = self.vectors, np.empty((3, len(self.queries)))
        terms[0], terms[1], terms[2] = self.floor, -own.length, -own.lost
        terms /= own.step
        with np.errstate(invalid="ignore", over="ignore"):  # a floor of -inf excludes nothing
            terms -= _THRESHOLD * np.abs(terms)
        return _single(terms)

    def _known(self) -> np.ndarray:
        """Return float32 lower bounds of the scores at rank ``depth`` [queries], without the common term."""
        known = self.least - self.common
        known -= _STORED * np.abs(known)
        return _single(known)

    def _sort(self) -> None:
        kernels.compiled().settle(self.scores, self.rows, self.count, self.least, self.depth)
        self.floor = np.maximum(self.floor, self._known())

    def _go_on_in_float32(self) -> None:
        """Switch to float32 products from here on."""
        self._sort()
        self.other = exact.Top(torch.from_numpy(self.queries), torch.from_numpy(self.shift), self.depth, torch.float32)
        self.other.scores, self.other.rows = (
            torch.from_numpy(array)[:, : self.depth] for array in (self.scores, self.rows)
        )
        self.other.floor = torch.from_numpy(self.floor)
        self.other.counts = self.counts


def _single(bounds: np.ndarray) -> np.ndarray:
    """Round lower bounds to float32 without overflow to infinity."""
    limits = np.finfo(np.float32)
    with np.errstate(invalid="ignore"):
        return np.where(bounds < limits.min, -np.inf, np.minimum(bounds, limits.max)).astype(np.float32)
