"""The plan: encode the documents of a shard to vectors."""

from __future__ import annotations

from ...core import paths
from ...graph.grid import Grid
from ...graph.shard_stage import OfShard
from ...graph.sizes import Amounts, Sizes
from ...graph.stage import Cost, OfFamily, Settings


class Encode(OfFamily, OfShard):
    """Vectors of one shard of a corpus."""

    version = 8
    packages = ("torch", "transformers", "sentence-transformers")
    kind = "encode"
    main = "vectors"
    group = "shard"
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

    def lineage(self, grid: Grid, model: str, corpus: str, shard: str) -> Settings:
        return grid.model(model).own_keys("similarity")

    def work(self, sizes: Sizes, model: str, corpus: str, shard: str) -> Amounts:
        documents = sizes.documents(corpus, int(shard))
        words = sizes.words[corpus]
        chunks, read = sizes.chunks(model, words)
        return sizes.vector_sizes(model, corpus, int(shard)) | sizes.reading(model, documents * chunks, read)
