"""Stage mine: hard negatives for training queries."""

from __future__ import annotations

from ..config import entries
from ..core import paths
from ..core.provenance import Stamp
from . import artifacts, model_entries
from .generate import recipe_keys, training_queries
from .grid import Grid
from .sizes import QUERY_WORDS, Amounts, Sizes, met_postings
from .stage import Cost, Inputs, Settings, Stage, output

MINE = Stamp("mine", 8, ("faiss-cpu", "pyserini", "torch", "sentence-transformers"))


class Mine(Stage):
    """Documents that BM25 or dense models find for training queries."""

    rule, run = "mine", "stages.mine:mine"
    stamp, runs_models, takes, recipes = MINE, True, ("threads",), ("gpl",)
    outputs, main = {"negatives": paths.NEGATIVES, "record": paths.NEGATIVES_RECORD}, "negatives"
    costs = {
        "job": Cost(memory=1500),  # Java
        "search_flops": Cost(seconds=1),
        "lucene_postings": Cost(seconds=2e-8),
        "vectors_mb": Cost(memory=1),  # the mapped shard
        "query_vectors_mb": Cost(memory=1),
        "hits": Cost(memory=70e-6),  # rows, scores and candidates
        "queries": Cost(disk=1e-3),  # assumed
    }

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train, corpus = grid.training_as(entries.Gpl, model), grid.adapted_to(model)
        dense = train.dense_miners
        return {
            "queries": output(paths.TRAINING_QUERIES, model=model),
            "corpus": artifacts.documents(corpus),
            **({"index": artifacts.lucene(corpus)} if "bm25" in train.miners else {}),
            "checkpoints": [artifacts.checkpoint(grid, name, corpus) for name in dense],
            "indexes": [shard for name in dense for shard in artifacts.indexes(grid, name, corpus)],
        }

    def settings(self, grid: Grid, model: str) -> Settings:
        train, corpus = grid.training_as(entries.Gpl, model), grid.adapted_to(model)
        dense = [grid.model(name) for name in train.dense_miners]
        recipe = {
            **recipe_keys(grid, model, "negative_depth"),
            "language": grid.language(corpus),
            "dense": [model_entries.with_prompts(entry, query=entry.prefixes.query) for entry in dense],
        }
        return {"precision": grid.config.encode.precision, "recipe": recipe}

    def runs_model(self, grid: Grid, model: str) -> bool:
        return bool(grid.training_as(entries.Gpl, model).dense_miners)

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train = sizes.grid.training_as(entries.Gpl, model)
        queries, corpus, dense = training_queries(sizes, train)[1], train.corpus or "", train.dense_miners
        documents = sizes.documents(corpus)
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


STAGES = (Mine(),)
