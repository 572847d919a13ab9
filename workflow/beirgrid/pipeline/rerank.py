"""Stages score and rerank: score the pairs of a first stage, each once, and reorder its top by these scores."""

from __future__ import annotations

from ..config import entries
from ..core import paths
from ..core.provenance import Stamp
from . import artifacts, model_entries
from .grid import Grid
from .sizes import Amounts, Sizes
from .stage import Cost, Inputs, Settings, Stage, output


class Score(Stage):
    """Scores of the top documents of a first stage, by a reranker."""

    rule, run = "score", "stages.score:score"
    stamp, runs_models = Stamp("score", 8, ("torch", "transformers", "sentence-transformers")), True
    outputs = {"record": paths.PAIRS_RECORD}
    costs = {
        "pairs": Cost(seconds=2.5e-4, memory=6e-4, disk=2e-5),  # tokens of a pair, measured; ids and scores, fitted
        "job": Cost(memory=600),  # tokenised pairs and activations; fitted
        "words": Cost(memory=0.24),  # 20,000 pairs of 12 bytes a word at a time; fitted
        "hits": Cost(memory=120e-6),  # the first stage's run
    }

    def inputs(self, grid: Grid, reranker: str, dataset: str, first: str) -> Inputs:
        return {
            "checkpoint": artifacts.weights(grid, reranker),
            "corpus": artifacts.documents(grid.corpus(dataset)),
            "queries": artifacts.queries(dataset),
            "run": artifacts.run(grid, first, dataset),
        }

    def settings(self, grid: Grid, reranker: str, dataset: str, first: str) -> Settings:
        model = grid.model(reranker)
        entry = model_entries.reading(model) | model_entries.task_of(grid, model, [dataset])
        entry |= model_entries.query_length(grid, model, dataset)
        depth = grid.score_depth(reranker, first)
        return {"precision": grid.config.encode.precision, "model": entry, "depth": depth}

    def options(self, grid: Grid, reranker: str, dataset: str, first: str) -> Settings:
        return {"pairs": paths.PAIRS.format(reranker=reranker, dataset=dataset)}

    def work(self, sizes: Sizes, reranker: str, dataset: str, first: str) -> Amounts:
        pairs = sizes.queries(dataset) * sizes.grid.score_depth(reranker, first)
        chunks, words = sizes.chunks(reranker, sizes.words[sizes.grid.corpus(dataset)])
        words += sizes.query_words[dataset]
        return {"pairs": pairs * chunks, "words": words, **sizes.reading(reranker, pairs * chunks, words)}


class Rerank(Stage):
    """Run of a reranked system."""

    rule, run = "rerank", "stages.rerank:rerank"
    stamp, group, named, systems = Stamp("rerank", 1), "cell", ("system",), ("rerank",)
    outputs, main = {"run": paths.RUN, "record": paths.RUN_RECORD}, "run"
    costs = {
        "hits": Cost(seconds=2e-6, memory=300e-6, disk=15e-6),  # fitted: two runs, and scores of the first 100; gzip
    }

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        entry = grid.system_as(entries.Reranked, system)
        first = entry.first_stage
        return {
            "first_stage": artifacts.run(grid, first, dataset),
            "scores": output(paths.PAIRS_RECORD, grid, reranker=entry.reranker, dataset=dataset, first=first),
        }

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        return {"depth": grid.depth(grid.system_as(entries.Reranked, system))}
