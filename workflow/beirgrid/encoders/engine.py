"""The engine of all families: texts are tokenized once and ahead, computed in batches by tokens, copied to the host.

While a window of texts is computed, another thread reads and tokenizes the next one. Within a window, texts are sorted
by length and divided into batches of at most ``budget`` tokens, padding included. On a CPU each core computes batches
of its own with one thread: no operation waits for other cores, and a batch gives the same numbers on any number of
cores. On a GPU one batch is sent while another one is computed and copied back. There is no pause between two windows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from ..core.compute import Runtime
from ..core.errors import DataError, warn
from ..core.pipeline import ahead
from ..core.progress import Progress

if TYPE_CHECKING:
    import torch

# Texts (or pairs) that are tokenized and sorted by length together. The first window is smaller, so that computing
# starts early.
WINDOW, FIRST = 2048, 256
# Texts tokenized at a time: a tokenizer keeps what it cuts off, some 70 bytes a token.
TOKENIZED = 256
# What PyTorch and oneDNN say on a CPU where memory is not enough.
_NO_MEMORY = ("can't allocate memory", "could not create a primitive", "could not create a memory object")
ItemT = TypeVar("ItemT")
FoundT = TypeVar("FoundT")
# Inputs of a batch to results, on the device: the first dimension of each is the batch.
Forward = Callable[[dict[str, Any]], tuple["torch.Tensor", ...]]
Keep = Callable[[tuple[np.ndarray, ...]], FoundT]


def token_batches(
    lengths: Sequence[int] | np.ndarray, budget: int, most: int = WINDOW, *, one_length: bool = False
) -> Iterator[np.ndarray]:
    """Yield indices of texts, longest first, in batches of at most ``budget`` tokens with padding and ``most`` texts.

    A text longer than the budget is a batch of its own. Longest first, so that a lack of memory shows in the first
    batch, and so that padding is least. With ``one_length``, there is no padding.
    """
    order = np.argsort(-np.asarray(lengths), kind="stable")
    start = 0
    while start < len(order):
        length = int(lengths[order[start]])
        stop = start + max(1, min(most, budget // max(length, 1)))
        if one_length:
            stop = min(stop, int(np.count_nonzero(np.asarray(lengths) >= length)))
        yield order[start:stop]
        start = stop


def parts(items: Sequence[ItemT], size: int) -> Iterator[list[ItemT]]:
    """Yield the items in order, ``size`` at a time."""
    for start in range(0, len(items), size):
        yield list(items[start : start + size])


def windows(items: Sequence[ItemT]) -> Iterator[list[ItemT]]:
    """Yield the items in order, ``FIRST`` of them and then ``WINDOW`` at a time."""
    return chain(parts(items[:FIRST], FIRST), parts(items[FIRST:], WINDOW))


@dataclass
class Tokens:
    """What a model reads of some texts, without padding.

    Attributes:
        columns: name of an input to its numbers per token: an int32 array [tokens] for each text. ``input_ids`` is one.
        constants: inputs that are the same for all texts.
        rows: inputs that have a row for each text: arrays [texts, …].
    """

    columns: dict[str, list[np.ndarray]] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def ids(self) -> list[np.ndarray]:
        """The token ids of each text."""
        return self.columns.get("input_ids", [])

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text: int64 [texts]."""
        return np.fromiter(map(len, self.ids), np.int64, len(self.ids))

    def add(self, features: Mapping[str, Any]) -> None:
        """Add tokenized texts: each feature is a list with the numbers of each text, a tensor, or a constant.

        Tensors are padded, [texts, longest]. Tokens that are neither attended to nor a query's expansion are left out.
        """
        columns = {name: value for name, value in features.items() if getattr(value, "ndim", 0) == 2}
        lists = {name: value for name, value in features.items() if isinstance(value, list)}
        self.constants |= {name: features[name] for name in features.keys() - columns.keys() - lists.keys()}
        for name, texts in lists.items():
            self.columns.setdefault(name, []).extend(np.array(numbers, np.int32) for numbers in texts)
        if not columns:
            return
        kept = columns["attention_mask"].bool()
        if (expansion := columns.get("query_expansion_positions")) is not None:
            kept = kept | expansion
        else:  # each token that is left is attended to
            del columns["attention_mask"]
        masks = kept.numpy()
        for name, column in columns.items():
            rows = column.numpy().astype(np.int32)
            self.columns.setdefault(name, []).extend(row[mask] for row, mask in zip(rows, masks, strict=True))

    def padded(self, rows: Sequence[int] | np.ndarray, tokenizer: Any) -> dict[str, Any]:
        """Return the inputs of a batch: int64 [rows, longest] for each column, padded as the tokenizer pads."""
        import torch

        columns = {name: [column[row] for row in rows] for name, column in self.columns.items()}
        columns.setdefault("attention_mask", [np.ones(len(ids), np.int32) for ids in columns["input_ids"]])
        fill = {"input_ids": tokenizer.pad_token_id or 0, "token_type_ids": tokenizer.pad_token_type_id}
        width = max(1, *map(len, columns["input_ids"]))  # a text may have no tokens
        inputs: dict[str, Any] = dict(self.constants)
        inputs |= {name: torch.from_numpy(values[rows]) for name, values in self.rows.items()}
        for name, texts in columns.items():
            batch = np.full((len(texts), width), fill.get(name, 0), np.int64)
            for line, values in zip(batch, texts, strict=True):
                if tokenizer.padding_side == "left":
                    line[width - len(values) :] = values
                else:
                    line[: len(values)] = values
            inputs[name] = torch.from_numpy(batch)
        if "query_expansion_positions" in inputs:
            inputs["query_expansion_positions"] = inputs["query_expansion_positions"].bool()
        return inputs


