"""Stage label: compute a cross-encoder teacher's margins between a query's positive and its negatives (GPL)."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..collections import collection, training_data
from ..config.models import CrossEncoder
from ..config.values import Count, Entry, Seed, Size
from ..core import files, provenance
from ..core.compute import Compute
from ..core.errors import quoted
from ..core.progress import Progress
from ..core.provenance import Artifact, Record
from ..encoders import open_scorer
from ..encoders.guards import check_finite
from ..encoders.protocol import Scorer
from ..pipeline.train import Label


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
    negatives: Annotated[Artifact, "hard negatives, .parquet"],
    compute: Compute,
    output: Annotated[Path, "margins.parquet to write (collections.training_data.MARGINS)"],
    record: Record,
) -> None:
    """Score training pairs with a cross-encoder teacher: each positive, and as many negatives as training uses.

    Raises:
        DataError: an input is damaged, or a score is not finite.
    """
    inputs = {"teacher": teacher, "corpus": corpus, "training_queries": queries, "negatives": negatives}
    recorded = provenance.record(Label.stamp, record, recipe.own_keys(), [output], inputs=inputs)
    with recorded as facts, compute.start() as runtime:
        scorer = open_scorer(teacher, recipe.teacher, runtime)
        with files.reading(queries):
            asked = pq.ParquetFile(queries)
        with files.reading(negatives):
            mined = pq.ParquetFile(negatives)
        per_query = math.ceil(recipe.steps * recipe.batch / asked.metadata.num_rows)
        progress = Progress("label", None, "pairs")
        choose = random.Random(recipe.seed)
        triplets = 0
        with (
            files.atomic(output) as temporary,
            pq.ParquetWriter(temporary, training_data.MARGINS, compression="zstd") as parquet,
        ):
            blocks = asked.iter_batches(training_data.BLOCK), mined.iter_batches(training_data.BLOCK)
            for some, found in zip(*blocks, strict=True):
                chosen = [choose.sample(ids, min(len(ids), per_query)) for ids in found["negatives"].to_pylist()]
                table = _margins(scorer, some, chosen, corpus, progress)
                parquet.write_table(table)
                triplets += table.num_rows
        facts.update(scorer.facts(), triplets=triplets, pairs_per_second=round(progress.rate, 2))


def _margins(
    scorer: Scorer, asked: pa.RecordBatch, negatives: list[list[str]], corpus: Path, progress: Progress
) -> pa.Table:
    queries, positives = asked["query"].to_pylist(), asked["positive"].to_pylist()
    ids = {document for found in negatives for document in found}
    documents = {document.id: document for document in collection.pick_documents(corpus, ids)}
    collection.refuse_unknown(corpus, "document", sorted(ids), documents)
    rows = np.repeat(np.arange(len(queries)), [len(found) for found in negatives])
    texts = [documents[document].full_text for found in negatives for document in found]
    repeated = [queries[row] for row in rows]
    scores = scorer.score([*queries, *repeated], [*positives, *texts], progress=progress)
    check_finite(scores, [f"query {quoted(query)}" for query in (*queries, *repeated)], scorer.precision)
    margins = scores[: len(queries)][rows] - scores[len(queries) :]
    return pa.table([repeated, [positives[row] for row in rows], texts, margins], schema=training_data.MARGINS)
