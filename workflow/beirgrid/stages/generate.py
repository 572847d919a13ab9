"""Stage generate: training queries for documents of a corpus, written by a model or derived from the text.

A derived query is the title, or a sentence taken out of its document: training then needs no query
generator. No test query is read.
"""

from __future__ import annotations

import argparse
import json
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from ..config import queries_per_document
from ..core import files, provenance
from ..core.errors import DataError
from ..core.progress import Progress
from ..data import collection
from ..data.collection import Document
from ..encoders import add_compute_arguments

# A training query, the text that answers it, and the document which that text is from.
SCHEMA = pa.schema([("query", pa.string()), ("positive", pa.string()), ("document", pa.string())])
BLOCK = 2048
# A batch of documents to the (query, positive) pairs of each.
Writer = Callable[[list[Document]], list[list[tuple[str, str]]]]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``python -m beirgrid generate``."""
    parser.add_argument("--recipe", required=True, type=json.loads, help="documents, queries_per_document, … as JSON")
    parser.add_argument("--corpus", required=True, type=provenance.artifact, help="corpus.parquet")
    parser.add_argument(
        "--generator", type=provenance.artifact, help="checkpoint of the query generator, if there is one"
    )
    parser.add_argument("--output", required=True, type=Path, help="queries.parquet to write")
    parser.add_argument("--made", required=True, type=Path, help="where to record what made it")
    add_compute_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> None:
    """Write the queries of a sample of documents, a block at a time."""
    recipe = args.recipe
    with provenance.record("generate", args.made, recipe, [args.output]) as facts:
        rows = sample_rows(collection.count(args.corpus), recipe["documents"], recipe["seed"])
        per_document = queries_per_document(recipe, len(rows))
        write = _generator(args, per_document) if args.generator else _deriver(recipe, per_document)
        progress = Progress("generate", len(rows), "documents")
        queries = 0
        with files.atomic(args.output) as temporary, pq.ParquetWriter(temporary, SCHEMA, compression="zstd") as parquet:
            for documents in read_rows(args.corpus, rows, BLOCK):
                pairs = [
                    (query, positive, document.id)
                    for document, found in zip(documents, write(documents), strict=True)
                    for query, positive in dict.fromkeys(found)
                    if query.strip() and positive.strip()
                ]
                columns = [list(column) for column in zip(*pairs, strict=True)] or [[], [], []]
                parquet.write_table(pa.table(columns, schema=SCHEMA))
                queries += len(pairs)
                progress.add(len(documents))
            if not queries:
                raise DataError(
                    f"no training queries come of {args.corpus}: its documents have no text, titles or sentences"
                )
        facts.update(documents=len(rows), queries_per_document=per_document, queries=queries)
        facts["documents_per_second"] = round(progress.rate, 2)


def sample_rows(total: int, most: int, seed: int) -> list[int]:
    """Return the rows of at most ``most`` of ``total`` documents, sampled with the seed, in order."""
    return sorted(random.Random(seed).sample(range(total), min(total, most)))


def read_rows(corpus: Path, rows: list[int], block: int) -> Iterator[list[Document]]:
    """Yield the documents of the given rows, in order, in lists of at most ``block``."""
    wanted, start = set(rows), 0
    kept: list[Document] = []
    for documents in collection.read_documents(corpus):
        kept += [document for row, document in enumerate(documents, start) if row in wanted]
        start += len(documents)
        while len(kept) >= block:
            yield kept[:block]
            kept = kept[block:]
    if kept:
        yield kept


def _generator(args: argparse.Namespace, per_document: int) -> Writer:
    from ..encoders.query_generator import QueryGenerator

    recipe = args.recipe
    model = QueryGenerator(args.generator, recipe["generator"], args.device, args.precision, args.batch_tokens)

    def write(documents: list[Document]) -> list[list[tuple[str, str]]]:
        texts = [document.joined for document in documents]
        queries = model.generate(texts, per_document, recipe["seed"])
        return [[(query, text) for query in found] for text, found in zip(texts, queries, strict=True)]

    return write


def _deriver(recipe: dict[str, Any], most: int) -> Writer:
    ways = recipe["derive"]
    choose = random.Random(recipe["seed"])
    return lambda documents: [derive(document, ways, most - ("titles" in ways), choose) for document in documents]


def derive(document: Document, ways: list[str], sentences: int, choose: random.Random) -> list[tuple[str, str]]:
    """Return the title paired with the body, and sentences paired with their document without them.

    Args:
        document: where the queries come from.
        ways: ``titles`` and ``sentences``, or one of them.
        sentences: how many sentences are taken, each from the whole document.
        choose: picks the sentences.
    """
    pairs = []
    if "titles" in ways and document.title and document.text:
        pairs.append((document.title, document.text))
    found = re.split(r"(?<=[.!?])\s+", document.text)
    if "sentences" in ways and len(found) > 2:
        for held_out in choose.sample(range(len(found)), min(sentences, len(found))):
            rest = " ".join(found[:held_out] + found[held_out + 1 :])
            pairs.append((found[held_out], f"{document.title} {rest}".strip()))
    return pairs
