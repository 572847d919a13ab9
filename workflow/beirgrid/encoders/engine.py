"""The batching engine of all families: tokenizes ahead, computes batches by tokens, and copies results to the host.

While a window of texts is computed, another thread reads and tokenizes the next. Within a window, texts are sorted by
length and divided into batches of at most ``budget`` tokens, padding included. On a CPU, each core computes its own
batches with one thread: no operation waits for other cores, and a batch gives the same numbers on any number of cores.
On a GPU, one batch is sent while another is computed and copied back. There is no pause between windows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, pairwise
from typing import Any, TypeVar

import numpy as np
import torch

from ..core.compute import Runtime
from ..core.errors import warn
from ..core.progress import Progress
from .protocol import WINDOW, ItemT

# Texts tokenized at a time: a tokenizer keeps truncated tokens, about 70 bytes each.
TOKENIZED = 256
ResultT = TypeVar("ResultT")
# Maps the inputs of a batch to its results, on the device. Their first dimension is the batch.
Forward = Callable[[dict[str, Any]], tuple[torch.Tensor, ...]]
Keep = Callable[[tuple[np.ndarray, ...]], ResultT]
# What follows the last item of an iterator.
_END = object()


def ahead(items: Iterable[ItemT]) -> Iterator[ItemT]:
    """Yield items. Another thread produces the next one meanwhile.

    An error of the iterator is raised here, in place of the item that failed. If the caller closes the generator, the
    thread ends after its current item.
    """
    iterator: Iterator[Any] = iter(items)
    with ThreadPoolExecutor(1, "ahead") as thread:
        following: Future[Any] = thread.submit(next, iterator, _END)
        while (item := following.result()) is not _END:
            following = thread.submit(next, iterator, _END)
            yield item


def token_batches(
    lengths: Sequence[int] | np.ndarray, budget: int, most: int = WINDOW, *, one_length: bool = False
) -> Iterator[np.ndarray]:
    """Divide texts into batches of at most ``budget`` tokens (padding included) and ``most`` texts; yields indices.

    Batches start with the longest texts: this minimises padding, and a lack of memory shows in the first batch. A text
    longer than the budget is a batch of its own. With ``one_length``, there is no padding.
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


