"""The bench's part ``grid``: small collections, and the scripts of beir and pyserini that compute the same systems.

Usage: grid.py make SCIFACT MINILM FOLDER | theirs COLLECTION MINILM RERANKER FOLDER. ``make`` writes collections of
sentences, a configuration of six systems, and a reranker with a random head, which takes as long as a trained one.
``theirs`` reads the BM25 runs of pyserini in FOLDER and computes the other systems of one collection.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

SMALL = os.environ.get("BENCH") == "small"
SIZES: tuple[int, ...] = (100,) if SMALL else (1_000, 3_000, 5_000, 7_000, 9_000, 11_000)
QUERIES, DEPTH = (5, 5) if SMALL else (50, 20)


def make(scifact: Path, minilm: Path, folder: Path) -> None:
    """Write the collections, the reranker and grid.yaml."""
    import encoding
    import yaml

    from beirgrid.collections import lines

    encoding.save_with_head(minilm, folder / "reranker", "BertForSequenceClassification", num_labels=1)
    texts = [json.loads(line)["text"] for line, _ in lines.read(scifact / "corpus.jsonl")]
    sentences = [sentence for text in texts for sentence in text.split(". ") if len(sentence.split()) > 6]
    names = [f"sentences{size}" for size in SIZES]
    remaining = iter(sentences)
    for size, name in zip(SIZES, names, strict=True):
        write_collection(folder / name, list(islice(remaining, size)))
    systems = {
        "sentences+ce": {"first_stage": "bm25-flat", "reranker": "ce", "depth": DEPTH},
        "minilm+sentences-ce": {"first_stage": "minilm", "reranker": "ce", "depth": DEPTH},
        "sentences-rrf": {"fusion": "rrf", "of": ["bm25-flat", "minilm"]},
    }
    grid = {
        "corpora": {name: {"source": "local", "path": str(folder / name)} for name in names},
        "datasets": {name: {"corpus": name} for name in names},
        "models": {"ce": {"family": "cross-encoder", "max_length": 512, "path": str(folder / "reranker")}},
        "systems": systems,
        "grid": {"systems": ["bm25", "bm25-flat", "minilm", *systems], "datasets": names},
    }
    (folder / "grid.yaml").write_text(yaml.safe_dump(grid))


def write_collection(folder: Path, sentences: list[str]) -> None:
    """Write sentences as a collection. The beginnings of some sentences are its queries."""
    (folder / "qrels").mkdir(parents=True)
    step = len(sentences) // QUERIES
    queries = {f"q{number}": " ".join(sentences[number].split()[:6]) for number in range(0, step * QUERIES, step)}
    documents = [{"_id": f"d{number}", "title": "", "text": sentence} for number, sentence in enumerate(sentences)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in documents))
    rows = [{"_id": query, "text": text} for query, text in queries.items()]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "topics.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in queries.items()))
    qrels = "".join(f"{query}\td{query[1:]}\t1\n" for query in queries)
    (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n" + qrels)


def theirs(collection: Path, minilm: Path, reranker: Path, folder: Path) -> None:
    """Compute and evaluate the six systems with the beir package, as its README does, and ranx."""
    import ranx
    from beir.datasets.data_loader import GenericDataLoader
    from beir.reranking import Rerank
    from beir.reranking.models import CrossEncoder
    from beir.retrieval import models
    from beir.retrieval.evaluation import EvaluateRetrieval
    from beir.retrieval.search.dense import DenseRetrievalExactSearch

    corpus, queries, qrels = GenericDataLoader(data_folder=str(collection)).load(split="test")
    runs: dict[str, dict[str, dict[str, float]]] = {
        name: read_run(folder / name / "run") for name in ("flat", "multifield")
    }
    searcher = DenseRetrievalExactSearch(models.SentenceBERT(str(minilm)), batch_size=64)
    evaluation = EvaluateRetrieval(searcher, score_function="cos_sim")
    runs["minilm"] = evaluation.retrieve(corpus, queries)
    rerank = Rerank(CrossEncoder(str(reranker)), batch_size=64)
    for name in ("flat", "minilm"):
        runs[f"{name}+ce"] = rerank.rerank(corpus, queries, runs[name], top_k=DEPTH)
    fused: Any = ranx.fuse([ranx.Run(runs["flat"]), ranx.Run(runs["minilm"])], norm=None, method="rrf")
    runs["rrf"] = fused.to_dict()
    for name, run in runs.items():
        print(name, evaluation.evaluate(qrels, run, [10, 100])[0]["NDCG@10"])


def read_run(path: Path) -> dict[str, dict[str, float]]:
    """Read a TREC run."""
    run: dict[str, dict[str, float]] = {}
    for line in path.read_text().splitlines():
        query, _, document, _, score, _ = line.split()
        run.setdefault(query, {})[document] = float(score)
    return run


if __name__ == "__main__":
    parts: dict[str, Callable[..., None]] = {"make": make, "theirs": theirs}
    parts[sys.argv[1]](*map(Path, sys.argv[2:]))
