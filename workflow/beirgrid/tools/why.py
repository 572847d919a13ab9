"""``beirgrid why FILE``: show which job made an artifact, its inputs, and whether the next run makes it again."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

from ..core import files, lineage, paths, provenance, reasons
from ..core.errors import DataError, show, warn
from ..pipeline.stage import stamps
from .configfiles import DIRECTORY

_NONE = "files and the last run of each grid show no reason. A dry run (-n) reads configfiles and the lock file again"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``beirgrid why``."""
    parser.add_argument("file", type=Path, metavar="FILE", help="an artifact, or its record")
    parser.add_argument("--job", action="store_true", help="print the job alone, JSON for beirgrid stage")
    parser.add_argument("--directory", **DIRECTORY)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Print the job that made an artifact, and the reasons to make it again.

    Raises:
        DataError: no record names the artifact, or the record is damaged.
    """
    directory: Path = args.directory
    place, record = _record(args.file if args.file.exists() else directory / args.file)
    if args.job:
        if "job" not in record:
            raise DataError(f"{place} has no job: a command or an earlier version of beirgrid wrote it")
        print(json.dumps(record["job"], indent=2, ensure_ascii=False))
        return
    show(*_description(place, record))
    found = list(_reasons(place, record, directory))
    show(f"made again by the next run: {'yes' if found else f'no: {_NONE}'}", *(f"  {why}" for why in found))


def _record(path: Path) -> tuple[Path, dict[str, Any]]:
    """Return the record of an artifact, or of a file in an artifact that is a folder."""
    if path.suffix == ".json" and path.is_file():
        return path, provenance.read_record(path)
    for folder in path.parents:
        for place in sorted(folder.glob("*.json")):
            named = place in lineage.places_of_record(path)
            with nullcontext() if named else suppress(DataError, ValueError, OSError):
                record = provenance.read_record(place)
                names = [place.parent / name for name in record.get("outputs", {})]
                if any(name == path or name.is_relative_to(path) for name in names):
                    return place, record
    raise DataError(f"no record names {path}: beirgrid did not make it, or the .json file beside it is gone")


def _description(place: Path, record: Mapping[str, Any]) -> Iterator[str]:
    packages = record.get("packages", {})
    yield f"record: {place}"
    yield f"stage: {record['stage']}, version {record.get('stage_version', 'unknown')}"
    yield f"made: {record.get('finished', '')} by beirgrid {packages.get('beirgrid', 'of an unknown version')}"
    yield f"command: {provenance.command_line(record)}"
    yield "settings:"
    for name, value in (record.get("asked") or record["settings"]).items():
        yield f"  {name}: {value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
    yield "inputs:"
    for option, inputs in record.get("inputs", {}).items():
        for given in inputs:
            content = f", SHA-256 {given['sha256'][:16]}…" if given.get("sha256") else ""
            path = lineage.joined(place.parent, given["path"])
            yield f"  {option}: {path} ({given.get('bytes', 0):,} bytes{content})"


def _reasons(place: Path, record: Mapping[str, Any], directory: Path) -> Iterator[str]:
    """Yield the reasons to make the artifacts of a record again that files show."""
    try:
        provenance.compare_sizes(place, record)
    except DataError as error:
        yield str(error)
    stamp = stamps().get(record["stage"])
    version = stamp.version if stamp else None
    if version != record.get("stage_version"):
        yield f"stage version {record.get('stage_version')} → {version} (CHANGELOG.md says why)"
    for option, inputs in record.get("inputs", {}).items():
        for given in inputs:
            path = lineage.joined(place.parent, given["path"])
            told = {name: value for name, value in given.items() if name != "path"}
            if path.exists() and (now := lineage.describe(path)) != told:
                yield f"{option} {path} has another content ({', '.join(reasons.changes(told, now))})"
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
            asked = reasons.of_record(record, params) if params else "other settings"
            yield f"the grid {summary.parent.name} asks for another result: {asked}"
