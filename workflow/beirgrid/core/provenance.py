"""What made an artifact: written beside each, as JSON, when the artifact is whole."""

from __future__ import annotations

import datetime
import hashlib
import importlib.metadata
import json
import os
import platform
import resource
import shlex
import sys
import time
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .. import __version__
from . import files
from .errors import DataError

# Where a rule leaves the digest of its params for the job that it starts (``settings_of`` in common.smk).
SETTINGS = "BEIRGRID_SETTINGS"

# Files of at most so many bytes are held against their SHA-256, larger ones against their size alone.
HASHED = 2**24

# The version of each stage's output. It stands in the params of the stage's rule: raising it is
# what makes Snakemake recompute the stage after a change of code that changes its output.
STAGE_VERSIONS = {
    "fetch": 1,
    "fetch_dataset": 2,
    "train": 1,
    "generate": 1,
    "mine": 1,
    "label": 1,
    "adapt": 2,
    "encode": 2,
    "expand": 1,
    "index": 1,
    "retrieve": 3,
    "score": 2,
    "rerank": 1,
    "fuse": 1,
    "evaluate": 1,
    "aggregate": 2,
    "report": 3,
}

_PACKAGES = {
    "fetch": ("ir_datasets", "datasets", "pyarrow", "torch", "safetensors"),
    "fetch_dataset": ("ir_datasets", "datasets", "pyarrow"),
    "train": ("torch", "transformers", "sentence-transformers"),
    "generate": ("torch", "transformers"),
    "mine": ("faiss-cpu", "pyserini", "torch", "sentence-transformers"),
    "label": ("torch", "transformers", "sentence-transformers"),
    "adapt": ("torch", "transformers", "sentence-transformers"),
    "encode": ("torch", "transformers", "sentence-transformers"),
    "expand": ("torch", "transformers", "sentencepiece"),
    "index": ("faiss-cpu", "pyserini"),
    "retrieve": ("faiss-cpu", "pyserini", "torch", "sentence-transformers"),
    "score": ("torch", "transformers", "sentence-transformers"),
    "fuse": ("ranx",),
    "evaluate": ("ranx",),
}


def _installed(stage: str) -> dict[str, str]:
    versions = {"beirgrid": __version__, "python": platform.python_version()}
    for package in _PACKAGES.get(stage, ()):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue  # another environment's package: lexical jobs have no torch, and so on
    return versions


def _peak_memory_mb() -> float:
    """Peak resident memory of this process and of its largest child (Java, say), in MB."""
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    child = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return round((own + child) / 1024, 1)


