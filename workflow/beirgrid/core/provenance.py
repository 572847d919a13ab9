"""Records: JSON beside each artifact that says what made it. Write them, and compare them with files and settings."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import resource
import shlex
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from . import files, records
from .errors import ConfigError, DataError
from .portable import portable
from .version import full_version

# Files of at most this many bytes are compared by SHA-256, larger files by size alone.
HASHED = 2**24
_NONE = object()
# Ancestors that all inputs share, by the options that take them. The files of a job that has several are named so, too.
SHARED = ("corpus", "queries", "training_queries", "checkpoint", "run")
# Names of records of several files.
_OF_SEVERAL = ("dataset", "model", "tables", "report", "analyses")
# Words of the running command, and the job that a rule passed to it.
_COMMAND: ContextVar[Sequence[str]] = ContextVar("command", default=())
_JOB: ContextVar[Mapping[str, Any]] = ContextVar("job", default=MappingProxyType({}))


class Stamp(NamedTuple):
    """What a stage writes into its records: its name, the version of its output, and packages to name, if installed."""

    name: str
    version: int
    packages: tuple[str, ...] = ()


@dataclass
class Origin:
    """The inputs of a command by option, and the facts that it states about its output."""

    inputs: dict[str, list[Path]]
    made: Mapping[str, Any]

    def as_json(self, folder: Path) -> dict[str, Any]:
        """Return the origin as keys of a record, with paths relative to the record's folder."""

        def entry(option: str, path: Path) -> dict[str, Any]:
            identity = recorded(path).identity(whole=option in SHARED)
            return {"path": os.path.relpath(path, folder), **identity}

        return {
            "inputs": {option: [entry(option, path) for path in paths] for option, paths in self.inputs.items()},
            "lineage": {name: {"value": value} for name, value in self.made.items()},
        }


@cache
def _installed(packages: tuple[str, ...]) -> dict[str, str]:
    versions = {"beirgrid": full_version(), "python": platform.python_version()}
    for package in packages:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # not in this environment: BM25 jobs have no torch, for example
    return versions


def use_command(words: Sequence[str], job: Mapping[str, Any]) -> None:
    """Set the command's words and the job that a rule passed to it, for its records."""
    _COMMAND.set(words)
    _JOB.set(job)


