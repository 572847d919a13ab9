"""Stage generate: training queries for the documents of a corpus."""

from __future__ import annotations

from typing import Any

from ..config import entries
from ..core import paths
from ..core.provenance import Stamp
from . import artifacts, model_entries
from .grid import Grid
from .sizes import Amounts, Sizes
from .stage import Cost, Inputs, Settings, Stage

GENERATE = Stamp("generate", 4, ("torch", "transformers"))
_KEYS = ("derive", "documents", "queries", "queries_per_document", "seed")


class Generate(Stage):
    """Training queries, derived from documents or written by a model."""

    rule, run = "generate", "stages.generate:generate"
    stamp, runs_models, recipes = GENERATE, True, ("genq", "gpl")
    outputs, main = {"queries": paths.TRAINING_QUERIES, "record": paths.TRAINING_QUERIES_RECORD}, "queries"
    costs = {
        "sampled_documents": Cost(seconds=5e-4, memory=2e-3),  # fitted
        "queries": Cost(disk=3e-4),  # assumed
    }

    def inputs(self, grid: Grid, model: str) -> Inputs:
        corpus, generator = grid.adapted_to(model), grid.training(model).models.get("generator")
        inputs: dict[str, Any] = {"corpus": artifacts.documents(corpus)}
        return inputs | ({"generator": artifacts.checkpoint(grid, generator, corpus)} if generator else {})

    def settings(self, grid: Grid, model: str) -> Settings:
        recipe = recipe_keys(grid, model, *_KEYS)
        if generator := grid.training(model).models.get("generator"):
            recipe["generator"] = model_entries.reading(grid.model(generator))
        return {"precision": grid.config.encode.precision, "recipe": recipe}

    def runs_model(self, grid: Grid, model: str) -> bool:
        return "generator" in grid.training(model).models

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train = sizes.grid.training(model)
        assert isinstance(train, entries.GenQ | entries.Gpl)
        documents, queries = training_queries(sizes, train)
        work: Amounts = {"sampled_documents": documents, "queries": queries}
        if train.generator is None:
            return work
        return work | sizes.writing(train.generator, documents, sizes.words[train.corpus or ""], queries)


def recipe_keys(grid: Grid, model: str, *keys: str) -> Settings:
    """Return some keys of a model's recipe, with defaults: a changed learning rate must not write queries again."""
    values = grid.training(model).model_dump(mode="json", by_alias=True)
    if values.get("queries_per_document"):
        values.pop("queries", None)
    return {key: values[key] for key in keys if values.get(key) is not None}


def training_queries(sizes: Sizes, train: entries.GenQ | entries.Gpl) -> tuple[int, int]:
    """Return the number of documents that a recipe samples, and of queries that it writes."""
    documents = min(train.documents, sizes.documents(train.corpus or ""))
    return documents, documents * train.queries_for_each(documents)


STAGES = (Generate(),)
