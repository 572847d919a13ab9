"""The small grid of the workflow tests: one collection, systems of every kind."""

from __future__ import annotations

import csv
import random
import re
import subprocess
from pathlib import Path

from helpers import snakemake, write_collection

SYSTEMS = {
    "bm25-flat": {"retriever": "bm25", "fields": "flat"},
    "tiny": {"retriever": "tiny-dense"},
    "sparse": {"retriever": "tiny-splade"},
    "tiny-late": {"retriever": "tiny-colbert", "candidates": 20},
    "bm25+ce": {"first_stage": "bm25-flat", "reranker": "tiny-ce", "depth": 10},
    "bm25+trained": {"first_stage": "bm25-flat", "reranker": "tiny-trained", "depth": 5},
    "fused": {"fusion": "rrf", "of": ["bm25-flat", "tiny"]},
}

TRAINED = {
    "family": "cross-encoder",
    "max_length": 32,
    "train": {
        "base": "tiny-dense",
        "corpus": "small",
        "derive": ["sentences"],
        "queries": 8,
        "hard_negatives": 1,
        "random_negatives": 1,
        "negative_depth": 5,
        "epochs": 1,
        "batch": 4,
        "learning_rate": 0.0001,
        "seed": 1,
    },
}

ENCODE = {"shard": 25, "precision": "float32"}


def collection(folder: Path, documents: int = 60, seed: int = 0) -> Path:
    """Write a collection of random words: graded qrels, no titles, a document that is a query."""
    choose = random.Random(seed)
    words = ["".join(choose.choices("abcdefghij", k=4)) for _ in range(120)]
    texts = [". ".join(" ".join(choose.choices(words, k=4)) for _ in range(3)) for _ in range(documents)]
    rows = [{"_id": f"d{i}", "text": text} for i, text in enumerate(texts)]
    queries = [{"_id": f"q{i}", "text": " ".join(choose.choices(words, k=3))} for i in range(9)]
    queries += [{"_id": "d3", "text": rows[3]["text"]}, {"_id": "nohit", "text": "zzzz yyyy"}]
    qrels = [(q["_id"], f"d{choose.randrange(documents)}", grade) for q in queries for grade in (2, 1, 0)]
    return write_collection(folder, rows, queries, {"test": sorted(set(qrels))})


def run(configfile: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run the grid of a configfile with all results under ``folder``."""
    return snakemake("--configfile", configfile, "--directory", folder, "--cores", "2", *arguments)


def finish(configfile: Path, folder: Path, *arguments: str) -> str:
    """Run a grid as ``run`` does, which must succeed, and return what it prints."""
    done = run(configfile, folder, *arguments)
    assert done.returncode == 0, done.stdout[-5000:]
    return done.stdout


def table(folder: Path, name: str = "scores", grid: str = "grid") -> list[dict[str, str]]:
    """Return the rows of a table of a grid that was run in a folder."""
    with (folder / f"results/grids/{grid}/tables/{name}.csv").open() as stream:
        return list(csv.DictReader(stream))


def job_counts(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Return the number of jobs of each rule in a (dry) run that succeeded, without the target."""
    assert done.returncode == 0, done.stdout
    table = re.search(r"^job +count\n[- ]+\n((?:\S+ +\d+\n)+)", done.stdout, re.MULTILINE)
    assert table or "Nothing to be done" in done.stdout, done.stdout
    counts = {rule: int(count) for rule, count in re.findall(r"(\S+) +(\d+)\n", table[1])} if table else {}
    return {rule: count for rule, count in counts.items() if rule not in ("all", "total")}
