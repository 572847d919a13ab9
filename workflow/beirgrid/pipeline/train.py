"""Stages of training: a cross-encoder from pairs of a corpus, and dense models that are adapted to a corpus."""

from __future__ import annotations

import math
from typing import Any

from ..config import entries
from ..core import paths
from ..core.provenance import Stamp
from . import artifacts, model_entries
from .grid import Grid
from .sizes import QUERY_WORDS, Amounts, Sizes, met_postings
from .stage import Cost, Inputs, Settings, Stage, output

_LIBRARIES = ("torch", "transformers", "sentence-transformers")
_LEARNING = {
    "weights_mb": Cost(memory=4, disk=1),  # gradients and two moments of Adam; float32
    "activations": Cost(memory=6e-4),  # fitted; on a CPU only
}
_QUERIES = ("derive", "documents", "queries", "queries_per_document", "seed")
_ADAPTATION = ("recipe", "documents", "epochs", "steps", "batch", "learning_rate", "warmup", "seed")
# Keys of the model's own entry that its adaptation reads.
_OWN = ("similarity", "max_length", "prompts", "precision")


class Train(Stage):
    """Checkpoint of a cross-encoder that the workflow trains."""

    rule, run = "train", "stages.train:train"
    stamp, runs_models, takes, recipes = Stamp("train", 4, _LIBRARIES), True, ("threads",), ("cross-encoder",)
    outputs, main = {"checkpoint": paths.CHECKPOINT, "record": paths.MODEL_RECORD}, "checkpoint"
    costs = {
        **_LEARNING,
        "text_mb": Cost(memory=1.2),  # the documents
        "documents": Cost(memory=400e-6),  # their ids
        "job": Cost(memory=1000),  # the heap of Java that finds negatives and stays in the process
    }

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
        train, length = grid.training(model), grid.model(model).max_length
        recipe = {**train.own_keys(), "language": grid.language(train.corpus), "max_length": length}
        if train.teacher:
            teacher = grid.model(train.teacher)
            recipe["teacher"] = model_entries.running(teacher) | teacher.own_keys("prompts")
        return {"precision": "auto", "recipe": recipe}  # encode.precision is that of models that are not trained here

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train = sizes.grid.training(model)
        corpus, group = train.corpus, 1 + train.hard_negatives + train.random_negatives
        documents, words = sizes.documents(corpus), sizes.words[corpus]
        pairs = documents * len(train.derive) + (sizes.judged(train.dataset) if train.dataset else 0)
        pairs = min(pairs, train.queries or pairs) * group * train.epochs
        work = sizes.learning(model, pairs, min(words + QUERY_WORDS, words * 2), train.batch * group)
        return work | {"text_mb": sizes.text_mb(corpus), "documents": documents}


class Generate(Stage):
    """Training queries, derived from documents or written by a model."""

    rule, run = "generate", "stages.examples:generate"
    stamp, runs_models, recipes = Stamp("generate", 4, ("torch", "transformers")), True, ("genq", "gpl")
    outputs, main = {"queries": paths.TRAINING_QUERIES, "record": paths.TRAINING_QUERIES_RECORD}, "queries"
    costs = {
        "sampled_documents": Cost(seconds=5e-4, memory=2e-3),  # fitted
        "queries": Cost(disk=3e-4),  # assumed
    }

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train = grid.training(model)
        inputs = {"corpus": artifacts.documents(train.corpus)}
        if train.generator:
            inputs["generator"] = artifacts.checkpoint(grid, train.generator, train.corpus)
        return inputs

    def settings(self, grid: Grid, model: str) -> Settings:
        generator = grid.training(model).generator
        entry = {"generator": model_entries.reading(grid.model(generator))} if generator else {}
        return _settings(grid, model, *_QUERIES, **entry)

    def runs_model(self, grid: Grid, model: str) -> bool:
        return bool(grid.training(model).generator)

    def work(self, sizes: Sizes, model: str) -> Amounts:
        documents, queries = _sampled(sizes, model)
        work: Amounts = {"sampled_documents": documents, "queries": queries}
        if (train := sizes.grid.training(model)).generator:
            work |= sizes.writing(train.generator, documents, sizes.words[train.corpus], queries)
        return work


