"""Margins of a teacher between the positives of training queries and their negatives."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ...collections import collection, training_data
from ...config.models import CrossEncoder
from ...config.values import Count, Entry, Seed, Size
from ...core import files
from ...core.compute import Compute
from ...core.errors import quoted
from ...core.progress import Progress
from ...core.provenance import Artifact, Facts
from ...encoders import open_model
from ...encoders.guards import check_finite, check_scores_differ
from ...encoders.protocol import Scorer


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
) -> Facts:
    """Score training pairs with a cross-encoder teacher: each positive, and as many negatives as training uses.

    Raises:
        DataError: an input is damaged, or a score is not finite.
    """
    scorer = open_model(teacher, recipe.teacher, compute.start())
    with files.reading(queries):
        positives = pq.ParquetFile(queries)
    with files.reading(negatives):
        mined = pq.ParquetFile(negatives)
    per_query = math.ceil(recipe.steps * recipe.batch / positives.metadata.num_rows)
    choose = random.Random(recipe.seed)
    triplets = 0
    progress = Progress("label", None, "pairs")
    with training_data.writer(output, training_data.MARGINS) as parquet:
        blocks = positives.iter_batches(training_data.BLOCK), mined.iter_batches(training_data.BLOCK)
        for pairs, lists in zip(*blocks, strict=True):
            chosen = [choose.sample(ids, min(len(ids), per_query)) for ids in lists["negatives"].to_pylist()]
            table = _margins(scorer, pairs, chosen, corpus, progress)
            parquet.write_table(table)
            triplets += table.num_rows
    return {**scorer.facts(), "triplets": triplets, "pairs_per_second": round(progress.rate, 2)}


def _margins(
    scorer: Scorer, pairs: pa.RecordBatch, negatives: list[list[str]], corpus: Path, progress: Progress
) -> pa.Table:
    """Score pairs and the negatives of each; return a row per negative."""
    queries = pairs["query"].to_pylist()
    positives = pairs["positive"].to_pylist()
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
