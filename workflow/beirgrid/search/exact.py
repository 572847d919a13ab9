"""Exact inner products at the speed of low-precision matrix products.

A first pass multiplies queries and documents in bfloat16, where a GPU does that natively, or in float32
(``search.exact_int8`` has another first pass, for CPUs). A bound of its error proves that most documents are not among
the best. The scores of the rest are computed in float64.

The bound. Let q be a query and c any vector in float32, x a document less c, q' and x' the same rounded to the format
of the first pass, and D the dimension. The first pass ranks by q·x, since q·c is the same for all documents. Taking the
mean for c makes x short where all vectors point the same way, as those of many models do. Then
q·x - q'·x' = q·(x - x') + (q - q')·x'. By the inequality of Cauchy and Schwarz,

    |q·x - q'·x'| <= |q| |x - x'| + |q - q'| |x'|.

Nothing is assumed about how x' is rounded: x - x' is exact in float32, and its length is measured. The hardware adds
up products in float32, in an order of its own. Each of the D additions is off by at most 2^-22 |q'| |x'|: the unit
roundoff is 2^-24, and tensor cores, which cut numbers off after aligning them, lose less than four times as much.
Subtracting c costs 2^-24 |q| |x|. A product, a sum or a component below 2^-126 may be taken for 0. If the sum is then
rounded to bfloat16, which has 8 significant bits, it changes by at most 2^-8 of what it becomes. The lengths of vectors
are computed in float32, and raised by what rounding and underflow can have taken from them. Where a length or a product
may overflow, the bound is infinite: the first pass excludes nothing, and all scores are computed in float64.

A score in float64 is a sum of exact products. It and q·c are rounded by at most D 2^-53 times the lengths of their
vectors, for which the bound has D 2^-48.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import NamedTuple

import torch

from ..core.compute import Kernels
from ..core.errors import DataError
from .kernels import compiled

# Documents and queries of a matrix product.
BLOCK, QUERIES = 4096, 1024
# Pairs of a query and a document whose float64 scores are computed at a time.
_PAIRS = 2048
# A sum in the first pass is off by at most so much of |q| |x|, for each dimension and for a few operations beside.
_ADDITION, _BESIDE = 2.0**-22, 16
# A score in float64 is off by at most so much, likewise, and more than enough.
_DOUBLE = 2.0**-48
# The smallest normal number of float32 and of bfloat16; numbers below it may be taken for 0.
_TINY = 2.0**-126
# Vectors whose product may pass this are not multiplied in float32.
_HUGE = 2.0**125
# How much of a product is lost when it is rounded to the format of the first pass. The rest, here and in ``_MARGIN``,
# is for the rounding of the bounds themselves, which are computed in float32.
_ROUNDING = {torch.bfloat16: 2.0**-8 + 2.0**-20, torch.float32: 2.0**-20}
_MARGIN = 1 + 2.0**-20
# From this share of a block's products on, multiplying in float32 is cheaper than many scores in float64.
_FEW = 1 / 64


class Block(NamedTuple):
    """Some documents of a shard.

    Attributes:
        shard: float32 [documents, dimension], all documents of the shard.
        offset: the row of the shard's first document in the corpus.
        start: the block's first row of the shard.
        shifted: float32 [documents of the block, dimension], less the shift.
        low: the same, rounded to the format of the first pass.
        length: float64 scalar, no row of ``shifted`` is longer.
        lost: float64 scalar, no row lost a longer vector when it was rounded.
    """

    shard: torch.Tensor
    offset: int
    start: int
    shifted: torch.Tensor
    low: torch.Tensor
    length: torch.Tensor
    lost: torch.Tensor


def search(
    shards: Iterable[torch.Tensor], queries: torch.Tensor, depth: int, low: torch.dtype, kernels: Kernels = "auto"
) -> tuple[torch.Tensor, torch.Tensor, Counter[str]]:
    """Find the documents with the highest inner products.

    Args:
        shards: float32 [documents, dimension] each, on the device of the queries, one after another.
        queries: float32 [queries, dimension].
        depth: documents per query.
        low: format of the first pass, bfloat16 or float32.
        kernels: ``plain`` computes the scores by PyTorch on a CPU, too.

    Returns:
        float64 scores and int64 rows, both [queries, min(depth, documents)], best first; equal scores in the order of
        the rows. And how many products were computed in each format.

    Raises:
        DataError: a vector has a component that is not finite.
    """
    tops: list[Top] = []
    documents = 0
    with _full_sums(), workers(queries.device) as (pool, number):
        for shard in shards:
            if not tops:
                shift = shift_of(shard)
                size = min(QUERIES, math.ceil(len(queries) / number) or 1)
                tops = [Top(part, shift, depth, low, kernels) for part in torch.split(queries, size)]
            list(
                pool.map(partial(_search_shard, shard, documents, shift, low), [tops[n::number] for n in range(number)])
            )
            documents += len(shard)
            del shard  # it may be unmapped before the next one is mapped
    scores, rows = (torch.cat([getattr(top, name) for top in tops])[:, :documents] for name in ("scores", "rows"))
    return scores, rows, sum((top.counts for top in tops), Counter())


@contextmanager
def _full_sums() -> Iterator[None]:
    """Keep PyTorch from multiplying float32 in another format, and from adding up products in bfloat16."""
    matmul = torch.backends.cuda.matmul
    before = torch.get_float32_matmul_precision(), matmul.allow_bf16_reduced_precision_reduction
    torch.set_float32_matmul_precision("highest")
    matmul.allow_bf16_reduced_precision_reduction = False
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before[0])
        matmul.allow_bf16_reduced_precision_reduction = before[1]


@contextmanager
def workers(device: torch.device) -> Iterator[tuple[ThreadPoolExecutor, int]]:
    """Give threads among which queries are divided, and their number: one for a GPU, else as many as PyTorch has.

    Each thread computes alone. PyTorch's own threads would wait for each other after every operation, which takes long
    where other processes use the cores.
    """
    threads = torch.get_num_threads()
    number = threads if device.type == "cpu" else 1
    try:
        with ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            yield workers, number
    finally:
        torch.set_num_threads(threads)


def shift_of(shard: torch.Tensor) -> torch.Tensor:
    """Return a vector, float32 [dimension], that is near many documents; 0 where it would overflow."""
    return shard[:BLOCK].mean(0).nan_to_num(0, 0, 0)


def _search_shard(shard: torch.Tensor, offset: int, shift: torch.Tensor, low: torch.dtype, tops: list[Top]) -> None:
    for start in range(0, len(shard), BLOCK):
        block = block_of(shard, offset, start, BLOCK, shift, low)
        for top in tops:
            top.add(block)
    for top in tops:
        top.settle(shard, offset)


def block_of(
    shard: torch.Tensor, offset: int, start: int, documents: int, shift: torch.Tensor, low: torch.dtype
) -> Block:
    """Return the documents of a shard from a row on, as the first pass in ``low`` reads them."""
    shifted = shard[start : start + documents] - shift
    rounded, length, lost = _rounded(shifted, low)
    return Block(shard, offset, start, shifted, rounded, length.amax(), lost.amax())


def _rounded(vectors: torch.Tensor, low: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return vectors in another format; and float64 [vectors] their lengths, and the lengths of what they lost."""
    rounded = vectors.to(low)
    return rounded, _lengths(vectors), _lengths(vectors - rounded)


