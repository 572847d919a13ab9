"""Store scores of (query, document) pairs: part files in a store, and a manifest of the parts that a job uses.

A store is a folder pairs/{reranker}/{dataset}/{fingerprint} with one parquet file per few minutes of work. Scoring jobs
of several first stages fill the same store.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..collections import parts as part_files
from ..core import files

# Key of a part's metadata for the server's usage (tokens, price) on its pairs.
_SPENT = b"spent"
_SCHEMA = pa.schema([("query", pa.string()), ("document", pa.string()), ("score", pa.float32())])
Pair = tuple[str, str]
PairScores = dict[Pair, float]


def read_manifest(path: Path) -> tuple[list[Path], dict[str, Any]]:
    """Read from the record of a scoring job the parts of its store that it uses, and the settings of their scores.

    Raises:
        DataError: the file is missing, damaged, or not a manifest.
    """
    with files.reading(path):
        manifest = files.read_json(path)["pairs"]
        return sorted(path.parent / manifest["store"] / name for name in manifest["parts"]), dict(manifest["settings"])


def write_part(store: Path, part: list[Pair], scores: np.ndarray, spent: Mapping[str, float] | None = None) -> None:
    """Write scores, float32 [pairs], as a part of a store, with the server's usage."""
    columns = [[query for query, _ in part], [document for _, document in part], scores]
    digest = hashlib.sha256(repr(part).encode()).hexdigest()[:16]
    table = pa.table(columns, schema=_SCHEMA)
    table = table.replace_schema_metadata({_SPENT: json.dumps(spent)}) if spent else table
    part_files.write_part(store / f"{digest}.parquet", table)


def spent_on(parts: Collection[Path], pairs: Collection[Pair]) -> dict[str, float]:
    """Estimate the server's usage for some pairs: each part's usage, in proportion to its pairs among them."""
    total: dict[str, float] = {}
    for part in parts:
        with files.reading(part):
            table = pq.read_table(part, columns=["query", "document"])
        of_part = zip(table["query"].to_pylist(), table["document"].to_pylist(), strict=True)
        share = sum(pair in pairs for pair in of_part) / len(table)
        for name, number in json.loads((table.schema.metadata or {}).get(_SPENT, "{}")).items():
            total[name] = total.get(name, 0.0) + share * number
    return {name: round(number, 6) for name, number in total.items()}


def read_parts(parts: Collection[Path], pairs: Collection[Pair]) -> PairScores:
    """Read the scores of some pairs from parts. Damaged parts are deleted, with a warning."""
    scores: PairScores = {}
    for part in sorted(parts):
        if (table := part_files.read_part(part, _SCHEMA)) is not None:
            rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
            scores.update(((query, document), score) for query, document, score in rows if (query, document) in pairs)
    return scores
