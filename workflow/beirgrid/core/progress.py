"""Progress of long work on standard error: how much is done, how fast, and the time left."""

from __future__ import annotations

import re
import sys
import time

_OWN = re.compile(r".+: (0(/[\d,]+)? [^,]+|[\d,]+(/[\d,]+)? (.+), [\d,.]+ \4/s(, (?P<left>\d+:\d\d:\d\d) left)?)")
_BAR = re.compile(r".*\d%\|.*")  # as tqdm draws it: a library that opens a checkpoint, say


class Progress:
    """Print ``label: done/total unit, rate/s, time left`` at most once every ``interval`` seconds.

    Where the total is known, the first line says what begins, without a rate. Where it is not (None), there is no first
    line and no time left.
    """

    def __init__(self, label: str, total: int | None, unit: str, interval: float = 10.0) -> None:
        self.label, self.total, self.unit, self.interval = label, total, unit, interval
        self.done = 0
        self.started = self.shown = time.monotonic()
        if total:
            self._print()

    @property
    def rate(self) -> float:
        """Units per second since the start."""
        return self.done / max(time.monotonic() - self.started, 1e-9)

    def add(self, count: int) -> None:
        """Count ``count`` more units as done, and print a line if one is due."""
        self.done += count
        if time.monotonic() - self.shown >= self.interval or self.done == self.total:
            self.shown = time.monotonic()
            self._print()

    def _print(self) -> None:
        total = f"/{self.total:,}" if self.total else ""
        line = f"{self.label}: {self.done:,}{total} {self.unit}"
        if self.done:
            line += f", {self.rate:,.1f} {self.unit}/s"
            if self.total and self.done < self.total:
                line += f", {_clock((self.total - self.done) / self.rate)} left"
        print(line, file=sys.stderr, flush=True)


def is_bar(line: str) -> bool:
    """Tell whether a line of a log is a progress bar of a library, which says nothing about the stage's work."""
    return _BAR.fullmatch(line) is not None


def is_progress(line: str) -> bool:
    """Tell whether a line of a log says no more than how far the work is."""
    return is_bar(line) or _OWN.fullmatch(line) is not None


def seconds_left(line: str) -> float | None:
    """Return the time left that a line of ``Progress`` shows, or None if it shows none."""
    shown = _OWN.fullmatch(line)
    if shown is None or shown["left"] is None:
        return None
    hours, minutes, seconds = map(int, shown["left"].split(":"))
    return 3600.0 * hours + 60 * minutes + seconds


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
