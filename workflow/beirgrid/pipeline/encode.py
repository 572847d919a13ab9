"""Stages encode and expand: what a model makes of the documents of one shard of a corpus."""

from __future__ import annotations

from ..config import entries
from ..core import paths
from ..core.families import families_with_role
from ..core.provenance import Stamp
from . import artifacts, model_entries
from .grid import Grid
from .sizes import Amounts, Sizes
from .stage import Cost, Inputs, OfFamily, Settings, Stage


class _OfShard(Stage):
    """A stage in which a model reads the documents of a shard."""

    runs_models, named = True, ("shard",)

    def inputs(self, grid: Grid, model: str, corpus: str, shard: str) -> Inputs:
        return {"checkpoint": artifacts.weights(grid, model), "corpus": artifacts.documents(corpus)}

    def settings(self, grid: Grid, model: str, corpus: str, shard: str) -> Settings:
        return {
            "precision": grid.config.encode.precision,
            "model": model_entries.reading_corpus(grid, grid.model(model), corpus),
            "shard_size": grid.config.encode.shard,
            "last": int(shard) == grid.shards(corpus)[-1],
        }


class Encode(OfFamily, _OfShard):
    """Vectors of one shard of a corpus."""

    run = "stages.encode:encode"
    stamp = Stamp("encode", 8, ("torch", "transformers", "sentence-transformers"))
    main, group = "vectors", "shard"
    costs_of = {
        "dense": {"job": Cost(memory=150), "text_mb": Cost(memory=0.5), "vectors_mb": Cost(disk=1)},
        "sparse": {"text_mb": Cost(memory=0.5), "postings_mb": Cost(memory=2.2, disk=1)},  # fitted to SPARTA's shards
        "late-interaction": {
            "text_mb": Cost(memory=0.5),
            "window_mb": Cost(memory=5.5),  # windows in work, joined and written; fitted to those of 120 and 247 MB
            "token_dimensions_mb": Cost(disk=2),  # float16; the search reads them too
        },
    }

    def __init__(self, family: str) -> None:
        super().__init__(family)
        self.outputs = {"vectors": paths.EMBEDDINGS + self.family.embeddings, "record": paths.EMBEDDINGS_RECORD}
        self.temporary = not self.family.folder

    def work(self, sizes: Sizes, model: str, corpus: str, shard: str) -> Amounts:
        documents, words = sizes.documents(corpus, int(shard)), sizes.words[corpus]
        chunks, read = sizes.chunks(model, words)
        return sizes.reading(model, documents * chunks, read)


class Expand(_OfShard):
    """Queries or term weights for the documents of a shard."""

    rule, run, families = "expand", "stages.expand:expand", families_with_role("expander")
    stamp = Stamp("expand", 5, ("torch", "transformers", "sentencepiece"))
    outputs, main = {"expansions": paths.EXPANSIONS, "record": paths.EXPANSIONS_RECORD}, "expansions"
    costs = {
        "job": Cost(memory=300),  # fitted
        "text_mb": Cost(disk=0.2),  # assumed
        "sampled_queries": Cost(disk=32e-6),  # 16 tokens of 2 bytes
    }

    def work(self, sizes: Sizes, model: str, corpus: str, shard: str) -> Amounts:
        documents = sizes.documents(corpus, int(shard))
        queries = documents * queries_of_each(sizes, model)
        return {"sampled_queries": queries, **sizes.writing(model, documents, sizes.words[corpus], queries)}


def queries_of_each(sizes: Sizes, model: str) -> int:
    """Return the queries that a model writes for each document."""
    entry = sizes.config.models[model]
    return entry.queries_per_document if isinstance(entry, entries.QueryGenerator) else 0
