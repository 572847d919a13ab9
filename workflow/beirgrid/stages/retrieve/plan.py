"""The plan: find the top documents of each query."""

from __future__ import annotations

from typing import Any

from ...config import entries
from ...core import paths
from ...graph import artifacts, model_entries
from ...graph.dag import output
from ...graph.grid import Grid
from ...graph.sizes import Amounts, Sizes, met_postings
from ...graph.stage import Cost, Inputs, OfFamily, Settings, Stage

_PACKAGES = ("faiss-cpu", "faiss-gpu", "pyserini", "torch", "sentence-transformers")


_RUN = {"run": paths.RUN, "record": paths.RUN_RECORD}


_WRITTEN = 15e-6  # MB per hit, gzip; measured


class RetrieveLexical(Stage):
    """Run of BM25."""

    version = 11
    packages = _PACKAGES
    kind = "search"
    group = "cell"
    evaluated_in = "retrieve-bm25"
    options_from_job = ("threads", "memory")
    wildcards_passed = ("system",)
    systems = ("lexical",)
    outputs = _RUN
    main = "run"
    costs = {
        "job": Cost(memory=1700),  # Java; fitted
        "documents": Cost(memory=40e-6),  # fitted
        "lucene_postings": Cost(seconds=2e-8),
        "read_hits": Cost(seconds=3e-5),  # ids that Anserini's RM3 reads; measured on SciFact
        "hits": Cost(memory=240e-6, disk=_WRITTEN),  # the run twice; fitted
    }

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        fields = grid.system_as(entries.Bm25, system).index_fields
        expansion = _expansion(grid, system)
        return {
            "index": artifacts.lucene(grid.corpus(dataset), fields, expansion),
            "queries": artifacts.queries(dataset),
            **_rewrites(grid, system, dataset),
        }

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        entry = grid.system_as(entries.Bm25, system)
        language = grid.language(grid.corpus(dataset))
        depth = grid.config.retrieve.depth
        settings = {"depth": depth, "fields": entry.index_fields, "language": language, "k1": entry.k1, "b": entry.b}
        if entry.rm3:
            settings["rm3"] = entry.rm3.model_dump(mode="json")
        return settings | _method(grid, system)

    def lineage(self, grid: Grid, system: str, dataset: str) -> Settings:
        fields = grid.system_as(entries.Bm25, system).index_fields
        lineage = artifacts.lucene_lineage(grid, grid.corpus(dataset), fields, _expansion(grid, system))
        return lineage | artifacts.rewriting_lineage(grid.rewriting(system))

    def work(self, sizes: Sizes, system: str, dataset: str) -> Amounts:
        documents = sizes.documents(sizes.grid.corpus(dataset))
        met = met_postings(sizes.queries(dataset), sizes.query_words[dataset], documents)
        has_rm3 = sizes.grid.system_as(entries.Bm25, system).rm3 is not None
        return {"lucene_postings": met * (1 + has_rm3), "read_hits": sizes.hits(dataset) * has_rm3}


def _expansion(grid: Grid, system: str) -> str:
    """Return what the documents of a BM25 system are expanded with, as its index is named."""
    expansion = grid.system_as(entries.Bm25, system).expansion
    if isinstance(expansion, entries.PublishedExpansion):  # no name contains ~
        return f"~{grid.published(system)}"
    return f"@{expansion}" if expansion else ""


def _rewrites(grid: Grid, system: str, dataset: str) -> dict[str, Any]:
    """Return the texts with which a system searches, if these are not its queries."""
    rewriting = grid.rewriting(system)
    return {"rewrites": output(paths.REWRITES, rewriting=rewriting.name, dataset=dataset)} if rewriting else {}


def _method(grid: Grid, system: str) -> Settings:
    """Return how a system searches with such texts."""
    rewriting = grid.rewriting(system)
    return {"method": rewriting.method} if rewriting else {}


