"""Refuse inputs that do not belong together: what stands behind them, by their records, must be the same.

A record names the inputs of its job, with hashes. So the records lead from a run back to corpus, queries and model. Two
inputs of a command that reach the same kind of ancestor must reach the same one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from . import files, provenance
from .errors import DataError
from .provenance import SHARED, Origin

# The rows of a shard: the first, the last + 1, and how many the corpus has.
_ROWS = "documents"
# What must be the same behind some inputs. Another model may stand behind a run, and other data behind a model.
_RUN = ("corpus", "queries")
_BEHIND = {
    **dict.fromkeys(("run", "runs", "first_stage"), _RUN),
    "scores": (*_RUN, "run"),
    "dev_runs": ("corpus",),
    "exact_indexes": ("corpus", "checkpoint", "similarity", "chunks", _ROWS),
    **dict.fromkeys(("checkpoint", "checkpoints", "query_tower", "base", "teacher", "generator"), ()),
}
Inputs = Mapping[str, Path | Sequence[Path] | None]


class Fact(NamedTuple):
    """A fact about an artifact. If the value is a hash, ``path`` names the hashed file."""

    value: Any
    path: Path | None = None

    def __str__(self) -> str:
        """Format the fact for messages."""
        shown = json.dumps(self.value, ensure_ascii=False)
        return f"{self.path} (SHA-256 {str(self.value)[:8]}…)" if self.path else shown


class Ancestry:
    """What stands behind artifacts. Each record is read once."""

    def __init__(self) -> None:
        self.facts = cache(self._facts)
        self.recorded = cache(provenance.recorded)

    def _facts(self, option: str, path: Path) -> dict[str, Fact]:
        """Return the facts of an input, the nearest of each name: of its record, and of the records behind it.

        Raises:
            DataError: something behind the input was made again since, with another content.
        """
        recorded, own = self.recorded(path), dict[str, Fact]()
        if option in SHARED and (path.exists() or recorded.known_hashes):  # the stage itself reports a missing file
            own[option] = Fact(recorded.identity(whole=True)["sha256"], path)
        if recorded.place is None:
            return own
        with files.reading(recorded.place):
            stated = recorded.record.get("lineage", {})
            behind = {name: Fact(fact["value"]) for name, fact in stated.items() if "path" not in fact}
        for name in recorded.record.get("outputs", {}):  # the queries that qrels were fetched with
            if (kind := Path(name).stem) in SHARED and (file := recorded.place.parent / name).is_file():
                behind.setdefault(kind, Fact(self.recorded(file).identity(whole=True)["sha256"], file))
        for role, source, told in recorded.inputs:
            self._compare(source, told, path)
            if role in SHARED and told.get("sha256"):
                behind.setdefault(role, Fact(told["sha256"], source))
        for role, source, _ in recorded.inputs:
            behind = {**self.facts(role, source), **behind}
        counted = _BEHIND.get(option, behind)
        return {name: fact for name, fact in behind.items() if name in counted} | own

    def _compare(self, source: Path, told: Mapping[str, Any], path: Path) -> None:
        """Refuse an artifact if what it was made from is another one now. What is gone is not compared."""
        now = self.recorded(source).identity(whole="sha256" in told) if source.exists() else {}
        if any(now[key] != told[key] for key in now.keys() & told.keys()):
            raise DataError(f"{source} is another one than {path} was made from: run the grid again")


def refuse_changed(path: Path, ancestry: Ancestry | None = None) -> None:
    """Refuse an artifact if anything behind it is another one now. What is gone is not compared.

    Raises:
        DataError: an input was made again, or replaced, since the artifact was made.
    """
    (ancestry or Ancestry()).facts("", path)


def check(
    inputs: Inputs,
    asked: Mapping[str, Any] | None = None,
    made: Mapping[str, Any] | None = None,
    ancestry: Ancestry | None = None,
) -> Origin:
    """Refuse inputs that do not belong together, and return the origin of the command's output.

    Facts that a record lacks are not compared: your own files need no record, and older records lack some facts.

    Args:
        inputs: the artifacts by option, one or several.
        asked: facts that the inputs are required to have.
        made: facts that the command states about its output.
        ancestry: what is known of the artifacts already.

    Raises:
        DataError: two inputs differ in an ancestor or a fact, an input differs from ``asked``, an artifact behind them
            has changed, or shards are missing or out of order.
    """
    ancestry = ancestry or Ancestry()
    given = {option: [paths] if isinstance(paths, str | Path) else paths for option, paths in inputs.items() if paths}
    known: dict[str, tuple[Path, Fact]] = {}
    for option, paths in given.items():
        told = [ancestry.facts(option, Path(path)) for path in paths]
        for path, facts in zip(paths, told, strict=True):
            for name, fact in facts.items():
                holder, first = known.setdefault(name, (path, fact))
                if first.value != fact.value and name != _ROWS:
                    raise DataError(
                        f"{holder} and {path} do not belong together: the {name.replace('_', ' ')} of the first is "
                        f"{first}, of the second {fact}"
                    )
        if not isinstance(inputs[option], str | Path):
            _check_shards(paths, told)
    for name, value in (asked or {}).items():
        if name in known and (fact := known[name][1]).value != value:
            raise DataError(f"{known[name][0]} has the {name} {fact}, but the command asks for {Fact(value)}")
    return Origin({option: list(map(Path, paths)) for option, paths in given.items()}, made or {})


def _check_shards(paths: Sequence[Path], told: Sequence[Mapping[str, Fact]]) -> None:
    """Refuse shards that do not cover the corpus in order, if their records name their rows."""
    rows = [facts[_ROWS].value for facts in told if _ROWS in facts]
    ends = [0, *(stop for _, stop, _ in rows)]
    if len(rows) == len(told) and ([first for first, _, _ in rows] != ends[:-1] or ends[-1] != rows[-1][2]):
        documents = ", ".join(f"{first + 1:,} to {stop:,} of {total:,}" for first, stop, total in rows)
        raise DataError(
            f"{', '.join(map(str, paths))} are not all shards of a corpus, each once and in order: they have the "
            f"documents {documents}"
        )
