"""Progress of long work in the log: how much is done, how fast, and the time left."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from .errors import say

_OWN = re.compile(
    r".+: (?P<said>(?P<done>[\d,]+)(/(?P<total>[\d,]+))? (?P<unit>[^,]+)"
    r"(?P<rate>, [\d,.]+ (?P=unit)/s(, (?P<left>\d+:\d\d:\d\d) left)?)?)"
)
_BAR = re.compile(r".*\d%\|.*")  # as tqdm draws it: a library that opens a checkpoint, say


class Progress:
    """Log ``label: done/total unit, rate/s, time left`` at most once every ``interval`` seconds.

    Where the total is known, the first line says what begins, without a rate. Where it is not (None), there is no first
    line and no time left.
    """

    def __init__(self, label: str, total: int | None, unit: str, interval: float = 10.0) -> None:
        self.label, self.total, self.unit, self.interval = label, total, unit, interval
        self.done = 0
        self.started = self.shown = time.monotonic()
        if total:
            self._say()

    @property
    def rate(self) -> float:
        """Units per second since the start."""
        return self.done / max(time.monotonic() - self.started, 1e-9)

    def add(self, count: int) -> None:
        """Count ``count`` more units as done, and print a line if one is due."""
        self.done += count
        if time.monotonic() - self.shown >= self.interval or self.done == self.total:
            self.shown = time.monotonic()
            self._say()

    def _say(self) -> None:
        total = f"/{self.total:,}" if self.total else ""
        line = f"{self.label}: {self.done:,}{total} {self.unit}"
        if self.done:
            line += f", {self.rate:,.1f} {self.unit}/s"
            if self.total and self.done < self.total:
                line += f", {_clock((self.total - self.done) / self.rate)} left"
        say(line)


def is_bar(line: str) -> bool:
    """Tell whether a line of a log is a progress bar of a library, which says nothing about the stage's work."""
    return _BAR.fullmatch(line) is not None


class Shown(NamedTuple):
    """What a line of ``Progress`` shows.

    Attributes:
        said: the line without its label.
        share: what is done of the total, 0 to 1; None if there is no total.
        seconds_left: the time left; None if the line shows none.
    """

    said: str
    share: float | None
    seconds_left: float | None


def shown(line: str) -> Shown | None:
    """Return what a line of a log shows if ``Progress`` wrote it, else None."""
    found = _OWN.fullmatch(line)
    if found is None or (not found["rate"] and _number(found["done"])):
        return None
    share = _number(found["done"]) / max(_number(found["total"]), 1) if found["total"] else None
    left = None
    if found["left"]:
        hours, minutes, seconds = map(int, found["left"].split(":"))
        left = 3600.0 * hours + 60 * minutes + seconds
    return Shown(found["said"], share, left)


def _number(text: str) -> int:
    return int(text.replace(",", "") or 0)


def is_progress(line: str) -> bool:
    """Tell whether a line of a log says no more than how far the work is."""
    return is_bar(line) or shown(line) is not None


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
