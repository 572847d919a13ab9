"""Records: JSON beside each artifact that says what made it. Write, read and compare them."""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import os
import platform
import re
import shlex
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from . import files, paths
from .checkout import full_version
from .errors import DataError

_NONE = object()
_NOTHING: Mapping[str, Any] = MappingProxyType({})
# Names of records of several files.
_RECORDS = (paths.DATASET_RECORD, paths.MODEL_RECORD, paths.TABLES_RECORD, paths.REPORT_RECORD, paths.ANALYSES_RECORD)
_OF_SEVERAL = [Path(pattern).stem for pattern in _RECORDS]
# The version and settings of the running job, and its inputs.
RUNNING: ContextVar[tuple[Mapping[str, Any], Mapping[str, Sequence[Path]]]]
RUNNING = ContextVar("running", default=(_NOTHING, _NOTHING))


class Stamp(NamedTuple):
    """What a stage writes into its records: its name, the version of its output, and packages to name, if installed."""

    name: str
    version: int
    packages: tuple[str, ...] = ()
    kind: str = ""


class _Model(BaseModel):
    model_config = ConfigDict(strict=True, extra="allow", allow_inf_nan=False)


class _File(_Model):
    bytes: int
    sha256: str = ""


class _Input(_File):
    path: str


class _Record(_Model):
    """The keys that readers take. Stages may add others."""

    stage: str
    stage_version: int
    kind: str = ""
    model: str | None = None
    job: dict[str, Any] = {}
    settings: dict[str, Any]
    settings_key: str | None
    outputs: dict[str, _File]
    inputs: dict[str, list[_Input]] = {}
    behind: dict[str, Any] = {}
    facts: dict[str, Any]
    seconds: Annotated[float, Field(ge=0)]
    peak_memory_mb: float
    packages: dict[str, str]
    finished: str

    @model_validator(mode="before")
    @classmethod
    def _take_settings_of_job(cls, record: Any) -> Any:
        """Add the settings and their digest, which records of earlier versions have beside their job."""
        job = record.get("job") if isinstance(record, dict) else None
        if not isinstance(job, dict) or "settings" in record:
            return record
        return {"settings": job.get("settings", {}), "settings_key": job.get("digest"), **record}


@cache
def installed(packages: tuple[str, ...]) -> dict[str, str]:
    """Return the versions of beirgrid, Python and those of the packages that are installed."""
    versions = {"beirgrid": full_version(), "python": platform.python_version()}
    for package in packages:
        with suppress(importlib.metadata.PackageNotFoundError):  # BM25 jobs have no torch, for example
            versions[package] = importlib.metadata.version(package)
    return versions


Facts = dict[str, Any]


class Made(NamedTuple):
    """What the work of a job made, for its record.

    Attributes:
        facts: facts about the run: ``documents``, ``device``, ``bytes``, …
        results: results that other stages read, by their keys in the record.
        outputs: artifacts beside those that the job names.
    """

    facts: Mapping[str, Any]
    results: Mapping[str, Any] = _NOTHING
    outputs: Sequence[Path] = ()


def files_of(path: Path) -> list[Path]:
    """Return the files of a folder, or the file itself."""
    return sorted(filter(Path.is_file, path.rglob("*"))) if path.is_dir() else [path]


def command_line(record: Mapping[str, Any]) -> str:
    """Return the shell line that repeats the command of a record. Bash passes a job on standard input."""
    job = record.get("job")
    return f"{record.get('command', '')}{f' <<< {shlex.quote(json.dumps(job))}' if job else ''}"


