"""Work that runs ahead of, or behind, the thread that asks for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
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
    """Ends a consumer after the producer or another consumer failed."""


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


def behind(consumers: Sequence[Callable[[Iterator[Any]], ResultT]], items: Iterable[Sequence[Any]]) -> list[ResultT]:
    """Call each consumer in a thread of its own while this one produces the items, and return what they return.

    Each item is a sequence: the n-th consumer receives its n-th part. One part at most waits for each. An error of a
    consumer stops the producer and is raised here. If the producer fails, the consumers get an exception in place of
    the next part, and the producer's error is raised here.
    """
    queues: list[Queue[Any]] = [Queue(1) for _ in consumers]

    def received(queue: Queue[Any]) -> Iterator[Any]:
        while (part := queue.get()) is not _END:
            if part is _FAILED:
                raise _Stopped
            yield part

    def put(parts: Sequence[Any]) -> bool:
        taken = [_put(*where) for where in zip(queues, parts, results, strict=True)]  # each consumer gets its part
        return all(taken)

    with ThreadPoolExecutor(len(consumers), "behind") as pool:
        results = [pool.submit(consume, received(queue)) for consume, queue in zip(consumers, queues, strict=True)]
        last = _FAILED
        try:
            if all(map(put, items)):
                last = _END
        finally:
            put([last] * len(queues))
    errors = [error for result in results if (error := result.exception())]
    for error in errors:
        if not isinstance(error, _Stopped):
            raise error
    return [result.result() for result in results]


def _put(queue: Queue[Any], part: Any, result: Future[Any]) -> bool:
    """Put a part into a queue unless its consumer has ended, and return whether it was put."""
    while not result.done():
        with suppress(Full):
            queue.put(part, timeout=_PATIENCE)
            return True
    return False