@dataclass
class Tokens:
    """Tokenized texts, without padding.

    Attributes:
        columns: inputs per token, by name: an int32 array [tokens] for each text. ``input_ids`` is one.
        constants: inputs shared by all texts.
        rows: inputs with a row per text: arrays [texts, …].
    """

    columns: dict[str, list[np.ndarray]] = field(default_factory=dict)
    constants: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, np.ndarray] = field(default_factory=dict)

    @property
    def lengths(self) -> np.ndarray:
        """Tokens of each text: int64 [texts]."""
        return np.array([*map(len, self.columns.get("input_ids", []))], np.int64)

    def add(self, features: Mapping[str, Any]) -> None:
        """Add tokenized texts. A feature is a list of numbers per text, a padded tensor [texts, longest], or a
        constant.

        Tokens that are neither attended to nor part of a query expansion are dropped.
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
        else:  # all remaining tokens are attended to
            del columns["attention_mask"]
        masks = kept.numpy()
        for name, column in columns.items():
            rows = column.numpy().astype(np.int32)
            self.columns.setdefault(name, []).extend(row[mask] for row, mask in zip(rows, masks, strict=True))

    def padded(self, rows: Sequence[int] | np.ndarray, tokenizer: Any) -> dict[str, Any]:
        """Return the inputs of a batch: int64 [rows, longest] per column, padded like the tokenizer."""
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


class Engine:
    """Computes batches on a runtime's device.

    Attributes:
        budget: tokens per batch, padding included; halved when memory runs out.
        workers: batches computed concurrently; on a CPU, a single worker uses all cores.
        one_length: whether all texts of a batch have one length.
    """

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self.budget = runtime.batch_tokens
        # PyTorch's default is OMP_NUM_THREADS, or else the process's cores.
        self.workers = torch.get_num_threads() if runtime.kind == "cpu" else 2
        self.one_length = False

    def run(
        self,
        tokenized: Iterable[Tokens],
        tokenizer: Any,
        forward: Forward,
        keep: Keep[ResultT],
        progress: Progress | None = None,
        most: int = WINDOW,
    ) -> Iterator[tuple[list[ResultT], np.ndarray]]:
        """Yield the results of each window, batch by batch, and the places of its texts among them, int64 [texts].

        Another thread tokenizes windows ahead.

        Args:
            tokenized: the tokens of each window; its iterator runs in another thread.
            tokenizer: pads the batches.
            forward: computes a batch's inputs to results, on the device. Several threads may call it at once.
            keep: converts a batch's results, arrays on the host. Several threads may call it at once.
            progress: counts each text as one.
            most: texts per batch.

        Raises:
            Exception: any error of reading, tokenizing or computing.
        """
        threads = torch.get_num_threads()
        with ThreadPoolExecutor(self.workers, "compute", self._use_one_thread) as pool:

            def submitted(tokens: Tokens) -> list[Future[list[tuple[np.ndarray, ResultT]]]]:
                budget = self.budget
                if self.workers > 1:  # keep every worker busy
                    budget = min(budget, max(int(tokens.lengths.sum()) // self.workers, 1))
                batches = token_batches(tokens.lengths, budget, most, one_length=self.one_length)
                return [pool.submit(self._compute, rows, tokens, tokenizer, forward, keep) for rows in batches]

            try:
                # The next window is submitted before this one is collected, so there is no pause between them.
                for window, _ in pairwise(chain(map(submitted, ahead(tokenized)), [None])):
                    computed: list[tuple[np.ndarray, ResultT]] = []
                    for future in window or []:
                        computed += (batches := future.result())
                        if progress:
                            progress.add(sum(len(rows) for rows, _ in batches))
                    order = np.argsort(np.concatenate([rows for rows, _ in computed]))
                    yield [result for _, result in computed], order
            finally:
                pool.shutdown(cancel_futures=True)
                torch.set_num_threads(threads)  # threads that start later inherit this setting

    def _use_one_thread(self) -> None:
        if self.runtime.kind == "cpu" and self.workers > 1:
            torch.set_num_threads(1)

    def _compute(
        self, rows: np.ndarray, tokens: Tokens, tokenizer: Any, forward: Forward, keep: Keep[ResultT]
    ) -> list[tuple[np.ndarray, ResultT]]:
        """Compute a batch; split it in halves if memory runs out."""
        try:
            with torch.inference_mode():
                inputs = tokens.padded(rows, tokenizer)
                results = forward({name: self._to_device(value) for name, value in inputs.items()})
                return [(rows, keep(self._to_host(results)))]
        except torch.OutOfMemoryError:  # of a GPU
            if len(rows) == 1:
                raise
            # The traceback keeps the failed batch's tensors alive until this block ends.
        self._use_less(int(tokens.lengths[rows].max()) * len(rows))
        halves = (self._compute(half, tokens, tokenizer, forward, keep) for half in np.array_split(rows, 2))
        return [batch for half in halves for batch in half]

    def _use_less(self, tokens: int) -> None:
        """Halve the budget after a batch of ``tokens`` tokens ran out of memory, and log it once."""
        if self.budget == self.runtime.batch_tokens:
            warn(
                f"not enough memory for a batch of {tokens:,} tokens: continuing with half (batch_tokens sets the "
                "batch size)"
            )
        self.budget = min(self.budget, max(tokens // 2, 1))
        torch.cuda.empty_cache()

    def _to_device(self, value: Any) -> Any:
        if self.runtime.kind == "cpu" or not hasattr(value, "pin_memory"):
            return value
        return value.pin_memory().to(self.runtime.device, non_blocking=True)

    def _to_host(self, results: tuple[torch.Tensor, ...]) -> tuple[np.ndarray, ...]:
        """Copy results to the host. Only this thread waits; another sends the next batch to the GPU."""
        if self.runtime.kind == "cpu":
            return tuple(result.numpy() for result in results)
        copies = [torch.empty_like(result, device="cpu", pin_memory=True) for result in results]
        for copy, result in zip(copies, results, strict=True):
            copy.copy_(result, non_blocking=True)
        with torch.cuda.device(self.runtime.device):
            torch.cuda.current_stream().record_event().synchronize()
        return tuple(copy.numpy() for copy in copies)
