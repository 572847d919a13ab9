"""Stage encode: the documents of one shard of a corpus to vectors."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from . import collection, files, maxsim, provenance
from .encoders import DenseEncoder, LateInteractionEncoder, add_compute_arguments, check_finite, open_encoder
from .errors import DataError
from .progress import Progress

# Documents that are tokenized and sorted by length together: the more, the less padding.
BLOCK = 4 * collection.ROW_GROUP
# The same for a vector per token: 300 MB in float32, if each document has 300 tokens of 128 dimensions.
TOKENS_BLOCK = collection.ROW_GROUP // 4


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid encode``."""
    parser.add_argument("--model", required=True, type=json.loads, help="registry entry of the model, as JSON")
    parser.add_argument("--checkpoint", required=True, type=Path, help="folder of the fetched checkpoint")
    parser.add_argument("--corpus", required=True, type=Path, help="corpus.parquet")
    parser.add_argument("--shard", default=0, type=int, help="number of this shard, from 0")
    parser.add_argument("--shard-size", required=True, type=int, help="documents per shard")
    parser.add_argument("--last", action="store_true", help="this is the last shard: it must end with the corpus")
    parser.add_argument("--output", required=True, type=Path, help=".npy to write, or a folder of token vectors")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    add_compute_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Encode one shard, a block of documents at a time."""
    total = collection.count(args.corpus)
    start = args.shard * args.shard_size
    stop = min(start + args.shard_size, total)
    if start >= total or (args.last and stop != total):
        raise DataError(
            f"{args.corpus} has {total:,} documents, which the planned shards of {args.shard_size:,} do not fit: "
            "set the corpus's 'documents' in the registry to its real number"
        )
    settings = {**args.model, "shard": args.shard, "shard_size": args.shard_size}
    with provenance.record("encode", args.made, settings) as facts:
        encoder = open_encoder(args.checkpoint, args.model, args.device, args.precision, args.batch_tokens)
        progress = Progress(f"encode shard {args.shard}", stop - start, "documents")
        late = isinstance(encoder, LateInteractionEncoder)
        with files.atomic(args.output, directory=late) as temporary:
            if late:
                blocks = _token_blocks(encoder, args.corpus, start, stop, progress)
                facts["tokens"] = maxsim.write(temporary, blocks, encoder.dimension)
            else:
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
        for documents in _blocks(corpus, start, stop, BLOCK):
            vectors = encoder.encode_documents([document.joined for document in documents], progress)
            check_finite(vectors, [f"document {document.id!r}" for document in documents])
            stream.write(np.ascontiguousarray(vectors, "<f4").data)


def _token_blocks(
    encoder: LateInteractionEncoder, corpus: Path, start: int, stop: int, progress: Progress
) -> Iterator[maxsim.TokenVectors]:
    """Yield the token vectors of the documents, block by block; refuse vectors that are not finite."""
    for documents in _blocks(corpus, start, stop, TOKENS_BLOCK):
        found = encoder.encode_documents([document.joined for document in documents], progress)
        check_finite(found.sums(), [f"document {document.id!r}" for document in documents])
        yield found


def _blocks(corpus: Path, start: int, stop: int, size: int) -> Iterator[list[collection.Document]]:
    for block in range(start, stop, size):
        parts = collection.read_documents(corpus, block, min(block + size, stop))
        yield [document for rows in parts for document in rows]
