"""Stage index: build a Lucene index of a corpus, or an index of one shard of vectors."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated, Literal

from ... import search
from ...collections import collection
from ...config.systems import AnyIndex
from ...config.values import Size
from ...core import files
from ...core.errors import DataError
from ...core.families import FAMILIES
from ...core.provenance import Artifact, Facts
from ...search import approximate, flat, lucene


def index_lexical(
    *,
    corpus: Annotated[Artifact, "corpus.parquet"],
    expansions: Annotated[tuple[Artifact, ...], "expansions of each shard, in order, to index instead"] = (),
    fields: Annotated[lucene.Fields, "title and text as one field or as two, or with vectors"],
    language: Annotated[str, "ISO 639-1 code that picks the analyzer"] = "en",
    threads: Annotated[Size, "threads of Lucene"] = 1,
    memory: Annotated[Size, "Java heap in MB"] = 1500,
    output: Annotated[Path, "folder to write"],
) -> Facts:
    """Index a corpus for BM25.

    Raises:
        DataError: corpus or expansions are damaged or do not match, or Lucene writes no index.
        BeirgridError: Java or Lucene fails.
    """
    with files.atomic(output, directory=True) as index, files.scratch(f"{output}-input") as folder:
        folder.mkdir()
        whole = collection.read_documents(corpus)
        documents = collection.read_expanded(corpus, expansions) if expansions else whole
        collection.write_jsonl(documents, folder / "corpus.jsonl")
        lucene.build_index(folder, index, fields, language, threads, memory)
    return {"documents": collection.count(corpus), "bytes": files.size(output)}


def index_vectors(
    *,
    family: Annotated[str, "family of the model"],
    vectors: Annotated[Artifact, "vectors of one shard, from encode"],
    output: Annotated[Path, "index to write: .faiss (dense, late interaction), a folder of postings (sparse)"],
) -> Facts:
    """Index one shard of vectors.

    Raises:
        DataError: the vectors are damaged.
    """
    row = FAMILIES[family]
    with files.atomic(output, directory=row.index_folder) as temporary:
        described, counts = search.module(family).index_vectors(vectors, temporary)
    # For a family whose shards are folders, the search also reads the vectors.
    size = files.size(output) + (files.size(vectors) if row.folder else 0)
    return {**described, **counts, "bytes": size}


def index_approximate(
    *,
    exact: Annotated[Artifact, "exact index, .faiss"],
    index: Annotated[AnyIndex, "kind of index with its parameters, JSON"],
    dimensions: Annotated[Size | None, "number of first dimensions to keep"] = None,
    similarity: Annotated[Literal["cosine", "dot"], "similarity of vectors; cosine normalises them"],
    output: Annotated[Path, ".faiss file to write"],
) -> Facts:
    """Build a smaller or faster index of one shard from the exact one.

    Raises:
        DataError: the exact index is damaged, or its vectors do not fit the kind of index.
    """
    with flat.opened(exact) as (stored, owners):
        if owners is not None:
            raise DataError(f"{exact} has several vectors of a document, so that it is searched exactly only")
        vectors = approximate.truncate(stored, dimensions, similarity)
        started = time.monotonic()
        with files.atomic(output) as temporary:
            approximate.write_index(vectors, index, temporary)
        seconds = round(time.monotonic() - started, 3)
        documents, dimension = vectors.shape
    size = files.size(output)
    return {"build_seconds": seconds, "documents": documents, "dimension": dimension, "bytes": size}
