"""Data and our contender of the bench's part ``sparse``: sparse.py {make,search} FOLDER."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import numpy as np
import scipy.sparse

from beirgrid.runs import runs
from beirgrid.search import impact

IMPACTS = {"documents": 20_000, "terms": 120, "queries": 500, "query_terms": 25, "vocabulary": 30_522}
IMPACTS |= {"documents": 1000, "queries": 20} if os.environ.get("BENCH") == "small" else {}


def make(folder: Path) -> None:
    """Write random vectors with term frequencies like those of text, for both contenders; print their size."""
    generator = np.random.default_rng(0)
    frequency = 1 / np.arange(10, IMPACTS["vocabulary"] + 10)

    def vectors(rows: int, terms: int) -> scipy.sparse.csr_matrix:
        size = (rows, terms)
        columns = generator.choice(IMPACTS["vocabulary"], size, p=frequency / frequency.sum()).ravel()
        values = generator.gamma(2, 0.4, rows * terms).astype(np.float32)
        starts = np.arange(rows + 1) * terms
        matrix = scipy.sparse.csr_matrix((values, columns, starts), (rows, IMPACTS["vocabulary"]))
        matrix.sum_duplicates()
        return matrix

    documents, queries = (
        vectors(IMPACTS[a], IMPACTS[b]) for a, b in (("documents", "terms"), ("queries", "query_terms"))
    )
    scipy.sparse.save_npz(folder / "0.npz", documents, compressed=False)
    scipy.sparse.save_npz(folder / "queries.npz", queries, compressed=False)

    def pieces(row: scipy.sparse.csr_matrix) -> dict[str, int]:
        return {
            f"t{term}": max(1, round(100 * float(weight))) for term, weight in zip(row.indices, row.data, strict=True)
        }

    (folder / "json").mkdir()
    with (folder / "json" / "0.jsonl").open("w") as stream:
        for number, row in enumerate(documents):
            stream.write(json.dumps({"id": f"d{number}", "contents": "", "vector": pieces(row)}) + "\n")
    with (folder / "topics.tsv").open("w") as stream:
        for number, row in enumerate(queries):
            repeated = " ".join(" ".join([term] * max(1, weight // 10)) for term, weight in pieces(row).items())
            stream.write(f"{number}\t{repeated}\n")
    print("{documents:,} × {terms} terms, {queries} queries".format_map(IMPACTS))


def search(folder: Path) -> None:
    """Search the postings and write the run, as Lucene does."""
    queries = scipy.sparse.load_npz(folder / "queries.npz")
    scores, rows = impact.search_shards([folder / "ours"], queries, 1000, len(os.sched_getaffinity(0)))
    found = {
        str(query): runs.canonical(str(query), [f"d{row}" for row in rows[query] if row >= 0], scores[query][kept])
        for query, kept in enumerate(rows >= 0)
    }
    runs.write(folder / "ours.run.gz", found, "impact")


if __name__ == "__main__":
    {"make": make, "search": search}[sys.argv[1]](Path(sys.argv[2]))