def read_record(path: str | Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        DataError: the file is missing, damaged, or not a record.
    """
    with files.reading(path):
        content = Path(path).read_bytes()
    try:
        return _Record.model_validate_json(content).model_dump(exclude_unset=True)
    except ValidationError as error:
        [first, *_] = error.errors(include_url=False)
        key = ".".join(map(str, first["loc"])) or "content"
        raise DataError(f"{path} is not a record of beirgrid ({key}: {first['msg']}). {files.REMEDY}") from None


def entry_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entry of the configuration that a fetch was given. Earlier versions recorded its keys as settings."""
    settings: dict[str, dict[str, Any]] = record["settings"]
    return settings.get("entry", settings)


class ArtifactRecord(NamedTuple):
    """An artifact with its record. Your own files have none."""

    path: Path
    place: Path | None
    record: dict[str, Any]

    @property
    def outputs(self) -> dict[str, dict[str, Any]]:
        """Size and hash of each file of the artifact, by its path from the record's folder."""
        outputs: dict[str, dict[str, Any]] = self.record.get("outputs", {})
        return {name: recorded for name, recorded in outputs.items() if Path(name).parts[0] == self.path.name}

    @property
    def inputs(self) -> Iterator[tuple[str, Path, dict[str, Any]]]:
        """The inputs of the job: option, path, and the size and hash that the file had."""
        folder = self.place.parent if self.place else Path()
        for option, entries in self.record.get("inputs", {}).items():
            for entry in entries:
                recorded = {key: value for key, value in entry.items() if key != "path"}
                yield option, Path(os.path.normpath(folder / entry["path"])), recorded

    @property
    def is_hashed(self) -> bool:
        """Whether the record has a hash of each file of the artifact."""
        return bool(self.outputs) and all("sha256" in recorded for recorded in self.outputs.values())

    @property
    def misplaced(self) -> str:
        """A file that the record names if it names none of its own name: it was moved from another artifact."""
        assert self.place
        named = [Path(name) for name in self.record.get("outputs", {})]
        beside = [path.parts[0] for path in named if len(path.parts) == 1 or path.parent.suffix]
        own = self.place.stem in (*_OF_SEVERAL, *map(_stem, beside))
        return "" if own or not beside else beside[0]

    @property
    def hashes(self) -> dict[str, str]:
        """The SHA-256 of the file, or of each file of the folder by its path from the folder's parent.

        What the record lacks is read. Version 0.2.0 recorded no hashes of large files.
        """
        folder = self.path.parent
        outputs = self.outputs
        with files.reading(self.path):
            names = [*outputs] or [str(file.relative_to(folder)) for file in files_of(self.path)]
            return {name: outputs.get(name, {}).get("sha256") or files.sha256(folder / name) for name in names}

    @property
    def identity(self) -> dict[str, Any]:
        """The size of the artifact and its hash, for a folder that of all hashes."""
        hashes = self.hashes
        size = sum(recorded["bytes"] for recorded in self.outputs.values()) if self.outputs else files.size(self.path)
        of_all = hashlib.sha256(json.dumps(hashes, sort_keys=True).encode()).hexdigest()
        return {"bytes": size, "sha256": hashes[self.path.name] if [*hashes] == [self.path.name] else of_all}


def record_of(path: Path) -> ArtifactRecord:
    """Return an artifact with its record. A manifest of pair scores is its own record.

    Raises:
        DataError: the record is damaged, or that of another artifact.
    """
    stem = _stem(path.name)
    names = [] if path.suffix == ".json" or not path.name else [f"{name}.json" for name in (stem, *_OF_SEVERAL)]
    for place in filter(Path.is_file, [path.with_name(name) for name in names] or [path]):
        with files.reading(place):
            is_record = "stage" in files.read_json(place)  # your own run may stand beside your own JSON
        if not is_record:
            continue
        known = ArtifactRecord(path, place, read_record(place))
        if place != path and (other := known.misplaced):
            raise DataError(f"{place} is the record of {other}, not of {path}. {files.REMEDY}")
        if known.outputs or place == path:
            return known
    return ArtifactRecord(path, None, {})


def _stem(name: str) -> str:
    """Return the name of an artifact without the suffixes that its record does not have."""
    return re.sub(r"\.(run\.gz|per-query\.parquet|[^.]*)$", "", name)


def mismatches(
    place: Path, record: Mapping[str, Any], key: str | None = None, *, hashed: bool = False
) -> Iterator[str]:
    """Yield what does not match between a record and what is asked and there.

    A whole artifact may be missing: it may be temporary, and Snakemake makes it again if a job needs it.

    Args:
        key: ``digest`` of the requested params.
        hashed: also compare the hashes of files.
    """
    if key and record["settings_key"] != key:
        yield f"{place} was made with other settings than the grid has now. {files.REMEDY}"
    for name, recorded in record["outputs"].items():
        path = place.parent / name
        if not path.is_file():
            if place.parent.joinpath(*Path(name).parts[:1]).is_dir():
                yield f"{path} is missing, but {place} names it. {files.REMEDY}"
        elif (size := path.stat().st_size) != recorded["bytes"]:
            yield f"{path} is damaged: it has {size:,} bytes, {place} says {recorded['bytes']:,}. {files.REMEDY}"
        elif hashed and recorded.get("sha256") and files.sha256(path) != recorded["sha256"]:
            yield f"{path} is damaged: its SHA-256 is not the one in {place}. {files.REMEDY}"


def digest(params: Mapping[str, Any]) -> str:
    """Return 16 hex digits for the params of a rule. Local files count by content (``files``), not by path."""
    counted = {**params, "settings": without_paths(params["settings"])} if params.get("files") else params
    return hashlib.sha256(json.dumps(counted, sort_keys=True).encode()).hexdigest()[:16]


def without_paths(settings: str) -> Any:
    """Return settings, JSON, without the paths of local files."""
    return json.loads(settings, object_hook=lambda entry: {key: entry[key] for key in entry if key != "path"})


def changes(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Yield each changed key with both values: ``max_length 256 → 128``."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*before, *now]):
            yield from changes(before.get(name, _NONE), now.get(name, _NONE), f"{key}.{name}".lstrip("."))
    elif before != now:
        shown = ["(none)" if value is _NONE else json.dumps(value, ensure_ascii=False) for value in (before, now)]
        yield f"{key} {' → '.join(text if len(text) <= 60 else f'{text[:40]} … {text[-15:]}' for text in shown)}"


def artifact(path: str | Path) -> Path:
    """Compare the files of an artifact with its record, and return its path.

    An artifact without a record, such as your own run, is not compared.

    Raises:
        DataError: a part is missing, a file differs in size or hash, or the record is damaged.
    """
    known = record_of(Path(path))
    if known.place and known.place != known.path:
        if not known.path.exists():
            raise DataError(f"{known.path} is missing, but {known.place} names it. {files.REMEDY}")
        for reason in mismatches(known.place, {"outputs": known.outputs}, hashed=True):
            raise DataError(reason)
    return known.path


# Type of the options that take an artifact.
Artifact = Annotated[Path, AfterValidator(artifact)]


def fingerprint(*options: str, **computed: Any) -> str:
    """Return a digest of the running job's version and settings, the content of its inputs (or only of those of
    ``options``), and ``computed``.
    """
    asked, inputs = RUNNING.get()
    read = {option: paths for option, paths in inputs.items() if option in (options or inputs)}
    contents = {option: [record_of(path).identity for path in paths] for option, paths in read.items()}
    key = json.dumps({**asked, "inputs": contents, **computed}, sort_keys=True)
    return hashlib.sha256(key.encode()).hexdigest()[:16]


def state_folder(output: Path, **computed: Any) -> Path:
    """Return the folder beside an artifact that keeps the state of the running job for the next attempt.

    Its name has the fingerprint of the job, with ``computed``, which must be all that decides the artifact. State
    folders of other computations of the artifact are deleted.
    """
    folder = output.parent / f".{output.name}-state-{fingerprint(**computed)}"
    for other in output.parent.glob(f".{output.name}-state-*"):
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