@dataclass
class Batch(Generic[FoundT]):
    """What is found for one batch.

    Attributes:
        rows: indices of its texts within their window.
        found: what is kept of the model's results for them.
    """

    rows: np.ndarray
    found: FoundT


def order(batches: Sequence[Batch[Any]]) -> np.ndarray:
    """Return where each text of a window is in what its batches found, joined: int64 [texts]."""
    return np.argsort(np.concatenate([batch.rows for batch in batches]))


class Engine:
    """Computes batches on a runtime's device.

    Attributes:
        budget: tokens per batch, padding included; a lack of memory halves it.
        workers: batches that are computed at once; on a CPU, a single worker uses all cores.
        one_length: whether all texts of a batch have one length.
        vocabulary: tokens that the model has vectors for, or None.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.budget = runtime.batch_tokens
        self.workers = _threads() if runtime.kind == "cpu" else 2
        self.one_length = False
        self.vocabulary: int | None = None

    def run(
        self,
        tokenized: Iterable[Tokens],
        tokenizer: Any,
        forward: Forward,
        keep: Keep[FoundT],
        progress: Progress | None = None,
        most: int = WINDOW,
    ) -> Iterator[list[Batch[FoundT]]]:
        """Yield the batches of each window, computed; the windows are tokenized ahead in another thread.

        Args:
            tokenized: the tokens of each window; its iterator runs in another thread.
            tokenizer: pads the batches.
            forward: inputs of a batch to results, on the device. It is called by several threads at once.
            keep: results of a batch, as arrays on the host, to what is kept of them. Also called by several threads.
            progress: counts each text as one.
            most: texts per batch.

        Raises:
            Exception: what reading, tokenizing or computing raises.
        """
        import torch

        threads = torch.get_num_threads()
        with ThreadPoolExecutor(self.workers, "compute", self._use_one_thread) as pool:

            def submit(rows: np.ndarray, tokens: Tokens) -> Future[list[Batch[FoundT]]]:
                return pool.submit(self._compute, rows, tokens, tokenizer, forward, keep)

            found: list[Batch[FoundT]] = []
            try:
                for batch, is_last in _delayed(self._submitted(ahead(tokenized, 1), submit, most), self.workers):
                    found += _counted(batch.result(), progress)
                    if is_last:
                        yield found
                        found = []
            finally:
                pool.shutdown(cancel_futures=True)
                torch.set_num_threads(threads)  # the workers' number is that of all threads that start later

    def _use_one_thread(self) -> None:
        import torch

        if self.runtime.kind == "cpu" and self.workers > 1:
            torch.set_num_threads(1)

    def _submitted(
        self,
        tokenized: Iterable[Tokens],
        submit: Callable[[np.ndarray, Tokens], Future[list[Batch[FoundT]]]],
        most: int,
    ) -> Iterator[tuple[Future[list[Batch[FoundT]]], bool]]:
        """Yield each batch, submitted, and whether it is the last one of its window."""
        for tokens in tokenized:
            lengths = tokens.lengths
            budget = self.budget
            if self.workers > 1:  # no worker without a batch
                budget = min(budget, max(int(lengths.sum()) // self.workers, 1))
            batches = list(token_batches(lengths, budget, most, one_length=self.one_length))
            for number, rows in enumerate(batches, start=1):
                yield submit(rows, tokens), number == len(batches)

    def _compute(
        self, rows: np.ndarray, tokens: Tokens, tokenizer: Any, forward: Forward, keep: Keep[FoundT]
    ) -> list[Batch[FoundT]]:
        """Compute a batch, in halves if memory is not enough."""
        import torch

        try:
            with torch.inference_mode():
                inputs = tokens.padded(rows, tokenizer)
                self.check_ids(int(inputs["input_ids"].max()))
                results = forward({name: self._to_device(value) for name, value in inputs.items()})
                return [Batch(rows, keep(self._to_host(results)))]
        except (MemoryError, RuntimeError) as error:
            if not _lacks_memory(error) or len(rows) == 1:
                raise
            # The traceback holds the tensors of the failed batch until this block is left.
        self._use_less(int(tokens.lengths[rows].max()) * len(rows))
        halves = (self._compute(half, tokens, tokenizer, forward, keep) for half in np.array_split(rows, 2))
        return [batch for half in halves for batch in half]

    def check_ids(self, largest: int) -> None:
        """Refuse tokens that the model has no vectors for."""
        if self.vocabulary is not None and largest >= self.vocabulary:
            raise DataError(
                f"the tokenizer gives token {largest}, but the model has vectors for {self.vocabulary} tokens only: "
                "tokenizer and weights are of different models"
            )

    def _use_less(self, tokens: int) -> None:
        """Halve the budget after a batch of so many tokens did not fit, and say so once."""
        import torch

        if self.budget == self.runtime.batch_tokens:
            warn(
                f"memory is not enough for a batch of {tokens:,} tokens: going on with half "
                "(batch_tokens sets the size of batches)"
            )
        self.budget = min(self.budget, max(tokens // 2, 1))
        if self.runtime.kind == "cuda":
            torch.cuda.empty_cache()

    def _to_device(self, value: Any) -> Any:
        if self.runtime.kind == "cpu" or not hasattr(value, "pin_memory"):
            return value
        return value.pin_memory().to(self.runtime.device, non_blocking=True)

    def _to_host(self, results: tuple[torch.Tensor, ...]) -> tuple[np.ndarray, ...]:
        """Copy results; only this thread waits, while another one sends the next batch to the GPU."""
        import torch

        if self.runtime.kind == "cpu":
            return tuple(result.numpy() for result in results)
        copies = [torch.empty_like(result, device="cpu", pin_memory=True) for result in results]
        for copy, result in zip(copies, results, strict=True):
            copy.copy_(result, non_blocking=True)
        with torch.cuda.device(self.runtime.device):
            torch.cuda.current_stream().record_event().synchronize()
        return tuple(copy.numpy() for copy in copies)


def _delayed(items: Iterable[ItemT], count: int) -> Iterator[ItemT]:
    """Yield items, each after ``count`` later ones have been taken, if there are so many."""
    taken: deque[ItemT] = deque()
    for item in items:
        taken.append(item)
        if len(taken) > count:
            yield taken.popleft()
    yield from taken


def _counted(batches: list[Batch[FoundT]], progress: Progress | None) -> list[Batch[FoundT]]:
    for batch in batches:
        if progress:
            progress.add(len(batch.rows))
    return batches


def _lacks_memory(error: BaseException) -> bool:
    """Whether an error says that memory is not enough; on a CPU it is a plain RuntimeError, of PyTorch or oneDNN."""
    import torch

    return isinstance(error, torch.OutOfMemoryError | MemoryError) or any(part in str(error) for part in _NO_MEMORY)


def _threads() -> int:
    """Return the threads that PyTorch would use: the cores of the process, or OMP_NUM_THREADS."""
    import torch

    return torch.get_num_threads()
