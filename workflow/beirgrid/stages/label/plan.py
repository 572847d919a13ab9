"""The plan: score training pairs with a teacher."""

from __future__ import annotations

from ...core import paths
from ...graph import artifacts, model_entries
from ...graph.dag import output
from ...graph.grid import Grid
from ...graph.sizes import QUERY_WORDS, Amounts, Sizes
from ...graph.stage import Cost, Inputs, Settings, Stage
from ...graph.training import LIBRARIES, recipe_settings, sampled


class Label(Stage):
    """Margins between relevant documents and negatives, by a teacher."""

    version = 7
    packages = LIBRARIES
    kind = "train"
    recipes = ("gpl",)
    outputs = {"margins": paths.MARGINS, "record": paths.MARGINS_RECORD}
    main = "margins"
    costs = {
        "job": Cost(memory=1400),  # fitted
        "pair_words": Cost(disk=4e-6),  # texts are kept beside margins
    }

    def model(self, grid: Grid, model: str) -> str:
        name: str = grid.training(model).teacher
        return name

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train = grid.training(model)
        return {
            "queries": output(paths.TRAINING_QUERIES, model=model),
            "negatives": output(paths.NEGATIVES, model=model),
            "teacher": artifacts.checkpoint(grid, train.teacher, train.corpus),
            "corpus": artifacts.documents(train.corpus),
        }

    def settings(self, grid: Grid, model: str) -> Settings:
        teacher = grid.model(grid.training(model).teacher)
        return recipe_settings(grid, model, "steps", "batch", "seed", teacher=model_entries.document_settings(teacher))

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train = sizes.grid.training(model)
        queries = sampled(sizes, model)[1]
        pairs = min(train.steps * train.batch, queries * 100) + queries
        words = QUERY_WORDS + sizes.words[train.corpus]
        return {"pair_words": pairs * words, **sizes.reading(train.teacher, pairs, words)}
