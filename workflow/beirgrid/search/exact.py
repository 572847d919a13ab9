"""Exact maximum inner product search at the speed of low-precision matrix products.

A first pass multiplies queries and documents in bfloat16 on a GPU that supports it, otherwise in float32
(``search.exact_int8`` has a faster first pass for some CPUs). A bound of the rounding error proves for most documents
that they are not among the best. The remaining documents are scored in float64.

The bound. Let q be a query and c any vector in float32, x a document less c, q' and x' the same rounded to the format
of the first pass, and D the dimension. The first pass ranks by q·x, since q·c is the same for all documents. Taking the
mean for c makes x short where all vectors point the same way, as those of many models do. Then q·x - q'·x' = q·(x - x')
+ (q - q')·x'. By the inequality of Cauchy and Schwarz,

    |q·x - q'·x'| <= |q| |x - x'| + |q - q'| |x'|.

Nothing is assumed about how x' is rounded: x - x' is exact in float32, and its length is measured. The hardware adds up
products in float32, in an order of its own. Each of the D additions is off by at most 2^-22 |q'| |x'|: the unit
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
# Error bound of a first-pass sum relative to |q| |x|: per dimension, and for a few further operations.
_ADDITION, _BESIDE = 2.0**-22, 16
# The same for a float64 score, with ample margin.
_DOUBLE = 2.0**-48
# The smallest normal number of float32 and of bfloat16; numbers below it may be taken for 0.
_TINY = 2.0**-126
# Vectors whose product may exceed this are not multiplied in float32.
_HUGE = 2.0**125
# Relative error of rounding a product to the first pass's format. The remainder, here and in ``_MARGIN``, covers the
# float32 rounding of the bounds themselves.
_ROUNDING = {torch.bfloat16: 2.0**-8 + 2.0**-20, torch.float32: 2.0**-20}
_MARGIN = 1 + 2.0**-20
# If more than this share of a block's products become candidates, float32 products are cheaper than many float64
# scores.
_FEW = 1 / 64


class Block(NamedTuple):
    """A block of a shard's documents.

    Attributes:
        shard: float32 [documents, dimension], all documents of the shard.
        offset: corpus row of the shard's first document.
        start: the block's first row in the shard.
        shifted: float32 [block, dimension], the documents minus the shift.
        low: ``shifted``, rounded to the format of the first pass.
        length: float64 scalar, upper bound of the norms of ``shifted``.
        lost: float64 scalar, upper bound of the norms of the rounding errors.
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
        shards: float32 [documents, dimension] each, on the queries' device.
        queries: float32 [queries, dimension].
        depth: documents per query.
        low: format of the first pass, bfloat16 or float32.
        kernels: ``plain`` computes scores with PyTorch on a CPU as well.

    Returns:
        float64 scores and int64 rows, both [queries, min(depth, documents)], best first; ties in row order. And the
        number of products computed in each format.

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
            del shard  # so that it is unmapped before the next one is mapped
    scores, rows = (torch.cat([getattr(top, name) for top in tops])[:, :documents] for name in ("scores", "rows"))
    return scores, rows, sum((top.counts for top in tops), Counter())


@contextmanager
def _full_sums() -> Iterator[None]:
    """Disable TF32 products and reduced-precision reductions in PyTorch."""
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
    """Yield a thread pool for the queries and its size: 1 for a GPU, otherwise PyTorch's number of threads.

    Each thread computes independently. PyTorch's own threads would synchronise after every operation, which is slow if
    other processes use the cores.
    """
    threads = torch.get_num_threads()
    number = threads if device.type == "cpu" else 1
    try:
        with ThreadPoolExecutor(number, initializer=torch.set_num_threads, initargs=(1,)) as workers:
            yield workers, number
    finally:
        torch.set_num_threads(threads)


def shift_of(shard: torch.Tensor) -> torch.Tensor:
    """Return the shift c, float32 [dimension]: the mean document, or 0 where it would overflow."""
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
    """Prepare the documents from row ``start`` on for the first pass in ``low``."""
    shifted = shard[start : start + documents] - shift
    rounded, length, lost = _rounded(shifted, low)
    return Block(shard, offset, start, shifted, rounded, length.amax(), lost.amax())


