"""Stage encode: encode the documents of one shard of a corpus."""

from __future__ import annotations

import hashlib
from collections import Counter, deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Annotated, Any, NamedTuple

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
    """Encode one shard of a corpus to vectors. Documents with one text get one vector, so their scores are equal.

    Raises:
        DataError: the shard does not fit the corpus, the checkpoint does not match the entry, or the model returns
            values that are not finite, or one vector for all texts.
    """
    start, stop = collection.shard_rows(corpus, shard, shard_size, last)
    with kept_answers(output) as answers, files.atomic(output, directory=FAMILIES[model.family].folder) as temporary:
        progress = Progress(f"encode shard {shard}", stop - start, "documents")
        opened = open_encoder(checkpoint, model, compute.start(), answers)
        separator = model.separator if isinstance(model, DenseModel) else " "
        repeated = _repeated(collection.read_documents(corpus, start, stop, WINDOW), separator)
        documents = collection.read_documents(corpus, start, stop, WINDOW)
        write = search.module(model.family).write_vectors
        with closing(_encoded(opened, documents, separator, progress, repeated)) as encoded:
            written = write(temporary, encoded, stop - start, opened.dimension)
        return {
            **written,
            **opened.facts(),
            "documents": stop - start,
            "rows": [start, stop],
            "documents_per_second": round(progress.rate, 2),
            "dimension": opened.dimension,
        }


Blocks = Iterable[list[collection.Document]]


def _digest(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def _repeated(blocks: Blocks, separator: str) -> dict[bytes, int]:
    """Return how often each text occurs, by its digest, of those that occur more than once."""
    counts = Counter(_digest(document.join(separator)) for documents in blocks for document in documents)
    return {digest: number for digest, number in counts.items() if number > 1}


def _encoded(
    encoder: Encoder[Any], blocks: Blocks, separator: str, progress: Progress, repeated: dict[bytes, int]
) -> Generator[Any, None, None]:
    """Encode and check each block of documents; yield its vectors."""
    check = CollapseCheck(encoder.precision)
    for documents, texts, vectors in _with_vectors(encoder, blocks, separator, progress, repeated):
        checked = vectors.sums() if isinstance(vectors, TokenVectors) else vectors
        check.add(checked, texts)
        check_finite(checked, [f"document {quoted(document.id)}" for document in documents], encoder.precision)
        yield vectors
    check.check("this shard")


class _Block(NamedTuple):
    """A block of documents whose texts the encoder reads ahead."""

    documents: list[collection.Document]
    texts: list[str]
    digests: list[bytes]  # of the texts
    read: list[bytes]  # of the texts that the encoder reads: each once, without those of earlier blocks


def _with_vectors(
    encoder: Encoder[Any], blocks: Blocks, separator: str, progress: Progress, repeated: dict[bytes, int]
) -> Iterator[tuple[list[collection.Document], list[str], Any]]:
    """Yield each block of documents with its texts and its vectors. Each text is encoded once."""
    ahead: deque[_Block] = deque()
    seen: set[bytes] = set()

    def texts_of(documents: list[collection.Document]) -> list[str]:
        texts = [document.join(separator) for document in documents]
        digests = list(map(_digest, texts))
        new = {digest: text for digest, text in zip(digests, texts, strict=True) if digest not in seen}
        seen.update(repeated.keys() & new.keys())
        ahead.append(_Block(documents, texts, digests, list(new)))
        return list(new.values()) or texts[:1]  # no encoder gets an empty block

    left = Counter(repeated)
    kept: dict[bytes, Any] = {}  # vectors of texts that later blocks have
    for vectors in encoder.vectors(map(texts_of, blocks), "document", progress):
        block = ahead.popleft()
        place = {digest: row for row, digest in enumerate(block.read)}
        size = max(len(block.read), 1)
        progress.add(len(block.documents) - size)
        left.subtract(digest for digest in block.digests if digest in repeated)
        kept |= {digest: _rows(vectors, [place[digest]]) for digest in block.read if left[digest] > 0}
        if len(block.read) < len(block.documents):
            before = [digest for digest in dict.fromkeys(block.digests) if digest not in place]
            place |= {digest: row for row, digest in enumerate(before, start=size)}
            together = encoder.concatenation([vectors, *(kept[digest] for digest in before)])
            vectors = _rows(together, [place[digest] for digest in block.digests])
        kept = {digest: kept[digest] for digest in kept if left[digest] > 0}
        yield block.documents, block.texts, vectors


def _rows(vectors: Any, rows: list[int]) -> Any:
    """Select the vectors of texts by their rows."""
    return vectors.texts(rows) if isinstance(vectors, TokenVectors) else vectors[rows]
