"""Refuse inputs that do not belong together: what stands behind them, by their records, must be the same.

A record names the inputs of its job, with hashes. So the records lead from a run back to corpus, queries and model. Two
inputs of a command that reach the same kind of ancestor must reach the same one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

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
    **dict.fromkeys(("checkpoint", "checkpoints", "query_tower", "base", "teacher", "generator"), ()),
}


class Ancestry:
    """What stands behind artifacts. Each record, and each file without a recorded hash, is read once."""

    def __init__(self) -> None:
        self.facts = cache(self._facts)
        self.record_of = cache(provenance.record_of)
        self.identity = cache(lambda path: self.record_of(path).identity)

    def _facts(self, option: str, path: Path) -> dict[str, Any]:
        """Return the facts of an input, the nearest of each name: of its record, and of the records behind it.

        Facts about ancestors are hashes.

        Raises:
            DataError: something behind the input was made again since, with another content.
        """
        known = self.record_of(path)
        behind = {role: told["sha256"] for role, _, told in known.inputs if role in SHARED and "sha256" in told}
        behind |= {name: fact["value"] for name, fact in known.record.get("lineage", {}).items()}
        for name in known.record.get("outputs", {}):  # the queries that qrels were fetched with
            if (kind := Path(name).stem) in SHARED and (file := path.parent / name).is_file():
                behind[kind] = self.identity(file)["sha256"]
        for role, source, told in known.inputs:
            if source.exists():
                now = self.identity(source) if "sha256" in told else {"bytes": files.size(source)}
                if now != told:
                    raise DataError(f"{source} is another one than {path} was made from: run the grid again")
            behind = {**self.facts(role, source), **behind}
        facts = {name: fact for name, fact in behind.items() if name in _BEHIND.get(option, behind)}
        if option in SHARED and (path.exists() or known.outputs):  # the stage itself reports a missing file
            facts[option] = self.identity(path)["sha256"]
        return facts


def check(
    inputs: Mapping[str, Path | Sequence[Path] | None],
    asked: Mapping[str, Any] | None = None,
    made: Mapping[str, Any] | None = None,
    ancestry: Ancestry | None = None,
) -> Origin:
    """Refuse inputs that do not belong together, and return the origin of the command's output.

    Facts that a record lacks are not compared, nor files that are gone. Your own files need no record.

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
    known: dict[str, tuple[Path, Any]] = {}
    for option, paths in given.items():
        told = [ancestry.facts(option, Path(path)) for path in paths]
        for path, facts in zip(paths, told, strict=True):
            for name, fact in facts.items():
                holder, first = known.setdefault(name, (path, fact))
                if first != fact and name != _ROWS:
                    raise DataError(
                        f"{holder} and {path} do not belong together: the {name.replace('_', ' ')} of the first is "
                        f"{json.dumps(first)}, of the second {json.dumps(fact)}"
                    )
        if not isinstance(inputs[option], str | Path):
            _check_shards(paths, [facts[_ROWS] for facts in told if _ROWS in facts])
    for name, value in (asked or {}).items():
        if name in known and (fact := known[name][1]) != value:
            raise DataError(
                f"{known[name][0]} has the {name} {json.dumps(fact)}, but the command asks for {json.dumps(value)}"
            )
    return Origin({option: list(map(Path, paths)) for option, paths in given.items()}, made or {})


def _check_shards(paths: Sequence[Path], rows: Sequence[Sequence[int]]) -> None:
    """Refuse shards that do not cover the corpus in order, if their records name their rows."""
    ends = [0, *(stop for _, stop, _ in rows)]
    if len(rows) == len(paths) and ([first for first, _, _ in rows] != ends[:-1] or ends[-1] != rows[-1][2]):
        documents = ", ".join(f"{first + 1:,} to {stop:,} of {total:,}" for first, stop, total in rows)
        raise DataError(
            f"{', '.join(map(str, paths))} are not all shards of a corpus, each once and in order: they have the "
            f"documents {documents}"
        )
