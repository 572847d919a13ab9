"""Store expansions in parts of a shard, which an interrupted job leaves to the next attempt."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files
from ..core.errors import DataError, warn


def write_part(path: Path, rows: pa.Table) -> None:
    """Write the expansions of some documents as a part."""
    with files.atomic(path) as temporary:
        pq.write_table(rows, temporary, write_page_checksum=True)


def is_whole(path: Path, schema: pa.Schema, documents: int) -> bool:
    """Tell whether a part exists with the expansions of ``documents`` documents. A damaged part is deleted."""
    if not path.is_file():
        return False
    try:
        with files.reading(path):
            table = pq.read_table(path, page_checksum_verification=True)
            if table.schema != schema or len(table) != documents:
                raise ValueError("it has other columns or other documents")
    except DataError as error:
        warn(f"{error}: its documents are expanded again")
        path.unlink()
        return False
    return True


def join(parts: Iterable[Path], output: Path, schema: pa.Schema) -> None:
    """Join parts to a shard, one row group per part."""
    with files.atomic(output) as temporary, pq.ParquetWriter(temporary, schema) as writer:
        for part in parts:
            with files.reading(part):
                rows = pq.read_table(part, page_checksum_verification=True)
            writer.write_table(rows)
