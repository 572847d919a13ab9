"""The plan: build what is searched: a Lucene index, or an index of a shard of vectors."""

from __future__ import annotations

from ...core import paths
from ...core.families import RETRIEVERS
from ...graph import artifacts
from ...graph.dag import output
from ...graph.grid import Grid
from ...graph.sizes import PUBLISHED_MB, SAMPLED_PIECES, Amounts, Sizes
from ...graph.stage import Cost, Inputs, OfFamily, Settings, Stage

_PACKAGES = ("faiss-cpu", "faiss-gpu", "pyserini")


class IndexLexical(Stage):
    """Lucene index of a corpus, for BM25."""

    version = 1
    packages = _PACKAGES
    kind = "index"
    options_from_job = ("threads", "memory")
    wildcards_passed = ("fields",)
    outputs = {"index": paths.LUCENE, "record": paths.LUCENE_RECORD}
    main = "index"
    costs = {
        "job": Cost(memory=1300),  # Java; fitted
        "documents": Cost(memory=300e-6),  # fitted
        "text_mb": Cost(seconds=0.1, disk=0.25),  # measured on SciFact
        "stored_mb": Cost(disk=0.5),  # text whose terms are stored by document; measured there
        "scratch_mb": Cost(disk=1),  # JSON lines for Lucene
    }

    def inputs(self, grid: Grid, fields: str, expansion: str, corpus: str) -> Inputs:
        expansions = []
        name = expansion[1:]
        if expansion.startswith("~"):
            expansions = [output(paths.PUBLISHED, system=name, corpus=corpus)]
        elif expansion:
            expansions = artifacts.shards(grid, paths.EXPANSIONS, name, corpus)
        return {"corpus": artifacts.documents(corpus), "expansions": expansions}

    def settings(self, grid: Grid, fields: str, expansion: str, corpus: str) -> Settings:
        return {"language": grid.language(corpus)}

    def lineage(self, grid: Grid, fields: str, expansion: str, corpus: str) -> Settings:
        return artifacts.lucene_lineage(grid, corpus, fields, expansion)

    def constraints(self, grid: Grid) -> dict[str, str]:
        return {"fields": "flat|multifield|flat-vectors", "expansion": "([@~][^/]+)?"}

    def work(self, sizes: Sizes, fields: str, expansion: str, corpus: str) -> Amounts:
        text = sizes.text_mb(corpus)
        name = expansion[1:]
        if expansion.startswith("~"):
            text += 2 * PUBLISHED_MB * sizes.documents(corpus)
        elif expansion:
            sampled = sizes.documents(corpus) * sizes.queries_of_each(name)
            text += 2 * (0.2 * text + SAMPLED_PIECES * 2e-6 * sampled)
        stored = text if fields == "flat-vectors" else 0.0
        return {"text_mb": text, "scratch_mb": 1.3 * text, "stored_mb": stored}


class IndexVectors(OfFamily):
    """Index of a shard of vectors."""

    version = 1
    packages = _PACKAGES
    kind = "index"
    main = "index"
    group = "shard"
    costs_of = {
        "dense": {"vectors_mb": Cost(seconds=0.005, memory=2.2, disk=1)},  # fitted; float32
        "sparse": {"postings_mb": Cost(seconds=0.01, memory=3.2, disk=1)},  # fitted; 8 bytes a posting
        "late-interaction": {
            # Training of the product quantiser: 5 CPU seconds by 8 threads, measured.
            "job": Cost(seconds=0.7, memory=1300),
            # Reading and product quantisation, measured on 1,000,000 tokens; PQ32x8 and row numbers.
            "tokens": Cost(seconds=3e-7, memory=30e-6, disk=40e-6),
            # Comparison with centroids, of a shard of 500,000 documents: of smaller ones, each token has fewer.
            "token_dimensions_mb": Cost(seconds=0.045),
        },
    }

    def __init__(self, family: str) -> None:
        super().__init__(family)
        self.outputs = {"index": paths.INDEXES + self.family.index, "record": paths.SHARD_RECORD}

    def inputs(self, grid: Grid, model: str, corpus: str, shard: str) -> Inputs:
        vectors = paths.EMBEDDINGS + self.family.embeddings
        return {"vectors": output(vectors, grid, model=model, corpus=corpus, shard=shard)}

    def lineage(self, grid: Grid, model: str, **_: str) -> Settings:
        return grid.model(model).own_keys("similarity")

    def options(self, grid: Grid, model: str, **_: str) -> Settings:
        return {"family": grid.model(model).family}

    def work(self, sizes: Sizes, model: str, corpus: str, shard: str) -> Amounts:
        return sizes.vector_sizes(model, corpus, int(shard))


class IndexApproximate(Stage):
    """Smaller or faster index, built from the exact index of a shard."""

    version = 1
    packages = _PACKAGES
    kind = "index"
    families = ("dense",)
    outputs = {"index": paths.VARIANTS, "record": paths.VARIANT_RECORD}
    main = "index"
    # HNSW on one core, from a record of a busy machine; the vectors and HNSW, assumed; HNSW, measured.
    costs = {"vectors_mb": Cost(seconds=2, memory=2.5, disk=1.2)}

    def inputs(self, grid: Grid, model: str, corpus: str, variant: str, shard: str) -> Inputs:
        exact = paths.INDEXES + RETRIEVERS[grid.model(model).family].index
        return {"exact": output(exact, grid, model=model, corpus=corpus, shard=shard)}

    def settings(self, grid: Grid, model: str, corpus: str, variant: str, shard: str) -> Settings:
        entry = grid.variants[variant]
        similarity = grid.model(model).own_keys("similarity")["similarity"]
        return {"index": entry.index.built(), "dimensions": entry.dimensions, "similarity": similarity}

    def lineage(self, grid: Grid, model: str, **_: str) -> Settings:
        return grid.model(model).own_keys("similarity")

    def constraints(self, grid: Grid) -> dict[str, str]:
        return {**super().constraints(grid), "variant": grid.one_of(grid.variants)}

    def work(self, sizes: Sizes, model: str, corpus: str, variant: str, shard: str) -> Amounts:
        return sizes.vector_sizes(model, corpus, int(shard))
