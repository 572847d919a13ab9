"""Progress of long work on standard error: how much is done, how fast, and the time left."""

from __future__ import annotations

import re
import sys
import time

# A line of ``Progress``, or a progress bar of a library.
_LINE = re.compile(r".+: [\d,]+(/[\d,]+)? (.+), [\d,.]+ \2/s(, \d+:\d\d:\d\d left)?|.*\d%\|.*")


class Progress:
    """Print ``label: done/total unit, rate/s, time left`` at most once every ``interval`` seconds.

    Where the total is not known (None), the time left is not shown.
    """

    def __init__(self, label: str, total: int | None, unit: str, interval: float = 10.0) -> None:
        self.label, self.total, self.unit, self.interval = label, total, unit, interval
        self.done = 0
        self.started = self.shown = time.monotonic()

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
        line = f"{self.label}: {self.done:,}{total} {self.unit}, {self.rate:,.1f} {self.unit}/s"
        if self.total and self.done < self.total:
            line += f", {_clock((self.total - self.done) / max(self.rate, 1e-9))} left"
        print(line, file=sys.stderr, flush=True)


def is_progress(line: str) -> bool:
    """Tell whether a line of a log says no more than how far the work is."""
    return _LINE.fullmatch(line) is not None


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}"
