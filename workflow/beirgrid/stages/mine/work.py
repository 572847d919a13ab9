"""Hard negatives: documents that retrievers return for a training query although they do not answer it."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...collections import collection, training_data
from ...config.models import DenseModel
from ...config.values import LIST, Entry, Language, Size
from ...core import files, lineage
from ...core.compute import Compute
from ...core.errors import DataError, quoted
from ...core.provenance import Artifact, Facts
from ...encoders import open_encoder
from ...encoders.guards import check_finite
from ...search import flat, lucene

# Queries searched at a time.
BLOCK = 8192


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
    dense_indexes: Annotated[tuple[Artifact, ...], "index shards of the dense models, model by model"] = (),
    compute: Compute,
    threads: Annotated[Size, "threads of the search with BM25"] = 1,
    output: Annotated[Path, "negatives.parquet to write (collections.training_data.NEGATIVES)"],
) -> Facts:
    """Find hard negatives for training queries: without duplicates, and without documents that answer a query.

    Raises:
        DataError: an input is damaged, or no retriever finds a negative.
    """
    with files.reading(queries):
        table = pq.read_table(queries, columns=["query", "document"])
    texts = table["query"].to_pylist()
    answers: dict[str, set[str]] = {}
    for text, document in zip(texts, table["document"].to_pylist(), strict=True):
        answers.setdefault(text, set()).add(document)
    nearest = _nearest(recipe, corpus, checkpoints, dense_indexes, texts, compute) if recipe.dense else []
    ids = [collection.read_ids(corpus, rows) for rows in nearest]
    bm25: dict[str, Any] = {"depth": recipe.negative_depth, "threads": threads, "memory_mb": 1500}
    mined = 0
    with training_data.writer(output, training_data.NEGATIVES) as parquet:
        for start in range(0, len(texts), BLOCK):
            block = texts[start : start + BLOCK]
            ranked = [lucene.search_texts(index, block, language=recipe.language, **bm25)] if index else []
            for of_rows, rows in zip(ids, nearest, strict=True):
                ranked.append([of_rows.take(row).to_pylist() for row in rows[start : start + len(block)]])
            negatives = [
                [document for document in dict.fromkeys(chain(*lists)) if document not in answers[text]]
                for text, *lists in zip(block, *ranked, strict=True)
            ]
            parquet.write_table(pa.table([negatives], schema=training_data.NEGATIVES))
            mined += sum(map(len, negatives))
        if not mined:
            raise DataError(
                f"no negatives: for the queries of {queries}, the retrievers find only documents that answer them"
            )
    return {"queries": len(texts), "negatives": mined}


def _nearest(
    recipe: MineRecipe,
    corpus: Path,
    checkpoints: tuple[Path, ...],
    indexes: tuple[Path, ...],
    texts: list[str],
    compute: Compute,
) -> list[np.ndarray]:
    """Search with each dense model for all queries at once, so that each shard is read once.

    Returns:
        rows of the corpus of each model, int64 [queries, depth].
    """
    runtime = compute.start()
    nearest = []
    shards = len(indexes) // len(recipe.dense)
    for number, (entry, checkpoint) in enumerate(zip(recipe.dense, checkpoints, strict=True)):
        own = indexes[number * shards : (number + 1) * shards]
        lineage.check({"checkpoint": checkpoint, "indexes": own, "corpus": corpus})
        encoder = open_encoder(checkpoint, entry, runtime)
        vectors = encoder.encode_queries(texts)
        check_finite(vectors, [f"query {quoted(text)}" for text in texts], encoder.precision)
        nearest.append(flat.search_shards(own, vectors, recipe.negative_depth, runtime.device, runtime.gpu_search)[1])
    return nearest
