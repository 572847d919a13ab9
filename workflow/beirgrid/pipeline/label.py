"""Stage label: score training queries with a cross-encoder."""

from __future__ import annotations

from ..config import entries
from ..core import paths
from ..core.provenance import Stamp
from . import artifacts, model_entries
from .generate import recipe_keys, training_queries
from .grid import Grid
from .sizes import QUERY_WORDS, Amounts, Sizes
from .stage import Cost, Inputs, Settings, Stage, output

LABEL = Stamp("label", 7, ("torch", "transformers", "sentence-transformers"))


class Label(Stage):
    """Margins between relevant documents and negatives, by a teacher."""

    rule, run = "label", "stages.label:label"
    stamp, runs_models, recipes = LABEL, True, ("gpl",)
    outputs, main = {"margins": paths.MARGINS, "record": paths.MARGINS_RECORD}, "margins"
    costs = {
        "job": Cost(memory=1400),  # fitted
        "pair_words": Cost(disk=4e-6),  # texts are kept beside margins
    }

    def inputs(self, grid: Grid, model: str) -> Inputs:
        corpus = grid.adapted_to(model)
        return {
            "queries": output(paths.TRAINING_QUERIES, model=model),
            "negatives": output(paths.NEGATIVES, model=model),
            "teacher": artifacts.checkpoint(grid, grid.training_as(entries.Gpl, model).teacher, corpus),
            "corpus": artifacts.documents(corpus),
        }

    def settings(self, grid: Grid, model: str) -> Settings:
        teacher = grid.model(grid.training_as(entries.Gpl, model).teacher)
        recipe = {**recipe_keys(grid, model, "steps", "batch", "seed"), "teacher": model_entries.reading(teacher)}
        return {"precision": grid.config.encode.precision, "recipe": recipe}

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train = sizes.grid.training_as(entries.Gpl, model)
        queries = training_queries(sizes, train)[1]
        pairs = min(train.steps * train.batch, queries * 100) + queries
        words = QUERY_WORDS + sizes.words[train.corpus or ""]
        return {"pair_words": pairs * words, **sizes.reading(train.teacher, pairs, words)}


STAGES = (Label(),)
