"""Store results in parts, parquet files that an interrupted job leaves to the next attempt."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files
from ..core.errors import DataError, warn


def write_part(path: Path, rows: pa.Table) -> None:
    """Write a part."""
    with files.atomic(path) as temporary:
        pq.write_table(rows, temporary, write_page_checksum=True)


def read_part(path: Path, schema: pa.Schema, rows: int | None = None) -> pa.Table | None:
    """Read a part with columns of ``schema``, and of so many rows if given; None if there is no such part.

    A part that is damaged, of another form, or has numbers that are not finite is deleted, with a warning.
    """
    if not path.is_file():
        return None
    try:
        with files.reading(path):
            table = pq.read_table(path, page_checksum_verification=True)
            if table.schema != schema or rows not in (None, len(table)):
                raise ValueError("it has other columns or another number of rows")
            numbers = [column.name for column in schema if pa.types.is_floating(column.type)]
            if not all(np.isfinite(table[name]).all() for name in numbers):
                raise ValueError("a number is not finite")
    except DataError as error:
        warn(f"{error}: its rows are computed again")
        path.unlink(missing_ok=True)
        return None
    return table


def join_parts(parts: Iterable[Path], output: Path, schema: pa.Schema) -> None:
    """Join parts to one file, one row group per part."""
    with files.atomic(output) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for part in parts:
            with files.reading(part):
                rows = pq.read_table(part, page_checksum_verification=True)
            writer.write_table(rows)
