"""Records: JSON beside each artifact that says how it was computed, written once the artifact is complete."""

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
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator

from . import files, lineage, reasons, records
from .errors import ConfigError, DataError
from .lineage import Origin
from .portable import portable
from .version import full_version

# Words of the running command, and the job that a rule passed to it.
_COMMAND: ContextVar[Sequence[str]] = ContextVar("command", default=())
_JOB: ContextVar[Mapping[str, Any]] = ContextVar("job", default=MappingProxyType({}))


class Stamp(NamedTuple):
    """What a stage writes into its records: its name, the version of its output, and packages to name, if installed."""

    name: str
    version: int
    packages: tuple[str, ...] = ()


# Files of at most this many bytes are compared by SHA-256, larger files by size alone.
HASHED = 2**24


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
            **({"asked": portable(job["settings"])} if "settings" in job else {}),
            **(origin.as_json(Path(path).parent) if origin else {}),
            "outputs": {name: facts for output in outputs for name, facts in _contents(Path(output), Path(path))},
            "facts": facts,
            "seconds": round(seconds, 3),
            "peak_memory_mb": round(sum(peaks) / 1024, 1),
            "packages": _installed(stamp.packages),
            "cpus": len(os.sched_getaffinity(0)),
            "finished": _now(),
            **(results or {}),
        },
    )


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _contents(output: Path, record: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each file of an artifact, relative to the record's folder, with its size and hash."""
    for path in sorted(output.rglob("*")) if output.is_dir() else [output]:
        if path.is_file():
            yield os.path.relpath(path, record.parent), content(path)


def content(path: Path) -> dict[str, Any]:
    """Return a file's entry for a record: its size and, for a small file, its hash."""
    size = path.stat().st_size
    return {"bytes": size} | ({"sha256": files.sha256(path)} if size <= HASHED else {})


def command_line(record: Mapping[str, Any]) -> str:
    """Return the shell line that repeats the command of a record. Bash passes a job on standard input."""
    job = record.get("job")
    return f"{record.get('command', '')}{f' <<< {shlex.quote(json.dumps(job))}' if job else ''}"


def renew(path: str | Path) -> None:
    """Refresh the sizes and hashes in a record after its artifacts were rewritten.

    A missing or damaged record is left alone: the next run makes its artifacts.
    """
    place = Path(path)
    with suppress(DataError):
        found = read_record(place)
        outputs = [facts for name in found.get("outputs", {}) for facts in _contents(place.parent / name, place)]
        files.write_json(place, {**found, "outputs": dict(outputs), "finished": _now()})


def read_record(path: str | Path, *more: str) -> dict[str, Any]:
    """Read a record.

    Args:
        more: keys that the reader requires, and that records of earlier versions may lack.

    Raises:
        DataError: the file is missing, damaged, or not a record.
    """
    with files.reading(path):
        found = files.read_json(path)
    records.check(records.RECORD, found, path)
    if missing := [key for key in more if key not in found]:
        raise DataError(f"{path} is not a record of beirgrid ({missing[0]}: Field required). {files.REMEDY}")
    return dict(found)


def artifact(path: str | Path) -> Path:
    """Compare the files of an artifact with its record, and return its path.

    An artifact without a record, such as your own run, is not compared.

    Raises:
        DataError: a file is missing or differs in size or hash, or the record is damaged.
    """
    path = Path(path)
    place, found = lineage.record_of(path)
    if place and place != path:
        for name, facts in lineage.outputs_of(found, path, place).items():
            _compare(place.parent / name, facts, place)
    return path


def compare_sizes(path: str | Path, record: Mapping[str, Any]) -> None:
    """Raise DataError if a file differs in size from its record. Missing files are allowed: they may be temporary
    outputs.
    """
    for name, facts in record.get("outputs", {}).items():
        if (output := Path(path).parent / name).is_file():
            _compare(output, {"bytes": facts["bytes"]}, Path(path))


# Types of the options that take an artifact and the record.
Artifact = Annotated[Path, AfterValidator(artifact)]
Record = Annotated[Path, "record to write, .json"]


def _compare(path: Path, facts: dict[str, Any], record: Path) -> None:
    if not path.is_file():
        raise DataError(f"{path} is missing, but {record} names it. {files.REMEDY}")
    if (size := path.stat().st_size) != facts["bytes"]:
        raise DataError(f"{path} is damaged: it has {size:,} bytes, {record} says {facts['bytes']:,}. {files.REMEDY}")
    if "sha256" in facts and files.sha256(path) != facts["sha256"]:
        raise DataError(f"{path} is damaged: its SHA-256 is not the one in {record}. {files.REMEDY}")


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


def digest(params: Mapping[str, Any]) -> str:
    """Return 16 hex digits for the params of a rule. The location of local files does not change them."""
    counted = dict(params)
    if params.get("files"):
        counted["settings"] = reasons.options(params)
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:16]


def mismatch(record: str | Path, params: Mapping[str, Any] | None, outputs: Collection[str] = ()) -> str | None:
    """Return why the artifacts of a record must be computed again, or None. Compares sizes, not hashes.

    Args:
        record: path of the record. If it is missing, None is returned: the record is an output, which Snakemake checks
            itself.
        params: the requested params; None if the record is known to have them.
        outputs: artifacts that may be missing, because Snakemake checks them itself.
    """
    record = Path(record)
    if not record.is_file():
        return None
    try:
        found = read_record(record)
        if params and found.get("settings_key") != digest(params):
            return f"{record} has other settings: {reasons.of_record(found, params)}"
        for name, facts in found.get("outputs", {}).items():
            path = record.parent / name
            absent = not path.is_file()
            if absent and any(Path(output) in (path, *path.parents) for output in outputs):
                continue
            if absent or path.stat().st_size != facts["bytes"]:
                return f"{path} is {'missing' if absent else 'damaged'}"
    except DataError as error:
        return str(error)
    return None
