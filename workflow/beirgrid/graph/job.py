"""Run one job: a JSON object with its inputs, outputs, settings, and options that change no output."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import json
import os
import resource
import shlex
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, cast, get_type_hints

from pydantic import TypeAdapter, ValidationError

from ..config.values import mistakes
from ..core import files, lineage, provenance
from ..core.checkout import portable
from ..core.errors import BeirgridError, ConfigError, nearest
from ..core.provenance import Made, Stamp
from .dag import by_function

# The parts of a job that hold arguments of its function.
_PARTS = ("inputs", "outputs", "settings", "options")


def stage(name: Annotated[str, "function of the job, such as rerank or index_lexical"]) -> None:
    """Run one job, a JSON object on standard input.

    Raises:
        BeirgridError: as ``run``.
    """
    run(name, sys.stdin.buffer.read())


def run(name: str, text: bytes) -> None:
    """Run the work of a stage with the arguments of a job, JSON text, and write the record of what it made.

    Raises:
        BeirgridError: there is no such stage, the text is no job, or an argument is unknown, missing or wrong.
        DataError: the inputs do not belong together.
    """
    function = stage_function(name)
    try:
        job = {"stage": name, **json.loads(text, object_pairs_hook=files.distinct)}
        values = options(job)
    except (ValueError, AttributeError, TypeError) as error:
        raise ConfigError(f"standard input is not a job, a JSON object of {', '.join(_PARTS)}: {error}") from None
    validated = arguments(function, values)
    if not (record := job.get("outputs", {}).get(_record_name(name))):
        raise ConfigError(f"outputs.{_record_name(name)}: Missing: the record to write")
    record_of_job = JobRecord(by_function()[name].stamp, job)
    made = function(**validated)
    record_of_job.write(Path(record), made if isinstance(made, Made) else Made(made))


class JobRecord:
    """Writes the record of a job's artifacts: what the job was, what it read and made, and what that took.

    Raises:
        DataError: the inputs of the job do not belong together (``check``).
    """

    def __init__(self, stamp: Stamp, job: Mapping[str, Any]) -> None:
        self.stamp = stamp
        self.job = job
        given = job.get("inputs", {}).items()
        self.inputs = {name: [*map(Path, [paths] if isinstance(paths, str) else paths)] for name, paths in given}
        self.ancestry = lineage.Ancestry()
        self.lineage = job.get("lineage", {})
        self.behind = lineage.check(self.inputs, self.lineage, job.get("settings", {}), self.ancestry)
        asked = {"version": stamp.version, "settings": job.get("settings")}
        provenance.RUNNING.set((asked, self.inputs))
        self.started = time.monotonic()

    def write(self, path: Path, made: Made) -> None:
        """Write the record, with seconds and peak memory in MB since the recorder was made."""
        seconds = time.monotonic() - self.started
        folder = path.parent
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
                "model": self.job.get("model"),
                "command": shlex.join(command),
                "job": portable(dict(self.job)),
                "inputs": {
                    option: [{"path": os.path.relpath(path, folder), **self.ancestry.identity(path)} for path in paths]
                    for option, paths in self.inputs.items()
                },
                "behind": self.behind,
                "outputs": {
                    os.path.relpath(path, folder): {"bytes": path.stat().st_size, "sha256": files.sha256(path)}
                    for output in [*outputs, *made.outputs]
                    for path in provenance.files_of(output)
                },
                "facts": made.facts,
                "seconds": round(seconds, 3),
                "peak_memory_mb": round(sum(peaks) / 1024, 1),
                "packages": provenance.installed(self.stamp.packages),
                "cpus": len(os.sched_getaffinity(0)),
                "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                **made.results,
            },
        )


def stage_function(name: str) -> Callable[..., Any]:
    """Import the function of a stage.

    Raises:
        BeirgridError: there is no such stage.
    """
    if name not in by_function():
        known = ", ".join(sorted(by_function()))
        raise BeirgridError(f"there is no stage {name!r}{nearest(name, by_function()) or f' (known: {known})'}")
    imported: Callable[..., Any] = getattr(importlib.import_module(by_function()[name].module), name)
    return imported


def opener(name: str) -> Callable[..., Any] | None:
    """Import the function ``open_{name}`` beside a stage's work, which opens what its jobs made; None without one."""
    return getattr(sys.modules[stage_function(name).__module__], f"open_{name}", None)


def options(job: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a job, of all its parts, by the names of its function's arguments.

    The record is the runner's, and no argument.
    """
    values = {name: value for part in _PARTS for name, value in job.get(part, {}).items()}
    values.pop(_record_name(job["stage"]), None)
    return values


def _record_name(function: str) -> str:
    """Return the name of the record among the outputs of a job. The record of an evaluation is its scores."""
    return "record" if "record" in by_function()[function].outputs else "output"


def arguments(function: Callable[..., Any], values: Mapping[str, Any]) -> dict[str, Any]:
    """Validate values against a function's signature, and return its arguments. Artifacts are compared with their
    records.

    An argument that is a dataclass takes its fields from the values.

    Raises:
        ConfigError: a value is unknown, missing or wrong.
        DataError: an artifact is damaged.
    """
    nested = dict(values)
    for name, kind in get_type_hints(function).items():
        if dataclasses.is_dataclass(kind):
            names = [field.name for field in dataclasses.fields(kind)]
            nested[name] = {name: nested.pop(name) for name in names if name in nested}

    try:
        validated: dict[str, Any] = _adapter(function).validate_json(json.dumps(nested))
    except ValidationError as error:
        raise ConfigError("; ".join(mistakes(error, "", nested))) from None
    return validated


@functools.cache
def _adapter(function: Callable[..., Any]) -> TypeAdapter[dict[str, Any]]:
    """Return what validates the arguments of a function, which takes longer to make than a small job."""

    @functools.wraps(function)
    def keep(**values: Any) -> dict[str, Any]:
        return values

    return TypeAdapter(cast(Any, keep))
