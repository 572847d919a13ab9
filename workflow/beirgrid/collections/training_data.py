"""Training data on disk: queries for documents of a corpus, their negatives, and a teacher's margins."""

from __future__ import annotations

import random
import re
from collections.abc import Collection, Iterator
from itertools import chain
from pathlib import Path

import pyarrow as pa

from . import collection
from .collection import Document

# A training query, the text that answers it, and the document that the text comes from.
QUERIES = pa.schema([("query", pa.string()), ("positive", pa.string()), ("document", pa.string())])
# Documents found for each training query; rows are in the order of the queries' file.
NEGATIVES = pa.schema([("negatives", pa.list_(pa.string()))])
# ``label`` is the teacher's logit of (query, positive) less the logit of (query, negative).
MARGINS = pa.schema(
    [("query", pa.string()), ("positive", pa.string()), ("negative", pa.string()), ("label", pa.float32())]
)
# Documents in memory at a time.
BLOCK = 2048


def sample_rows(total: int, most: int, seed: int) -> list[int]:
    """Return the rows of at most ``most`` of ``total`` documents, sampled with the seed, in order."""
    return sorted(random.Random(seed).sample(range(total), min(total, most)))


def read_rows(corpus: Path, rows: list[int], block: int = BLOCK) -> Iterator[list[Document]]:
    """Yield the documents of the given rows, in order, in lists of at most ``block``; of long ones, of fewer."""
    chosen = set(rows)
    documents = enumerate(chain.from_iterable(collection.read_documents(corpus)))
    yield from collection.groups((document for row, document in documents if row in chosen), block)


def derive(document: Document, ways: Collection[str], sentences: int, choose: random.Random) -> list[tuple[str, str]]:
    """Return the title paired with the body, and sentences paired with their document without them.

    Args:
        document: the document that the queries come from.
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
