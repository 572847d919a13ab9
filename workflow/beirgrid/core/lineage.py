"""Track what each artifact was made from, and refuse inputs that do not belong together.

A stage passes its inputs to ``check``. The record of an input names the corpus, model or queries behind it. The inputs
of one command must agree on them. The record of the output inherits these facts.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from . import files
from .errors import DataError

# Facts that an artifact inherits from its inputs.
_INHERITED = ("corpus", "model", "similarity", "chunks", "documents", "queries", "training queries")
_VECTORS = ("corpus", "model", "similarity", "chunks")
_RUN = ("corpus", "queries")
# By option: the facts that its inputs must share with all other inputs of the command.
_SHARED: dict[str, tuple[str, ...]] = {
    "corpus": ("corpus", "source"),
    "checkpoint": ("model",),
    "queries": _RUN,
    "qrels": _RUN,
    "training_queries": ("corpus", "training queries"),
    "negatives": ("corpus", "training queries"),
    "vectors": (*_VECTORS, "documents"),
    "exact": (*_VECTORS, "documents"),
    "exact_indexes": _VECTORS,
    "tokens": _VECTORS,
    "expansions": _VECTORS,
    "indexes": (*_VECTORS, "index", "dimensions"),
    "lucene": ("corpus", "fields", "language", "expanded"),
    "program": ("corpus",),
    "run": _RUN,
    "runs": _RUN,
    "dev_runs": ("corpus",),
    "first_stage": _RUN,
    "scores": _RUN,
}
# Options whose input is itself the subject of a fact. The fact's value is then the input's hash.
_ROOTS = {"corpus": "corpus", "checkpoint": "model", "queries": "queries", "training_queries": "training queries"}
# Options that take all shards of a corpus, in order.
_SHARDS = ("indexes", "exact_indexes", "tokens", "expansions")

Inputs = Mapping[str, Path | Sequence[Path] | None]


class Fact(NamedTuple):
    """A fact about an artifact. If the value is a hash, ``path`` names the hashed file."""

    value: Any
    path: Path | None = None

    def __str__(self) -> str:
        """Format the fact for messages."""
        shown = json.dumps(self.value, ensure_ascii=False)
        return f"{self.path} (SHA-256 {str(self.value)[:8]}…)" if self.path else shown


@dataclass
class Origin:
    """The inputs of a command by option, and the facts of its output."""

    inputs: dict[str, list[Path]]
    facts: dict[str, Fact]

    def as_json(self, folder: Path) -> dict[str, Any]:
        """Return the origin as keys of a record, with paths relative to the record's folder."""
        return {
            "inputs": {
                option: [{"path": os.path.relpath(path, folder), **describe(path)} for path in paths]
                for option, paths in self.inputs.items()
            },
            "lineage": {
                name: {"value": fact.value} | ({"path": os.path.relpath(fact.path, folder)} if fact.path else {})
                for name, fact in self.facts.items()
            },
        }


def check(inputs: Inputs, asked: Mapping[str, Any] | None = None, made: Mapping[str, Any] | None = None) -> Origin:
    """Refuse inputs that do not belong together, and return the origin of the command's output.

    Facts that a record lacks are not compared: your own files need no record, and older records lack some facts.

    Args:
        inputs: the artifacts by option, one or several.
        asked: facts that the inputs are required to have.
        made: facts that the command adds to those of its inputs.

    Raises:
        DataError: two inputs differ in a fact, an input differs from ``asked``, or shards are missing or out of order.
    """
    listed = {option: [paths] if isinstance(paths, str | Path) else paths for option, paths in inputs.items() if paths}
    given = {option: list(map(Path, paths)) for option, paths in listed.items()}
    known: dict[str, tuple[Path, Fact]] = {}
    for option, paths in given.items():
        told = [_facts(option, path) for path in paths]
        for path, facts in zip(paths, told, strict=True):
            for name in filter(facts.__contains__, _SHARED.get(option, ())):
                holder, fact = known.setdefault(name, (path, facts[name]))
                if fact.value != facts[name].value:
                    raise DataError(
                        f"{holder} and {path} do not belong together: the {name} of the first is {fact}, of the "
                        f"second {facts[name]}"
                    )
        if option in _SHARDS:
            _check_shards(option, paths, told)
    for name, value in (asked or {}).items():
        if name in known and (fact := known[name][1]).value != value:
            raise DataError(f"{known[name][0]} has the {name} {fact}, but the command asks for {Fact(value)}")
    inherited = {name: fact for name, (_, fact) in known.items() if name in _INHERITED and fact.value is not None}
    return Origin(given, inherited | {name: Fact(value) for name, value in (made or {}).items()})


def _check_shards(option: str, paths: Sequence[Path], told: Sequence[Mapping[str, Fact]]) -> None:
    """Refuse shards that do not cover the corpus in order. The fact ``documents`` is (first, last + 1, total)."""
    if twice := next((path for number, path in enumerate(paths) if path in paths[:number]), None):
        raise DataError(f"--{option.replace('_', '-')} names {twice} twice: name each shard once, in order")
    end = 0
    for number, (path, facts) in enumerate(zip(paths, told, strict=True)):
        if "documents" not in facts:
            return
        first, stop, total = facts["documents"].value
        if first != end:
            before = (
                f"{paths[number - 1]} ends with document {end:,}" if number else "the corpus begins with document 1"
            )
            raise DataError(
                f"{path} begins with document {first + 1:,}, but {before}: name the shards of the corpus in order, "
                "each once"
            )
        end = stop
    if end != total:
        raise DataError(
            f"{paths[-1]} ends with document {end:,}, but the corpus {told[-1].get('corpus', Fact(''))} has "
            f"{total:,}: name all shards of the corpus"
        )


