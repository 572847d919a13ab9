"""One job of each rule, by its wildcards, over registered systems and models."""

from __future__ import annotations

from helpers import rules

from beirgrid.config.query_changes import Rewriting

# A system with a published expansion, which tests register.
PUBLISHED = {
    "retriever": "bm25",
    "expansion": {"source": "huggingface", "id": "a/queries", "revision": "0" * 40, "files": ["{corpus}.jsonl"]},
}
# A program, which tests register as well.
PROGRAM = {"index_command": "index {corpus} {index}", "command": "search {index} {queries} {run}", "mem_mb": 9000}
# A system with rewritten queries, which tests register as well.
REWRITTEN = {"first_stage": "bm25", "query": {"method": "query2doc", "generator": "doct5query"}}
# A slice of scifact, which tests register as well.
SLICES = {"long": {"least_words": 9}}
# A value for each wildcard, and other values that single rules need.
_VALUES = {
    "corpus": "scifact",
    "dataset": "scifact",
    "expansion": "",
    "fields": "flat",
    "first": "bm25",
    "model": "tas-b",
    "reranker": "ms-marco-minilm",
    "rewriting": Rewriting.model_validate(REWRITTEN["query"]).name,
    "shard": "0",
    "slice": "long",
    "system": "bm25",
    "variant": "int8",
}
_OTHERS = {
    "encode_sparse": {"model": "sparta"},
    "encode_late_interaction": {"model": "colbert"},
    "expand": {"model": "doct5query"},
    "index_sparse": {"model": "sparta"},
    "index_late_interaction": {"model": "colbert"},
    "index_program": {"system": "program"},
    "retrieve_program": {"system": "program"},
    "retrieve_dense": {"system": "tas-b"},
    "retrieve_sparse": {"system": "sparta"},
    "retrieve_late_interaction": {"system": "colbertv2"},
    "fetch_expansion": {"system": "published"},
    "score": {"dataset": "demo"},
    "rerank": {"system": "bm25+ce"},
    "fuse": {"system": "bm25+minilm"},
    "feedback": {"system": "minilm-rocchio"},
    "train": {"model": "demo-reranker"},
    "generate": {"model": "genq@scifact"},
    "mine": {"model": "gpl@scifact"},
    "label": {"model": "gpl@scifact"},
    "adapt": {"model": "genq@scifact"},
}
JOBS = {
    name: {wildcard: (_VALUES | _OTHERS.get(name, {}))[wildcard] for wildcard in rule.wildcard_names}
    for name, rule in rules().items()
}
# Rules whose work grows with the corpus. colbertv2 scores as many candidates in any corpus; the others rerank, or read
# the queries of a dataset.
CORPUS_JOBS = {
    rule: job
    for rule, job in JOBS.items()
    if rule.startswith(("encode_", "index_", "retrieve_")) and rule != "retrieve_late_interaction"
} | {rule: JOBS[rule] for rule in ("fetch_corpus", "expand", "generate", "adapt")}
