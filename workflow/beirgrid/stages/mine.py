"""Stage mine: what retrievers find for training queries beside the document that each was written for."""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files, provenance
from ..core.errors import DataError
from ..data import collection
from ..encoders import add_compute_arguments, check_finite, open_encoder
from ..search import lucene
from .retrieve import search_shards

# A row per training query, in the order of queries.parquet.
SCHEMA = pa.schema([("negatives", pa.list_(pa.string()))])
BLOCK = 8192
# The first row and the texts of some queries to the documents found for each, best first.
Retriever = Callable[[int, list[str]], list[list[str]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid mine``."""
    parser.add_argument("--recipe", required=True, type=json.loads, help="negative_depth and language, as JSON")
    parser.add_argument(
        "--queries", required=True, type=provenance.artifact, help="queries.parquet that generate wrote"
    )
    parser.add_argument(
        "--corpus", required=True, type=provenance.artifact, help="corpus.parquet, for the document ids"
    )
    parser.add_argument("--index", type=provenance.artifact, help="flat Lucene index: search with BM25")
    parser.add_argument(
        "--dense",
        nargs="+",
        action="append",
        default=[],
        metavar=("MODEL CHECKPOINT", "SHARD"),
        help="search with a dense model: its registry entry as JSON, its checkpoint, its faiss shards (repeatable)",
    )
    parser.add_argument("--threads", default=1, type=int, help="threads of the search with BM25")
    parser.add_argument("--output", required=True, type=Path, help="negatives.parquet to write")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    add_compute_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Search the training queries with each retriever and write what each query finds, once each."""
    settings = {**args.recipe, "bm25": bool(args.index), "dense": [json.loads(entry) for entry, *_ in args.dense]}
    with provenance.record("mine", args.made, settings, [args.output]) as facts:
        with files.reading(args.queries):
            queries = pq.read_table(args.queries, columns=["query", "document"])
        texts, answers = queries["query"].to_pylist(), queries["document"].to_pylist()
        answered: dict[str, set[str]] = {}
        for text, document in zip(texts, answers, strict=True):
            answered.setdefault(text, set()).add(document)
        retrievers = [_bm25(args)] if args.index else []
        retrievers += [_dense(args, texts, *dense) for dense in args.dense]
        mined = 0
        with files.atomic(args.output) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as parquet:
            for block in _blocks(texts, retrievers, answered):
                parquet.write_table(pa.table([block], schema=SCHEMA))
                mined += sum(map(len, block))
            if not mined:
                raise DataError(
                    f"no negatives: no retriever finds any other document for the queries of {args.queries}"
                )
        facts.update(queries=len(texts), negatives=mined)


def _blocks(texts: list[str], retrievers: list[Retriever], answered: dict[str, set[str]]) -> Iterator[list[list[str]]]:
    """Yield the negatives of a block of queries: all that is found except what answers the same query."""
    for start in range(0, len(texts), BLOCK):
        block = texts[start : start + BLOCK]
        found = [search(start, block) for search in retrievers]
        yield [
            [document for document in dict.fromkeys(chain(*lists)) if document not in answered[text]]
            for text, *lists in zip(block, *found, strict=True)
        ]


def _bm25(args: argparse.Namespace) -> Retriever:
    def search(_: int, texts: list[str]) -> list[list[str]]:
        with tempfile.TemporaryDirectory(prefix="beirgrid-") as folder:
            hits = lucene.search(
                args.index,
                {str(number): text for number, text in enumerate(texts)},
                Path(folder),
                fields="flat",
                language=args.recipe["language"],
                k1=0.9,
                b=0.4,
                depth=args.recipe["negative_depth"],
                threads=args.threads,
                memory_mb=1500,
            )
        return [hits[str(number)][0] for number in range(len(texts))]

    return search


def _dense(args: argparse.Namespace, texts: list[str], model: str, checkpoint: str, *shards: str) -> Retriever:
    """Search all queries at once, so that each shard is read once."""
    encoder = open_encoder(
        provenance.artifact(checkpoint), json.loads(model), args.device, args.precision, args.batch_tokens
    )
    vectors = encoder.encode_queries(texts)
    check_finite(vectors, [f"query {text!r}" for text in texts], encoder.precision)
    _, rows = search_shards(map(provenance.artifact, shards), vectors, args.recipe["negative_depth"])
    ids = collection.read_ids(args.corpus, rows)
    return lambda start, block: [ids.take(found).to_pylist() for found in rows[start : start + len(block)]]
