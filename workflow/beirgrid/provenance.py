"""What made an artifact: written beside each, as JSON, when the artifact is whole."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import resource
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import __version__, files

# The version of each stage's output. It stands in the params of the stage's rule: raising it is
# what makes Snakemake recompute the stage after a change of code that changes its output.
STAGE_VERSIONS = {
    "fetch": 1,
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
    "aggregate": 1,
    "report": 2,
}

_PACKAGES = {
    "fetch": ("ir_datasets", "datasets", "pyarrow"),
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
def record(stage: str, path: str | Path, settings: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Time the block and, if it succeeds, write what made its artifact to ``path``.

    Yields a dict for facts found on the way (``documents``, ``device``, ``bytes``, …), which end up
    under the key ``facts``; seconds and peak memory in MB are added here.
    """
    facts: dict[str, Any] = {}
    started = time.monotonic()
    yield facts
    seconds = time.monotonic() - started
    files.write_json(
        path,
        {
            "stage": stage,
            "stage_version": STAGE_VERSIONS[stage],
            "command": shlex.join(["python", "-m", "beirgrid", *sys.argv[1:]]),
            "settings": settings,
            "facts": facts,
            "seconds": round(seconds, 3),
            "peak_memory_mb": _peak_memory_mb(),
            "packages": _installed(stage),
            "cpus": len(os.sched_getaffinity(0)),
            "finished": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        },
    )
