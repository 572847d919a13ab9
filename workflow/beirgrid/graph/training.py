"""What the stages of training share: settings from a recipe, its sample, and the costs of learning."""

from __future__ import annotations

from typing import Any

from ..config.recipes import queries_for_each
from .grid import Grid
from .sizes import Sizes
from .stage import Cost, Settings

LIBRARIES = ("torch", "transformers", "sentence-transformers")


LEARNING = {
    "weights_mb": Cost(memory=4, disk=1),  # gradients and two moments of Adam; float32
    "activations": Cost(memory=6e-4),  # fitted; on a CPU only
}


def recipe_settings(grid: Grid, model: str, *keys: str, **more: Any) -> Settings:
    """Return the precision, and a recipe: some keys of the model's training recipe, with defaults, and ``more``.

    The other keys are left out: a changed learning rate must not write queries again.
    """
    values = grid.training(model).model_dump(mode="json", by_alias=True)
    if values.get("queries_per_document"):
        values.pop("queries", None)
    recipe = {key: values[key] for key in keys if values.get(key) is not None}
    return {"precision": grid.config.encode.precision, "recipe": recipe | more}


def sampled(sizes: Sizes, model: str) -> tuple[int, int]:
    """Return the number of documents that a recipe samples, and of queries that it writes."""
    train = sizes.grid.training(model)
    documents = min(train.documents, sizes.documents(train.corpus))
    return documents, documents * queries_for_each(train, documents)
