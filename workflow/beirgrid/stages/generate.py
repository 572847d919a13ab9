"""Stage generate: make training queries for documents of a corpus, by a model or from the text itself.

A derived query is a document's title or one of its sentences, so training needs no query generator. The stage does not
read test queries.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import pyarrow as pa
import pyarrow.parquet as pq

from ..collections import collection, training_data
from ..collections.collection import Document
from ..config import models
from ..config.values import Count, Derive, Entry, Seed, Size
from ..core import files, provenance
from ..core.compute import Compute
from ..core.errors import DataError
from ..core.progress import Progress
from ..core.provenance import Artifact, Record
from ..encoders.query_generator import GeneratorModel
from ..pipeline.train import Generate

# Computes the (query, positive) pairs of each document in a batch.
Writer = Callable[[list[Document]], list[list[tuple[str, str]]]]


class GenerateRecipe(Entry):
    """The keys of a recipe that affect the training queries."""

    documents: Count
    seed: Seed = 0
    derive: Derive = ()
    queries: Count = 0  # in total, without queries_per_document
    queries_per_document: Size | None = None
    generator: models.QueryGenerator | None = None


def generate(
    *,
    recipe: Annotated[GenerateRecipe, "documents, queries_per_document, …, JSON"],
    corpus: Annotated[Artifact, "corpus.parquet"],
    generator: Annotated[Artifact | None, "checkpoint of the query generator, if any"] = None,
    compute: Compute,
    output: Annotated[Path, "queries.parquet to write (collections.training_data.QUERIES)"],
    record: Record,
) -> None:
    """Generate training queries for a sample of a corpus.

    Raises:
        DataError: an input is damaged, or no document yields a query.
    """
    inputs = {"corpus": corpus, "generator": generator}
    recorded = provenance.record(Generate.stamp, record, recipe.own_keys(), [output], inputs=inputs)
    with recorded as facts, compute.start() as runtime:
        rows = training_data.sample_rows(collection.count(corpus), recipe.documents, recipe.seed)
        per_document = recipe.queries_per_document or math.ceil(recipe.queries / len(rows))
        if generator and recipe.generator:
            writer = _generator(GeneratorModel(generator, recipe.generator, runtime), per_document, recipe.seed)
        else:
            writer = _deriver(recipe, per_document)
        progress = Progress("generate", len(rows), "documents")
        queries = 0
        with (
            files.atomic(output) as temporary,
            pq.ParquetWriter(temporary, training_data.QUERIES, compression="zstd") as parquet,
        ):
            for documents in training_data.read_rows(corpus, rows):
                pairs = [
                    (query, positive, document.id)
                    for document, found in zip(documents, writer(documents), strict=True)
                    for query, positive in dict.fromkeys(found)
                    if query.strip() and positive.strip()
                ]
                columns = [list(column) for column in zip(*pairs, strict=True)] or [[], [], []]
                parquet.write_table(pa.table(columns, schema=training_data.QUERIES))
                queries += len(pairs)
                progress.add(len(documents))
            if not queries:
                raise DataError(f"{corpus} yields no training queries: its documents have no text, titles or sentences")
        facts.update(documents=len(rows), queries_per_document=per_document, queries=queries)
        facts["documents_per_second"] = round(progress.rate, 2)


def _generator(model: GeneratorModel, per_document: int, seed: int) -> Writer:
    def write(documents: list[Document]) -> list[list[tuple[str, str]]]:
        texts = [document.full_text for document in documents]
        queries = model.generate(texts, per_text=per_document, seed=seed)
        return [[(query, text) for query in found] for text, found in zip(texts, queries, strict=True)]

    return write


def _deriver(recipe: GenerateRecipe, most: int) -> Writer:
    ways, choose = recipe.derive, random.Random(recipe.seed)
    sentences = most - ("titles" in ways)
    return lambda documents: [training_data.derive(document, ways, sentences, choose) for document in documents]
