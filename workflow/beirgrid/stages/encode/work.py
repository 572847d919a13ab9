"""Stage encode: encode the documents of one shard of a corpus."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any

from ... import search
from ...collections import collection
from ...config.models import DenseModel, Model
from ...config.values import Size
from ...core import files
from ...core.compute import Compute
from ...core.errors import quoted
from ...core.families import FAMILIES
from ...core.progress import Progress
from ...core.provenance import Artifact, Facts
from ...encoders import open_encoder
from ...encoders.guards import CollapseCheck, check_finite
from ...encoders.protocol import WINDOW, Encoder
from ...models.endpoints import kept_answers
from ...search.maxsim import TokenVectors


def encode(
    *,
    model: Model,
    checkpoint: Annotated[Artifact, "folder of the model's checkpoint"],
    corpus: Annotated[Artifact, "corpus.parquet"],
    shard: Annotated[int, "number of the shard, from 0"] = 0,
    shard_size: Annotated[Size, "documents per shard"],
    last: Annotated[bool, "the shard is the last one, which must end with the corpus"] = False,
    compute: Compute,
    output: Annotated[
        Path,
        "vectors to write: float32 [documents, dimension] .npy (dense), float32 CSR [documents, vocabulary] .npz "
        "(sparse), a folder of token vectors (late interaction)",
    ],
) -> Facts:
    """Encode one shard of a corpus to vectors.

    Raises:
        DataError: the shard does not fit the corpus, the checkpoint does not match the entry, or the model returns
            values that are not finite, or one vector for all texts.
    """
    start, stop = collection.shard_rows(corpus, shard, shard_size, last)
    with kept_answers(output) as answers, files.atomic(output, directory=FAMILIES[model.family].folder) as temporary:
        progress = Progress(f"encode shard {shard}", stop - start, "documents")
        opened = open_encoder(checkpoint, model, compute.start(), answers)
        documents = collection.read_documents(corpus, start, stop, WINDOW)
        separator = model.separator if isinstance(model, DenseModel) else " "
        write = search.module(model.family).write_vectors
        with closing(_encoded(opened, documents, separator, progress)) as encoded:
            written = write(temporary, encoded, stop - start, opened.dimension)
        return {
            **written,
            **opened.facts(),
            "documents": stop - start,
            "rows": [start, stop],
            "documents_per_second": round(progress.rate, 2),
            "dimension": opened.dimension,
        }


def _encoded(
    encoder: Encoder[Any], blocks: Iterable[list[collection.Document]], separator: str, progress: Progress
) -> Generator[Any, None, None]:
    """Encode and check each block of documents; yield its vectors."""
    check = CollapseCheck(encoder.precision)
    for documents, texts, vectors in _with_vectors(encoder, blocks, separator, progress):
        checked = vectors.sums() if isinstance(vectors, TokenVectors) else vectors
        check.add(checked, texts)
        check_finite(checked, [f"document {quoted(document.id)}" for document in documents], encoder.precision)
        yield vectors
    check.check("this shard")


def _with_vectors(
    encoder: Encoder[Any], blocks: Iterable[list[collection.Document]], separator: str, progress: Progress
) -> Iterator[tuple[list[collection.Document], list[str], Any]]:
    """Yield each block of documents, which the encoder reads ahead, with its texts and its vectors."""
    ahead: deque[tuple[list[collection.Document], list[str]]] = deque()

    def texts_of(documents: list[collection.Document]) -> list[str]:
        texts = [document.join(separator) for document in documents]
        ahead.append((documents, texts))
        return texts

    for vectors in encoder.vectors(map(texts_of, blocks), "document", progress):
        yield *ahead.popleft(), vectors