@contextmanager
def record(
    stage: str, path: str | Path, settings: dict[str, Any], outputs: Iterable[str | Path] = ()
) -> Iterator[dict[str, Any]]:
    """Time the block and, if it succeeds, write what made its artifacts to ``path``.

    Yields a dict for facts found on the way (``documents``, ``device``, ``bytes``, …), which end up
    under the key ``facts``; seconds and peak memory in MB are added here.

    Args:
        stage: name of the stage.
        path: the record, .json.
        settings: what the artifacts depend on beside their inputs.
        outputs: the artifacts, files or folders; the block may still add to a list.
    """
    facts: dict[str, Any] = {}
    started = time.monotonic()
    yield facts
    seconds = time.monotonic() - started
    command = shlex.join(["python", "-m", "beirgrid", *sys.argv[1:]])
    key = os.environ.get(SETTINGS)
    files.write_json(
        path,
        {
            "stage": stage,
            "stage_version": STAGE_VERSIONS[stage],
            "command": f"{SETTINGS}={key} {command}" if key else command,
            "settings": settings,
            "settings_key": key,
            "outputs": {name: facts for output in outputs for name, facts in _contents(Path(output), Path(path))},
            "facts": facts,
            "seconds": round(seconds, 3),
            "peak_memory_mb": _peak_memory_mb(),
            "packages": _installed(stage),
            "cpus": len(os.sched_getaffinity(0)),
            "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    )


def _contents(output: Path, made: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each file of an artifact, named from the folder of its record, with its bytes and, if small, its hash."""
    for path in sorted(output.rglob("*")) if output.is_dir() else [output]:
        if path.is_file():
            size = path.stat().st_size
            digest = {"sha256": files.sha256(path)} if size <= HASHED else {}
            yield os.path.relpath(path, made.parent), {"bytes": size, **digest}


def read_record(path: str | Path) -> dict[str, Any]:
    """Read a record.

    Raises:
        DataError: it is missing, damaged, or no record.
    """
    with files.reading(path):
        found = files.read_json(path)
    missing = {"stage", "settings", "facts", "seconds", "peak_memory_mb"} - set(
        found if isinstance(found, dict) else ()
    )
    if missing:
        raise DataError(f"{path} is not a record of beirgrid (it has no {min(missing)!r}). {files.REMEDY}")
    return dict(found)


def artifact(path: str | Path) -> Path:
    """Return the path of an artifact which is as its record says, for use as the type of a stage's option.

    An artifact without a record beside it, a run of one's own for example, is taken as it is.

    Raises:
        DataError: a file of it is missing, or has other bytes or another hash; or the record is damaged.
    """
    path = Path(path)
    for made in _records(path):
        if made.is_file():
            with files.reading(made):
                found = files.read_json(made)
            outputs = found.get("outputs", {}) if isinstance(found, dict) else {}
            wanted = {name: facts for name, facts in outputs.items() if Path(name).parts[0] == path.name}
            for name, facts in wanted.items():
                _compare(made.parent / name, facts, made)
            if wanted:
                break
    return path


def _records(path: Path) -> list[Path]:
    """Return where the record of an artifact may stand (paths.py)."""
    stem = path.name.removesuffix(".run.gz").removesuffix(".per-query.parquet")
    stem = stem if stem != path.name else path.stem
    return [path.with_name(f"{name}.json") for name in (stem, "dataset", "model", "tables", "report")]


def _compare(path: Path, facts: dict[str, Any], made: Path) -> None:
    """Raise DataError if a file is not what its record says."""
    if not path.is_file():
        raise DataError(f"{path} is missing, which {made} names. {files.REMEDY}")
    if (size := path.stat().st_size) != facts["bytes"]:
        raise DataError(f"{path} is damaged: it has {size:,} bytes, {made} says {facts['bytes']:,}. {files.REMEDY}")
    if "sha256" in facts and files.sha256(path) != facts["sha256"]:
        raise DataError(f"{path} is damaged: it has another SHA-256 than {made} says. {files.REMEDY}")


def digest(params: dict[str, Any]) -> str:
    """Return 16 hex digits that stand for the params of a rule."""
    return hashlib.sha256(json.dumps(params, sort_keys=True).encode()).hexdigest()[:16]


def mismatch(made: str | Path, key: str | None, outputs: Collection[str] = ()) -> str | None:
    """Return why the artifacts of a record are to be made again, or None; sizes are compared, no hashes.

    Args:
        made: the record. None is returned where it is missing: it is an output that Snakemake looks after itself.
        key: digest of the settings that are asked for; None if they are known to be those.
        outputs: artifacts that may be missing, since Snakemake looks after them itself.
    """
    made = Path(made)
    if not made.is_file():
        return None
    try:
        found = read_record(made)
        if key and found.get("settings_key") != key:
            return f"{made} was made with other settings"
        for name, facts in found.get("outputs", {}).items():
            path = made.parent / name
            absent = not path.is_file()
            if absent and any(Path(output) in (path, *path.parents) for output in outputs):
                continue
            if absent or path.stat().st_size != facts["bytes"]:
                return f"{path} is {'missing' if absent else 'damaged'}"
    except DataError as error:
        return str(error)
    return None
