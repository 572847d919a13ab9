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
from ..core.errors import DataError
from ..core.portable import portable

_NONE = object()


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
            before = read(json.dumps(known.get("job", {}).get("settings", known.get("asked", {}))))  # 0.2.0 had no job
            versions = changes(known["stage_version"], asked["version"], "stage version")
            return ", ".join([*versions, *changes(before, portable(read(asked["settings"])))]) or "a local file"
        mismatch = next(provenance.mismatches(record, known), "")
    except DataError as error:
        mismatch = str(error)
    return mismatch.removesuffix(f". {files.REMEDY}")


def changes(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Yield each changed key with both values: ``max_length 256 → 128``."""
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*before, *now]):
            yield from changes(before.get(name, _NONE), now.get(name, _NONE), f"{key}.{name}".lstrip("."))
    elif before != now:
        shown = ["(none)" if value is _NONE else json.dumps(value, ensure_ascii=False) for value in (before, now)]
        yield f"{key} {' → '.join(text if len(text) <= 60 else f'{text[:40]} … {text[-15:]}' for text in shown)}"


def notices(reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield a line about each reason to make artifacts again."""
    for reason in dict.fromkeys(reasons.values()):
        [first, *others] = [path for path, of_path in reasons.items() if of_path == reason]
        more = f" and {len(others):,} more" if others else ""
        yield f"To be made again, replacing what is there: {first}{more} ({reason})"