class Mine(Stage):
    """Documents that BM25 or dense models find for training queries."""

    rule, run = "mine", "stages.examples:mine"
    stamp, recipes = Stamp("mine", 8, ("faiss-cpu", "pyserini", "torch", "sentence-transformers")), ("gpl",)
    runs_models, takes = True, ("threads",)
    outputs, main = {"negatives": paths.NEGATIVES, "record": paths.NEGATIVES_RECORD}, "negatives"
    costs = {
        "job": Cost(memory=1500),  # Java
        "search_flops": Cost(seconds=1),
        "lucene_postings": Cost(seconds=2e-8),
        "vectors_mb": Cost(memory=1),  # the mapped shard
        "query_vectors_mb": Cost(memory=1),
        "hits": Cost(memory=70e-6),  # rows, scores and candidates
        "queries": Cost(disk=1e-3),  # assumed
    }

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train = grid.training(model)
        corpus, dense = train.corpus, train.dense_miners
        return {
            "queries": output(paths.TRAINING_QUERIES, model=model),
            "corpus": artifacts.documents(corpus),
            **({"index": artifacts.lucene(corpus)} if "bm25" in train.miners else {}),
            "checkpoints": [artifacts.checkpoint(grid, name, corpus) for name in dense],
            "indexes": [shard for name in dense for shard in artifacts.indexes(grid, name, corpus)],
        }

    def settings(self, grid: Grid, model: str) -> Settings:
        train = grid.training(model)
        dense = [grid.model(name) for name in train.dense_miners]
        miners = [model_entries.with_prompts(entry, query=entry.prefixes.query) for entry in dense]
        return _settings(grid, model, "negative_depth", language=grid.language(train.corpus), dense=miners)

    def runs_model(self, grid: Grid, model: str) -> bool:
        return bool(grid.training(model).dense_miners)

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train, queries = sizes.grid.training(model), _sampled(sizes, model)[1]
        corpus, documents, dense = train.corpus, sizes.documents(train.corpus), train.dense_miners
        dimensions = sum(sizes.model(name)["dimensions"] for name in dense)
        # BM25 searches only as deep as negatives are drawn: about a tenth of the work of 1,000 hits.
        postings = met_postings(queries, QUERY_WORDS, documents) / 10 if "bm25" in train.miners else 0.0
        return {
            "model_flops": sum(sizes.read_flops(name, queries, QUERY_WORDS) for name in dense),
            "search_flops": 2.0 * queries * documents * dimensions,
            "lucene_postings": postings,
            "weights_mb": max((sizes.weights_mb(name) for name in dense), default=0.0),
            "vectors_mb": max((sizes.vector_sizes(name, corpus, 0)["vectors_mb"] for name in dense), default=0.0),
            "query_vectors_mb": queries * dimensions * 4 / 1e6,
            "hits": queries * train.negative_depth * len(train.miners),
            "queries": queries,
        }


class Label(Stage):
    """Margins between relevant documents and negatives, by a teacher."""

    rule, run = "label", "stages.examples:label"
    stamp, runs_models, recipes = Stamp("label", 7, _LIBRARIES), True, ("gpl",)
    outputs, main = {"margins": paths.MARGINS, "record": paths.MARGINS_RECORD}, "margins"
    costs = {
        "job": Cost(memory=1400),  # fitted
        "pair_words": Cost(disk=4e-6),  # texts are kept beside margins
    }

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
        return _settings(grid, model, "steps", "batch", "seed", teacher=model_entries.reading(teacher))

    def work(self, sizes: Sizes, model: str) -> Amounts:
        train, queries = sizes.grid.training(model), _sampled(sizes, model)[1]
        pairs = min(train.steps * train.batch, queries * 100) + queries
        words = QUERY_WORDS + sizes.words[train.corpus]
        return {"pair_words": pairs * words, **sizes.reading(train.teacher, pairs, words)}


class Adapt(Stage):
    """Checkpoint of a dense model that the workflow adapts to a corpus (GenQ, GPL, TSDAE, MLM)."""

    rule, run = "adapt", "stages.adapt:adapt"
    stamp, runs_models, recipes = Stamp("adapt", 3, _LIBRARIES), True, entries.ADAPTATIONS
    outputs, main = {"checkpoint": paths.CHECKPOINT, "record": paths.MODEL_RECORD}, "checkpoint"
    costs = _LEARNING

    def inputs(self, grid: Grid, model: str) -> Inputs:
        train = grid.training(model)
        made = {"genq": paths.TRAINING_QUERIES, "gpl": paths.MARGINS}.get(train.recipe)
        examples = output(made, model=model) if made else artifacts.documents(train.corpus)
        return {"base": artifacts.checkpoint(grid, train.base, train.corpus), "examples": examples}

    def settings(self, grid: Grid, model: str) -> Settings:
        base = model_entries.reading(grid.model(grid.training(model).base))
        return _settings(grid, model, *_ADAPTATION, **grid.model(model).own_keys(*_OWN), base=base)

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


def _settings(grid: Grid, model: str, *keys: str, **more: Any) -> Settings:
    """Return the precision, and a recipe: some keys of the model's training recipe, with defaults, and ``more``.

    The other keys are left out: a changed learning rate must not write queries again.
    """
    values = grid.training(model).model_dump(mode="json", by_alias=True)
    if values.get("queries_per_document"):
        values.pop("queries", None)
    recipe = {key: values[key] for key in keys if values.get(key) is not None}
    return {"precision": grid.config.encode.precision, "recipe": recipe | more}


def queries_for_each(recipe: Any, documents: int) -> int:
    """Return the number of queries of each sampled document: given, or as many as GPL's code writes in total."""
    return int(recipe.queries_per_document or math.ceil(recipe.queries / documents))


def _sampled(sizes: Sizes, model: str) -> tuple[int, int]:
    """Return the number of documents that a recipe samples, and of queries that it writes."""
    train = sizes.grid.training(model)
    documents = min(train.documents, sizes.documents(train.corpus))
    return documents, documents * queries_for_each(train, documents)
