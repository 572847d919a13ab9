"""The plan: find hard negatives for training queries."""

from __future__ import annotations

from ...core import paths
from ...graph import artifacts, model_entries
from ...graph.dag import output
from ...graph.grid import Grid
from ...graph.sizes import QUERY_WORDS, Amounts, Sizes, met_postings
from ...graph.stage import Cost, Inputs, Settings, Stage
from ...graph.training import recipe_settings, sampled


class Mine(Stage):
    """Documents that BM25 or dense models find for training queries."""

    version = 8
    packages = ("faiss-cpu", "faiss-gpu", "pyserini", "torch", "sentence-transformers")
    kind = "train"
    recipes = ("gpl",)
    options_from_job = ("threads",)
    outputs = {"negatives": paths.NEGATIVES, "record": paths.NEGATIVES_RECORD}
    main = "negatives"
    costs = {
        "job": Cost(memory=1500),  # Java
        "search_flops": Cost(seconds=1),
        "lucene_postings": Cost(seconds=2e-8),
        "vectors_mb": Cost(memory=1),  # the mapped shard
        "query_vectors_mb": Cost(memory=1),
        "hits": Cost(memory=70e-6),  # rows, scores and candidates
        "queries": Cost(disk=1e-3),  # assumed
    }

    def model(self, grid: Grid, model: str) -> str | None:
        return next(iter(grid.training(model).dense_miners), None)

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train = grid.training(model)
        corpus = train.corpus
        dense = train.dense_miners
        return {
            "queries": output(paths.TRAINING_QUERIES, model=model),
            "corpus": artifacts.documents(corpus),
            **({"index": artifacts.lucene(corpus)} if "bm25" in train.miners else {}),
            "checkpoints": [artifacts.checkpoint(grid, name, corpus) for name in dense],
            "dense_indexes": [shard for name in dense for shard in artifacts.indexes(grid, name, corpus)],
        }

    def settings(self, grid: Grid, model: str) -> Settings:
        train = grid.training(model)
        dense = [grid.model(name) for name in train.dense_miners]
        miners = [model_entries.with_prompts(entry, query=entry.prefixes.query) for entry in dense]
        return recipe_settings(grid, model, "negative_depth", language=grid.language(train.corpus), dense=miners)

    def lineage(self, grid: Grid, model: str) -> Settings:
        return artifacts.lucene_lineage(grid, grid.training(model).corpus)

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train = sizes.grid.training(model)
        queries = sampled(sizes, model)[1]
        corpus = train.corpus
        documents = sizes.documents(train.corpus)
        dense = train.dense_miners
        dimensions = sum(sizes.model(name)["dimensions"] for name in dense)
        # BM25 searches only as deep as negatives are drawn: about a tenth of the work of 1,000 hits.
        postings = met_postings(queries, QUERY_WORDS, documents) / 10 if "bm25" in train.miners else 0.0
        return {
            "model_flops": sum(sizes.read_flops(name, queries, QUERY_WORDS) for name in dense),
            "search_flops": 2.0 * queries * documents * dimensions,
            "lucene_postings": postings,
            "weights_mb": max((sizes.weights_mb(name) for name in dense), default=0.0),
            "vectors_mb": max((sizes.vector_sizes(name, corpus, 0)["vectors_mb"] for name in dense), default=0.0),
            "query_vectors_mb": queries * dimensions * 4 / 1e6,
            "hits": queries * train.negative_depth * len(train.miners),
            "queries": queries,
        }
