"""Work in a second thread: order, back-pressure, errors."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest

from beirgrid.encoders.engine import ahead


class Counted:
    """Numbers from 0, and how many were taken so far."""

    def __init__(self, stop: int, fail_at: int = -1) -> None:
        self.taken, self.stop, self.fail_at = 0, stop, fail_at

    def __iter__(self) -> Iterator[int]:
        while self.taken < self.stop:
            if self.taken == self.fail_at:
                raise ValueError("unreadable")
            self.taken += 1
            yield self.taken - 1


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_items_come_in_order_and_only_so_far_ahead():
    items = Counted(1000)
    found = []
    for item in ahead(items):
        found.append(item)
        if item == 10:
            time.sleep(0.05)
            assert items.taken <= item + 2
    assert found == list(range(1000))
    assert not _threads()


def test_an_error_ahead_is_raised_where_the_item_is_missing():
    found = []
    with pytest.raises(ValueError, match="unreadable"):
        found.extend(ahead(Counted(9, fail_at=4)))
    assert found == [0, 1, 2, 3]
    assert not _threads()


def test_whoever_stops_asking_ends_the_thread_ahead():
    items = Counted(10**9)
    generator = ahead(items)
    assert [next(generator), next(generator)] == [0, 1]
    generator.close()
    taken = items.taken
    time.sleep(0.05)
    assert items.taken == taken <= 3
    assert not _threads()
