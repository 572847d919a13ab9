"""Records: JSON beside each artifact that says what made it. Write, read and compare them."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import re
import resource
import shlex
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, model_validator

from . import files, paths
from .checkout import full_version, portable
from .errors import DataError

_NONE = object()
_NOTHING: Mapping[str, Any] = MappingProxyType({})
# What must be the same behind the inputs of a job, by option: the hash of an artifact that has this option, or a
# setting. Of vectors, it is also the model that made them. Other data may stand behind a model.
_DATA = ("corpus", "queries", "training_queries")
_VECTORS = ("corpus", "checkpoint", "similarity")
_SHARED: Mapping[str, tuple[str, ...]] = {
    **dict.fromkeys(("checkpoints", "query_tower", "base", "teacher", "generator"), ()),
    "checkpoint": ("checkpoint",),
    **dict.fromkeys(("vectors", "exact", "tokens", "indexes", "expansions"), _VECTORS),
    **dict.fromkeys(("index", "lucene"), ("corpus", "fields", "language", "expanded")),
    **dict.fromkeys(("scores", "first_stage"), (*_DATA, "run")),
}
# Options whose own hash stands behind what is made from them, and settings that a job and its inputs must agree on.
_SUBJECTS = (*_DATA, "checkpoint", "run")
_SETTINGS = ("fields", "language", "similarity", "expanded")
# Options that take all shards of a corpus, and those that take one.
_LISTS, _OF_SHARDS = ("indexes", "tokens", "expansions"), ("vectors", "exact")
# Names of records of several files.
_RECORDS = (paths.DATASET_RECORD, paths.MODEL_RECORD, paths.TABLES_RECORD, paths.REPORT_RECORD, paths.ANALYSES_RECORD)
_OF_SEVERAL = [Path(pattern).stem for pattern in _RECORDS]
# The digest of the running job, and its inputs.
_RUNNING: ContextVar[tuple[str, Mapping[str, Sequence[Path]]]] = ContextVar("running", default=("", _NOTHING))


class Stamp(NamedTuple):
    """What a stage writes into its records: its name, the version of its output, and packages to name, if installed."""

    name: str
    version: int
    packages: tuple[str, ...] = ()
    kind: str = ""


Inputs = Mapping[str, Path | Sequence[Path] | None]


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
        return {**record, "settings": job.get("settings", {}), "settings_key": job.get("digest")}


@cache
def _installed(packages: tuple[str, ...]) -> dict[str, str]:
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


class Recorder:
    """Writes the record of a job's artifacts: what the job was, what it read and made, and what that took.

    Raises:
        DataError: the inputs of the job do not belong together (``check``).
    """

    def __init__(self, stamp: Stamp, job: Mapping[str, Any]) -> None:
        self.stamp = stamp
        self.job = job
        given = job.get("inputs", {}).items()
        self.inputs = {name: [*map(Path, [paths] if isinstance(paths, str) else paths)] for name, paths in given}
        self.ancestry = Ancestry()
        self.agreed = job.get("agreed", {})
        self.behind = check(self.inputs, {**self.agreed, **job.get("settings", {})}, self.ancestry)
        _RUNNING.set((str(job.get("digest")), self.inputs))
        self.started = time.monotonic()

    def write(self, path: Path, made: Made) -> None:
        """Write the record, with seconds and peak memory in MB since the recorder was made."""
        seconds, folder = time.monotonic() - self.started, path.parent
        outputs = [output for output in map(Path, self.job.get("outputs", {}).values()) if output != path]
        # Of this process, and of its largest child (such as Java).
        peaks = [resource.getrusage(whose).ru_maxrss for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
        command = ["python", "-m", "beirgrid", "stage", self.job["stage"]]
        files.write_json(
            path,
            {
                "stage": self.stamp.name,
                "stage_version": self.stamp.version,
                "kind": self.stamp.kind,
                "command": shlex.join(command),
                "job": portable(dict(self.job)),
                "inputs": {
                    option: [{"path": os.path.relpath(path, folder), **self.ancestry.identity(path)} for path in paths]
                    for option, paths in self.inputs.items()
                },
                "behind": {**self.behind, **self.agreed},
                "outputs": {
                    os.path.relpath(path, folder): {"bytes": path.stat().st_size, "sha256": files.sha256(path)}
                    for output in [*outputs, *made.outputs]
                    for path in _inside(output)
                },
                "facts": made.facts,
                "seconds": round(seconds, 3),
                "peak_memory_mb": round(sum(peaks) / 1024, 1),
                "packages": _installed(self.stamp.packages),
                "cpus": len(os.sched_getaffinity(0)),
                "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                **made.results,
            },
        )


def _inside(path: Path) -> list[Path]:
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
    def is_hashed(self) -> bool:
        """Whether the record has a hash of each file of the artifact."""
        return bool(self.outputs) and all("sha256" in told for told in self.outputs.values())

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
        folder, outputs = self.path.parent, self.outputs
        with files.reading(self.path):
            names = [*outputs] or [str(file.relative_to(folder)) for file in _inside(self.path)]
            return {name: outputs.get(name, {}).get("sha256") or files.sha256(folder / name) for name in names}

    @property
    def identity(self) -> dict[str, Any]:
        """The size of the artifact and its hash, for a folder that of all hashes."""
        hashes = self.hashes
        size = sum(told["bytes"] for told in self.outputs.values()) if self.outputs else files.size(self.path)
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


class Ancestry:
    """What stands behind artifacts. Each record, and each file without a recorded hash, is read once."""

    def __init__(self) -> None:
        self.behind = cache(self._behind)
        self.rows = cache(self._rows)
        self.record_of = cache(record_of)
        self.identity = cache(lambda path: self.record_of(path).identity)

    def _behind(self, option: str, path: Path) -> dict[str, Any]:
        """Return what an input shares with the others of its job: its own hash, those of its ancestors, and settings.

        Raises:
            DataError: something behind the input was made again since, with another content.
        """
        known = self.record_of(path)
        behind: dict[str, Any] = {"expanded": False} if known.place else {}
        for role, source, told in known.inputs:
            if self.is_another(source, told):
                raise DataError(f"{source} is another one than {path} was made from: run the grid again")
            behind |= self.behind(role, source)
            behind |= {role: told["sha256"]} if role in _SUBJECTS and "sha256" in told else {}
            behind |= {"expanded": True} if role == "expansions" else {}
        settings = known.record.get("settings", {})
        behind |= known.record.get("behind", {}) | {name: settings[name] for name in _SETTINGS if name in settings}
        if "sha256" in (fetched := known.record.get("outputs", {}).get(Path(paths.QUERIES).name, {})):
            behind["queries"] = fetched["sha256"]  # those that the qrels were fetched with
        subject = "run" if option == "first_stage" else option
        if subject in _SUBJECTS and (path.exists() or known.outputs):  # the stage itself reports a missing file
            behind[subject] = self.identity(path)["sha256"]
        return {name: behind[name] for name in _SHARED.get(option, _DATA) if name in behind}

    def _rows(self, path: Path) -> Sequence[int]:
        """Return the first row of the corpus in a shard, and the row after its last; nothing if no record tells."""
        known = self.record_of(path)
        with files.reading(known.place or path):
            settings, facts = known.record.get("settings", {}), known.record.get("facts", {})
            if {"shard", "shard_size"} <= settings.keys() and "rows" not in facts:  # as earlier versions recorded them
                first = settings["shard"] * settings["shard_size"]
                return [first, first + facts["documents"]]
        if "rows" in facts:
            return list(facts["rows"])
        sources = (self.rows(source) for role, source, _ in known.inputs if role in _OF_SHARDS)
        return known.record.get("behind", {}).get("rows") or next(filter(None, sources), [])

    def other_source(self, record: Path, lists: Sequence[Sequence[Path]]) -> Path | None:
        """Return an input that a record does not know or has in another place, or one that the job does not have.

        No artifact is hashed.

        Args:
            lists: the inputs of the job, by option. What stands behind an input may replace it.
        """
        sources = [path for of_option in lists for path in of_option]
        known = self.record_of(record)
        told = {path: entry.get("sha256") for _, path, entry in known.inputs}
        if not told or None in told.values():  # as in records of 0.2.0
            return None
        hashed = [path for path in sources if path.suffix == ".json" or self.record_of(path).is_hashed]
        hashes = {self.identity(path)["sha256"]: path for path in hashed}
        behind = {*told.values(), *map(str, known.record.get("behind", {}).values())}
        unknown = next((path for sha256, path in hashes.items() if sha256 not in behind), None)
        more = next((path for path in told if {*sources} < {*told} and path not in sources), None)
        moved = (
            path
            for of_option in lists
            for path, there in zip(of_option, [path for path in told if path in of_option], strict=False)
            if path != there
        )
        return unknown or next(moved, None) or (more if "behind" in known.record else None)

    def is_another(self, source: Path, told: Mapping[str, Any]) -> bool:
        """Tell whether an input differs from what a record says of it. A deleted one is compared by its own record."""
        if not (source.exists() or self.record_of(source).is_hashed):
            return False
        now = self.identity(source) if "sha256" in told or not source.exists() else {"bytes": files.size(source)}
        return any(now[key] != told[key] for key in told)


def check(inputs: Inputs, settings: Mapping[str, Any] = _NOTHING, ancestry: Ancestry | None = None) -> dict[str, Any]:
    """Refuse inputs that do not belong together, and return what stands behind all of them.

    The corpus, the queries and the model behind them must be the same, and shards must be all those of the corpus, in
    order. What records do not tell is not compared. Your own files need no record.

    Args:
        inputs: the artifacts by option, one or several.
        settings: settings of the job. Those behind its inputs must be the same.
        ancestry: what is known of the artifacts already.

    Raises:
        DataError: two inputs have other ancestors, an artifact behind them was made again since, or shards are not all
            those of the corpus in order.
    """
    ancestry = ancestry or Ancestry()
    holders: dict[str, tuple[Path, Any]] = {}
    listed = _listed(inputs)
    for option, paths_of in listed.items():
        for path in paths_of:
            for name, of_path in ancestry.behind(option, path).items():
                holder, first = holders.setdefault(name, (path, of_path))
                if first != of_path:
                    raise DataError(
                        f"{holder} and {path} do not belong together: each has another {name} behind it. Delete the "
                        "older one and run the grid again"
                    )
                if name in _SETTINGS and settings.get(name, of_path) != of_path:
                    raise DataError(f"{path} was made with {name} {of_path!r}, but the job asks for {settings[name]!r}")
        if option in _LISTS:
            _check_shards(paths_of, ancestry, listed.get("corpus", []))
    rows = [ancestry.rows(path) for option in _OF_SHARDS for path in listed.get(option, [])]
    return {name: of_holder for name, (_, of_holder) in holders.items()} | ({"rows": rows[0]} if any(rows) else {})


def _check_shards(shards: Sequence[Path], ancestry: Ancestry, corpora: Sequence[Path]) -> None:
    """Refuse shards that are not all those of the corpus, in order. Where a shard has no record, its rows are unknown.

    Raises:
        DataError: a shard is missing, occurs twice, or is in another place.
    """
    end: int | None = 0
    for shard in shards:
        if not (rows := ancestry.rows(shard)):
            end = None
            continue
        if end is not None and rows[0] != end:
            raise DataError(
                f"{shard} begins with document {rows[0] + 1:,} of the corpus, but document {end + 1:,} comes next: "
                "name each shard once, in order"
            )
        end = rows[1]
    for corpus in corpora:
        documents = ancestry.record_of(corpus).record.get("facts", {}).get("documents", end)
        if end is not None and documents != end:
            raise DataError(
                f"{shards[-1]} ends with document {end:,}, but {corpus} has {documents:,}: "
                "name all shards of the corpus"
            )


def _listed(inputs: Inputs) -> dict[str, list[Path]]:
    """Return the inputs that there are, as lists."""
    return {option: [one] if isinstance(one, Path) else [*one] for option, one in inputs.items() if one}


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
    for name, told in record["outputs"].items():
        path = place.parent / name
        if not path.is_file():
            if place.parent.joinpath(*Path(name).parts[:1]).is_dir():
                yield f"{path} is missing, but {place} names it. {files.REMEDY}"
        elif (size := path.stat().st_size) != told["bytes"]:
            yield f"{path} is damaged: it has {size:,} bytes, {place} says {told['bytes']:,}. {files.REMEDY}"
        elif hashed and told.get("sha256") and files.sha256(path) != told["sha256"]:
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


def state_folder(output: Path, **computed: Any) -> Path:
    """Return the folder beside an artifact that keeps the state of the running job for the next attempt.

    Its name is a digest of the job's version and settings, the content of its inputs, and ``computed``, which must be
    all that decides the artifact. State folders of other computations of the artifact are deleted.
    """
    asked, inputs = _RUNNING.get()
    contents = {option: [record_of(path).identity for path in paths] for option, paths in inputs.items()}
    key = json.dumps({"job": asked, "inputs": contents, **computed}, sort_keys=True)
    folder = output.parent / f".{output.name}-state-{hashlib.sha256(key.encode()).hexdigest()[:16]}"
    for other in output.parent.glob(f".{output.name}-state-*"):
        if other != folder:
            shutil.rmtree(other)
    folder.mkdir(parents=True, exist_ok=True)
    return folder
