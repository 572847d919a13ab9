"""Published values, and the verdict on our values beside them."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ..collections import ids
from ..config.metric_names import metric_key, parse_metric
from ..core.errors import ConfigError, nearest, quoted

COLUMNS = ["system", "dataset", "metric", "value", "class", "source", "note", "protocol"]
# What a file may have after these: what the value was measured on, as far as its source says so.
MEASURED_ON = ["checkpoint", "revision", "mteb", "dataset_revision"]
# The verdict beside a published value that cannot be compared with ours.
OTHER_PROTOCOL = "other protocol"
# The verdict instead of "deviates" where the published value was measured on another commit than ours.
OTHER_COMMIT = "another commit"
# Stands in place of a verdict where the score itself is a published value.
SCORE_IS_PUBLISHED = "published"
# The fewest digits of an abbreviated commit that identify it.
_DIGITS = 7


class Published(NamedTuple):
    """One published value.

    Attributes:
        system: the system, or the hub's name of a model that is not registered.
        dataset: the dataset.
        metric: the metric, name@k.
        value: the value.
        tolerance_class: the class of tolerance that the value is held to.
        source: where the value was published.
        note: what a reader should know of it.
        protocol: why the value follows another protocol than beirgrid's, so that it is shown and not judged; empty for
            a value that is judged.
        checkpoint: the hub's name of the model that was measured; empty where it is the registered one.
        revision: the commit of the model, which may be abbreviated; empty where the source names none.
        mteb: the version of mteb that measured the value; empty where none did.
        dataset_revision: the commit of the dataset on the hub, as ``revision``.
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
        """The checkpoint and the commit that were measured, as far as the source names them."""
        return "@".join(filter(None, (self.checkpoint, self.revision)))

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


def check(files: Collection[Path], tolerances: dict[str, float], shown: Iterable[str] = ()) -> None:
    """Refuse published values that cannot be read, a misspelt class of tolerances, and unknown files to show."""
    names = [path.stem for path in files]
    for name in shown:
        if name not in names:
            raise ConfigError(
                f"grid.show.published: there is no file config/published/{name}.csv{nearest(name, names)}"
            )
    used = {value.tolerance_class for value in read(files, tolerances)}
    for name in tolerances:
        if name not in used and (hint := nearest(name, used)):
            raise ConfigError(f"tolerances.{name}: no published value has this class{hint}")


def _values(path: Path, rows: csv.DictReader[str], tolerances: dict[str, float]) -> Iterator[Published]:
    names = list(rows.fieldnames or ())
    if names[: len(COLUMNS)] != COLUMNS or names != [*COLUMNS, *(name for name in MEASURED_ON if name in names)]:
        raise ConfigError(
            f"{path}: the columns should be {','.join(COLUMNS)}, and after these any of {','.join(MEASURED_ON)}"
        )
    lines: dict[tuple[str, ...], int] = {}
    for row in rows:
        where = f"{path}:{rows.line_num}"
        if None in row or None in row.values():
            raise ConfigError(f"{where}: the line should have {len(names)} values (quote those with a comma)")
        if row["system"].startswith(ids.MARK):
            raise ConfigError(f"{where}: a byte order mark begins the line: was a file appended? Remove it")
        parse_metric(row["metric"])
        row["metric"] = metric_key(row["metric"])
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


def same_commit(value: Published, checkpoints: Mapping[str, str]) -> bool | None:
    """Tell whether a value was measured on the checkpoints that we measured; None where the value does not say.

    Args:
        value: the published value.
        checkpoints: commits of our checkpoints, by their names on the hub.
    """
    if value.checkpoint and value.checkpoint not in checkpoints:
        return False if checkpoints else None
    ours = [checkpoints[value.checkpoint]] if value.checkpoint else list(checkpoints.values())
    if len(value.revision) < _DIGITS or not all(ours) or not ours:
        return None
    return any(commit.startswith(value.revision) or value.revision.startswith(commit) for commit in ours)


def grade(value: float, published: float, tolerance: float, *, same_commit: bool | None = None) -> str:
    """Return ``reproduced``, ``close`` (within twice the tolerance) or ``deviates``, on either side.

    Two commits of a model are two models: what would deviate is ``another commit`` if ``same_commit`` is false.

    Better than published by more than the tolerance is a deviation too: it can hide leakage.
    """
    difference = abs(value - published)
    slack = 1e-9  # so that a difference of exactly the tolerance counts as within it
    if difference <= tolerance + slack:
        return "reproduced"
    if difference <= 2 * tolerance + slack:
        return "close"
    return OTHER_COMMIT if same_commit is False else "deviates"
