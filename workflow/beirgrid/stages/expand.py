"""Stage expand: the documents of one shard of a corpus to queries or weighted terms, for BM25."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files, provenance
from ..core.progress import Progress
from ..data import collection
from ..encoders import QueryGenerator, TermWeighter, add_compute_arguments

# Documents that are tokenized and sorted by length together, and written as one row group.
BLOCK = 1024
# As in the BEIR paper, which follows Nogueira and Lin.
QUERIES_PER_DOCUMENT = 40


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid expand``."""
    parser.add_argument("--model", required=True, type=json.loads, help="registry entry of the model, as JSON")
    parser.add_argument(
        "--checkpoint", required=True, type=provenance.artifact, help="folder of the fetched checkpoint"
    )
    collection.add_shard_arguments(parser)
    parser.add_argument("--output", required=True, type=Path, help=".parquet to write, a row per document")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    add_compute_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Expand one shard, a block of documents at a time."""
    start, stop = collection.shard_rows(args.corpus, args.shard, args.shard_size, args.last)
    settings = {**args.model, "shard": args.shard, "shard_size": args.shard_size}
    with provenance.record("expand", args.made, settings, [args.output]) as facts:
        opened, expand = _FAMILIES[args.model["family"]]
        model = opened(args.checkpoint, args.model, args.device, args.precision, args.batch_tokens)
        progress = Progress(f"expand shard {args.shard}", stop - start, "documents")
        schema = collection.EXPANSION_SCHEMAS[args.model["family"]]
        with files.atomic(args.output) as temporary, pq.ParquetWriter(temporary, schema) as writer:
            for documents in collection.read_blocks(args.corpus, start, stop, BLOCK):
                texts = [document.joined for document in documents]
                writer.write_table(pa.table(expand(model, args.model, texts, progress), schema))
        facts.update(
            model.facts(),
            documents=stop - start,
            documents_per_second=round(progress.rate, 2),
            bytes=files.size(args.output),
        )


def _queries(model: QueryGenerator, spec: dict[str, Any], texts: list[str], progress: Progress) -> dict[str, Any]:
    per_text, seed = spec.get("queries_per_document", QUERIES_PER_DOCUMENT), spec.get("seed", 0)
    return {"queries": model.generate(texts, per_text, seed, progress)}


def _terms(model: TermWeighter, spec: dict[str, Any], texts: list[str], progress: Progress) -> dict[str, Any]:
    found = model.weigh(texts, progress)
    return {"terms": [list(terms) for terms in found], "frequencies": [list(terms.values()) for terms in found]}


_FAMILIES: dict[str, tuple[Any, Any]] = {
    "query-generator": (QueryGenerator, _queries),
    "term-weights": (TermWeighter, _terms),
}