def _rounded(vectors: torch.Tensor, low: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Round vectors; also return upper bounds of their norms and rounding errors, float64 [vectors]."""
    rounded = vectors.to(low)
    return rounded, _lengths(vectors), _lengths(vectors - rounded)


def _lengths(vectors: torch.Tensor) -> torch.Tensor:
    """Return upper bounds of the norms of float32 vectors, float64 [vectors]."""
    dimension = vectors.shape[1]
    computed: torch.Tensor = torch.linalg.vector_norm(vectors, dim=1).double()
    return computed * (1 + (dimension + 4) * 2.0**-23) + math.sqrt(dimension) * 2 * math.sqrt(_TINY)


class Top:
    """The best documents of some queries: exact float64 scores, and a queue of candidates with bounded scores.

    Candidates are queued with their first-pass scores until the shard ends or the queue is full.
    """

    def __init__(
        self, queries: torch.Tensor, shift: torch.Tensor, depth: int, low: torch.dtype, kernels: Kernels = "auto"
    ) -> None:
        number, device = len(queries), queries.device
        by_numba = kernels == "auto" and device.type == "cpu"
        self.compute = scores_compiled if by_numba else scores_in_torch
        self.queries = queries
        self.low, self.length, self.lost = _rounded(queries, low)
        # q·c, common to all scores of a query. Floors and queued scores exclude it.
        self.common = queries.double() @ shift.double()
        self.shift_length = _lengths(shift[None])
        self.scores = torch.full((number, depth), -math.inf, dtype=torch.float64, device=device)
        self.rows = torch.full((number, depth), -1, device=device)
        # Floor: a lower bound of the score at rank ``depth``, without the common term.
        self.floor = torch.full((number,), -math.inf, device=device)
        self.capacity = max(BLOCK, 4 * depth)
        self.waiting = torch.zeros((number, self.capacity), device=device)
        self.columns = torch.zeros((number, self.capacity), dtype=torch.int32, device=device)
        self.count = torch.zeros(number, dtype=torch.int64, device=device)
        # Error bound of first-pass scores, in addition to their own rounding.
        self.error = torch.zeros(number, dtype=torch.float64, device=device)
        self.counts: Counter[str] = Counter()

    def add(self, block: Block) -> None:
        """Queue the block's candidates for exact rescoring.

        If bfloat16 excludes too few documents, this block and all later ones are multiplied in float32.
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
        """Score all queued candidates, at the end of a shard."""
        self._raise_floor()
        self._settle(torch.arange(len(self.queries), device=self.queries.device), shard, offset)

    def _products(self, block: Block) -> tuple[torch.Tensor, torch.Tensor]:
        """Return products [queries, documents] and their error bounds, float64 [queries], without rounding."""
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
        """Return the queries and columns, both [pairs], of products above the floor."""
        rounding = _ROUNDING[products.dtype]
        least = self.floor - error
        least = torch.where(least < 0, least / (1 - rounding), least / (1 + rounding))
        cut = least.to(products.dtype)
        cut = torch.where(cut.double() < least, torch.nextafter(cut, torch.full_like(cut, math.inf)), cut)
        passed = products >= cut[:, None]
        passed = torch.nn.functional.pad(passed, (0, -passed.shape[1] % 8))
        # Few products pass, so eight flags are tested at once as one integer.
        query, word = passed.view(torch.int64).nonzero(as_tuple=True)
        place, byte = passed.view(len(passed), passed.shape[1] // 8, 8)[query, word].nonzero(as_tuple=True)
        return query[place], word[place] * 8 + byte

    def _overflows(self, query: torch.Tensor) -> torch.Tensor:
        """Tell which queries have a full queue: bool [queries]."""
        return self.count + torch.bincount(query, minlength=len(self.count)) > self.capacity

    def _append(self, query: torch.Tensor, column: torch.Tensor, score: torch.Tensor) -> None:
        """Queue pairs, which are sorted by query, then by column."""
        added = torch.bincount(query, minlength=len(self.count))
        place = torch.arange(len(query), device=query.device) + (self.count - added.cumsum(0) + added)[query]
        self.waiting[query, place] = score
        self.columns[query, place] = column.int()
        self.count += added

    def _raise_floor(self) -> None:
        """Raise the floors, and drop queued candidates below them."""
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
        """Score all queued documents of the chosen queries, int64 [chosen], and keep the best."""
        count = self.count[chosen]
        shape = (len(chosen), max(count.tolist(), default=0))
        query, place = (torch.arange(shape[1], device=count.device) < count[:, None]).nonzero(as_tuple=True)
        columns = self.columns[chosen[query], place].long()
        scores = torch.full(shape, -math.inf, dtype=torch.float64, device=count.device)
        scores[query, place] = self._scores(chosen[query], shard, columns)
        rows = torch.full(shape, -1, device=count.device)
        rows[query, place] = columns + offset
        scores = torch.cat([self.scores[chosen], scores], dim=1)
        # The sort is stable and rows ascend: scored documents come from earlier rows, queued ones are in order.
        order = scores.sort(dim=1, descending=True, stable=True).indices[:, : self.scores.shape[1]]
        self.scores[chosen] = scores.gather(1, order)
        self.rows[chosen] = torch.cat([self.rows[chosen], rows], dim=1).gather(1, order)
        self.floor[chosen] = torch.maximum(self.floor[chosen], _at_least(self.scores[chosen, -1] - self.common[chosen]))
        self.count[chosen] = 0
        self.error[chosen] = 0

    def _scores(self, query: torch.Tensor, shard: torch.Tensor, rows: torch.Tensor) -> torch.Tensor:
        """Return the float64 inner products of queries and shard rows, all [pairs]."""
        self.counts["float64"] += len(rows)
        return checked(self.compute(self.queries, shard, query, rows))


def checked(scores: torch.Tensor) -> torch.Tensor:
    """Return scores; raise DataError unless all are finite."""
    if not scores.isfinite().all():
        raise DataError("a vector has a component that is not a finite number")
    return scores


def scores_in_torch(
    queries: torch.Tensor, documents: torch.Tensor, query: torch.Tensor, rows: torch.Tensor
) -> torch.Tensor:
    """Compute the float64 inner products of pairs, on any device.

    Equal vectors get equal scores, because the products of each pair are summed in the same order. Matrix products do
    not guarantee this. A GPU chooses the order by the shape, so all sums have the same shape.

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
    """Like ``scores_in_torch``, on the CPU and without copies, hence several times faster."""
    scores = compiled().scores(queries.numpy(), documents.numpy(), query.numpy(), rows.numpy())
    return torch.from_numpy(scores)


def _at_least(scores: torch.Tensor) -> torch.Tensor:
    """Round float64 scores down to float32."""
    single = scores.float().clamp(max=torch.finfo(torch.float32).max)
    return single - single.abs() * 2.0**-22 - _TINY
