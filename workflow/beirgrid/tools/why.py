"""``beirgrid why FILE``: show which job made an artifact, its inputs, and whether the next run makes it again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

from ..core import lineage, provenance
from ..core.errors import DataError, quantity, show
from ..core.provenance import ArtifactRecord
from ..graph.dag import stamps
from ..options import Directory
from ..results import results_folder

_NONE = "the files show no reason. A dry run (beirgrid run … -n) also compares the settings"


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
    path = file if file.exists() else directory / file
    known = next((known for artifact in (path, *path.parents) if (known := provenance.record_of(artifact)).place), None)
    if known is None:
        raise DataError(f"no record names {path}: beirgrid did not make it, or the .json file beside it is gone")
    if job:
        if not known.record.get("job"):
            raise DataError(f"{known.place} has no job: a command or an earlier version of beirgrid wrote it")
        print(json.dumps(known.record["job"], indent=2, ensure_ascii=False))
        return
    record = known.record
    show(
        f"record: {known.place}",
        f"stage: {record['stage']}, version {record['stage_version']}",
        f"made: {record['finished']} by beirgrid {record['packages']['beirgrid']}",
        f"command: {provenance.command_line(record)}",
        "settings:",
        *(f"  {name}: {json.dumps(value, ensure_ascii=False)}" for name, value in record["settings"].items()),
        "inputs:",
        *(f"  {option}: {path} ({recorded['bytes']:,} bytes)" for option, path, recorded in known.inputs),
    )
    reasons = list(_reasons(known, known.place or path))
    show(f"made again by the next run: {'yes' if reasons else f'no: {_NONE}'}", *(f"  {why}" for why in reasons))


def outdated(directory: Path, grid: str = "") -> Iterator[str]:
    """Yield a line if an earlier version made cells that the next run makes again: how many, and why."""
    again = []
    try:
        for cell in results_folder.find(directory, grid).cells.values():
            paths = filter(Path.is_file, (*cell.records, cell.scores))
            records = [record for record in map(provenance.read_record, paths) if _raised(record)]
            again += [records] if records else []
    except DataError:  # no results, or damaged ones, which the command names itself
        return
    if again:
        records = [record for records in again for record in records]
        made = ", ".join(dict.fromkeys(record["packages"]["beirgrid"] for record in records))
        why = ", ".join(dict.fromkeys(f"{record['stage']}: {_raised(record)}" for record in records))
        cells = quantity(len(again), "cell")
        yield f"Made by version {made}; {cells} will be made again, because {why} (CHANGELOG.md says why)."


def _raised(record: Mapping[str, Any]) -> str:
    """Return how the version of a record's stage has changed since, or nothing."""
    stamp = stamps().get(record["stage"])
    if stamp is None or stamp.version == record["stage_version"]:
        return ""
    return f"stage version {record['stage_version']} → {stamp.version}"


def _reasons(known: ArtifactRecord, place: Path) -> Iterator[str]:
    """Yield the reasons to make the artifacts of a record again that files show."""
    record = known.record
    yield from provenance.mismatches(place, record)
    if change := _raised(record):
        yield f"{change} (CHANGELOG.md says why)"
    try:
        lineage.check({"record": place})
    except DataError as error:
        yield str(error)
    for option, path, _ in known.inputs:
        if path.is_file() and path.stat().st_mtime_ns > place.stat().st_mtime_ns:
            yield f"{option} {path} is newer"