def _facts(option: str, path: Path) -> dict[str, Fact]:
    """Return the facts of an input: those of its record and, if it is the subject of a fact, its own hash."""
    place, record = record_of(path)
    folder = place.parent if place else Path()
    told = {
        name: Fact(fact["value"], joined(folder, fact["path"]) if "path" in fact else None)
        for name, fact in record.get("lineage", {}).items()
    }
    if "documents" in told:  # a shard; records of vectors of whole documents do not name their chunks
        told.setdefault("chunks", Fact(None))
    if (root := _ROOTS.get(option)) and path.exists():  # the stage itself reports a missing file
        told[root] = Fact(_key(_hashes(path, record), path), path)
    return told


def joined(folder: Path, path: str) -> Path:
    """Resolve a path of a record against the record's folder."""
    return Path(os.path.normpath(folder / path))


def places_of_record(path: Path) -> list[Path]:
    """Return the possible paths of an artifact's record (paths.py). A manifest of pair scores is its own record."""
    if not path.name:  # the working directory
        return []
    if path.suffix == ".json":
        return [path]
    stem = path.name.removesuffix(".run.gz").removesuffix(".per-query.parquet")
    stem = stem if stem != path.name else path.stem
    return [path.with_name(f"{name}.json") for name in (stem, "dataset", "model", "tables", "report")]


def outputs_of(record: Any, path: Path, place: Path) -> dict[str, dict[str, Any]]:
    """Return the sizes and hashes that a record at ``place`` has for the files of an artifact.

    Raises:
        DataError: the outputs of the record are damaged.
    """
    from . import records  # imported here: it loads pydantic, which most commands do not need

    outputs = record.get("outputs", {}) if isinstance(record, dict) else {}
    records.check(records.OUTPUTS, outputs, place)
    return {name: facts for name, facts in outputs.items() if Path(name).parts[0] == path.name}


def refuse_changed(path: Path) -> None:
    """Refuse an artifact if what it was made from is another one now. What is gone is not compared.

    Raises:
        DataError: an input was made again, or replaced, since the artifact was made.
    """
    place, record = record_of(path)
    if place is None:
        return
    with files.reading(place):
        given = [entry for entries in record.get("inputs", {}).values() for entry in entries]
        told = [(joined(place.parent, entry["path"]), entry) for entry in given]
    for source, then in told:
        now = describe(source) if source.exists() else {}
        if any(now[key] != then[key] for key in now.keys() & then.keys()):
            raise DataError(f"{source} is another one than {path} was made from: run the grid again")
    for fact in _facts("", path).values():  # the corpus and the model behind the inputs
        if fact.path and fact.path.exists() and _key(hashes(fact.path), fact.path) != fact.value:
            raise DataError(f"{fact.path} is another one than {path} was made from: run the grid again")


def record_of(path: Path) -> tuple[Path | None, dict[str, Any]]:
    """Return the record of an artifact and its path. Your own files have none."""
    from . import records

    for place in places_of_record(path):
        if place.is_file():
            with files.reading(place):
                record = files.read_json(place)
            if outputs_of(record, path, place) or (place == path and isinstance(record, dict)):
                records.check(records.LINEAGE, record.get("lineage", {}), place)
                return place, record
    return None, {}


def hashes(path: Path) -> dict[str, str]:
    """Return the SHA-256 of a file, or of each file of a folder by name, from the record if possible."""
    _, record = record_of(path)
    return _hashes(path, record)


def _hashes(path: Path, record: Mapping[str, Any]) -> dict[str, str]:
    told = record["facts"] if isinstance(record.get("facts"), dict) else {}
    if path.is_dir():
        if isinstance(digests := told.get("files"), dict):
            return digests
        found = sorted(file for file in path.rglob("*") if file.is_file())
        return {str(file.relative_to(path)): files.sha256(file) for file in found}
    fetched = told.get("sha256")
    recorded = fetched.get(path.name) if isinstance(fetched, dict) else fetched
    recorded = recorded or record.get("outputs", {}).get(path.name, {}).get("sha256")
    with files.reading(path):
        return {path.name: str(recorded or files.sha256(path))}


def _key(hashed: Mapping[str, str], path: Path) -> str:
    """Combine the hashes of an input's files into one."""
    if not path.is_dir():
        return next(iter(hashed.values()))
    return hashlib.sha256(json.dumps(hashed, sort_keys=True).encode()).hexdigest()


def describe(path: Path) -> dict[str, Any]:
    """Return an input's identity: its size and, if its record has hashes, their combination."""
    place, record = record_of(path)
    outputs = outputs_of(record, path, place) if place else {}
    told = [facts.get("sha256", "") for facts in outputs.values()]
    size = sum(facts["bytes"] for facts in outputs.values()) if outputs else files.size(path)
    if not told or not all(told):
        return {"bytes": size}
    return {"bytes": size, "sha256": _key(dict(zip(outputs, told, strict=True)), path)}
