"""Reasons to rerun a job that Snakemake does not know: replaced local files, and records that do not fit."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import Any

from ..core import provenance
from ..core.contents import Contents
from .commands import Commands


def state(local: Iterable[str]) -> str:
    """Return a digest of the content of local files, and of their names within the folder that they are in.

    As a param it tells a file that was replaced, whatever its size and time, and not one that was moved or copied.
    """
    found = _contents().hashes(local)  # Snakemake names an input that is missing
    folder = os.path.commonpath([Path(path).parent for path in found]) if found else ""
    named = sorted((os.path.relpath(path, folder), digest) for path, digest in found.items())
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16] if named else ""


@cache
def _contents() -> Contents:
    return Contents()


def watch_records(workflow: Any, settings: Commands) -> None:
    """Run a job again whose record does not fit its artifacts or, without Snakemake's metadata, its settings.

    Snakemake forgets params with ``.snakemake`` (a copied or cleaned folder). It asks ``has_metadata`` of each job that
    nothing else makes it run again, before it compares params. ``--rerun-triggers mtime`` switches this off.
    """
    from snakemake.persistence import PersistenceBase
    from snakemake.settings.types import RerunTrigger

    known = PersistenceBase.has_metadata

    def has_metadata(persistence: Any, job: Any) -> bool:
        found = bool(known(persistence, job))
        if settings.known(job.rule.name) and RerunTrigger.PARAMS in workflow.rerun_triggers:
            record = job.output.get("record") or job.output.scores
            key = None if found else settings.digest(job.rule.name, job.wildcards)
            if reason := provenance.mismatch(record, key, job.output):
                workflow.logger_manager.logger.info(f"To be made again: {reason}.")
                persistence.dag.reason(job).forced = True
        return found

    PersistenceBase.has_metadata = has_metadata
