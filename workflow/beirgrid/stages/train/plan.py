"""The plan: train a cross-encoder on pairs of a corpus."""

from __future__ import annotations

from ...core import paths
from ...graph import artifacts, model_entries
from ...graph.grid import Grid
from ...graph.sizes import QUERY_WORDS, Amounts, Sizes
from ...graph.stage import Cost, Inputs, Settings, Stage
from ...graph.training import LEARNING, LIBRARIES


class Train(Stage):
    """Checkpoint of a cross-encoder that the workflow trains."""

    version = 4
    packages = LIBRARIES
    kind = "train"
    options_from_job = ("threads",)
    recipes = ("cross-encoder",)
    outputs = {"checkpoint": paths.CHECKPOINT, "record": paths.MODEL_RECORD}
    main = "checkpoint"
    costs = {
        **LEARNING,
        "text_mb": Cost(memory=1.2),  # the documents
        "documents": Cost(memory=400e-6),  # their ids
        "job": Cost(memory=1000),  # the heap of Java that finds negatives and stays in the process
    }

    def model(self, grid: Grid, model: str) -> str:
        return model

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train = grid.training(model)
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
        train = grid.training(model)
        length = grid.model(model).max_length
        recipe = {**train.own_keys(), "language": grid.language(train.corpus), "max_length": length}
        if train.teacher:
            teacher = grid.model(train.teacher)
            recipe["teacher"] = model_entries.model_settings(teacher) | teacher.own_keys("prompts")
        return {"precision": "auto", "recipe": recipe}  # encode.precision is that of models that are not trained here

    def lineage(self, grid: Grid, model: str) -> Settings:
        return artifacts.lucene_lineage(grid, grid.training(model).corpus)

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train = sizes.grid.training(model)
        corpus = train.corpus
        group = 1 + train.hard_negatives + train.random_negatives
        documents = sizes.documents(corpus)
        words = sizes.words[corpus]
        pairs = documents * len(train.derive) + (sizes.judged(train.dataset) if train.dataset else 0)
        pairs = min(pairs, train.queries or pairs) * group * train.epochs
        work = sizes.learning(model, pairs, min(words + QUERY_WORDS, words * 2), train.batch * group)
        return work | {"text_mb": sizes.text_mb(corpus), "documents": documents}
