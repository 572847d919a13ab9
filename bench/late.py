"""Contenders of the bench's part ``late``: late-interaction search of invented token vectors.

Usage: late.py NAMES FOLDER. NAMES are some of make, exhaustive, candidates and theirs, with commas between them.

``make`` writes a shard of token vectors with its index, and queries, as the stages do. The others print the seconds of
a search from these files: of every document, of the candidates, and of every document by sentence-transformers.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import numpy as np

from beirgrid.search import maxsim

SMALL = os.environ.get("BENCH") == "small"
DOCUMENTS = 30 if SMALL else 2_000
QUERIES = 3 if SMALL else 30
DIMENSION = 128
DEPTH = 100
CANDIDATES = 100
TOKENS = 240
QUERY_TOKENS = 32
WORDS = 2_000


def vectors(rng: np.random.Generator, texts: int, tokens: int) -> maxsim.TokenVectors:
    """Invent token vectors of length 1, each near that of one of the words, which occur as often as in a language."""
    counts = rng.integers(tokens // 2, tokens * 3 // 2, texts)
    words = np.random.default_rng(1).standard_normal((WORDS, DIMENSION), np.float32)
    rows = words[np.minimum(rng.zipf(1.2, counts.sum()), WORDS) - 1]
    rows += rng.standard_normal(rows.shape, np.float32) / 2
    return maxsim.TokenVectors(rows / np.linalg.norm(rows, axis=1, keepdims=True), counts)


def make(folder: Path) -> None:
    """Write the shard, its index and the queries."""
    rng = np.random.default_rng(0)
    (folder / "0.tokens").mkdir()
    maxsim.write_vectors(folder / "0.tokens", [vectors(rng, DOCUMENTS, TOKENS)], DOCUMENTS, DIMENSION)
    maxsim.index_vectors(folder / "0.tokens", folder / "0.faiss")
    np.savez(folder / "queries.npz", **vectors(rng, QUERIES, QUERY_TOKENS)._asdict())


def search(name: str, folder: Path, queries: maxsim.TokenVectors) -> None:
    """Search as a contender does."""
    if name == "theirs":
        theirs(folder, queries)
    elif name == "exhaustive":
        maxsim.search_exhaustively([folder / "0.tokens"], queries, DEPTH)
    else:
        maxsim.search([folder / "0.tokens"], [folder / "0.faiss"], queries, CANDIDATES)


def theirs(folder: Path, queries: maxsim.TokenVectors) -> None:
    """Score every document as sentence-transformers does, and take the best."""
    import torch
    from sentence_transformers.util import maxsim as score

    offsets = np.load(folder / "0.tokens/offsets.npy")
    rows = np.load(folder / "0.tokens/vectors.npy").astype(np.float32)
    documents = list(map(torch.from_numpy, np.split(rows, offsets[1:-1])))
    score(list(map(torch.from_numpy, queries.by_text())), documents).topk(min(DEPTH, DOCUMENTS))


def main() -> None:
    """Run contenders; print the seconds of each."""
    folder = Path(sys.argv[2])
    for name in sys.argv[1].split(","):
        if name == "make":
            make(folder)
            continue
        queries = maxsim.TokenVectors(**np.load(folder / "queries.npz"))
        search(name, folder, queries.texts([0]))  # imports the libraries
        started = time.monotonic()
        search(name, folder, queries)
        print(time.monotonic() - started)


if __name__ == "__main__":
    main()
