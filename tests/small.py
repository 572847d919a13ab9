"""The small grid that workflow tests run: a collection, systems of every kind."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

from helpers import snakemake, write_collection

SYSTEMS = {
    "bm25-flat": {"retriever": "bm25", "fields": "flat"},
    "tiny": {"retriever": "tiny-dense"},
    "tiny-late": {"retriever": "tiny-colbert", "candidates": 20},
    "bm25+ce": {"first_stage": "bm25-flat", "reranker": "tiny-ce", "depth": 10},
    "fused": {"fusion": "rrf", "of": ["bm25-flat", "tiny"]},
}

ENCODE = {"shard": 25, "precision": "float32"}


def collection(folder: Path, documents: int = 60, seed: int = 0) -> Path:
    """Write a collection of random words: graded qrels, no titles, a document that is a query."""
    choose = random.Random(seed)
    words = ["".join(choose.choices("abcdefghij", k=4)) for _ in range(120)]
    rows = [{"_id": f"d{i}", "text": " ".join(choose.choices(words, k=12))} for i in range(documents)]
    queries = [{"_id": f"q{i}", "text": " ".join(choose.choices(words, k=3))} for i in range(9)]
    queries += [{"_id": "d3", "text": rows[3]["text"]}, {"_id": "nohit", "text": "zzzz yyyy"}]
    qrels = [(q["_id"], f"d{choose.randrange(documents)}", grade) for q in queries for grade in (2, 1, 0)]
    return write_collection(folder, rows, queries, {"test": sorted(set(qrels))})


def run(configfile: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the grid of a configfile with all results under ``folder``."""
    return snakemake("--configfile", configfile, "--directory", folder, "--cores", "2", *arguments)
