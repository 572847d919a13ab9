"""Stage expand: the documents of one shard of a corpus, expanded for BM25."""

from __future__ import annotations

from ..config import entries
from ..core import paths
from ..core.families import families_with_role
from ..core.provenance import Stamp
from . import artifacts
from .encode import shard_settings
from .grid import Grid
from .sizes import Amounts, Sizes
from .stage import Cost, Inputs, Settings, Stage

EXPAND = Stamp("expand", 5, ("torch", "transformers", "sentencepiece"))


class Expand(Stage):
    """Queries or term weights for the documents of a shard."""

    rule, run = "expand", "stages.expand:expand"
    stamp, runs_models, named = EXPAND, True, ("shard",)
    families = families_with_role("expander")
    outputs, main = {"expansions": paths.EXPANSIONS, "record": paths.EXPANSIONS_RECORD}, "expansions"
    costs = {
        "job": Cost(memory=300),  # fitted
        "text_mb": Cost(disk=0.2),  # assumed
        "sampled_queries": Cost(disk=32e-6),  # 16 tokens of 2 bytes
    }

    def inputs(self, grid: Grid, model: str, corpus: str, shard: str) -> Inputs:
        return {"checkpoint": artifacts.weights(grid, model), "corpus": artifacts.documents(corpus)}

    def settings(self, grid: Grid, model: str, corpus: str, shard: str) -> Settings:
        return shard_settings(grid, model, corpus, shard)

    def work(self, sizes: Sizes, model: str, corpus: str, shard: str) -> Amounts:
        documents, queries = sizes.documents(corpus, int(shard)), sampled_queries(sizes, model, corpus, shard)
        return {"sampled_queries": queries, **sizes.writing(model, documents, sizes.words[corpus], queries)}


def sampled_queries(sizes: Sizes, model: str, corpus: str, shard: str) -> float:
    """Return the queries that a model writes for the documents of a shard."""
    entry = sizes.config.models[model]
    of_each = entry.queries_per_document if isinstance(entry, entries.QueryGenerator) else 0
    return sizes.documents(corpus, int(shard)) * of_each


STAGES = (Expand(),)
