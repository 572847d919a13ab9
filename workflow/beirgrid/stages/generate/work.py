"""Queries for documents of a corpus: written by a model, or derived.

A derived query is a document's title or one of its sentences. No stage reads test queries.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Annotated, Any

import pyarrow as pa

from ...collections import collection, training_data
from ...collections.collection import Document
from ...config.models import QueryGenerator
from ...config.recipes import queries_for_each
from ...config.values import Count, Derive, Entry, Seed, Size
from ...core.compute import Compute
from ...core.errors import DataError
from ...core.progress import Progress
from ...core.provenance import Artifact, Facts
from ...encoders import open_model


class GenerateRecipe(Entry):
    """The keys of a recipe that affect the training queries."""

    documents: Count
    seed: Seed = 0
    derive: Derive = ()
    queries: Count = 0  # in total, without queries_per_document
    queries_per_document: Size | None = None
    generator: QueryGenerator | None = None


def generate(
    *,
    recipe: Annotated[GenerateRecipe, "documents, queries_per_document, …, JSON"],
    corpus: Annotated[Artifact, "corpus.parquet"],
    generator: Annotated[Artifact | None, "checkpoint of the query generator, if any"] = None,
    compute: Compute,
    output: Annotated[Path, "queries.parquet to write (collections.training_data.QUERIES)"],
) -> Facts:
    """Generate training queries for a sample of a corpus.

    Raises:
        DataError: an input is damaged, or no document yields a query.
    """
    runtime = compute.start()
    sampled = min(collection.count(corpus), recipe.documents)
    per_document = queries_for_each(recipe, sampled)
    model = open_model(generator, recipe.generator, runtime) if generator and recipe.generator else None
    choose = random.Random(recipe.seed)
    queries = 0
    progress = Progress("generate", sampled, "documents")
    with training_data.writer(output, training_data.QUERIES) as parquet:
        for documents in training_data.sample_documents(corpus, recipe.documents, recipe.seed):
            of_each = _pairs(documents, recipe, model, per_document, choose)
            rows = [
                {"query": query, "positive": positive, "document": document.id}
                for document, pairs in zip(documents, of_each, strict=True)
                for query, positive in dict.fromkeys(pairs)
                if query.strip() and positive.strip()
            ]
            parquet.write_table(pa.Table.from_pylist(rows, schema=training_data.QUERIES))
            queries += len(rows)
            progress.add(len(documents))
        if not queries:
            raise DataError(f"{corpus} yields no training queries: its documents have no text, titles or sentences")
    return {
        "documents": sampled,
        "queries_per_document": per_document,
        "queries": queries,
        "documents_per_second": round(progress.rate, 2),
    }


def _pairs(
    documents: list[Document], recipe: GenerateRecipe, model: Any, per_document: int, choose: random.Random
) -> list[list[tuple[str, str]]]:
    """Return the (query, positive) pairs of each document, from a model or derived from its text."""
    if model is None:
        sentences = per_document - ("titles" in recipe.derive)
        return [training_data.derive(document, recipe.derive, sentences, choose) for document in documents]
    texts = [document.full_text for document in documents]
    written = model.generate(texts, per_text=per_document, seed=recipe.seed)
    return [[(query, text) for query in queries] for text, queries in zip(texts, written, strict=True)]
