"""Stage encode: the documents of one shard of a corpus to vectors."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from ..core import files, provenance
from ..core.progress import Progress
from ..data import collection
from ..encoders import (
    DenseEncoder,
    LateInteractionEncoder,
    SparseTextEncoder,
    Variety,
    add_compute_arguments,
    check_finite,
    open_encoder,
)
from ..search import maxsim

# Documents that are tokenized and sorted by length together: the more, the less padding.
BLOCK = 4 * collection.ROW_GROUP
# The same for a vector per token: 300 MB in float32, if each document has 300 tokens of 128 dimensions.
TOKENS_BLOCK = collection.ROW_GROUP // 4

# What a writer tells of its artifact, for the record.
Facts = dict[str, int]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid encode``."""
    parser.add_argument("--model", required=True, type=json.loads, help="registry entry of the model, as JSON")
    parser.add_argument(
        "--checkpoint", required=True, type=provenance.artifact, help="folder of the fetched checkpoint"
    )
    collection.add_shard_arguments(parser)
    parser.add_argument(
        "--output", required=True, type=Path, help="to write: .npy (dense), .npz (sparse), a folder (late interaction)"
    )
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    add_compute_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Encode one shard, a block of documents at a time."""
    start, stop = collection.shard_rows(args.corpus, args.shard, args.shard_size, args.last)
    settings = {**args.model, "shard": args.shard, "shard_size": args.shard_size}
    with provenance.record("encode", args.made, settings, [args.output]) as facts:
        encoder = open_encoder(args.checkpoint, args.model, args.device, args.precision, args.batch_tokens)
        progress = Progress(f"encode shard {args.shard}", stop - start, "documents")
        write, is_folder = WRITERS[args.model["family"]]
        with files.atomic(args.output, directory=is_folder) as temporary:
            facts.update(write(encoder, args.corpus, start, stop, temporary, progress))
        facts.update(
            encoder.facts(),
            documents=stop - start,
            documents_per_second=round(progress.rate, 2),
            dimension=encoder.dimension,
        )


def _write_dense(encoder: DenseEncoder, corpus: Path, start: int, stop: int, output: Path, progress: Progress) -> Facts:
    """Write float32 [stop - start, dimension] to ``output``; refuse vectors that are not finite."""
    header = {"descr": "<f4", "fortran_order": False, "shape": (stop - start, encoder.dimension)}
    with output.open("wb") as stream:
        np.lib.format.write_array_header_1_0(stream, header)
        separator, variety = encoder.spec.get("separator", " "), Variety(encoder)
        for documents in collection.read_blocks(corpus, start, stop, BLOCK):
            texts = [document.join(separator) for document in documents]
            vectors = encoder.encode_documents(texts, progress)
            variety.add(vectors, texts)
            check_finite(vectors, [f"document {document.id!r}" for document in documents], encoder.precision)
            stream.write(np.ascontiguousarray(vectors, "<f4").data)
    variety.check("this shard")
    return {}


def _write_sparse(
    encoder: SparseTextEncoder, corpus: Path, start: int, stop: int, output: Path, progress: Progress
) -> Facts:
    """Write a float32 CSR matrix [stop - start, vocabulary] to ``output``; refuse weights that are not finite."""
    import scipy.sparse

    blocks, variety = [], Variety(encoder)
    for documents in collection.read_blocks(corpus, start, stop, BLOCK):
        texts = [document.joined for document in documents]
        weights = encoder.encode_documents(texts, progress)
        variety.add(weights, texts)
        check_finite(weights, [f"document {document.id!r}" for document in documents], encoder.precision)
        blocks.append(weights)
    variety.check("this shard")
    with output.open("wb") as stream:
        scipy.sparse.save_npz(stream, scipy.sparse.vstack(blocks, format="csr"), compressed=False)
    return {"weights": sum(block.nnz for block in blocks)}


def _write_tokens(
    encoder: LateInteractionEncoder, corpus: Path, start: int, stop: int, output: Path, progress: Progress
) -> Facts:
    """Write the vectors of all tokens to the folder ``output``, block by block; refuse those that are not finite."""

    variety = Variety(encoder)

    def blocks() -> Iterator[maxsim.TokenVectors]:
        for documents in collection.read_blocks(corpus, start, stop, TOKENS_BLOCK):
            texts = [document.joined for document in documents]
            found = encoder.encode_documents(texts, progress)
            variety.add(found.sums(), texts)
            check_finite(found.sums(), [f"document {document.id!r}" for document in documents], encoder.precision)
            yield found

    tokens = maxsim.write(output, blocks(), encoder.dimension)
    variety.check("this shard")
    return {"tokens": tokens}


# How each family's vectors are written, and whether as a folder.
WRITERS: dict[str, tuple[Callable[..., Facts], bool]] = {
    "dense": (_write_dense, False),
    "sparse": (_write_sparse, False),
    "late-interaction": (_write_tokens, True),
}
