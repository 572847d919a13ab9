"""Formats of training data: queries for documents of a corpus, their negatives, and a teacher's margins."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from ..core import files
from . import collection
from .collection import Document

# A training query, its positive text, and the text's document.
QUERIES = pa.schema([("query", pa.string()), ("positive", pa.string()), ("document", pa.string())])
# Negatives of each training query, in the order of the queries file.
NEGATIVES = pa.schema([("negatives", pa.list_(pa.string()))])
# ``label``: the teacher's logit of (query, positive) minus that of (query, negative).
MARGINS = pa.schema(
    [("query", pa.string()), ("positive", pa.string()), ("negative", pa.string()), ("label", pa.float32())]
)
# Documents in memory at a time.
BLOCK = 2048


def sample_documents(corpus: Path, most: int, seed: int) -> Iterator[list[Document]]:
    """Yield a sample of at most ``most`` documents, in order, in lists of at most ``BLOCK`` (fewer if long)."""
    total = collection.count(corpus)
    chosen = set(random.Random(seed).sample(range(total), min(total, most)))
    documents = enumerate(chain.from_iterable(collection.read_documents(corpus)))
    yield from collection.groups((document for row, document in documents if row in chosen), BLOCK)


def derive(document: Document, ways: Collection[str], sentences: int, choose: random.Random) -> list[tuple[str, str]]:
    """Derive (query, positive) pairs: the title with the body, and sentences with the rest of their document.

    Args:
        ways: ``titles`` and ``sentences``, or one of them.
        sentences: number of sentences to pair.
        choose: picks the sentences.
    """
    pairs = []
    if "titles" in ways and document.title and document.text:
        pairs.append((document.title, document.text))
    parts = re.split(r"(?<=[.!?])\s+", document.text)
    if "sentences" in ways and len(parts) > 2:
        for held_out in choose.sample(range(len(parts)), min(sentences, len(parts))):
            rest = " ".join(parts[:held_out] + parts[held_out + 1 :])
            pairs.append((parts[held_out], f"{document.title} {rest}".strip()))
    return pairs


@contextmanager
def writer(output: Path, schema: pa.Schema) -> Iterator[pq.ParquetWriter]:
    """Write a parquet file, which appears when it is complete."""
    with files.atomic(output) as temporary, pq.ParquetWriter(temporary, schema, compression="zstd") as parquet:
        yield parquet
