"""Stage encode: the vectors of one shard of a corpus, for each kind of vectors."""

from __future__ import annotations

from ..core import paths
from ..core.families import RETRIEVERS
from ..core.provenance import Stamp
from . import artifacts, model_entries
from .grid import Grid
from .sizes import Amounts, Sizes
from .stage import Cost, Inputs, OfFamily, Settings

ENCODE = Stamp("encode", 8, ("torch", "transformers", "sentence-transformers"))
_COSTS = {
    "dense": {"job": Cost(memory=150), "text_mb": Cost(memory=0.5), "vectors_mb": Cost(disk=1)},
    "sparse": {"text_mb": Cost(memory=0.5), "postings_mb": Cost(memory=2.2, disk=1)},  # fitted to SPARTA's shards
    "late-interaction": {
        "text_mb": Cost(memory=0.5),
        "window_mb": Cost(memory=5.5),  # windows in work, joined and written; fitted to those of 120 and 247 MB
        "token_dimensions_mb": Cost(disk=2),  # float16; the search reads them too
    },
}


class Encode(OfFamily):
    """Vectors of one shard of a corpus."""

    run = "stages.encode:encode"
    stamp, main, runs_models, group, named = ENCODE, "vectors", True, "shard", ("shard",)

    def __init__(self, family: str) -> None:
        super().__init__(family)
        self.outputs = {"vectors": paths.EMBEDDINGS + self.family.embeddings, "record": paths.EMBEDDINGS_RECORD}
        self.costs, self.temporary = _COSTS.get(family, _COSTS["dense"]), not self.family.folder

    def inputs(self, grid: Grid, model: str, corpus: str, shard: str) -> Inputs:
        return {"checkpoint": artifacts.weights(grid, model), "corpus": artifacts.documents(corpus)}

    def settings(self, grid: Grid, model: str, corpus: str, shard: str) -> Settings:
        return shard_settings(grid, model, corpus, shard)

    def work(self, sizes: Sizes, model: str, corpus: str, shard: str) -> Amounts:
        documents, words = sizes.documents(corpus, int(shard)), sizes.words[corpus]
        chunks, read = sizes.chunks(model, words)
        return sizes.vector_sizes(model, corpus, int(shard)) | sizes.reading(model, documents * chunks, read)


def shard_settings(grid: Grid, model: str, corpus: str, shard: str) -> Settings:
    """Return the settings of a job that reads the documents of a shard with a model."""
    return {
        "precision": grid.config.encode.precision,
        "model": model_entries.reading_corpus(grid, grid.model(model), corpus),
        "shard_size": grid.config.encode.shard,
        "last": int(shard) == grid.shards(corpus)[-1],
    }


STAGES = tuple(Encode(name) for name, family in RETRIEVERS.items() if not family.like)
