"""Read published predicted queries (doc2query) and sort them into the order of a corpus."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from glob import glob
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from ..config.systems import HubExpansion, LocalExpansion, PublishedExpansion
from ..core.checkout import resolve_path
from ..core.errors import DataError, quoted
from ..core.progress import Progress
from . import collection
from .sources import encodable, errors_of_library, json_lines, read_id, read_text

# Documents per bucket, whose queries are in memory together.
BUCKET = 65_536
_IDS = ("_id", "id", "docid", "doc_id")
_LISTS = ("queries", "predicted_queries")


class Predicted(NamedTuple):
    """Some queries of a document, or all of them (``whole``)."""

    id: str
    queries: list[str]
    place: str
    whole: bool


def obtain(entry: LocalExpansion | HubExpansion, folder: Path) -> Path:
    """Return where an entry's files are: ``folder``, after their download, if they are on the hub."""
    if isinstance(entry, LocalExpansion):
        return resolve_path(entry.path)
    from huggingface_hub import snapshot_download

    with errors_of_library(f"{entry.id} at {entry.revision[:12]}"):
        snapshot_download(
            entry.id, repo_type="dataset", revision=entry.revision, local_dir=folder, allow_patterns=list(entry.files)
        )
    shutil.rmtree(folder / ".cache", ignore_errors=True)
    if not any(folder.iterdir()):
        raise DataError(f"{entry.id} at revision {entry.revision} has no files {', '.join(entry.files)}")
    return folder


def read(path: Path) -> Iterator[Predicted]:
    """Yield the predicted queries of a file or folder, in file order.

    A line of a .jsonl file has the document's id (``_id``, ``id``, ``docid`` or ``doc_id``) and a list of its queries
    (``queries`` or ``predicted_queries``), or one of them (``query``).

    Raises:
        DataError: there is no such file, or it is damaged or of another form.
    """
    # Hidden files, which belong to other programs (.ipynb_checkpoints, ._name), do not match.
    forms = ("**/*.jsonl", "**/*.jsonl.gz", "**/*.json.gz")
    inside = (path / name for form in forms for name in glob(form, root_dir=path, recursive=True))  # noqa: PTH207
    paths = [path] if path.is_file() else sorted(inside)
    if not paths:
        raise DataError(f"{path} has no .jsonl files, or does not exist")
    for file in paths:
        if (zipped := file.with_name(f"{file.name}.gz")) in paths:
            raise DataError(f"{path} has both {file.name} and {zipped.name}: keep one of them")
    for file in paths:
        yield from (_predicted(row, place) for row, place in json_lines(file))


def _predicted(row: dict[str, Any], place: str) -> Predicted:
    identifier = read_id(row, place, next((key for key in _IDS if key in row), _IDS[0]))
    listed = next((row[key] for key in _LISTS if key in row), None)
    if listed is None:
        return Predicted(identifier, [read_text(row, "query", place, required=True)], place, whole=False)
    if not isinstance(listed, list) or not all(isinstance(query, str) for query in listed):
        raise DataError(f"{place}: expected a list of texts under {' or '.join(map(repr, _LISTS))}, or a 'query'")
    return Predicted(identifier, [encodable(query, "queries", place) for query in listed], place, whole=True)


def write(
    entry: PublishedExpansion, predicted: Iterable[Predicted], corpus: Path, output: Path, scratch: Path
) -> dict[str, int]:
    """Write predicted queries, which come in any order, as a row per document of the corpus; return counts.

    The empty folder ``scratch`` takes the queries: the ids of the corpus and one bucket of queries are in memory.

    Raises:
        DataError: an id is not in the corpus, or a document has two lists of queries or none.
    """
    names = pa.chunked_array([ids for _, ids in collection.id_groups(corpus)], pa.string())
    _fill_buckets(predicted, names, scratch)
    schema = collection.EXPANSION_SCHEMAS["query-generator"]
    documents = len(names)
    queries = 0
    without = 0
    with pq.ParquetWriter(output, schema) as writer:
        for start in range(0, documents, BUCKET):
            part = names.slice(start, BUCKET).to_pylist()
            of_bucket = _read_bucket(scratch / str(start // BUCKET))
            if missing := [name for name in part if name not in of_bucket]:
                without += len(missing)
                if "missing-documents" not in entry.allow:
                    raise DataError(
                        f"there are no queries for the document {quoted(missing[0])}. If some documents may have none, "
                        "add allow: [missing-documents] to the expansion"
                    )
            rows = [of_bucket.get(name, [])[: entry.queries] for name in part]
            queries += sum(map(len, rows))
            for first in range(0, len(rows), collection.ROW_GROUP):
                writer.write_table(pa.table([rows[first : first + collection.ROW_GROUP]], schema))
    if not queries:
        raise DataError("no document has queries")
    return {"documents": documents, "queries": queries, "documents_without_queries": without}


def _fill_buckets(predicted: Iterable[Predicted], names: pa.ChunkedArray, folder: Path) -> None:
    """Distribute predictions to one file per BUCKET documents of the corpus, in input order."""
    rows = {name: row for row, name in enumerate(names.to_pylist())}
    progress = Progress("fetch expansion", None, "lines")
    with ExitStack() as stack:
        buckets: dict[int, IO[str]] = {}
        for prediction in predicted:
            if prediction.id not in rows:
                raise DataError(f"{prediction.place}: the corpus has no document {quoted(prediction.id)}")
            bucket = rows[prediction.id] // BUCKET
            if bucket not in buckets:
                buckets[bucket] = stack.enter_context((folder / str(bucket)).open("w", encoding="utf-8"))
            buckets[bucket].write(json.dumps(prediction) + "\n")
            progress.add(1)


def _read_bucket(path: Path) -> dict[str, list[str]]:
    """Read a bucket's queries by document id."""
    queries: dict[str, list[str]] = {}
    whole: set[str] = set()
    for row in (Predicted(*json.loads(line)) for line in path.open(encoding="utf-8")) if path.is_file() else ():
        if row.id in whole or (row.whole and row.id in queries):
            raise DataError(f"{row.place}: the document {quoted(row.id)} has queries already")
        if row.whole:
            whole.add(row.id)
        queries.setdefault(row.id, []).extend(row.queries)
    return queries
