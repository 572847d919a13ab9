"""Stage adapt: a dense model, adapted to a corpus."""

from __future__ import annotations

from ..config import entries
from ..core import paths
from ..core.provenance import Stamp
from . import artifacts, model_entries
from .generate import recipe_keys
from .grid import Grid
from .sizes import Amounts, Sizes
from .stage import Cost, Inputs, Settings, Stage, output

ADAPT = Stamp("adapt", 3, ("torch", "transformers", "sentence-transformers"))
_RECIPE = ("recipe", "documents", "epochs", "steps", "batch", "learning_rate", "warmup", "seed")
# Keys of the model's own entry that its training reads.
_ENTRY = ("similarity", "max_length", "prompts", "precision")


class Adapt(Stage):
    """Checkpoint of a dense model that the workflow adapts to a corpus (GenQ, GPL, TSDAE, MLM)."""

    rule, run = "adapt", "stages.adapt:adapt"
    stamp, runs_models, recipes = ADAPT, True, entries.ADAPTATIONS
    outputs, main = {"checkpoint": paths.CHECKPOINT, "record": paths.MODEL_RECORD}, "checkpoint"
    costs = {
        "weights_mb": Cost(memory=4, disk=1),  # gradients and two moments of Adam; float32
        "activations": Cost(memory=6e-4),  # fitted; on a CPU only
    }

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train, corpus = grid.training(model), grid.adapted_to(model)
        examples = artifacts.documents(corpus)
        if isinstance(train, entries.Gpl):
            examples = output(paths.MARGINS, model=model)
        elif isinstance(train, entries.WithQueries):
            examples = output(paths.TRAINING_QUERIES, model=model)
        return {"base": artifacts.checkpoint(grid, train.base, corpus), "examples": examples}

    def settings(self, grid: Grid, model: str) -> Settings:
        base = model_entries.reading(grid.model(grid.training(model).base))
        recipe = {**recipe_keys(grid, model, *_RECIPE), **grid.model(model).own_keys(*_ENTRY), "base": base}
        return {"precision": grid.config.encode.precision, "recipe": recipe}

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train = sizes.grid.training(model)
        assert isinstance(train, entries.GenQ | entries.Gpl | entries.Tsdae | entries.Mlm)
        words = sizes.words[train.corpus or ""]
        if isinstance(train, entries.Gpl):
            return sizes.learning(model, 3 * train.steps * train.batch, words, 3 * train.batch)
        documents = min(train.documents, sizes.documents(train.corpus or "")) * train.epochs
        if isinstance(train, entries.Mlm):
            return sizes.learning(model, documents, words, train.batch)
        per_document = 2 * train.queries_per_document if isinstance(train, entries.GenQ) else 2
        return sizes.learning(model, documents * per_document, words, 2 * train.batch)


STAGES = (Adapt(),)
