"""Read published values, and judge our values against them."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

from ..config import entries
from ..config.checks import models_behind, with_parts
from ..config.entries import TOLERANCES, Config
from ..config.load import load, with_defaults
from ..config.names import local_name
from ..core.errors import ConfigError, nearest, quoted
from ..measures import metric_key

COLUMNS = ["system", "dataset", "metric", "value", "class", "source", "note", "protocol"]
# Optional further columns: what the value was measured on, if its source says so.
MEASURED_ON = ["checkpoint", "revision", "mteb", "dataset_revision", "first_stage", "depth"]
# Keys of a model's entry that do not tell what it is.
_BESIDE = {"revision", "path", "package", "files", "pickled", "precision", "size", "licence", "source", "note"}
_BESIDE |= {"trained_on", "declined"}
# Class of a value of a checkpoint.
CHECKPOINT = "checkpoint"
# Classes that follow from it: for our commit, and for a mean of several datasets.
COMMIT = "commit"
MEAN = "mean"
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
        first_stage: of a reranked system, what chose the documents: a registered system, or a model's name on the hub.
        depth: the number of documents that the checkpoint then reordered.
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
    first_stage: str = ""
    depth: str = ""

    @property
    def measured_on(self) -> str:
        """The measured checkpoint and commit, if the source names them."""
        return "@".join(filter(None, (self.checkpoint, self.revision)))

    def by_name(self) -> dict[str, Published]:
        """Return the value by the local name of each system that it is a value of, as ``names_of`` gives them.

        A model named by its hub id runs as its authors say, so the protocol of a registered entry is not its own.
        """
        also = {}
        if self.first_stage:
            also = {f"{self.first_stage}+{self.checkpoint}@{self.depth}": self}
        elif self.checkpoint:
            also = {self.checkpoint: self._replace(protocol="")}
        return {local_name(name): value for name, value in (also | {self.system: self}).items()}

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
        if problem := next(_problems(row, len(names), tolerances), ""):
            raise ConfigError(f"{line}: {problem}")
        value = float(row.pop("value"))
        tolerance_class = row.pop("class")
        row["metric"] = metric_key(row["metric"])
        first = lines.setdefault(tuple(row[name] for name in ("system", "dataset", "metric", "source")), rows.line_num)
        if first != rows.line_num:
            raise ConfigError(f"{line}: line {first} has a value from the same source")
        yield Published(value=value, tolerance_class=tolerance_class, **row)


def _problems(row: Mapping[str | None, Any], width: int, tolerances: Mapping[str, float]) -> Iterator[str]:
    """Yield why a row of so many columns is no published value."""
    if None in row or None in row.values():
        yield f"the line must have {width} values (quote those with a comma)"
    if any("\n" in value for value in row.values()):  # the rows up to the next quote would be lost
        yield "a line break within a value. Does it begin with a quote?"
    if row["class"] not in tolerances:
        hint = nearest(row["class"], tolerances)
        yield f"no tolerance class {row['class']!r}{hint} (config: tolerances)"
    if not math.isfinite(_number(row["value"])):
        yield f"the value {quoted(row['value'])} is not a number"
    if bool(row.get("first_stage")) != bool(row.get("depth")) or (row.get("depth") and not row["checkpoint"]):
        yield "first_stage, checkpoint and depth go together: they are a reranked system"


def _number(text: str) -> float:
    with suppress(ValueError):
        return float(text)
    return math.nan


def names_of(config: Config, system: str) -> tuple[str, ...]:
    """Return the local names under which published values have a system, by what it is and not by its own name.

    They are ``first-stage+checkpoint@depth``, or the checkpoint of a model that retrieves alone (``owner__name``, with
    ``@sparse`` or ``@tokens`` of a head), and the registered systems with the same keys and models. Nothing else tells
    what a fusion or a run of other software is, so these have their own names, unless a registered system has them.
    """
    entry = config.systems[system]
    registered = _registered()
    names = list[str]()
    if isinstance(entry, entries.Reranked) and not (entry.head or entry.chunks):
        checkpoint = config.models[entry.reranker].checkpoint
        depth = entry.depth or min(100, config.retrieve.depth)
        names = [f"{first}+{checkpoint}@{depth}" for first in names_of(config, entry.first_stage)]
    elif isinstance(entry, entries.Retriever) and not (getattr(entry, "variant", "") or getattr(entry, "chunks", None)):
        model = config.models[entry.retriever]
        if model.checkpoint and not (model.adapter or getattr(model, "chunks", None)):
            names = [f"{model.checkpoint}@{entry.head}" if entry.head else model.checkpoint]
    elif isinstance(entry, entries.Fused | entries.Adopted) and system not in {*chain(*registered.values())}:
        names = [system]
    return tuple(map(local_name, [*names, *registered.get(_description(config, system), ())]))


def of_systems(values: Iterable[Published], names: Mapping[str, Iterable[str]]) -> Iterator[tuple[str, Published]]:
    """Yield each value with each system that it is a value of, by the names of the systems. Their last name counts."""
    systems = [(name, system) for system, known in names.items() for name in known]
    for named in map(Published.by_name, values):
        yield from {system: named[name] for name, system in systems if name in named}.items()


def _description(config: Config, system: str) -> str:
    """Return the keys of a system and of the systems and models behind it, as JSON."""
    keys = [config.systems[part].model_dump(mode="json") for part in with_parts(config.systems, [system])]
    models = {name: config.models[name] for name in models_behind(config, [system])}
    return json.dumps([keys, {name: model.model_dump(mode="json", exclude=_BESIDE) for name, model in models.items()}])


@cache
def _registered() -> Mapping[str, list[str]]:
    """Return the names of the systems that come with beirgrid, by their descriptions."""
    config = load(with_defaults({}))
    names = dict[str, list[str]]()
    for system in config.systems:
        names.setdefault(_description(config, system), []).append(system)
    return names


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
