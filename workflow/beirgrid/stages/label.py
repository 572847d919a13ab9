"""Stage label: margins of a cross-encoder teacher between a query's positive and its negatives (GPL)."""

from __future__ import annotations

import argparse
import json
import math
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files, provenance
from ..core.progress import Progress
from ..data import collection
from ..encoders import CrossEncoderScorer, add_compute_arguments, check_finite

# ``label`` is the teacher's logit of (query, positive) less that of (query, negative).
SCHEMA = pa.schema(
    [("query", pa.string()), ("positive", pa.string()), ("negative", pa.string()), ("label", pa.float32())]
)
BLOCK = 2048


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid label``."""
    parser.add_argument("--recipe", required=True, type=json.loads, help="teacher, steps, batch and seed, as JSON")
    parser.add_argument("--teacher", required=True, type=provenance.artifact, help="checkpoint of the cross-encoder")
    parser.add_argument("--corpus", required=True, type=provenance.artifact, help="corpus.parquet")
    parser.add_argument(
        "--queries", required=True, type=provenance.artifact, help="queries.parquet that generate wrote"
    )
    parser.add_argument(
        "--negatives", required=True, type=provenance.artifact, help="negatives.parquet that mine wrote"
    )
    parser.add_argument("--output", required=True, type=Path, help="margins.parquet to write")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    add_compute_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Score each query's positive and as many of its negatives as training takes, a block at a time."""
    recipe = args.recipe
    with provenance.record("label", args.made, recipe, [args.output]) as facts:
        scorer = CrossEncoderScorer(args.teacher, recipe["teacher"], args.device, args.precision, args.batch_tokens)
        with files.reading(args.queries):
            queries = pq.ParquetFile(args.queries)
        per_query = math.ceil(recipe["steps"] * recipe["batch"] / queries.metadata.num_rows)
        progress = Progress("label", None, "pairs")
        choose = random.Random(recipe["seed"])
        triplets = 0
        with files.atomic(args.output) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as parquet:
            with files.reading(args.negatives):
                negatives = pq.ParquetFile(args.negatives)
            blocks = queries.iter_batches(BLOCK), negatives.iter_batches(BLOCK)
            for asked, mined in zip(*blocks, strict=True):
                chosen = [choose.sample(found, min(len(found), per_query)) for found in mined["negatives"].to_pylist()]
                table = _margins(scorer, asked, chosen, args.corpus, progress)
                parquet.write_table(table)
                triplets += table.num_rows
        facts.update(scorer.facts(), triplets=triplets, pairs_per_second=round(progress.rate, 2))


def _margins(
    scorer: CrossEncoderScorer, asked: pa.RecordBatch, negatives: list[list[str]], corpus: Path, progress: Progress
) -> pa.Table:
    """Return the triplets of some queries with the teacher's margins."""
    queries, positives = asked["query"].to_pylist(), asked["positive"].to_pylist()
    wanted = {document for found in negatives for document in found}
    documents = {document.id: document for document in collection.pick_documents(corpus, wanted)}
    rows = np.repeat(np.arange(len(queries)), [len(found) for found in negatives])
    names = [document for found in negatives for document in found]
    texts = [documents[document].joined for document in names]
    scores = scorer.score([*queries, *(queries[row] for row in rows)], [*positives, *texts], progress)
    check_finite(
        scores, [f"query {query!r}" for query in (*queries, *(queries[row] for row in rows))], scorer.precision
    )
    margins = scores[: len(queries)][rows] - scores[len(queries) :]
    return pa.table([[queries[row] for row in rows], [positives[row] for row in rows], texts, margins], schema=SCHEMA)
