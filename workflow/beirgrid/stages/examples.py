"""Stages generate, mine and label: queries for documents of a corpus, their hard negatives, and a teacher's margins.

A query is written by a model, or derived: it is a document's title or one of its sentences. Hard negatives are
documents that retrievers return for a query although they do not answer it. No stage reads test queries.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..collections import collection, training_data
from ..collections.collection import Document
from ..config.models import CrossEncoder, DenseModel, QueryGenerator
from ..config.values import LIST, Count, Derive, Entry, Language, Seed, Size
from ..core import files, provenance
from ..core.compute import Compute
from ..core.errors import DataError, quoted
from ..core.progress import Progress
from ..core.provenance import Artifact, Record
from ..encoders import open_encoder, open_model
from ..encoders.guards import check_finite, check_scores_differ
from ..encoders.protocol import Scorer
from ..pipeline.train import Generate, Label, Mine, queries_for_each
from ..search import flat, lucene

# Queries searched at a time.
BLOCK = 8192


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
    record: Record,
) -> None:
    """Generate training queries for a sample of a corpus.

    Raises:
        DataError: an input is damaged, or no document yields a query.
    """
    inputs = {"corpus": corpus, "generator": generator}
    with provenance.record(Generate.stamp, record, recipe.own_keys(), [output], **inputs) as facts:
        runtime = compute.start()
        sampled = min(collection.count(corpus), recipe.documents)
        per_document = queries_for_each(recipe, sampled)
        model = open_model(generator, recipe.generator, runtime) if generator and recipe.generator else None
        choose, queries = random.Random(recipe.seed), 0
        progress = Progress("generate", sampled, "documents")
        with _parquet(output, training_data.QUERIES) as parquet:
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
        facts.update(documents=sampled, queries_per_document=per_document, queries=queries)
        facts["documents_per_second"] = round(progress.rate, 2)


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
    output: Annotated[Path, "negatives.parquet to write (collections.training_data.NEGATIVES)"],
    record: Record,
) -> None:
    """Find hard negatives for training queries: without duplicates, and without documents that answer a query.

    Raises:
        DataError: an input is damaged, or no retriever finds a negative.
    """
    models: provenance.Inputs = {"checkpoints": checkpoints, "dense_indexes": indexes}
    inputs = {"corpus": corpus, "training_queries": queries, "lucene": index, **models}
    settings = {**recipe.own_keys(), "bm25": index is not None, **lucene.PLAIN_INDEX}
    with provenance.record(Mine.stamp, record, settings, [output], **inputs) as facts:
        with files.reading(queries):
            table = pq.read_table(queries, columns=["query", "document"])
        texts = table["query"].to_pylist()
        answers: dict[str, set[str]] = {}
        for text, document in zip(texts, table["document"].to_pylist(), strict=True):
            answers.setdefault(text, set()).add(document)
        nearest = _nearest(recipe, corpus, checkpoints, indexes, texts, compute) if recipe.dense else []
        ids = [collection.read_ids(corpus, rows) for rows in nearest]
        bm25: dict[str, Any] = {"depth": recipe.negative_depth, "threads": threads, "memory_mb": 1500}
        mined = 0
        with _parquet(output, training_data.NEGATIVES) as parquet:
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
        facts.update(queries=len(texts), negatives=mined)


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
    runtime, nearest = compute.start(), []
    shards = len(indexes) // len(recipe.dense)
    for number, (entry, checkpoint) in enumerate(zip(recipe.dense, checkpoints, strict=True)):
        own = indexes[number * shards : (number + 1) * shards]
        provenance.check({"checkpoint": checkpoint, "indexes": own, "corpus": corpus})
        encoder = open_encoder(checkpoint, entry, runtime)
        vectors = encoder.encode_queries(texts)
        check_finite(vectors, [f"query {quoted(text)}" for text in texts], encoder.precision)
        nearest.append(flat.search_shards(own, vectors, recipe.negative_depth, runtime.device)[1])
    return nearest


class LabelRecipe(Entry):
    """The keys of a recipe that affect the margins, and the teacher's entry."""

    steps: Count
    batch: Size
    seed: Seed = 0
    teacher: CrossEncoder


def label(
    *,
    recipe: Annotated[LabelRecipe, "teacher, steps, batch and seed, JSON"],
    teacher: Annotated[Artifact, "checkpoint of the cross-encoder"],
    corpus: Annotated[Artifact, "corpus.parquet"],
    queries: Annotated[Artifact, "queries.parquet, from generate"],
    negatives: Annotated[Artifact, "negatives.parquet, from mine"],
    compute: Compute,
    output: Annotated[Path, "margins.parquet to write (collections.training_data.MARGINS)"],
    record: Record,
) -> None:
    """Score training pairs with a cross-encoder teacher: each positive, and as many negatives as training uses.

    Raises:
        DataError: an input is damaged, or a score is not finite.
    """
    inputs = {"teacher": teacher, "corpus": corpus, "training_queries": queries, "negatives": negatives}
    with provenance.record(Label.stamp, record, recipe.own_keys(), [output], **inputs) as facts:
        scorer = open_model(teacher, recipe.teacher, compute.start())
        with files.reading(queries):
            positives = pq.ParquetFile(queries)
        with files.reading(negatives):
            mined = pq.ParquetFile(negatives)
        per_query = math.ceil(recipe.steps * recipe.batch / positives.metadata.num_rows)
        choose, triplets = random.Random(recipe.seed), 0
        progress = Progress("label", None, "pairs")
        with _parquet(output, training_data.MARGINS) as parquet:
            blocks = positives.iter_batches(training_data.BLOCK), mined.iter_batches(training_data.BLOCK)
            for pairs, lists in zip(*blocks, strict=True):
                chosen = [choose.sample(ids, min(len(ids), per_query)) for ids in lists["negatives"].to_pylist()]
                table = _margins(scorer, pairs, chosen, corpus, progress)
                parquet.write_table(table)
                triplets += table.num_rows
        facts.update(scorer.facts(), triplets=triplets, pairs_per_second=round(progress.rate, 2))


def _margins(
    scorer: Scorer, pairs: pa.RecordBatch, negatives: list[list[str]], corpus: Path, progress: Progress
) -> pa.Table:
    """Score pairs and the negatives of each; return a row per negative."""
    queries, positives = pairs["query"].to_pylist(), pairs["positive"].to_pylist()
    ids = {document for of_query in negatives for document in of_query}
    documents = {document.id: document for document in collection.pick_documents(corpus, ids)}
    collection.refuse_unknown(corpus, "document", sorted(ids), documents)
    rows = np.repeat(np.arange(len(queries)), [len(of_query) for of_query in negatives])
    texts = [documents[document].full_text for of_query in negatives for document in of_query]
    repeated = [queries[row] for row in rows]
    scores = scorer.score([*queries, *repeated], [*positives, *texts], progress=progress)
    check_finite(scores, [f"query {quoted(query)}" for query in (*queries, *repeated)], scorer.precision)
    pairs_of_texts = zip([*queries, *repeated], [*positives, *texts], strict=True)
    check_scores_differ(scores, pairs_of_texts, scorer.precision)
    margins = scores[: len(queries)][rows] - scores[len(queries) :]
    return pa.table([repeated, [positives[row] for row in rows], texts, margins], schema=training_data.MARGINS)


@contextmanager
def _parquet(output: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Write a parquet file, which appears when it is complete."""
    with files.atomic(output) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as parquet:
        yield parquet
