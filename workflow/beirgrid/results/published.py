"""Read published values, and judge our values against them."""

from __future__ import annotations

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple, TextIO

from ..config.metric_names import metric_key, parse_metric
from ..config.names import local_name
from ..core.errors import ConfigError, nearest, quoted

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
        tolerance_class: the tolerance class of the value.
        source: where the value was published.
        protocol: how the value's protocol differs from beirgrid's. Such a value is shown but not judged; empty for
            judged values.
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


def read(files: Iterable[Path], tolerances: dict[str, float]) -> Iterator[Published]:
    """Read the values of published/*.csv; an invalid line is an error naming file and line."""
    for path in files:
        try:
            with path.open(encoding="utf-8-sig", newline="") as stream:
                yield from _values(path, stream, tolerances)
        except (UnicodeDecodeError, csv.Error) as error:
            raise ConfigError(f"{path} is not a CSV file ({error})") from None


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


def _values(path: Path, stream: TextIO, tolerances: dict[str, float]) -> Iterator[Published]:
    rows = csv.reader(stream, strict=True)
    names = next(rows, [])
    if names[: len(COLUMNS)] != COLUMNS or names != [*COLUMNS, *(name for name in MEASURED_ON if name in names)]:
        raise ConfigError(
            f"{path}: the columns must be {','.join(COLUMNS)}, followed by any of {','.join(MEASURED_ON)}"
        )
    known = len(COLUMNS)
    lines: dict[tuple[str, ...], int] = {}
    for row in filter(None, rows):
        if len(row) != len(names):
            raise ConfigError(
                f"{path}:{rows.line_num}: the line must have {len(names)} values (quote those with a comma)"
            )
        if any("\n" in value for value in row):  # the rows up to the next quote would be lost
            raise ConfigError(f"{path}:{rows.line_num}: a line break within a value. Does it begin with a quote?")
        system, dataset, metric, text, tolerance_class, source, *notes = row[:known]
        if problem := _problem(text, tolerance_class, tolerances):
            raise ConfigError(f"{path}:{rows.line_num}: {problem}")
        parse_metric(metric)
        metric = metric_key(metric)
        first = lines.setdefault((system, dataset, metric, source), rows.line_num)
        if first != rows.line_num:
            raise ConfigError(f"{path}:{rows.line_num}: line {first} has a value from the same source")
        measured = dict(zip(names[known:], row[known:], strict=True))
        yield Published(system, dataset, metric, float(text), tolerance_class, source, *notes, **measured)


def _problem(text: str, tolerance_class: str, tolerances: Mapping[str, float]) -> str:
    """Return what is wrong with a line, or an empty text."""
    if tolerance_class not in tolerances:
        return f"no tolerance class {tolerance_class!r}{nearest(tolerance_class, tolerances)} (config: tolerances)"
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    return "" if math.isfinite(value) else f"the value {quoted(text)} is not a number"


def same_commit(value: Published, checkpoints: Mapping[str, str]) -> bool | None:
    """Tell whether a value was measured on our checkpoints' commits; None if it does not name a commit.

    Args:
        checkpoints: commits of our checkpoints, by hub name.
    """
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
    difference = abs(value - published)
    slack = 1e-9  # a difference of exactly the tolerance counts as within it
    if difference <= tolerance + slack:
        return "reproduced"
    if difference <= 2 * tolerance + slack:
        return "close"
    return OTHER_COMMIT if same_commit is False else "deviates"
