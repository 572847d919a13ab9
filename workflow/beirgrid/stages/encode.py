"""Stage encode: encode the documents of one shard of a corpus."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, NamedTuple

from .. import search
from ..collections import collection
from ..config.models import DenseModel, Head, ModelEntry, of_head
from ..core import files, lineage, pipeline, provenance
from ..core.compute import Compute
from ..core.errors import ConfigError, quoted
from ..core.families import FAMILIES
from ..core.lineage import Fact, Origin
from ..core.progress import Progress
from ..core.provenance import Artifact, Record
from ..encoders import FIRST, WINDOW, CollapseCheck, Encoder, HeadsEncoder, check_finite, open_encoder
from ..models.arguments import EncodingModel, SizeOption, from_json
from ..models.endpoints import kept_answers
from ..search.maxsim import TokenVectors


class Part(NamedTuple):
    """Vectors to write: the entry of the model (or of another head of its checkpoint), and the files."""

    model: ModelEntry
    output: Path
    record: Path


def encode(
    *,
    model: EncodingModel,
    checkpoint: Annotated[Artifact, "folder of the model's checkpoint"],
    corpus: Annotated[Artifact, "corpus.parquet"],
    shard: Annotated[int, "number of the shard, from 0"] = 0,
    shard_size: Annotated[SizeOption, "documents per shard"],
    last: Annotated[bool, "the shard is the last one, which must end with the corpus"] = False,
    compute: Compute,
    output: Annotated[
        Path,
        "vectors to write: float32 [documents, dimension] .npy (dense), float32 CSR [documents, vocabulary] .npz "
        "(sparse), a folder of token vectors (late interaction)",
    ],
    record: Record,
    heads: Annotated[
        Mapping[Head, tuple[Path, Path]],
        "vectors and record to write for each further head of a dense model's checkpoint, JSON",
        from_json(dict[Head, tuple[Path, Path]]),
    ] = MappingProxyType({}),
) -> None:
    """Encode one shard of a corpus to vectors.

    Raises:
        ConfigError: the model has no further heads.
        DataError: the shard does not fit the corpus, the checkpoint does not match the entry, or the model returns
            values that are not finite, or one vector for all texts.
    """
    start, stop = collection.shard_rows(corpus, shard, shard_size, last)
    wanted = [Part(model, output, record)]
    if isinstance(model, DenseModel):
        wanted += [Part(of_head(model, head), *place) for head, place in heads.items()]
    elif heads:
        raise ConfigError(f"--heads: a {model.family} model has no further heads")
    settings = {"shard": shard, "shard_size": shard_size}
    made = {"documents": [start, stop, collection.count(corpus)]}
    origin = lineage.check({"checkpoint": checkpoint, "corpus": corpus}, made=made)
    with ExitStack() as stack:
        answers = stack.enter_context(kept_answers(output))
        places = [stack.enter_context(_written(part, settings, origin)) for part in wanted]
        runtime = stack.enter_context(compute.start())
        progress = Progress(f"encode shard {shard}", stop - start, "documents")
        opened: Encoder[Any]
        if isinstance(model, DenseModel) and heads:
            opened = several = HeadsEncoder(checkpoint, model, runtime, tuple(heads))
            dimensions = several.dimensions
        else:
            opened = open_encoder(checkpoint, model, runtime, answers)
            dimensions = (opened.dimension,)
        early = min(start + FIRST, stop)
        documents = chain(
            collection.read_blocks(corpus, start, early, FIRST), collection.read_blocks(corpus, early, stop, WINDOW)
        )
        separator = model.separator if isinstance(model, DenseModel) else " "
        writers = [
            partial(search.store(part.model.family).write_vectors, place, documents=stop - start, dimension=dimension)
            for part, (_, place), dimension in zip(wanted, places, dimensions, strict=True)
        ]
        written = pipeline.behind(writers, _encoded(opened, documents, separator, progress))
        for (facts, _), counts, dimension in zip(places, written, dimensions, strict=True):
            facts.update(
                counts,
                **opened.facts(),
                documents=stop - start,
                documents_per_second=round(progress.rate, 2),
                dimension=dimension,
            )


@contextmanager
def _written(part: Part, settings: dict[str, Any], origin: Origin) -> Iterator[tuple[dict[str, Any], Path]]:
    """Yield the facts for the record of a part, and the temporary path of its vectors."""
    settings = {**part.model.given(), **settings}
    origin = replace(origin, facts=origin.facts | {name: Fact(value) for name, value in _made(part.model).items()})
    with (
        provenance.record("encode", part.record, settings, [part.output], origin=origin) as facts,
        files.atomic(part.output, directory=FAMILIES[part.model.family].folder) as place,
    ):
        yield facts, place


def _made(model: ModelEntry) -> dict[str, Any]:
    """Return what the index and the search must know of dense vectors."""
    if not isinstance(model, DenseModel):
        return {}
    return {"similarity": model.similarity} | ({"chunks": model.chunks.name} if model.chunks else {})


def _encoded(
    encoder: Encoder[Any], blocks: Iterable[list[collection.Document]], separator: str, progress: Progress
) -> Iterator[tuple[Any, ...]]:
    """Encode and check each block of documents; yield its vectors of each head."""
    checks: list[CollapseCheck] = []
    read: deque[tuple[list[collection.Document], list[str]]] = deque()

    def texts_of(documents: list[collection.Document]) -> list[str]:
        texts = [document.join(separator) for document in documents]
        read.append((documents, texts))
        return texts

    for block in encoder.encode_blocks(map(texts_of, blocks), progress=progress):
        documents, texts = read.popleft()
        heads = block if isinstance(encoder, HeadsEncoder) else (block,)
        checks = checks or [CollapseCheck(encoder) for _ in heads]
        for check, vectors in zip(checks, heads, strict=True):
            checked = vectors.sums() if isinstance(vectors, TokenVectors) else vectors
            check.add(checked, texts)
            check_finite(checked, [f"document {quoted(document.id)}" for document in documents], encoder.precision)
        yield heads
    for check in checks:
        check.check("this shard")
