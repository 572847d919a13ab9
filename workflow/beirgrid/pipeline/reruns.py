"""Reasons to rerun a job that Snakemake does not see: replaced local files, and records that do not match."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from ..core import files, provenance, reasons
from ..core.contents import Contents


def state(local: Iterable[str]) -> str:
    """Digest the contents of local files and their names within their folder.

    As a param, the digest changes when a file's content changes, and not when the file is touched, moved or copied.
    """
    found = _contents().hashes(local)  # Snakemake reports missing inputs
    folder = os.path.commonpath([Path(path).parent for path in found]) if found else ""
    named = sorted((os.path.relpath(path, folder), digest) for path, digest in found.items())
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16] if named else ""


@cache
def _contents() -> Contents:
    return Contents()


def replaced(asked: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield notices about results that this run replaces because their settings changed.

    Args:
        asked: the requested params, by record.
    """
    edited: dict[str, dict[str, None]] = {}
    older: Counter[str] = Counter()
    for path, params in asked.items():
        with contextlib.suppress(OSError, ValueError, AttributeError):  # a damaged record: its step reruns
            record = files.read_json(path)
            if record.get("stage") == "evaluate" or record.get("settings_key") in (None, provenance.digest(params)):
                continue
            if found := reasons.of_settings(record, params):
                edited.setdefault(", ".join(found), {})[Path(path).parts[2]] = None
            elif "asked" not in record:
                older[record.get("packages", {}).get("beirgrid", "an unknown version")] += 1
    for changes, names in edited.items():
        shown = [*names][:5] + ([f"{len(names) - 5} more"] if len(names) > 5 else [])
        yield (f"replaces the results of {', '.join(shown)} ({changes}); give the entry a new name to keep both")
    for release, steps in older.items():
        yield (
            f"beirgrid {release} made {steps:,} steps in this folder, without settings in their records to "
            "compare. They run again once"
        )


def watch_records(workflow: Any, rules: Any) -> None:
    """Make Snakemake rerun jobs whose record does not match their artifacts or, without metadata, their settings.

    Without ``.snakemake`` (a copied or cleaned folder), Snakemake knows no earlier params and only warns that metadata
    is missing (https://github.com/snakemake/snakemake/pull/3014). It has no interface for further rerun reasons. A
    param cannot serve as one, because params are evaluated before the upstream jobs run. This function therefore
    replaces ``has_metadata``, which Snakemake calls before it compares the params of a job that has no other reason to
    rerun. ``--rerun-triggers mtime`` turns this off.

    A workflow that includes this one twice as a module calls this function twice. Each call watches only the rules of
    its own ``rules``.
    """
    from snakemake.persistence import PersistenceBase
    from snakemake.settings.types import RerunTrigger

    known = PersistenceBase.has_metadata

    def has_metadata(persistence: Any, job: Any) -> bool:
        found = bool(known(persistence, job))
        rule = rules.rule_of(job.rule)
        if rule and RerunTrigger.PARAMS in workflow.rerun_triggers:
            records = [path for name, path in job.output.items() if name.endswith("record")] or [job.output.scores]
            asked = None if found else rule.asked(job.wildcards)
            for reason in filter(None, (provenance.mismatch(record, asked, job.output) for record in records)):
                workflow.logger_manager.logger.info(f"To be made again: {reason}.")
                persistence.dag.reason(job).forced = True
        return found

    PersistenceBase.has_metadata = has_metadata