def _lengths(vectors: torch.Tensor) -> torch.Tensor:
    """Return upper bounds of the lengths of float32 vectors, float64 [vectors]."""
    dimension = vectors.shape[1]
    computed: torch.Tensor = torch.linalg.vector_norm(vectors, dim=1).double()
    return computed * (1 + (dimension + 4) * 2.0**-23) + math.sqrt(dimension) * 2 * math.sqrt(_TINY)


class Top:
    """The best documents of some queries: the scores of some of them in float64, those of others within bounds.

    Candidates wait, with their scores in the first pass, until a shard has been searched or there is no room for more.
    """

    def __init__(
        self, queries: torch.Tensor, shift: torch.Tensor, depth: int, low: torch.dtype, kernels: Kernels = "auto"
    ) -> None:
        number, device = len(queries), queries.device
        by_numba = kernels == "auto" and device.type == "cpu"
        self.compute = scores_compiled if by_numba else scores_in_torch
        self.queries = queries
        self.low, self.length, self.lost = _rounded(queries, low)
        # What all scores of a query have in common. Floors and what waits are without it.
        self.common = queries.double() @ shift.double()
        self.shift_length = _lengths(shift[None])
        self.scores = torch.full((number, depth), -math.inf, dtype=torch.float64, device=device)
        self.rows = torch.full((number, depth), -1, device=device)
        # What the best score number ``depth`` is at least, less what scores have in common.
        self.floor = torch.full((number,), -math.inf, device=device)
        self.capacity = max(BLOCK, 4 * depth)
        self.waiting = torch.zeros((number, self.capacity), device=device)
        self.columns = torch.zeros((number, self.capacity), dtype=torch.int32, device=device)
        self.count = torch.zeros(number, dtype=torch.int64, device=device)
        # What the scores in the first pass are off by at most, beside their own rounding.
        self.error = torch.zeros(number, dtype=torch.float64, device=device)
        self.counts: Counter[str] = Counter()

    def add(self, block: Block) -> None:
        """Let the documents of a block wait that may be among the best.

        Where bfloat16 excludes too little, this and all further blocks are multiplied in float32.
        """
        products, error = self._products(block)
        depth = self.scores.shape[1]
        if products.shape[1] >= depth and self.floor.isneginf().any():
            lower = products.float() - _ROUNDING[products.dtype] * products.float().abs() - error.float()[:, None]
            self.floor = torch.maximum(self.floor, lower.topk(depth, sorted=False).values.amin(1))
        query, column = self._candidates(products, error)
        if self._overflows(query).any():
            self._raise_floor()
            query, column = self._candidates(products, error)
        if (full := self._overflows(query)).any():
            self._settle(full.nonzero().ravel(), block.shard, block.offset)
            query, column = self._candidates(products, error)
            if len(query) > _FEW * products.numel() and self.low.dtype != torch.float32:
                self.low, self.lost = self.queries, torch.zeros_like(self.lost)
                self.add(block)
                return
        self.error = torch.maximum(self.error, error)
        self._append(query, column + block.start, products[query, column].float())

    def settle(self, shard: torch.Tensor, offset: int) -> None:
        """Compute the scores of all that wait, at the end of a shard."""
        self._raise_floor()
        self._settle(torch.arange(len(self.queries), device=self.queries.device), shard, offset)

    def _products(self, block: Block) -> tuple[torch.Tensor, torch.Tensor]:
        """Return products [queries, documents], and float64 [queries] what they are off by beside their rounding."""
        precise = self.low.dtype == torch.float32
        documents, lost = (block.shifted, torch.zeros_like(block.lost)) if precise else (block.low, block.lost)
        products = self.low @ documents.T
        self.counts[str(products.dtype).removeprefix("torch.")] += products.numel()
        dimension, length = self.queries.shape[1], block.length
        error = self.length * lost + self.lost * (length + lost)
        error += (dimension + _BESIDE) * _ADDITION * (self.length + self.lost) * (length + lost)
        error += dimension * _DOUBLE * self.length * (length + self.shift_length)
        error += 2 * dimension * _TINY * (1 + self.length + length)
        error *= _MARGIN
        wild = ~(error.isfinite() & (self.length * length < _HUGE))
        if wild.any():
            error[wild], products[wild] = math.inf, 0
        return products, error

    def _candidates(self, products: torch.Tensor, error: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the queries and columns, both [pairs], of the products that the floor does not exclude."""
        rounding = _ROUNDING[products.dtype]
        least = self.floor - error
        least = torch.where(least < 0, least / (1 - rounding), least / (1 + rounding))
        cut = least.to(products.dtype)
        cut = torch.where(cut.double() < least, torch.nextafter(cut, torch.full_like(cut, math.inf)), cut)
        passed = products >= cut[:, None]
        passed = torch.nn.functional.pad(passed, (0, -passed.shape[1] % 8))
        # Few pass: eight at a time are looked at as one integer.
        query, word = passed.view(torch.int64).nonzero(as_tuple=True)
        place, byte = passed.view(len(passed), passed.shape[1] // 8, 8)[query, word].nonzero(as_tuple=True)
        return query[place], word[place] * 8 + byte

    def _overflows(self, query: torch.Tensor) -> torch.Tensor:
        """Return which queries, bool [queries], have no room for more candidates."""
        return self.count + torch.bincount(query, minlength=len(self.count)) > self.capacity

    def _append(self, query: torch.Tensor, column: torch.Tensor, score: torch.Tensor) -> None:
        """Let pairs wait; they are sorted by query, and those of a query by column."""
        added = torch.bincount(query, minlength=len(self.count))
        place = torch.arange(len(query), device=query.device) + (self.count - added.cumsum(0) + added)[query]
        self.waiting[query, place] = score
        self.columns[query, place] = column.int()
        self.count += added

    def _raise_floor(self) -> None:
        """Raise the floors to what is known now, and drop what they exclude."""
        spread = _ROUNDING[torch.bfloat16] * self.waiting.abs() + self.error.float()[:, None]
        waits = torch.arange(self.capacity, device=self.count.device) < self.count[:, None]
        lower = torch.where(waits, self.waiting - spread, -math.inf)
        known = torch.cat([_at_least(self.scores - self.common[:, None]), lower], dim=1)
        depth = self.scores.shape[1]
        self.floor = torch.maximum(self.floor, known.topk(depth, sorted=False).values.amin(1))
        kept = (waits & (self.waiting + spread >= self.floor[:, None])).nonzero(as_tuple=True)
        score, column = self.waiting[kept], self.columns[kept]
        self.count.zero_()
        self._append(kept[0], column, score)

    def _settle(self, chosen: torch.Tensor, shard: torch.Tensor, offset: int) -> None:
        """Compute the scores of all documents that wait for the chosen queries, int64 [chosen], and keep the best."""
        count = self.count[chosen]
        shape = (len(chosen), max(count.tolist(), default=0))
        query, place = (torch.arange(shape[1], device=count.device) < count[:, None]).nonzero(as_tuple=True)
        columns = self.columns[chosen[query], place].long()
        scores = torch.full(shape, -math.inf, dtype=torch.float64, device=count.device)
        scores[query, place] = self._scores(chosen[query], shard, columns)
        rows = torch.full(shape, -1, device=count.device)
        rows[query, place] = columns + offset
        scores = torch.cat([self.scores[chosen], scores], dim=1)
        # The sort is stable, and rows ascend: those with scores come from before, those that wait are in order.
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, : self.scores.shape[1]]
        self.scores[chosen] = scores.gather(1, order)
        self.rows[chosen] = torch.cat([self.rows[chosen], rows], dim=1).gather(1, order)
        self.floor[chosen] = torch.maximum(self.floor[chosen], _at_least(self.scores[chosen, -1] - self.common[chosen]))
        self.count[chosen] = 0
        self.error[chosen] = 0

    def _scores(self, query: torch.Tensor, shard: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the float64 inner products [pairs] of queries and rows of a shard, both [pairs]."""
        self.counts["float64"] += len(rows)
        return checked(self.compute(self.queries, shard, query, rows))


def checked(scores: torch.Tensor) -> torch.Tensor:
    """Return scores, or raise DataError unless all are finite."""
    if not scores.isfinite().all():
        raise DataError("a vector has a component that is not a finite number")
    return scores


def scores_in_torch(
    queries: torch.Tensor, documents: torch.Tensor, query: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """Return the float64 inner products of pairs, on any device.

    Equal vectors get equal scores, since the products of each pair are added in the same order. Matrix products do
    not promise this. A GPU chooses the order by the shape of what it sums, so all sums have one shape.

    Args:
        queries: float32 [queries, dimension].
        documents: float32 [documents, dimension].
        query: int64 [pairs], rows of ``queries``.
        rows: int64 [pairs], rows of ``documents``.
    """
    missing = -len(query) % _PAIRS
    filled = (torch.nn.functional.pad(part, (0, missing)) for part in (query, rows))
    pairs = zip(*(torch.split(part, _PAIRS) for part in filled), strict=True)
    parts = [documents[row].double().mul_(queries[number]).sum(1) for number, row in pairs if len(row)]
    return torch.cat([torch.zeros(0, dtype=torch.float64, device=documents.device), *parts])[: len(query)]


def scores_compiled(
    queries: torch.Tensor, documents: torch.Tensor, query: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """Do what ``scores_in_torch`` does, on the CPU and several times as fast: nothing is copied."""
    scores = compiled().scores(queries.numpy(), documents.numpy(), query.numpy(), rows.numpy())
    return torch.from_numpy(scores)


def _at_least(scores: torch.Tensor) -> torch.Tensor:
    """Return float32 numbers that are at most float64 scores, and hardly less."""
    single = scores.float().clamp(max=torch.finfo(torch.float32).max)
    return single - single.abs() * 2.0**-22 - _TINY
