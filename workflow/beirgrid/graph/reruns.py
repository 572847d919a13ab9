"""Reasons to rerun a job that Snakemake does not know: replaced local files, and records that do not fit."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..core import files, provenance, reasons
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


def state_of(local: Callable[[Any], str | list[str]]) -> Callable[[Any], str]:
    """Return the function of the wildcards that gives the state of a job's local files, which ``local`` names."""

    def of_job(wildcards: Any) -> str:
        found = local(wildcards)
        return state([found] if isinstance(found, str) else found)

    return of_job


def replaced(asked: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield what a person should know of results that a run replaces, since the grid asks for other settings.

    Args:
        asked: the params that the grid asks for, by record.
    """
    edited: dict[str, dict[str, None]] = {}
    older: Counter[str] = Counter()
    for path, params in asked.items():
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a damaged record is made again
            record = files.read_json(path)
            if record.get("stage") == "evaluate" or record.get("settings_key") in (None, provenance.digest(params)):
                continue
            if found := reasons.of_settings(record, params):
                edited.setdefault(", ".join(found), {})[Path(path).parts[2]] = None
            elif "asked" not in record:
                older[record.get("packages", {}).get("beirgrid", "of an unknown version")] += 1
    for changes, names in edited.items():
        shown = [*names][:5] + ([f"{len(names) - 5} more"] if len(names) > 5 else [])
        yield (f"replaces the results of {', '.join(shown)} ({changes}); give the entry a new name to keep both")
    for release, steps in older.items():
        yield (
            f"beirgrid {release} made {steps:,} steps in this folder, and kept no settings to compare in their "
            "records. They are made again, once: later versions keep what they would write unchanged"
        )


def watch_records(workflow: Any, commands: Commands) -> None:
    """Run a job again whose record does not fit its artifacts or, without Snakemake's metadata, its settings.

    Snakemake forgets params with ``.snakemake`` (a copied or cleaned folder). It then only says that metadata is
    missing (https://github.com/snakemake/snakemake/pull/3014). It has no interface for another reason to rerun, and a
    param cannot be one: it is evaluated before the job runs that would change it. Snakemake asks ``has_metadata`` of
    each job that nothing else makes it run again, before it compares params. ``--rerun-triggers mtime`` turns this off.

    A workflow that uses this one as a module twice calls this function twice: each call watches the rules of its own
    ``commands`` alone.
    """
    from snakemake.persistence import PersistenceBase
    from snakemake.settings.types import RerunTrigger

    known = PersistenceBase.has_metadata

    def has_metadata(persistence: Any, job: Any) -> bool:
        found = bool(known(persistence, job))
        rule = commands.rule_of(job.rule)
        if rule and RerunTrigger.PARAMS in workflow.rerun_triggers:
            record = job.output.get("record") or job.output.scores
            asked = None if found else commands.asked(rule, job.wildcards)
            if reason := provenance.mismatch(record, asked, job.output):
                workflow.logger_manager.logger.info(f"To be made again: {reason}.")
                persistence.dag.reason(job).forced = True
        return found

    PersistenceBase.has_metadata = has_metadata
