"""``beirgrid why FILE``: show which job made an artifact, its inputs, and whether the next run makes it again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

from ..core import files, paths, provenance
from ..core.errors import DataError, show, warn
from ..core.provenance import Recorded
from ..pipeline.stage import stamps
from .options import Directory

_NONE = "files and the last run of each grid show no reason. A dry run (-n) reads configfiles and the lock file again"


def why(
    file: Annotated[Path, "an artifact, or its record"],
    *,
    job: Annotated[bool, "print the job alone, JSON for beirgrid stage"] = False,
    directory: Directory = Path(),
) -> None:
    """Print the job that made an artifact, and the reasons to make it again.

    Raises:
        DataError: no record names the artifact, or the record is damaged.
    """
    known = _recorded(file if file.exists() else directory / file)
    if job:
        if "job" not in known.record:
            raise DataError(f"{known.place} has no job: a command or an earlier version of beirgrid wrote it")
        print(json.dumps(known.record["job"], indent=2, ensure_ascii=False))
        return
    show(*_description(known))
    reasons = list(_reasons(known, directory))
    show(f"made again by the next run: {'yes' if reasons else f'no: {_NONE}'}", *(f"  {why}" for why in reasons))


def _recorded(path: Path) -> Recorded:
    """Return an artifact with its record, which may be of a folder that the file is in."""
    for artifact in (path, *path.parents):
        if place := (known := provenance.recorded(artifact)).place:
            return known._replace(record=provenance.read_record(place))
    raise DataError(f"no record names {path}: beirgrid did not make it, or the .json file beside it is gone")


def _description(known: Recorded) -> Iterator[str]:
    record = known.record
    packages = record.get("packages", {})
    yield f"record: {known.place}"
    yield f"stage: {record['stage']}, version {record.get('stage_version', 'unknown')}"
    yield f"made: {record.get('finished', '')} by beirgrid {packages.get('beirgrid', 'of an unknown version')}"
    yield f"command: {provenance.command_line(record)}"
    yield "settings:"
    for name, value in (provenance.asked_of(record) or record["settings"]).items():
        yield f"  {name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
    yield "inputs:"
    for option, path, told in known.inputs:
        content = f", SHA-256 {told['sha256'][:16]}…" if told.get("sha256") else ""
        yield f"  {option}: {path} ({told.get('bytes', 0):,} bytes{content})"


def _reasons(known: Recorded, directory: Path) -> Iterator[str]:
    """Yield the reasons to make the artifacts of a record again that files show."""
    record, place = known.record, known.place or known.path
    yield from provenance.mismatches(place, record)
    stamp = stamps().get(record["stage"])
    version = stamp.version if stamp else None
    if version != record.get("stage_version"):
        yield f"stage version {record.get('stage_version')} → {version} (CHANGELOG.md says why)"
    for option, path, told in known.inputs:
        if not path.exists():
            continue
        now = provenance.recorded(path).identity(whole="sha256" in told)
        if now != told:
            yield f"{option} {path} has another content ({', '.join(provenance.changes(told, now))})"
        elif path.is_file() and path.stat().st_mtime_ns > place.stat().st_mtime_ns:
            yield f"{option} {path} is newer"
    for summary in sorted(directory.glob(paths.GRID_SUMMARY.format(grid="*"))):  # they have the requested settings
        try:
            with files.reading(summary):
                grid = files.read_json(summary)
        except DataError as error:
            warn(f"the grid {summary.parent.name} is left out: {error}")
            continue
        keys = {(directory / path).resolve(): key for path, key in grid.get("settings", {}).items()}
        digest = keys.get(place.resolve(), record.get("settings_key"))
        if digest != record.get("settings_key"):
            params = grid.get("asked", {}).get(digest)  # earlier versions kept only digests
            asked = provenance.explanation(record, params) if params else "other settings"
            yield f"the grid {summary.parent.name} asks for another result: {asked}"
