"""Reasons to rerun a job that Snakemake does not see: replaced local files, and records that do not match."""

from __future__ import annotations

import functools
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..core import files, provenance
from ..core.checkout import portable
from ..core.errors import DataError


@functools.cache
def _sha256(path: str, changed: int) -> str:
    """Return the hash of a local file, which a run reads once. ``changed`` is the time of its last change."""
    return files.sha256(path)


def state(local: Iterable[str]) -> str:
    """Digest the contents of local files and their names within their folder.

    As a param, the digest changes when a file's content changes, and not when the file is touched, moved or copied.
    """
    digests = {}
    for path in local:
        with suppress(OSError):  # Snakemake reports missing inputs. A pipe or a device is not read.
            changed = Path(path).stat().st_ctime_ns
            digests[path] = _sha256(os.path.realpath(path), changed) if Path(path).is_file() else str(changed)
    folder = os.path.commonpath([Path(path).parent for path in digests]) if digests else ""
    named = sorted((os.path.relpath(path, folder), digest) for path, digest in digests.items())
    return hashlib.sha256(json.dumps(named).encode()).hexdigest()[:16] if named else ""


def reason(record: Path, params: Callable[[], Mapping[str, Any]]) -> str:
    """Return why the artifacts of a record must be made again, or an empty string.

    Snakemake does not see damage, nor, in a folder without its metadata, other settings. A missing record is an output,
    which it looks for itself.
    """
    if not record.is_file():
        return ""
    try:
        known = provenance.read_record(record)
        if known["settings_key"] != provenance.digest(asked := params()):
            read = provenance.without_paths if asked.get("files") else json.loads
            made = known.get("job", {}).get("settings", known.get("asked", {}))  # records of 0.2.0 have no job
            before = {"stage version": known["stage_version"], **read(json.dumps(made))}
            now = {"stage version": asked["version"], **portable(read(asked["settings"]))}
            return ", ".join(provenance.changes(before, now)) or "a local file"
        mismatch = next(provenance.mismatches(record, known), "")
    except DataError as error:
        mismatch = str(error)
    return mismatch.removesuffix(f". {files.REMEDY}")


def notices(reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield a line about each reason to make artifacts again."""
    for reason in dict.fromkeys(reasons.values()):
        [first, *others] = [path for path, of_path in reasons.items() if of_path == reason]
        more = f" and {len(others):,} more" if others else ""
        yield f"To be made again, replacing what is there: {first}{more} ({reason})"
