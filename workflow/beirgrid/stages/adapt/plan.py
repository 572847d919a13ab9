"""The plan: adapt a dense model to a corpus."""

from __future__ import annotations

from ...config import entries
from ...core import paths
from ...graph import artifacts, model_entries
from ...graph.dag import output
from ...graph.grid import Grid
from ...graph.sizes import Amounts, Sizes
from ...graph.stage import Inputs, Settings, Stage
from ...graph.training import LEARNING, LIBRARIES, recipe_settings

_ADAPTATION = ("recipe", "documents", "epochs", "steps", "batch", "learning_rate", "warmup", "seed")


# Keys of the model's own entry that its adaptation reads.
_OWN = ("similarity", "max_length", "prompts", "precision")


class Adapt(Stage):
    """Checkpoint of a dense model that the workflow adapts to a corpus (GenQ, GPL, TSDAE, MLM)."""

    version = 3
    packages = LIBRARIES
    kind = "train"
    recipes = entries.ADAPTATIONS
    outputs = {"checkpoint": paths.CHECKPOINT, "record": paths.MODEL_RECORD}
    main = "checkpoint"
    costs = LEARNING

    def model(self, grid: Grid, model: str) -> str:
        return model

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train = grid.training(model)
        made = {"genq": paths.TRAINING_QUERIES, "gpl": paths.MARGINS}.get(train.recipe)
        examples = output(made, model=model) if made else artifacts.documents(train.corpus)
        return {"base": artifacts.checkpoint(grid, train.base, train.corpus), "examples": examples}

    def settings(self, grid: Grid, model: str) -> Settings:
        base = model_entries.document_settings(grid.model(grid.training(model).base))
        return recipe_settings(grid, model, *_ADAPTATION, **grid.model(model).own_keys(*_OWN), base=base)

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train = sizes.grid.training(model)
        # A step reads a query with its documents, or a text and what is left of it.
        of_each = {"gpl": 3, "mlm": 1}.get(train.recipe, 2)
        if train.recipe == "gpl":
            texts = train.steps * train.batch
        else:
            texts = min(train.documents, sizes.documents(train.corpus)) * train.epochs
            texts *= train.queries_per_document if train.recipe == "genq" else 1
        return sizes.learning(model, of_each * texts, sizes.words[train.corpus], of_each * train.batch)
