"""Work that runs ahead of, or behind, the thread that asks for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from queue import Full, Queue
from typing import Any, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
# What follows the last item: of a production that is complete, and of one that failed.
_END, _FAILED = object(), object()
# Seconds after which a thread that waits for a place in a full queue checks whether the other side still runs.
_PATIENCE = 0.1


class _Stopped(Exception):
    """Ends a consumer after the producer failed."""


def ahead(items: Iterable[ItemT], size: int) -> Iterator[ItemT]:
    """Yield items that another thread produces up to ``size`` items ahead.

    An error of the iterator is raised here, in place of the item that failed. If the caller closes the generator, the
    thread ends after its current item.
    """
    iterator: Iterator[Any] = iter(items)
    pool = ThreadPoolExecutor(1, "ahead")
    waiting: deque[Future[Any]] = deque(pool.submit(next, iterator, _END) for _ in range(size))
    try:
        while (item := waiting.popleft().result()) is not _END:
            waiting.append(pool.submit(next, iterator, _END))
            yield item
    finally:
        pool.shutdown(cancel_futures=True)


def behind(consume: Callable[[Iterator[ItemT]], ResultT], items: Iterable[ItemT]) -> ResultT:
    """Call a consumer in another thread while this one produces its items, and return what it returns.

    One item at most waits. An error of the consumer stops the producer and is raised here. If the producer fails, the
    consumer gets an exception in place of the next item, and the producer's error is raised here.
    """
    queue: Queue[Any] = Queue(1)

    def received() -> Iterator[Any]:
        while (item := queue.get()) is not _END:
            if item is _FAILED:
                raise _Stopped
            yield item

    with ThreadPoolExecutor(1, "behind") as pool:
        result = pool.submit(consume, received())
        last = _FAILED
        try:
            if all(_put(queue, item, result) for item in items):
                last = _END
        finally:
            _put(queue, last, result)
    return result.result()


def _put(queue: Queue[Any], item: Any, result: Future[Any]) -> bool:
    """Put an item into a queue unless its consumer has ended, and return whether it was put."""
    while not result.done():
        with suppress(Full):
            queue.put(item, timeout=_PATIENCE)
            return True
    return False
