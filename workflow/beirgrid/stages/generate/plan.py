"""The plan: derive or write training queries."""

from __future__ import annotations

from ...core import paths
from ...graph import artifacts, model_entries
from ...graph.grid import Grid
from ...graph.sizes import Amounts, Sizes
from ...graph.stage import Cost, Inputs, Settings, Stage
from ...graph.training import recipe_settings, sampled

_QUERIES = ("derive", "documents", "queries", "queries_per_document", "seed")


class Generate(Stage):
    """Training queries, derived from documents or written by a model."""

    version = 4
    packages = ("torch", "transformers")
    kind = "train"
    recipes = ("genq", "gpl")
    outputs = {"queries": paths.TRAINING_QUERIES, "record": paths.TRAINING_QUERIES_RECORD}
    main = "queries"
    costs = {
        "sampled_documents": Cost(seconds=5e-4, memory=2e-3),  # fitted
        "queries": Cost(disk=3e-4),  # assumed
    }

    def model(self, grid: Grid, model: str) -> str | None:
        name: str | None = grid.training(model).generator
        return name

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train = grid.training(model)
        inputs = {"corpus": artifacts.documents(train.corpus)}
        if train.generator:
            inputs["generator"] = artifacts.checkpoint(grid, train.generator, train.corpus)
        return inputs

    def settings(self, grid: Grid, model: str) -> Settings:
        generator = grid.training(model).generator
        entry = {"generator": model_entries.document_settings(grid.model(generator))} if generator else {}
        return recipe_settings(grid, model, *_QUERIES, **entry)

    def work(self, sizes: Sizes, model: str) -> Amounts:
        documents, queries = sampled(sizes, model)
        work: Amounts = {"sampled_documents": documents, "queries": queries}
        if (train := sizes.grid.training(model)).generator:
            work |= sizes.writing(train.generator, documents, sizes.words[train.corpus], queries)
        return work
