"""Cache the computed statistics of a grid in a folder of Parquet files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files

_ABOUT = b"beirgrid"


class Kept(NamedTuple):
    """Tables by kind (as in ``results.answers``), and the digest of their inputs."""

    digest: str
    tables: Mapping[str, pd.DataFrame]


def read(folder: Path) -> dict[str, Kept]:
    """Read a cache folder, by name. Damaged files are ignored."""
    found: dict[str, Kept] = {}
    for path in sorted(folder.glob("*.parquet")):
        try:
            table = pq.read_table(path)
            about = json.loads(table.schema.metadata[_ABOUT])
            kept = found.setdefault(about["name"], Kept(about["digest"], {}))
            if kept.digest == about["digest"]:
                found[about["name"]] = kept._replace(tables={**kept.tables, about["kind"]: table.to_pandas()})
        except (OSError, ValueError, TypeError, KeyError, pa.ArrowException):
            continue
    return found


def write(folder: Path, kept: Mapping[str, Kept], known: Mapping[str, Kept]) -> None:
    """Write the entries that the folder does not have yet, and delete its other files."""
    names = {f"{name}.{kind}.parquet" for name, entry in kept.items() for kind in entry.tables}
    for path in folder.glob("*"):
        if path.name not in names and path.suffix in (".parquet", ".json"):
            path.unlink(missing_ok=True)
    for name, entry in kept.items():
        for kind, frame in entry.tables.items() if entry is not known.get(name) else ():
            about = json.dumps({"name": name, "kind": kind, "digest": entry.digest}).encode()
            table = pa.Table.from_pandas(frame, preserve_index=False)
            table = table.replace_schema_metadata({**(table.schema.metadata or {}), _ABOUT: about})
            with files.atomic(folder / f"{name}.{kind}.parquet") as temporary:
                pq.write_table(table, temporary)
