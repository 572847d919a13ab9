"""A job of each rule, by its wildcards: of systems and models in the registry."""

from __future__ import annotations

# A system whose expansion others published.
PUBLISHED = {
    "retriever": "bm25",
    "expansion": {"source": "huggingface", "id": "a/queries", "revision": "0" * 40, "files": ["{corpus}.jsonl"]},
}
CORPUS_JOBS = {
    "fetch_corpus": {"corpus": "scifact"},
    "index_lexical": {"fields": "flat", "expansion": "", "corpus": "scifact"},
    "encode_dense": {"model": "tas-b", "corpus": "scifact", "shard": "0"},
    "encode_sparse": {"model": "sparta", "corpus": "scifact", "shard": "0"},
    "encode_late_interaction": {"model": "colbert", "corpus": "scifact", "shard": "0"},
    "expand": {"model": "doct5query", "corpus": "scifact", "shard": "0"},
    "index_dense": {"model": "tas-b", "corpus": "scifact", "shard": "0"},
    "index_approximate": {"model": "tas-b", "corpus": "scifact", "variant": "int8", "shard": "0"},
    "index_sparse": {"model": "sparta", "corpus": "scifact", "shard": "0"},
    "index_late_interaction": {"model": "colbert", "corpus": "scifact", "shard": "0"},
    "retrieve_lexical": {"system": "bm25", "dataset": "scifact"},
    "retrieve_dense": {"system": "tas-b", "dataset": "scifact"},
    "retrieve_sparse": {"system": "sparta", "dataset": "scifact"},
    "generate": {"model": "genq@scifact"},
    "adapt": {"model": "genq@scifact"},
}
JOBS = {
    **CORPUS_JOBS,
    "fetch_dataset": {"dataset": "scifact"},
    "fetch_expansion": {"system": "published", "corpus": "scifact"},  # PUBLISHED, which tests register
    "fetch_model": {"model": "tas-b"},
    "fetch_run": {"system": "bm25", "dataset": "scifact"},
    "retrieve_late_interaction": {"system": "colbertv2", "dataset": "scifact"},
    "score": {"reranker": "ms-marco-minilm", "dataset": "demo", "first": "bm25"},
    "rerank": {"system": "bm25+ce", "dataset": "scifact"},
    "fuse": {"system": "bm25+minilm", "dataset": "scifact"},
    "evaluate": {"system": "bm25", "dataset": "scifact"},
    "train": {"model": "demo-reranker"},
    "mine": {"model": "gpl@scifact"},
    "label": {"model": "gpl@scifact"},
    "aggregate": {},
    "report": {},
    "analyses": {},
}
