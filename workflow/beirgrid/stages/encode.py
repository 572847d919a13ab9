"""Stage encode: the documents of one shard of a corpus to vectors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np

from ..config.models import DenseModel, LateInteractionModel
from ..core import files, provenance
from ..core.compute import Compute
from ..core.progress import Progress
from ..core.provenance import Artifact
from ..data import collection
from ..data.entries import EncodingModel
from ..encoders import Encoder, Variety, check_finite, open_encoder
from ..search import maxsim

if TYPE_CHECKING:
    import scipy.sparse

# Documents that are tokenized and sorted by length together: the more, the less padding.
BLOCK = 4 * collection.ROW_GROUP
# The same for a vector per token: 300 MB in float32, if each document has 300 tokens of 128 dimensions.
TOKENS_BLOCK = collection.ROW_GROUP // 4


def encode(
    *,
    model: EncodingModel,
    checkpoint: Annotated[Artifact, "folder of the model's checkpoint"],
    corpus: Annotated[Artifact, "corpus.parquet"],
    shard: Annotated[int, "number of the shard, from 0"] = 0,
    shard_size: Annotated[int, "documents per shard"],
    last: Annotated[bool, "the shard is the last one, so it must end with the corpus"] = False,
    compute: Compute,
    output: Annotated[Path, "vectors to write: .npy (dense), .npz (sparse), a folder (late interaction)"],
    record: Annotated[Path, "record to write, .json"],
) -> None:
    """Encode one shard of a corpus to vectors.

    Args:
        model: registry entry of a dense, sparse or late-interaction model.
        checkpoint: folder of the model's checkpoint.
        corpus: corpus.parquet.
        shard: number of the shard, from 0.
        shard_size: documents per shard.
        last: whether the shard must end with the corpus.
        compute: where and how the model runs.
        output: float32 [documents, dimension] as .npy (dense), float32 CSR [documents, vocabulary] as .npz (sparse), or
            a folder of token vectors (late interaction).
        record: record to write.

    Raises:
        DataError: the shard does not fit the corpus, the checkpoint is not what the entry says, or the model gives
            values that are not finite, or the same vector for all texts.
    """
    start, stop = collection.shard_rows(corpus, shard, shard_size, last)
    settings = {**model.given(), "shard": shard, "shard_size": shard_size}
    with provenance.record("encode", record, settings, [output]) as facts, compute.start() as runtime:
        progress = Progress(f"encode shard {shard}", stop - start, "documents")
        with files.atomic(output, directory=isinstance(model, LateInteractionModel)) as temporary:
            opened = open_encoder(checkpoint, model, runtime)
            size = TOKENS_BLOCK if isinstance(model, LateInteractionModel) else BLOCK
            separator = model.separator if isinstance(model, DenseModel) else " "
            blocks = _encoded(opened, collection.read_blocks(corpus, start, stop, size), separator, progress)
            if isinstance(model, DenseModel):
                _write_dense(blocks, (stop - start, opened.dimension), temporary)
            elif isinstance(model, LateInteractionModel):
                facts["tokens"] = maxsim.write(temporary, blocks, opened.dimension)
            else:
                facts["weights"] = _write_sparse(blocks, temporary)
        facts.update(
            opened.facts(),
            documents=stop - start,
            documents_per_second=round(progress.rate, 2),
            dimension=opened.dimension,
        )


def _encoded(
    encoder: Encoder[Any], blocks: Iterable[list[collection.Document]], separator: str, progress: Progress
) -> Iterator[Any]:
    """Yield the vectors of each block of documents, checked."""
    variety = Variety(encoder)
    for documents in blocks:
        texts = [document.join(separator) for document in documents]
        vectors = encoder.encode_documents(texts, progress=progress)
        checked = vectors.sums() if isinstance(vectors, maxsim.TokenVectors) else vectors
        variety.add(checked, texts)
        check_finite(checked, [f"document {document.id!r}" for document in documents], encoder.precision)
        yield vectors
    variety.check("this shard")


def _write_dense(blocks: Iterable[np.ndarray], shape: tuple[int, int], output: Path) -> None:
    """Write float32 vectors of the given shape [documents, dimension], block by block."""
    with output.open("wb") as stream:
        header = {"descr": "<f4", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(stream, header)
        for vectors in blocks:
            stream.write(np.ascontiguousarray(vectors, "<f4").data)


def _write_sparse(blocks: Iterable[scipy.sparse.csr_matrix], output: Path) -> int:
    """Write a float32 CSR matrix [documents, vocabulary] and return how many weights it has."""
    import scipy.sparse

    weights = scipy.sparse.vstack(list(blocks), format="csr")
    with output.open("wb") as stream:
        scipy.sparse.save_npz(stream, weights, compressed=False)
    return int(weights.nnz)
