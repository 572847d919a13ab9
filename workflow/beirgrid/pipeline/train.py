"""Stage train: a cross-encoder, trained on pairs from a corpus."""

from __future__ import annotations

from ..config import entries
from ..core import paths
from ..core.provenance import Stamp
from . import artifacts, model_entries
from .grid import Grid
from .sizes import QUERY_WORDS, Amounts, Sizes
from .stage import Cost, Inputs, Settings, Stage

TRAIN = Stamp("train", 4, ("torch", "transformers", "sentence-transformers"))


class Train(Stage):
    """Checkpoint of a cross-encoder that the workflow trains."""

    rule, run = "train", "stages.train:train"
    stamp, runs_models, takes, recipes = TRAIN, True, ("threads",), ("cross-encoder",)
    outputs, main = {"checkpoint": paths.CHECKPOINT, "record": paths.MODEL_RECORD}, "checkpoint"
    costs = {
        "weights_mb": Cost(memory=4, disk=1),  # gradients and two moments of Adam; float32
        "activations": Cost(memory=6e-4),  # fitted; on a CPU only
        "text_mb": Cost(memory=1.2),  # the documents
        "documents": Cost(memory=400e-6),  # their ids
        "job": Cost(memory=1000),  # the heap of Java that finds negatives and stays in the process
    }

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train = grid.training_as(entries.CrossEncoderTraining, model)
        inputs = {
            "base": artifacts.checkpoint(grid, train.base, train.corpus),
            "corpus": artifacts.documents(train.corpus),
            "index": artifacts.lucene(train.corpus),
        }
        if train.teacher:
            inputs["teacher"] = artifacts.checkpoint(grid, train.teacher, train.corpus)
        if train.dataset:
            inputs |= {"queries": artifacts.queries(train.dataset), "qrels": artifacts.qrels(train.dataset)}
        return inputs

    def settings(self, grid: Grid, model: str) -> Settings:
        train = grid.training_as(entries.CrossEncoderTraining, model)
        length = grid.model(model).max_length
        recipe = {**train.own_keys(), "language": grid.language(train.corpus), "max_length": length}
        if train.teacher:
            teacher = grid.model(train.teacher)
            recipe["teacher"] = model_entries.running(teacher) | teacher.own_keys("prompts")
        return {"precision": "auto", "recipe": recipe}  # encode.precision is that of models that are not trained here

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train = sizes.grid.training_as(entries.CrossEncoderTraining, model)
        corpus, group = train.corpus, 1 + train.hard_negatives + train.random_negatives
        documents, words = sizes.documents(corpus), sizes.words[corpus]
        pairs = documents * len(train.derive) + (sizes.judged(train.dataset) if train.dataset else 0)
        pairs = min(pairs, train.queries or pairs) * group * train.epochs
        work = sizes.learning(model, pairs, min(words + QUERY_WORDS, words * 2), train.batch * group)
        return work | {"text_mb": sizes.text_mb(corpus), "documents": documents}


STAGES = (Train(),)
