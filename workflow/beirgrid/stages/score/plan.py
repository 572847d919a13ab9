"""The plan: score the pairs of a first stage, each once."""

from __future__ import annotations

from ...core import paths
from ...graph import artifacts, model_entries
from ...graph.grid import Grid
from ...graph.sizes import Amounts, Sizes
from ...graph.stage import Cost, Inputs, Settings, Stage


class Score(Stage):
    """Scores of the top documents of a first stage, by a reranker."""

    version = 8
    packages = ("torch", "transformers", "sentence-transformers")
    kind = "score"
    outputs = {"record": paths.PAIRS_RECORD}
    costs = {
        "pairs": Cost(seconds=2.5e-4, memory=6e-4, disk=2e-5),  # tokens of a pair, measured; ids and scores, fitted
        "job": Cost(memory=600),  # tokenised pairs and activations; fitted
        "words": Cost(memory=0.24),  # 20,000 pairs of 12 bytes a word at a time; fitted
        "hits": Cost(memory=120e-6),  # the first stage's run
    }

    def model(self, grid: Grid, reranker: str, dataset: str, first: str) -> str:
        return reranker

    def inputs(self, grid: Grid, reranker: str, dataset: str, first: str) -> Inputs:
        return {
            "checkpoint": artifacts.weights(grid, reranker),
            "corpus": artifacts.documents(grid.corpus(dataset)),
            "queries": artifacts.queries(dataset),
            "run": artifacts.run(grid, first, dataset),
        }

    def settings(self, grid: Grid, reranker: str, dataset: str, first: str) -> Settings:
        model = grid.model(reranker)
        entry = model_entries.document_settings(model) | model_entries.task_of(grid, model, [dataset])
        entry |= model_entries.query_length(grid, model, dataset)
        depth = grid.score_depth(reranker, first)
        return {"precision": grid.config.encode.precision, "model": entry, "depth": depth}

    def options(self, grid: Grid, reranker: str, dataset: str, first: str) -> Settings:
        return {"pairs": paths.PAIRS.format(reranker=reranker, dataset=dataset), "version": self.version}

    def work(self, sizes: Sizes, reranker: str, dataset: str, first: str) -> Amounts:
        pairs = sizes.queries(dataset) * sizes.grid.score_depth(reranker, first)
        chunks, words = sizes.chunks(reranker, sizes.words[sizes.grid.corpus(dataset)])
        words += sizes.query_words[dataset]
        return {"pairs": pairs * chunks, "words": words, **sizes.reading(reranker, pairs * chunks, words)}
