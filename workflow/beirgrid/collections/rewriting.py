"""Texts in place of queries: read and write them, and join them with the queries as their methods do.

- hyde (Gao et al. 2022): BM25 reads the passages after the query. A dense model searches with the mean of the vectors
  of the query and of the passages, which it reads as documents (``stages.retrieve``).
- query2doc (Wang et al. 2023): BM25 reads the query five times and then the text, a dense model ``query [SEP] text``.
- keywords (Jagerman et al. 2023): BM25 reads the query five times, too; a dense model reads it as for query2doc.
- own: the texts stand in place of the query.

A query without a text is searched as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files
from ..core.errors import DataError, quantity, quoted, warn
from .sources import json_lines, read_id, read_text

SCHEMA = pa.schema([("_id", pa.string()), ("texts", pa.list_(pa.string()))])
# How often BM25 reads the query before the text.
_REPEATED = {"query2doc": 5, "keywords": 5, "hyde": 1, "own": 0}
_IDS = ("_id", "id", "qid", "query_id")
_TEXTS = ("text", "reformulated", "query")
Texts = Mapping[str, list[str]]


def write(path: Path, texts: Texts) -> None:
    """Write the texts of each query."""
    with files.atomic(path) as temporary:
        pq.write_table(pa.table([[*texts], [*texts.values()]], schema=SCHEMA), temporary)


def read(path: Path) -> dict[str, list[str]]:
    """Return the texts of each query."""
    with files.reading(path):
        table = pq.read_table(path, schema=SCHEMA)
    return dict(zip(table["_id"].to_pylist(), table["texts"].to_pylist(), strict=True))


def read_lines(path: Path, queries: Mapping[str, str]) -> dict[str, list[str]]:
    """Return the texts of each query from a .jsonl file of other software, a text in each line.

    Texts of other queries are left out, with a warning.

    Raises:
        DataError: a line cannot be read, or the file has no text of a query.
    """
    texts: dict[str, list[str]] = {query: [] for query in queries}
    others: dict[str, None] = {}
    for row, place in json_lines(path):
        identifier = read_id(row, place, next((key for key in _IDS if key in row), _IDS[0]))
        text = read_text(row, next((key for key in _TEXTS if key in row), _TEXTS[0]), place, required=True)
        if identifier in texts:
            texts[identifier] += [text] if text.strip() else []
        else:
            others[identifier] = None
    if lacking := [query for query, of_query in texts.items() if not of_query]:
        count = f"{len(lacking):,} of the {quantity(len(texts), 'query')}"
        raise DataError(f"{path} has no text of {count} ({quoted(lacking[0])}, say): add a line with its id for each")
    if others:
        count = quantity(len(others), "other query")
        warn(f"{path}: the dataset lacks {count} ({quoted(next(iter(others)))}, say), whose texts are left out")
    return texts


def for_words(method: str, queries: Mapping[str, str], texts: Texts) -> dict[str, str]:
    """Return what BM25 reads in place of each query."""
    return {
        query: " ".join([*[text] * _REPEATED[method], *texts[query]]) if texts[query] else text
        for query, text in queries.items()
    }


def for_vectors(method: str, queries: Mapping[str, str], texts: Texts) -> dict[str, str]:
    """Return what a dense model reads as each query. Of hyde, that is the query: its passages are documents."""
    if method == "hyde":
        return dict(queries)
    if method == "own":
        return for_words(method, queries, texts)
    return {query: " [SEP] ".join([text, *texts[query]]) for query, text in queries.items()}