class RetrieveVectors(OfFamily):
    """Run of a model's vectors."""

    outputs = _RUN
    main = "run"
    version = 11
    packages = _PACKAGES
    kind = "search"
    group = "cell"
    evaluated_in = "retrieve-model"
    wildcards_passed = ("system",)
    costs_of = {
        "dense": {
            "search_flops": Cost(seconds=1),
            "queries": Cost(seconds=0.002),  # writing the run; fitted
            "vectors_mb": Cost(memory=1),  # the mapped shard
            "hits": Cost(memory=180e-6, disk=_WRITTEN),  # the run and candidates; fitted
        },
        "sparse": {
            "scored_postings": Cost(seconds=5e-9),  # fitted
            "queries": Cost(seconds=0.002),
            "postings_mb": Cost(memory=1),  # the mapped shard
            "hits": Cost(memory=120e-6, disk=_WRITTEN),
        },
        "late-interaction": {
            "job": Cost(memory=1000),  # blocks of token vectors; fitted
            "search_flops": Cost(seconds=1),  # of an exhaustive search
            "candidate_searches": Cost(seconds=0.05),  # a query on a shard, and two more; fitted
            "queries": Cost(seconds=0.002),
            "searched_tokens": Cost(memory=40e-6),  # the index of a shard
            "hits": Cost(memory=120e-6, disk=_WRITTEN),
        },
    }

    def __init__(self, family: str) -> None:
        super().__init__(family)
        self.systems = self.families
        self.families = ()

    def model(self, grid: Grid, system: str, dataset: str) -> str:
        return grid.query_model(system)

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        corpus = grid.corpus(dataset)
        entry = grid.searched(system)
        model = grid.retriever(system)
        inputs = artifacts.exact_search(grid, system, dataset)
        if isinstance(entry, entries.DenseRetriever) and entry.variant:
            inputs["indexes"] = artifacts.shards(grid, paths.VARIANTS, model, corpus, variant=entry.variant)
        if self.family.folder:  # the search also reads the vectors
            inputs["tokens"] = artifacts.vectors(grid, model, corpus)
        if _scores_all(grid, system, dataset):
            inputs["indexes"] = []
        return inputs | _rewrites(grid, system, dataset)

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        entry = grid.searched(system)
        query_model = grid.query_model(system)
        model = grid.model(query_model)
        method = _method(grid, system)
        passages = method.get("method") == "hyde"
        settings: Settings = {
            "precision": grid.config.encode.precision,
            "model": model_entries.query_settings(grid, model, dataset, passages=passages),
            "depth": grid.config.retrieve.depth,
            "two_towers": query_model != grid.retriever(system),
            **method,
        }
        if isinstance(entry, entries.DenseRetriever) and entry.variant:
            return settings | {"index": entry.index.model_dump(mode="json"), "dimensions": entry.dimensions}
        if isinstance(entry, entries.LateInteractionRetriever) and not _scores_all(grid, system, dataset):
            return settings | {"candidates": entry.candidates}
        return settings

    def lineage(self, grid: Grid, system: str, dataset: str) -> Settings:
        similarity = grid.model(grid.retriever(system)).own_keys("similarity")
        return similarity | artifacts.rewriting_lineage(grid.rewriting(system))

    def work(self, sizes: Sizes, system: str, dataset: str) -> Amounts:
        grid = sizes.grid
        queries = sizes.queries(dataset)
        corpus = grid.corpus(dataset)
        model = grid.retriever(system)
        shard = sizes.vector_sizes(model, corpus, 0)  # the largest one
        shards = len(grid.shards(corpus))
        work = sizes.reading(grid.query_model(system), queries, sizes.query_words[dataset]) | shard
        # A query's terms cover about 1 % of all postings.
        work["scored_postings"] = queries * shards * shard["postings_mb"] * 1e6 / 8 / 100
        if self.family.name != "late-interaction":
            numbers = sizes.vectors(model, corpus) * sizes.model(model)["dimensions"]
            return work | {"search_flops": 2.0 * queries * numbers}
        if _scores_all(grid, system, dataset):
            # One dot product per query token; a query has about 64 tokens. No token is looked up in an index.
            return work | {"search_flops": queries * shards * shard["token_dimensions_mb"] * 1e6 * 64}
        return work | {"candidate_searches": queries * (shards + 2), "searched_tokens": shard["tokens"]}


def _scores_all(grid: Grid, system: str, dataset: str) -> bool:
    """Tell whether a system scores every document of a dataset by its tokens, without an index."""
    entry = grid.searched(system)
    documents = grid.config.corpora[grid.corpus(dataset)].documents
    return isinstance(entry, entries.LateInteractionRetriever) and entry.scores_all(documents)
