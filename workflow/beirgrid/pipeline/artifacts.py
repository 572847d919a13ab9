"""What jobs read of each other, by name. Which rule makes a run or a checkpoint follows from its system or model."""

from __future__ import annotations

from ..config import entries
from ..core.families import FAMILIES
from .grid import Grid
from .stage import Output, output, rules_of_runs


def documents(corpus: str) -> Output:
    """Return the corpus.parquet of a corpus."""
    return output("fetch_corpus", "corpus", corpus=corpus)


def queries(dataset: str) -> Output:
    """Return the queries.parquet of a dataset."""
    return output("fetch_dataset", "queries", dataset=dataset)


def qrels(dataset: str) -> Output:
    """Return the qrels of a dataset."""
    return output("fetch_dataset", "qrels", dataset=dataset)


def run(grid: Grid, system: str, dataset: str) -> Output:
    """Return the run of a system on a dataset."""
    return output(rules_of_runs()[grid.system(system).kind], "run", system=system, dataset=dataset)


def scores(grid: Grid, system: str, dataset: str) -> Output:
    """Return what is last of a cell: its scores, or the run of a dataset without qrels."""
    if dataset in grid.not_judged:
        return run(grid, system, dataset)
    return output("evaluate", "scores", system=system, dataset=dataset)


def weights(grid: Grid, name: str) -> Output:
    """Return the checkpoint of a model, by the name of its artifacts: with its corpus, if it is trained per corpus."""
    model = grid.weights_of(name)
    training = grid.model(model).training
    rule = "adapt" if training else "fetch_model"
    return output("train" if isinstance(training, entries.CrossEncoderTraining) else rule, "checkpoint", model=model)


def checkpoint(grid: Grid, model: str, corpus: str) -> Output:
    """Return the checkpoint of a model for a corpus."""
    return weights(grid, grid.artifacts_of(model, corpus))


def shards(grid: Grid, step: str, name: str, model: str, corpus: str, **wildcards: str) -> list[Output]:
    """Return all shards of a corpus that a step (``encode``, ``index``) makes with a model."""
    artifacts = grid.artifacts_of(model, corpus)
    given = {"model": artifacts, "corpus": corpus, **wildcards}
    return [output(step, name, **given, shard=shard) for shard in grid.shards(corpus)]


def vectors(grid: Grid, model: str, corpus: str) -> list[Output]:
    """Return the shards of vectors of a corpus."""
    return shards(grid, f"encode_{FAMILIES[grid.model(model).family].rule}", "vectors", model, corpus)


def indexes(grid: Grid, model: str, corpus: str) -> list[Output]:
    """Return the shards of the exact index of a corpus."""
    return shards(grid, f"index_{FAMILIES[grid.model(model).family].rule}", "index", model, corpus)


def lucene(corpus: str, fields: str = "flat", expansion: str = "") -> Output:
    """Return the Lucene index of a corpus. ``expansion`` is ``@model``, or ``~system`` for published expansions."""
    return output("index_lexical", "index", fields=fields, expansion=expansion, corpus=corpus)
