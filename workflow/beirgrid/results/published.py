"""Read published values, and judge our values against them."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from ..config.entries import TOLERANCES
from ..config.names import local_name
from ..core.errors import ConfigError, nearest, quoted
from ..measures import metric_key

COLUMNS = ["system", "dataset", "metric", "value", "class", "source", "note", "protocol"]
# Optional further columns: what the value was measured on, if its source says so.
MEASURED_ON = ["checkpoint", "revision", "mteb", "dataset_revision"]
# Classes of values of checkpoints: that of a line, and those that follow from our commit and from several datasets.
CHECKPOINT, COMMIT, MEAN = "checkpoint", "commit", "mean"
# Minimum datasets of a mean difference.
DATASETS = 5
# Verdict for a published value that is not comparable with ours.
OTHER_PROTOCOL = "other protocol"
# Verdict instead of "deviates" if the published value was measured on another commit.
OTHER_COMMIT = "another commit"
# Stands in place of a verdict where the score itself is a published value.
SCORE_IS_PUBLISHED = "published"
# Minimum digits of an abbreviated commit.
_DIGITS = 7


class Published(NamedTuple):
    """One published value.

    Attributes:
        system: the system, or the hub's name of a model that is not registered.
        protocol: how the value's protocol differs from beirgrid's, so that it is shown but not judged.
        checkpoint: the hub name of the measured model; empty for the registered one.
        revision: the commit of the model, possibly abbreviated; empty if the source names none.
        mteb: the version of mteb that measured the value, if any.
        dataset_revision: the commit of the dataset on the hub, like ``revision``.
    """

    system: str
    dataset: str
    metric: str
    value: float
    tolerance_class: str
    source: str
    note: str
    protocol: str = ""
    checkpoint: str = ""
    revision: str = ""
    mteb: str = ""
    dataset_revision: str = ""

    @property
    def measured_on(self) -> str:
        """The measured checkpoint and commit, if the source names them."""
        return "@".join(filter(None, (self.checkpoint, self.revision)))

    def by_name(self) -> dict[str, Published]:
        """Return the value by the local name of each system that it is a value of.

        A model named by its hub id runs as its authors say, so the protocol of a registered entry is not its own.
        """
        on_the_hub = {local_name(self.checkpoint): self._replace(protocol="")} if self.checkpoint else {}
        return on_the_hub | {local_name(self.system): self}

    @property
    def recorded(self) -> bool:
        """Whether the value is this project's own, recorded to check that other machines reproduce it."""
        return self.source.startswith("beirgrid ")


def read(files: Iterable[Path], tolerances: Mapping[str, float]) -> Iterator[Published]:
    """Read the values of published/*.csv; an invalid line is an error naming file and line."""
    for path in files:
        try:
            with path.open(encoding="utf-8-sig", newline="") as stream:
                yield from _values(path, csv.DictReader(stream, strict=True), tolerances)
        except (UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(f"{path} is not a CSV file ({error})") from None


def check(files: Collection[Path], tolerances: dict[str, float], shown: Iterable[str] = ()) -> None:
    """Refuse published values that cannot be read, an unknown class of tolerances, and unknown files to show."""
    names = [path.stem for path in files]
    for name in shown:
        if name not in names:
            raise ConfigError(
                f"grid.show.published: there is no file config/published/{name}.csv{nearest(name, names)}"
            )
    used = {value.tolerance_class for value in read(files, tolerances)}
    for name in tolerances.keys() - used - TOLERANCES.keys():
        raise ConfigError(f"tolerances.{name}: no published value has this class{nearest(name, used)}")


def _values(path: Path, rows: csv.DictReader[str], tolerances: Mapping[str, float]) -> Iterator[Published]:
    names = list(rows.fieldnames or ())
    if names != [*COLUMNS, *(name for name in MEASURED_ON if name in names)]:
        raise ConfigError(
            f"{path}: the columns must be {','.join(COLUMNS)}, followed by any of {','.join(MEASURED_ON)}"
        )
    lines: dict[tuple[str, ...], int] = {}
    for row in rows:
        line = f"{path}:{rows.line_num}"
        if None in row or None in row.values():
            raise ConfigError(f"{line}: the line must have {len(names)} values (quote those with a comma)")
        if any("\n" in value for value in row.values()):  # the rows up to the next quote would be lost
            raise ConfigError(f"{line}: a line break within a value. Does it begin with a quote?")
        tolerance_class, text, row["metric"] = row.pop("class"), row.pop("value"), metric_key(row["metric"])
        if tolerance_class not in tolerances:
            hint = nearest(tolerance_class, tolerances)
            raise ConfigError(f"{line}: no tolerance class {tolerance_class!r}{hint} (config: tolerances)")
        if not math.isfinite(value := _number(text)):
            raise ConfigError(f"{line}: the value {quoted(text)} is not a number")
        first = lines.setdefault(tuple(row[name] for name in ("system", "dataset", "metric", "source")), rows.line_num)
        if first != rows.line_num:
            raise ConfigError(f"{line}: line {first} has a value from the same source")
        yield Published(value=value, tolerance_class=tolerance_class, **row)


def _number(text: str) -> float:
    with suppress(ValueError):
        return float(text)
    return math.nan


def same_commit(value: Published, checkpoints: Mapping[str, str]) -> bool | None:
    """Tell whether a value was measured on our commits, by checkpoint; None if it does not name a commit."""
    if value.checkpoint and value.checkpoint not in checkpoints:
        return False if checkpoints else None
    ours = [checkpoints[value.checkpoint]] if value.checkpoint else list(checkpoints.values())
    if len(value.revision) < _DIGITS or not all(ours) or not ours:
        return None
    return any(commit.startswith(value.revision) or value.revision.startswith(commit) for commit in ours)


def grade(value: float, published: float, tolerance: float | None, *, same_commit: bool | None = None) -> str:
    """Return ``reproduced``, ``close`` (within twice the tolerance) or ``deviates``, whether above or below.

    A score above the published value deviates too, because leakage can cause it. If ``same_commit`` is false, the
    verdict is ``another commit`` instead of ``deviates``. A value of another protocol has no tolerance.
    """
    if tolerance is None:
        return OTHER_PROTOCOL
    for verdict, times in (("reproduced", 1), ("close", 2)):
        if abs(value - published) <= times * tolerance + 1e-9:  # a difference of exactly the tolerance is within it
            return verdict
    return OTHER_COMMIT if same_commit is False else "deviates"
