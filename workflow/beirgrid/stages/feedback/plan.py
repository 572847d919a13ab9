"""The plan: search again with queries that the first documents of a dense run have moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar

from pydantic import Field

from ...config import entries
from ...config.query_changes import Moves
from ...config.values import Refers
from ...core import paths
from ...graph import artifacts, model_entries
from ...graph.grid import Grid
from ...graph.sizes import Amounts, Sizes
from ...graph.stage import Cost, Inputs, Settings, Stage


class FeedbackSystem(entries.SystemEntry):
    """A dense system that searches again, with queries that its first documents have moved (Li et al., 2022)."""

    kind: ClassVar[str] = "feedback"
    over: ClassVar[tuple[str, ...]] = ("dense",)
    first_stage: Annotated[str, Refers(("systems",))] = Field(description="Dense system that searches first.")
    feedback: Moves = Field(description="How its documents move a query.")

    @property
    def change(self) -> str:
        return f"{self.feedback.method} of {self.feedback.documents} documents"

    def conflicts(self, config: Any) -> Iterator[str]:
        first = config.systems[self.first_stage]
        model = config.models[first.retriever]
        chunks = first.chunks or getattr(model, "chunks", None)
        depth = config.retrieve.depth
        if first.variant:
            yield f"first_stage: {self.first_stage!r} has an index or dimensions of its own; feedback searches exactly"
        if chunks and chunks.aggregate == "max":
            yield f"first_stage: {self.first_stage!r} has several vectors of a document: take aggregate: mean"
        for key in ("documents", "negatives"):
            if (asked := getattr(self.feedback, key)) > depth:
                yield f"feedback.{key}: is {asked}, but runs have {depth} documents per query (retrieve.depth)"


class Feedback(Stage):
    """Run of a dense system with feedback."""

    version = 1
    packages = ("faiss-cpu", "faiss-gpu", "torch", "sentence-transformers")
    kind = "search"
    group = "cell"
    wildcards_passed = ("system",)
    entry = FeedbackSystem
    outputs = {"run": paths.RUN, "record": paths.RUN_RECORD}
    main = "run"
    costs = {
        "search_flops": Cost(seconds=1),
        "queries": Cost(seconds=0.002),
        "documents": Cost(seconds=2e-7),  # ids that are compared
        "vectors_mb": Cost(memory=1),  # the mapped shard
        "moving_mb": Cost(memory=2),  # vectors of the documents that move queries
        "hits": Cost(memory=300e-6, disk=15e-6),  # two runs and candidates
    }

    def model(self, grid: Grid, system: str, dataset: str) -> str:
        return grid.query_model(_entry(grid, system).first_stage)

    def inputs(self, grid: Grid, system: str, dataset: str) -> Inputs:
        first = _entry(grid, system).first_stage
        return {"dense_run": artifacts.run(grid, first, dataset), **artifacts.exact_search(grid, first, dataset)}

    def settings(self, grid: Grid, system: str, dataset: str) -> Settings:
        model = grid.model(self.model(grid, system, dataset))
        return {
            "precision": grid.config.encode.precision,
            "model": model_entries.query_settings(grid, model, dataset),
            "depth": grid.config.retrieve.depth,
            "moves": _entry(grid, system).feedback.model_dump(mode="json"),
        }

    def lineage(self, grid: Grid, system: str, dataset: str) -> Settings:
        return grid.model(self.model(grid, system, dataset)).own_keys("similarity")

    def work(self, sizes: Sizes, system: str, dataset: str) -> Amounts:
        entry = _entry(sizes.grid, system)
        model = sizes.grid.retriever(entry.first_stage)
        corpus = sizes.grid.corpus(dataset)
        queries = sizes.queries(dataset)
        dimensions = sizes.model(model)["dimensions"]
        return {
            **sizes.reading(self.model(sizes.grid, system, dataset), queries, sizes.query_words[dataset]),
            **sizes.vector_sizes(model, corpus, 0),  # the largest shard
            "search_flops": 2.0 * queries * sizes.vectors(model, corpus) * dimensions,
            "moving_mb": queries * (entry.feedback.documents + entry.feedback.negatives) * dimensions * 4 / 1e6,
        }


def _entry(grid: Grid, system: str) -> FeedbackSystem:
    return grid.system_as(FeedbackSystem, system)
