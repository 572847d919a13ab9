"""The plan: predict queries or term weights for the documents of a shard."""

from __future__ import annotations

from ...core import paths
from ...core.families import families_with_role
from ...graph.shard_stage import OfShard
from ...graph.sizes import Amounts, Sizes
from ...graph.stage import Cost


class Expand(OfShard):
    """Queries or term weights for the documents of a shard."""

    families = families_with_role("expander")
    version = 5
    packages = ("torch", "transformers", "sentencepiece")
    kind = "encode"
    outputs = {"expansions": paths.EXPANSIONS, "record": paths.EXPANSIONS_RECORD}
    main = "expansions"
    costs = {
        "job": Cost(memory=300),  # fitted
        "text_mb": Cost(disk=0.2),  # assumed
        "sampled_queries": Cost(disk=32e-6),  # 16 tokens of 2 bytes
    }

    def work(self, sizes: Sizes, model: str, corpus: str, shard: str) -> Amounts:
        documents = sizes.documents(corpus, int(shard))
        queries = documents * sizes.queries_of_each(model)
        return {"sampled_queries": queries, **sizes.writing(model, documents, sizes.words[corpus], queries)}
