"""Work that runs ahead of the thread that asks for it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

ItemT = TypeVar("ItemT")
# What follows the last item.
_END = object()


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
