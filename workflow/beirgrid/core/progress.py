"""Progress lines in the log: units done, rate and time left."""

from __future__ import annotations

import re
import time
from typing import NamedTuple

from .errors import say

_OWN = re.compile(
    r".+: (?P<said>(?P<done>[\d,]+)(/(?P<total>[\d,]+))? (?P<unit>[^,]+)"
    r"(?P<rate>, [\d,.]+ (?P=unit)/s(, (?P<left>\d+:\d\d:\d\d) left)?)?)"
)
_BAR = re.compile(r".*\d%\|.*")  # a tqdm bar, for example of a library that opens a checkpoint


class Progress:
    """Log ``label: done/total unit, rate/s, time left`` at most once every ``interval`` seconds.

    With a total, the first line announces the work, without a rate. Without one (None), there is no first line and no
    time left.
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
        """Count ``count`` more units as done, and log a line if one is due."""
        self.done += count
        if time.monotonic() - self.shown >= self.interval or self.done == self.total:
            self.shown = time.monotonic()
            self._say()

    def _say(self) -> None:
        total = f"/{self.total:,}" if self.total else ""
        line = f"{self.label}: {self.done:,}{total} {self.unit}"
        if self.done:
            line += f", {self.rate:,.{1 if self.rate >= 1 else 3}f} {self.unit}/s"
            if self.total and self.done < self.total:
                line += f", {_clock((self.total - self.done) / self.rate)} left"
        say(line)


def is_bar(line: str) -> bool:
    """Tell whether a line of a log is a library's own progress bar, which does not measure the stage's work."""
    return _BAR.fullmatch(line) is not None


class Shown(NamedTuple):
    """The parsed content of a ``Progress`` line.

    Attributes:
        said: the line without its label.
        seconds_left: time left; None if the line has none.
    """

    said: str
    seconds_left: float | None


def shown(line: str) -> Shown | None:
    """Parse a line of a log that ``Progress`` wrote; None for any other line."""
    found = _OWN.fullmatch(line)
    if found is None or (not found["rate"] and found["done"] != "0"):
        return None
    left = None
    if found["left"]:
        hours, minutes, seconds = map(int, found["left"].split(":"))
        left = 3600.0 * hours + 60 * minutes + seconds
    return Shown(found["said"], left)


def is_progress(line: str) -> bool:
    """Tell whether a line of a log reports progress and nothing else."""
    return is_bar(line) or shown(line) is not None


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
