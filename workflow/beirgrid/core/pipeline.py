"""Work that runs ahead of, or behind, the thread that asks for it: a bounded queue between two threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from queue import Empty, Full, Queue
from typing import Generic, TypeVar

ItemT = TypeVar("ItemT")
ResultT = TypeVar("ResultT")
# Seconds after which a thread that waits for a full or empty queue looks whether the other side still runs.
_PATIENCE = 0.1


class _Stopped(Exception):
    """The other thread has ended, or has asked this one to end."""


class _Channel(Generic[ItemT]):
    """A bounded queue whose two sides learn of each other's end."""

    def __init__(self, size: int) -> None:
        self.queue: Queue[ItemT] = Queue(size)
        self.ended = threading.Event()  # no more items will come
        self.stopped = threading.Event()  # no more items are wanted

    def put(self, item: ItemT) -> None:
        """Add an item; wait while the queue is full. Raises _Stopped if the reader has ended."""
        while not self.stopped.is_set():
            try:
                return self.queue.put(item, timeout=_PATIENCE)
            except Full:
                continue
        raise _Stopped

    def items(self) -> Iterator[ItemT]:
        """Yield the items until the writer ends."""
        while True:
            ended = self.ended.is_set()  # before the look into the queue: what was added last is not missed
            try:
                yield self.queue.get(timeout=0 if ended else _PATIENCE)
            except Empty:
                if ended:
                    return


class _Worker(threading.Thread):
    """A thread whose error is raised in the thread that joins it."""

    def __init__(self, work: Callable[[], object], name: str, finished: threading.Event) -> None:
        super().__init__(name=name, daemon=True)
        self.work = work
        self.finished = finished  # set at the end of the work, whatever its outcome
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.work()
        except _Stopped:
            pass
        except BaseException as error:
            self.error = error
        finally:
            self.finished.set()

    def result(self) -> None:
        """Wait for the end of the work, and raise its error."""
        self.join()
        if self.error:
            raise self.error


def ahead(items: Iterable[ItemT], size: int) -> Iterator[ItemT]:
    """Yield items that another thread produces, at most ``size`` before they are asked for.

    Errors of the items' iterator are raised here, at the place where the item is missing. If the caller asks for no
    more items and closes the generator, the thread ends after the item that it works on.
    """
    channel: _Channel[ItemT] = _Channel(size)

    def produce() -> None:
        for item in items:
            channel.put(item)

    worker = _Worker(produce, "ahead", channel.ended)
    worker.start()
    try:
        yield from channel.items()
    finally:
        channel.stopped.set()
        worker.join()
    worker.result()


def behind(consume: Callable[[Iterator[ItemT]], ResultT], items: Iterable[ItemT], size: int) -> ResultT:
    """Return ``consume(items)``, called in another thread while this one produces the items.

    At most ``size`` items wait. An error of ``consume`` ends the production and is raised here. If the production
    fails, ``consume`` meets an exception in place of the next item, and the error of the production is raised.
    """
    channel: _Channel[ItemT] = _Channel(size)
    failed = threading.Event()
    results: list[ResultT] = []

    def received() -> Iterator[ItemT]:
        yield from channel.items()
        if failed.is_set():
            raise _Stopped

    worker = _Worker(lambda: results.append(consume(received())), "behind", channel.stopped)
    worker.start()
    try:
        for item in items:
            channel.put(item)
    except _Stopped:
        pass
    except BaseException:
        failed.set()
        raise
    finally:
        channel.ended.set()
        worker.join()
    worker.result()
    return results[0]