@contextmanager
def record(
    stamp: Stamp,
    path: str | Path,
    settings: dict[str, Any],
    outputs: Collection[str | Path] = (),
    results: Mapping[str, Any] | None = None,
    origin: Origin | None = None,
) -> Iterator[dict[str, Any]]:
    """Time the block and write the record of its artifacts if it succeeds.

    Yields a dict for facts about the run (``documents``, ``device``, ``bytes``, …). The record keeps them under the key
    ``facts``, and adds seconds and peak memory in MB.

    Args:
        settings: settings that the artifacts depend on, in addition to the inputs.
        outputs: the artifacts, files or folders. The block may append to a list.
        results: results that other stages read, by their keys in the record. The block may add to a dict.
        origin: the inputs and facts of the artifacts (``lineage.check``).

    Raises:
        ConfigError: two artifacts, or an artifact and the record, have the same path.
    """
    names = [Path(name).absolute() for name in (path, *outputs)]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise ConfigError(f"{twice} cannot be two outputs: name another path for one of them")
    facts: dict[str, Any] = {}
    started = time.monotonic()
    yield facts
    seconds = time.monotonic() - started
    job = _JOB.get()
    command = shlex.join(["python", "-m", "beirgrid", *map(portable, _COMMAND.get())])
    # Of this process, and of its largest child (such as Java).
    peaks = [resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    files.write_json(
        path,
        {
            "stage": stamp.name,
            "stage_version": stamp.version,
            "command": command,
            "settings": portable(settings),
            "settings_key": job.get("digest"),
            **({"job": portable(job)} if job else {}),
            **(origin.as_json(Path(path).parent) if origin else {}),
            "outputs": {name: facts for output in outputs for name, facts in _contents(Path(output), Path(path))},
            "facts": facts,
            "seconds": round(seconds, 3),
            "peak_memory_mb": round(sum(peaks) / 1024, 1),
            "packages": _installed(stamp.packages),
            "cpus": len(os.sched_getaffinity(0)),
            "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            **(results or {}),
        },
    )


def _contents(output: Path, record: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each file of an artifact, relative to the record's folder, with its size and hash."""
    for path in sorted(output.rglob("*")) if output.is_dir() else [output]:
        if path.is_file():
            yield os.path.relpath(path, record.parent), content(path)


def command_line(record: Mapping[str, Any]) -> str:
    """Return the shell line that repeats the command of a record. Bash passes a job on standard input."""
    job = record.get("job")
    return f"{record.get('command', '')}{f' <<< {shlex.quote(json.dumps(job))}' if job else ''}"


def read_record(path: str | Path, *more: str) -> dict[str, Any]:
    """Read a record.

    Args:
        more: keys that the reader requires, and that records of earlier versions may lack.

    Raises:
        DataError: the file is missing, damaged, or not a record.
    """
    with files.reading(path):
        record = files.read_json(path)
    records.check(records.Record, record, path)
    if missing := [key for key in more if key not in record]:
        raise DataError(f"{path} is not a record of beirgrid ({missing[0]}: Field required). {files.REMEDY}")
    return dict(record)


class Recorded(NamedTuple):
    """An artifact with its record. Your own files have none."""

    path: Path
    place: Path | None
    record: dict[str, Any]

    @property
    def outputs(self) -> dict[str, dict[str, Any]]:
        """Size and hash of each file of the artifact, by its path from the record's folder."""
        outputs: dict[str, dict[str, Any]] = self.record.get("outputs", {})
        return {name: told for name, told in outputs.items() if Path(name).parts[0] == self.path.name}

    @property
    def inputs(self) -> Iterator[tuple[str, Path, dict[str, Any]]]:
        """The inputs of the job: option, path, and the size and hash that the file had."""
        folder = self.place.parent if self.place else Path()
        for option, entries in self.record.get("inputs", {}).items():
            for entry in entries:
                told = {key: value for key, value in entry.items() if key != "path"}
                yield option, Path(os.path.normpath(folder / entry["path"])), told

    @property
    def known_hashes(self) -> dict[str, str]:
        """The hashes in the record, by paths from its folder. The stage fetch hashes files of any size."""
        facts, name = self.record.get("facts", {}), self.path.name
        known = {file: told["sha256"] for file, told in self.outputs.items() if told.get("sha256")}
        if isinstance(of_folder := facts.get("files"), dict):
            known |= {f"{name}/{file}": digest for file, digest in of_folder.items()}
        of_files = facts.get("sha256", {})
        return known | (of_files if isinstance(of_files, dict) else {name: of_files})

    @property
    def hashes(self) -> dict[str, str]:
        """The SHA-256 of the file, or of each file of the folder by its path from the folder's parent.

        What the record lacks is read.
        """
        folder, names, known = self.path.parent, [*self.outputs], self.known_hashes
        if self.path.is_dir() and not names:
            names = sorted(str(file.relative_to(folder)) for file in self.path.rglob("*") if file.is_file())
        with files.reading(self.path):
            return {name: known.get(name) or files.sha256(folder / name) for name in names or [self.path.name]}

    def identity(self, *, whole: bool = False) -> dict[str, Any]:
        """Return the size of the artifact and its hash, for a folder that of all hashes.

        Args:
            whole: read an artifact whose record has no hash; without it, only the size is returned.
        """
        outputs = self.outputs
        size = sum(told["bytes"] for told in outputs.values()) if outputs else files.size(self.path)
        if not whole and not (outputs and outputs.keys() <= self.known_hashes.keys()):
            return {"bytes": size}
        by_name = self.hashes
        if [*by_name] == [self.path.name]:
            return {"bytes": size, "sha256": by_name[self.path.name]}
        return {"bytes": size, "sha256": hashlib.sha256(json.dumps(by_name, sort_keys=True).encode()).hexdigest()}


def places(path: Path) -> list[Path]:
    """Return the possible paths of an artifact's record (paths.py). A manifest of pair scores is its own record."""
    if not path.name:  # the working directory
        return []
    if path.suffix == ".json":
        return [path]
    stem = path.name.removesuffix(".run.gz").removesuffix(".per-query.parquet")
    stem = stem if stem != path.name else path.stem
    return [path.with_name(f"{name}.json") for name in (stem, *_OF_SEVERAL)]


def recorded(path: Path) -> Recorded:
    """Return an artifact with its record.

    Raises:
        DataError: the record is damaged.
    """
    for place in filter(Path.is_file, places(path)):
        with files.reading(place):
            record = files.read_json(place)
        if isinstance(record, dict) and (place == path or "outputs" in record):
            records.check(records.Files, record, place)
            found = Recorded(path, place, record)
            if place == path or found.outputs:
                return found
    return Recorded(path, None, {})


def content(path: Path) -> dict[str, Any]:
    """Return a file's entry for a record: its size and, for a small file, its hash."""
    size = path.stat().st_size
    return {"bytes": size} | ({"sha256": files.sha256(path)} if size <= HASHED else {})


def mismatches(
    place: Path, record: Mapping[str, Any], key: str | None = None, *, hashed: bool = False
) -> Iterator[str]:
    """Yield what does not match between a record and what is asked and there.

    A whole artifact may be missing: it may be temporary, and Snakemake makes it again if a job needs it.

    Args:
        key: ``digest`` of the requested params.
        hashed: also compare the hashes of small files.
    """
    if key and record.get("settings_key") != key:
        yield f"{place} was made with other settings than the grid has now. {files.REMEDY}"
    for name, told in record.get("outputs", {}).items():
        path = place.parent / name
        if not path.is_file():
            if place.parent.joinpath(*Path(name).parts[:1]).is_dir():
                yield f"{path} is missing, but {place} names it. {files.REMEDY}"
        elif (size := path.stat().st_size) != told["bytes"]:
            yield f"{path} is damaged: it has {size:,} bytes, {place} says {told['bytes']:,}. {files.REMEDY}"
        elif hashed and "sha256" in told and files.sha256(path) != told["sha256"]:
            yield f"{path} is damaged: its SHA-256 is not the one in {place}. {files.REMEDY}"


def digest(params: Mapping[str, Any]) -> str:
    """Return 16 hex digits for the params of a rule. The location of local files does not change them."""
    counted = dict(params)
    if params.get("files"):
        counted["settings"] = _settings(params)
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:16]


def _settings(params: Mapping[str, Any]) -> Any:
    """Return the settings in the params of a job. Local files are compared by content (``files``), not by path."""
    settings = json.loads(params.get("settings", "{}"))
    return _without_paths(settings) if params.get("files") else settings


def _without_paths(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: _without_paths(inner) for key, inner in value.items() if key != "path"}


def changes(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Yield each changed key with both values: ``max_length 256 → 128``."""
    if before == now:
        return
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*before, *now]):
            yield from changes(before.get(name, _NONE), now.get(name, _NONE), f"{key}.{name}".lstrip("."))
    else:
        yield f"{key} {_shown(before)} → {_shown(now)}"


def _shown(value: Any) -> str:
    text = "(none)" if value is _NONE else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:40]} … {text[-15:]}"


def asked_of(record: Mapping[str, Any]) -> Any:
    """Return the settings that a rule asked for. Records of 0.2.0 keep only those of a job, and older ones none."""
    return record["job"].get("settings") if isinstance(record.get("job"), Mapping) else record.get("asked")


def explanation(record: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Return how the settings of a record differ from the params of its job. Records before 0.2.0 have no settings."""
    made, asked = record.get("stage_version"), params.get("version")
    reasons = [f"stage version {made} → {asked}"] if made != asked else []
    if isinstance(before := asked_of(record), Mapping):
        before = _without_paths(before) if params.get("files") else before
        reasons += changes(before, portable(_settings(params)))
    return ", ".join(reasons) or "a local file, or settings that the record does not have"


def artifact(path: str | Path) -> Path:
    """Compare the files of an artifact with its record, and return its path.

    An artifact without a record, such as your own run, is not compared.

    Raises:
        DataError: a part is missing, a file differs in size or hash, or the record is damaged.
    """
    known = recorded(Path(path))
    if known.place and known.place != known.path:
        if not known.path.exists():
            raise DataError(f"{known.path} is missing, but {known.place} names it. {files.REMEDY}")
        for reason in mismatches(known.place, {"outputs": known.outputs}, hashed=True):
            raise DataError(reason)
    return known.path


# Types of the options that take an artifact and the record.
Artifact = Annotated[Path, AfterValidator(artifact)]
Record = Annotated[Path, "record to write, .json"]


def state_folder(stamp: Stamp, output: Path, inputs: dict[str, Any]) -> Path:
    """Return the folder beside an artifact that keeps this computation's state for the next attempt.

    Its name is a digest of the stage's version and of ``inputs``, which must hold all that decides the artifact. State
    folders of other computations of the artifact are deleted.
    """
    folder = output.parent / f".{output.name}-state-{digest({'version': stamp.version, **inputs})}"
    for other in output.parent.glob(f".{output.name}-state-*"):
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
