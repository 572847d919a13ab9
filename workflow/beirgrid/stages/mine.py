"""Stage mine: find hard negatives, which retrievers return for a training query although they do not answer it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq

from ..collections import collection, training_data
from ..config.models import DenseModel
from ..config.values import LIST, Entry, Language, Size
from ..core import files, provenance
from ..core.compute import Compute, Runtime
from ..core.errors import DataError, quoted
from ..core.provenance import Artifact, Record
from ..encoders import open_encoder
from ..encoders.guards import check_finite
from ..pipeline.train import Mine
from ..search import flat, lucene

# Queries searched at a time.
BLOCK = 8192
# Takes the first row and the texts of some queries; returns each query's documents, best first.
Retriever = Callable[[int, list[str]], list[list[str]]]


class MineRecipe(Entry):
    """The keys of a recipe that affect the negatives, and the entries of the dense miners."""

    negative_depth: Size
    language: Language = "en"
    dense: Annotated[tuple[DenseModel, ...], LIST] = ()


def mine(
    *,
    recipe: Annotated[MineRecipe, "negative_depth, language and dense models, JSON"],
    queries: Annotated[Artifact, "queries.parquet, from generate"],
    corpus: Annotated[Artifact, "corpus.parquet, for the document ids"],
    index: Annotated[Artifact | None, "flat Lucene index of the corpus, to mine with BM25"] = None,
    checkpoints: Annotated[tuple[Artifact, ...], "checkpoint of each dense model"] = (),
    indexes: Annotated[tuple[Artifact, ...], "index shards of the dense models, model by model"] = (),
    compute: Compute,
    threads: Annotated[Size, "threads of the search with BM25"] = 1,
    output: Annotated[Path, "negatives of each query to write, .parquet (collections.training_data.NEGATIVES)"],
    record: Record,
) -> None:
    """Find hard negatives for training queries.

    Raises:
        DataError: an input is damaged, or no retriever finds a negative.
    """
    settings = {**recipe.own_keys(), "bm25": index is not None, "dense": [model.own_keys() for model in recipe.dense]}
    inputs: provenance.Inputs = {
        "corpus": corpus,
        "training_queries": queries,
        "lucene": index,
        "checkpoints": checkpoints,
        "indexes": indexes,
    }
    shards = len(indexes) // max(len(recipe.dense), 1)
    of_models = [indexes[first : first + shards] for first in range(0, len(indexes), max(shards, 1))]
    models = list(zip(recipe.dense, checkpoints, of_models, strict=True))
    with provenance.record(Mine.stamp, record, settings, [output], inputs=inputs) as facts:
        with files.reading(queries):
            table = pq.read_table(queries, columns=["query", "document"])
        texts, answers = table["query"].to_pylist(), table["document"].to_pylist()
        answered: dict[str, set[str]] = {}
        for text, document in zip(texts, answers, strict=True):
            answered.setdefault(text, set()).add(document)
        retrievers = [_bm25(index, recipe, threads)] if index else []
        if recipe.dense:
            with compute.start() as runtime:
                for named in models:
                    retrievers.append(_dense(*named, corpus, texts, recipe.negative_depth, runtime))
        mined = 0
        with (
            files.atomic(output) as temporary,
            pq.ParquetWriter(temporary, training_data.NEGATIVES, compression="zstd") as parquet,
        ):
            for block in _blocks(texts, retrievers, answered):
                parquet.write_table(pa.table([block], schema=training_data.NEGATIVES))
                mined += sum(map(len, block))
            if not mined:
                raise DataError(
                    f"no negatives: for the queries of {queries}, the retrievers find only documents that answer them"
                )
        facts.update(queries=len(texts), negatives=mined)


def _blocks(texts: list[str], retrievers: list[Retriever], answered: dict[str, set[str]]) -> Iterator[list[list[str]]]:
    """Yield the negatives of blocks of queries: all retrieved documents except those that answer the same query."""
    for start in range(0, len(texts), BLOCK):
        block = texts[start : start + BLOCK]
        found = [search(start, block) for search in retrievers]
        yield [
            [document for document in dict.fromkeys(chain(*lists)) if document not in answered[text]]
            for text, *lists in zip(block, *found, strict=True)
        ]


def _bm25(index: Path, recipe: MineRecipe, threads: int) -> Retriever:
    def search(_: int, texts: list[str]) -> list[list[str]]:
        options = {"depth": recipe.negative_depth, "threads": threads, "memory_mb": 1500}
        return lucene.search_texts(index, texts, language=recipe.language, **options)

    return search


def _dense(
    model: DenseModel,
    checkpoint: Path,
    indexes: tuple[Path, ...],
    corpus: Path,
    texts: list[str],
    depth: int,
    runtime: Runtime,
) -> Retriever:
    """Search all queries with a dense model at once, so that each shard is read once."""
    encoder = open_encoder(checkpoint, model, runtime)
    vectors = encoder.encode_queries(texts)
    check_finite(vectors, [f"query {quoted(text)}" for text in texts], encoder.precision)
    _, rows = flat.search_shards(indexes, vectors, depth, runtime.device)
    ids = collection.read_ids(corpus, rows)
    return lambda start, block: [ids.take(found).to_pylist() for found in rows[start : start + len(block)]]
