"""Stage index: a Lucene index of a corpus, or an index of one shard of vectors (faiss, impacts)."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from ..core import files, provenance
from ..data import collection
from ..search import impact, lucene, maxsim


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid index``."""
    kinds = parser.add_subparsers(dest="kind", required=True)

    lexical = kinds.add_parser("lucene", help="index a corpus for BM25")
    lexical.add_argument("--corpus", required=True, type=provenance.artifact, help="corpus.parquet")
    lexical.add_argument(
        "--expansions", nargs="*", default=[], type=provenance.artifact, help="what to index instead, per shard"
    )
    lexical.add_argument("--fields", required=True, choices=sorted(lucene.COLLECTIONS))
    lexical.add_argument("--language", default="en", help="ISO 639-1 code that picks the analyzer")
    lexical.add_argument("--threads", default=1, type=int)
    lexical.add_argument("--memory", default=1500, type=int, help="Java heap in MB")
    lexical.add_argument("--output", required=True, type=Path, help="folder to write")
    lexical.set_defaults(run=run_lucene)

    dense = kinds.add_parser("faiss", help="index the embeddings of one shard")
    dense.add_argument("--embeddings", required=True, type=provenance.artifact, help="float32 .npy, a row per document")
    dense.add_argument("--output", required=True, type=Path, help=".faiss file to write")
    dense.set_defaults(run=run_faiss)

    sparse = kinds.add_parser("impact", help="turn the sparse vectors of one shard into postings")
    sparse.add_argument(
        "--embeddings", required=True, type=provenance.artifact, help="float32 CSR matrix .npz, a row per document"
    )
    sparse.add_argument("--output", required=True, type=Path, help="folder to write")
    sparse.set_defaults(run=run_impact)

    late = kinds.add_parser("late", help="index the token vectors of one shard, to find candidates in")
    late.add_argument("--tokens", required=True, type=provenance.artifact, help="folder of token vectors")
    late.add_argument("--output", required=True, type=Path, help=".faiss file to write")
    late.set_defaults(run=run_late)

    for kind in (lexical, dense, sparse, late):
        kind.add_argument("--made", required=True, type=Path, help="where to record what made it")


def run_lucene(args: argparse.Namespace) -> None:
    """Write the corpus as BEIR JSON lines for Lucene and index it."""
    settings = {"fields": args.fields, "language": args.language}
    with provenance.record("index", args.made, settings, [args.output]) as facts:
        with files.atomic(args.output, directory=True) as index, files.scratch(f"{args.output}-input") as folder:
            folder.mkdir()
            whole = collection.read_documents(args.corpus)
            documents = collection.read_expanded(args.corpus, args.expansions) if args.expansions else whole
            _write_jsonl(documents, folder / "corpus.jsonl")
            lucene.build_index(folder, index, args.fields, args.language, args.threads, args.memory)
        facts.update(documents=collection.count(args.corpus), bytes=files.size(args.output))


def _write_jsonl(blocks: Iterable[list[collection.Document]], output: Path) -> None:
    with output.open("w", encoding="utf-8") as stream:
        for documents in blocks:
            for document in documents:
                row = {"_id": document.id, "title": document.title, "text": document.text}
                stream.write(json.dumps(row, ensure_ascii=False) + "\n")


def run_faiss(args: argparse.Namespace) -> None:
    """Write an exact (flat, inner product) index; cosine vectors are already of length 1."""
    import faiss
    import numpy as np

    settings = {"index": "Flat", "metric": "inner product"}
    with provenance.record("index", args.made, settings, [args.output]) as facts:
        with files.reading(args.embeddings):
            vectors = np.load(args.embeddings, mmap_mode="r")
        index = faiss.IndexFlatIP(vectors.shape[1])
        for start in range(0, len(vectors), collection.ROW_GROUP):
            index.add(np.ascontiguousarray(vectors[start : start + collection.ROW_GROUP]))
        with files.atomic(args.output) as temporary:
            faiss.write_index(index, str(temporary))
        facts.update(documents=len(vectors), dimension=vectors.shape[1], bytes=files.size(args.output))


def run_impact(args: argparse.Namespace) -> None:
    """Write postings with exact float32 impacts."""
    import scipy.sparse

    settings = {"index": "impact postings", "weights": "float32"}
    with provenance.record("index", args.made, settings, [args.output]) as facts:
        with files.reading(args.embeddings):
            weights = scipy.sparse.load_npz(args.embeddings)
        with files.atomic(args.output, directory=True) as folder:
            impact.write_index(weights, folder)
        facts.update(
            documents=weights.shape[0],
            dimension=weights.shape[1],
            postings=int(weights.nnz),
            bytes=files.size(args.output),
        )


def run_late(args: argparse.Namespace) -> None:
    """Write the index that a late-interaction system finds its candidates in."""
    import faiss

    shard = maxsim.TokenShard(args.tokens)
    settings = {"index": maxsim.index_name(shard.tokens, shard.dimension), "metric": "inner product"}
    with provenance.record("index", args.made, settings, [args.output]) as facts:
        index = maxsim.build_index(shard)
        with files.atomic(args.output) as temporary:
            faiss.write_index(index, str(temporary))
        stored = files.size(args.output) + files.size(args.tokens)  # MaxSim reads the token vectors too
        facts.update(tokens=shard.tokens, dimension=shard.dimension, bytes=stored)
