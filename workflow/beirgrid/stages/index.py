"""Stage index: a Lucene index of a corpus, or an index of one shard of vectors."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal

import numpy as np

from ..config.indexes import AnyIndex
from ..core import files, provenance
from ..core.provenance import Artifact
from ..data import collection
from ..data.entries import from_json
from ..search import approximate, flat, impact, lucene, maxsim

Record = Annotated[Path, "record to write, .json"]


def index_lexical(
    *,
    corpus: Annotated[Artifact, "corpus.parquet"],
    expansions: Annotated[
        tuple[Artifact, ...], "expansions of each shard, which are indexed in place of the documents"
    ] = (),
    fields: Annotated[Literal["flat", "multifield"], "title and text as one field or as two"],
    language: Annotated[str, "ISO 639-1 code that picks the analyzer"] = "en",
    threads: Annotated[int, "threads of Lucene"] = 1,
    memory: Annotated[int, "Java heap in MB"] = 1500,
    output: Annotated[Path, "folder to write"],
    record: Record,
) -> None:
    """Index a corpus for BM25.

    Args:
        corpus: corpus.parquet.
        expansions: expansions of each shard, in order; without any, the documents are indexed as they are.
        fields: ``flat`` (title and text as one field) or ``multifield``.
        language: ISO 639-1 code that picks Lucene's analyzer.
        threads: threads of Lucene.
        memory: Java heap in MB.
        output: folder to write.
        record: record to write.

    Raises:
        DataError: corpus or expansions are damaged or do not fit, or Lucene leaves no index.
        BeirgridError: Java or Lucene fails.
    """
    settings = {"fields": fields, "language": language}
    with provenance.record("index", record, settings, [output]) as facts:
        with files.atomic(output, directory=True) as index, files.scratch(f"{output}-input") as folder:
            folder.mkdir()
            whole = collection.read_documents(corpus)
            documents = collection.read_expanded(corpus, expansions) if expansions else whole
            _write_jsonl(documents, folder / "corpus.jsonl")
            lucene.build_index(folder, index, fields, language, threads, memory)
        facts.update(documents=collection.count(corpus), bytes=files.size(output))


def _write_jsonl(blocks: Iterable[list[collection.Document]], output: Path) -> None:
    with output.open("w", encoding="utf-8") as stream:
        for documents in blocks:
            for document in documents:
                row = {"_id": document.id, "title": document.title, "text": document.text}
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def index_dense(
    *,
    vectors: Annotated[Artifact, "float32 .npy, a row per document"],
    output: Annotated[Path, ".faiss file to write"],
    record: Record,
) -> None:
    """Index the vectors of one shard exactly (flat, inner product); cosine vectors are already of length 1.

    Args:
        vectors: float32 [documents, dimension], .npy.
        output: .faiss file to write.
        record: record to write.

    Raises:
        DataError: the vectors are damaged.
    """
    settings = {"index": "Flat", "metric": "inner product"}
    with provenance.record("index", record, settings, [output]) as facts:
        with files.reading(vectors):
            rows = np.load(vectors, mmap_mode="r")
        with files.atomic(output) as temporary:
            flat.write_index(rows, temporary)
        facts.update(documents=len(rows), dimension=rows.shape[1], bytes=files.size(output))


def index_approximate(
    *,
    exact: Annotated[Artifact, "exact index, .faiss"],
    index: Annotated[AnyIndex, from_json(AnyIndex), "kind of index and what it is built with, JSON"],
    dimensions: Annotated[int | None, "first dimensions that are kept"] = None,
    similarity: Annotated[Literal["cosine", "dot"], "how vectors are compared; cosine normalises them"],
    output: Annotated[Path, ".faiss file to write"],
    record: Record,
) -> None:
    """Build a smaller or faster index of one shard from the exact one.

    Args:
        exact: index with all vectors (``index_dense``).
        index: kind of index and what it is built with.
        dimensions: first dimensions that are kept; all unless given.
        similarity: ``cosine`` or ``dot``; vectors that are cut are normalised again for cosine.
        output: .faiss file to write.
        record: record to write; it has the seconds of the build.

    Raises:
        DataError: the exact index is damaged, or its vectors do not fit the kind of index.
    """
    settings = {"index": index.built(), "dimensions": dimensions, "metric": "inner product"}
    with provenance.record("index", record, settings, [output]) as facts, flat.opened(exact) as stored:
        vectors = approximate.truncate(stored, dimensions, similarity)
        started = time.monotonic()
        with files.atomic(output) as temporary:
            approximate.write_index(vectors, index, temporary)
        facts["build_seconds"] = round(time.monotonic() - started, 3)
        facts.update(documents=len(vectors), dimension=vectors.shape[1], bytes=files.size(output))


def index_sparse(
    *,
    vectors: Annotated[Artifact, "float32 CSR matrix .npz, a row per document"],
    output: Annotated[Path, "folder to write"],
    record: Record,
) -> None:
    """Turn the sparse vectors of one shard into postings with exact float32 impacts.

    Args:
        vectors: float32 CSR matrix [documents, vocabulary], .npz.
        output: folder to write.
        record: record to write.

    Raises:
        DataError: the vectors are damaged.
    """
    import scipy.sparse

    settings = {"index": "impact postings", "weights": "float32"}
    with provenance.record("index", record, settings, [output]) as facts:
        with files.reading(vectors):
            weights = scipy.sparse.load_npz(vectors)
        with files.atomic(output, directory=True) as folder:
            impact.write_index(weights, folder)
        facts.update(
            documents=weights.shape[0], dimension=weights.shape[1], postings=int(weights.nnz), bytes=files.size(output)
        )


def index_late_interaction(
    *,
    vectors: Annotated[Artifact, "folder of token vectors"],
    output: Annotated[Path, ".faiss file to write"],
    record: Record,
) -> None:
    """Index the token vectors of one shard, to find candidate documents by their nearest tokens.

    Args:
        vectors: folder of token vectors (``search.maxsim``).
        output: .faiss file to write.
        record: record to write.

    Raises:
        DataError: the token vectors are damaged.
    """
    import faiss

    shard = maxsim.TokenShard(vectors)
    settings = {"index": maxsim.index_name(shard.tokens, shard.dimension), "metric": "inner product"}
    with provenance.record("index", record, settings, [output]) as facts:
        index = maxsim.build_index(shard)
        with files.atomic(output) as temporary:
            faiss.write_index(index, str(temporary))
        stored = files.size(output) + files.size(vectors)  # MaxSim reads the token vectors too
        facts.update(tokens=shard.tokens, dimension=shard.dimension, bytes=stored)
