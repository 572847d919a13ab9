"""Progress lines in the log: units done, rate and time left."""

from __future__ import annotations

import time
from datetime import timedelta

from .errors import say

# Start of each line, by which ``status`` knows it.
PREFIX = "progress: "


class Progress:
    """Log ``progress: label: done/total unit, rate/s, time left`` at most once every ``interval`` seconds.

    With a total, the first line announces the work, without a rate. Without one (None), no time left is known.
    """

    def __init__(self, label: str, total: int | None, unit: str, interval: float = 10.0) -> None:
        self.label = label
        self.total = total
        self.unit = unit
        self.interval = interval
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
        line = f"{self.label}: {self.done:,}{f'/{self.total:,}' if self.total else ''} {self.unit}"
        if self.done:
            line += f", {self.rate:,.2f} {self.unit}/s"
            if self.total and self.done < self.total:
                line += f", {timedelta(seconds=round((self.total - self.done) / self.rate))} left"
        say(PREFIX + line)
