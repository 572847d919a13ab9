"""Stage encode: the documents of one shard of a corpus to vectors."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from . import collection, files, provenance
from .encoders import DenseEncoder, add_compute_arguments, check_finite, open_encoder
from .progress import Progress

# Documents that are tokenized and sorted by length together: the more, the less padding.
BLOCK = 4 * collection.ROW_GROUP


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid encode``."""
    parser.add_argument("--model", required=True, type=json.loads, help="registry entry of the model, as JSON")
    parser.add_argument("--checkpoint", required=True, type=Path, help="folder of the fetched checkpoint")
    parser.add_argument("--corpus", required=True, type=Path, help="corpus.parquet")
    parser.add_argument("--shard", default=0, type=int, help="number of this shard, from 0")
    parser.add_argument("--shard-size", required=True, type=int, help="documents per shard")
    parser.add_argument("--last", action="store_true", help="this is the last shard: it must end with the corpus")
    parser.add_argument("--output", required=True, type=Path, help="float32 .npy to write, a row per document")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    add_compute_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Encode one shard, a block of documents at a time."""
    start, stop = collection.shard_rows(args.corpus, args.shard, args.shard_size, args.last)
    settings = {**args.model, "shard": args.shard, "shard_size": args.shard_size}
    with provenance.record("encode", args.made, settings) as facts:
        encoder = open_encoder(args.checkpoint, args.model, args.device, args.precision, args.batch_tokens)
        progress = Progress(f"encode shard {args.shard}", stop - start, "documents")
        with files.atomic(args.output) as temporary:
            _encode_rows(encoder, args.corpus, start, stop, temporary, progress)
        facts.update(
            encoder.facts(),
            documents=stop - start,
            documents_per_second=round(progress.rate, 2),
            dimension=encoder.dimension,
        )


def _encode_rows(encoder: DenseEncoder, corpus: Path, start: int, stop: int, output: Path, progress: Progress) -> None:
    """Write float32 [stop - start, dimension] to ``output``; refuse vectors that are not finite."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (stop - start, encoder.dimension)}
    with output.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        for block in range(start, stop, BLOCK):
            documents = [
                document
                for rows in collection.read_documents(corpus, block, min(block + BLOCK, stop))
                for document in rows
            ]
            vectors = encoder.encode_documents([document.joined for document in documents], progress)
            check_finite(vectors, [f"document {document.id!r}" for document in documents])
            stream.write(np.ascontiguousarray(vectors, "<f4").data)
