"""A stage in which a model reads the documents of one shard of a corpus."""

from __future__ import annotations

from . import artifacts, model_entries
from .grid import Grid
from .stage import Inputs, Settings, Stage


class OfShard(Stage):
    """A stage in which a model reads the documents of a shard."""

    wildcards_passed = ("shard",)

    def model(self, grid: Grid, model: str, corpus: str, shard: str) -> str:
        return model

    def inputs(self, grid: Grid, model: str, corpus: str, shard: str) -> Inputs:
        return {"checkpoint": artifacts.weights(grid, model), "corpus": artifacts.documents(corpus)}

    def settings(self, grid: Grid, model: str, corpus: str, shard: str) -> Settings:
        return {
            "precision": grid.config.encode.precision,
            "model": model_entries.corpus_settings(grid, grid.model(model), corpus),
            "shard_size": grid.config.encode.shard,
            "last": int(shard) == grid.shards(corpus)[-1],
        }
