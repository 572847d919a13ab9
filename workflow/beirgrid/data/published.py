"""Published values, and the verdict on our values beside them."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from ..config.metrics import parse_metric
from ..core.errors import ConfigError, nearest, quoted

COLUMNS = ["system", "dataset", "metric", "value", "class", "source", "note", "protocol"]
# The verdict beside a published value that cannot be compared with ours.
OTHER_PROTOCOL = "other protocol"


class Published(NamedTuple):
    """One published value, with the tolerance class that it is held to.

    ``protocol`` says why the value follows another protocol than beirgrid's, so that it is shown and not judged.
    It is empty for the values that are judged.
    """

    system: str
    dataset: str
    metric: str
    value: float
    tolerance_class: str
    source: str
    note: str
    protocol: str = ""

    @property
    def recorded(self) -> bool:
        """Whether the value is this project's own record, which tells whether a machine repeats it."""
        return self.source.startswith("beirgrid ")


def read(files: Iterable[Path], tolerances: dict[str, float]) -> Iterator[Published]:
    """Yield the values of published/*.csv; a line that cannot be read is an error naming file and line."""
    for path in files:
        try:
            with path.open(encoding="utf-8-sig", newline="") as stream:
                yield from _values(path, csv.DictReader(stream), tolerances)
        except (UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(f"{path} is no CSV file ({error})") from None


def check(files: Iterable[Path], tolerances: dict[str, float]) -> None:
    """Refuse published values that cannot be read, and a tolerance of a class that looks misspelt."""
    used = {value.tolerance_class for value in read(files, tolerances)}
    for name in tolerances:
        if name not in used and (hint := nearest(name, used)):
            raise ConfigError(f"tolerances.{name}: no published value has this class{hint}")


def _values(path: Path, rows: csv.DictReader[str], tolerances: dict[str, float]) -> Iterator[Published]:
    if rows.fieldnames != COLUMNS:
        raise ConfigError(f"{path}: the columns should be {','.join(COLUMNS)}")
    lines: dict[tuple[str, ...], int] = {}
    for row in rows:
        where = f"{path}:{rows.line_num}"
        if None in row or None in row.values():
            raise ConfigError(f"{where}: the line should have {len(COLUMNS)} values (quote those with a comma)")
        parse_metric(row["metric"])
        tolerance_class, text = row.pop("class"), row.pop("value")
        if tolerance_class not in tolerances:
            hint = nearest(tolerance_class, tolerances)
            raise ConfigError(f"{where}: no tolerance class {tolerance_class!r}{hint} (config: tolerances)")
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise ConfigError(f"{where}: the value {quoted(text)} is not a number")
        first = lines.setdefault(tuple(row[key] for key in ("system", "dataset", "metric", "source")), rows.line_num)
        if first != rows.line_num:
            raise ConfigError(f"{where}: line {first} has a value of the same source")
        yield Published(value=value, tolerance_class=tolerance_class, **row)


def grade(value: float, published: float, tolerance: float) -> str:
    """Return ``reproduced``, ``close`` (within twice the tolerance) or ``deviates``, on either side.

    Better than published by more than the tolerance is a deviation too: it can hide leakage.
    """
    difference = abs(value - published)
    slack = 1e-9  # so that a difference of exactly the tolerance counts as within it
    if difference <= tolerance + slack:
        return "reproduced"
    return "close" if difference <= 2 * tolerance + slack else "deviates"
