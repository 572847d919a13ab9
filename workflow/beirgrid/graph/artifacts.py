"""What jobs read of each other, by name. Which rule makes a run or a checkpoint follows from its system or model."""

from __future__ import annotations

from typing import Any

from ..config.query_changes import Rewriting
from ..core import paths
from ..core.families import FAMILIES
from .dag import output
from .grid import Grid
from .stage import Output, Settings


def documents(corpus: str) -> Output:
    """Return the corpus.parquet of a corpus."""
    return output(paths.CORPUS, corpus=corpus)


def queries(dataset: str) -> Output:
    """Return the queries.parquet of a dataset."""
    return output(paths.QUERIES, dataset=dataset)


def qrels(dataset: str) -> Output:
    """Return the qrels of a dataset."""
    return output(paths.QRELS, dataset=dataset)


def run(grid: Grid, system: str, dataset: str) -> Output:
    """Return the run of a system on a dataset."""
    return output(paths.RUN, grid, system=system, dataset=dataset)


def scores(grid: Grid, system: str, dataset: str) -> Output:
    """Return what is last of a cell: its scores, or the run of a dataset without qrels."""
    if dataset in grid.not_judged:
        return run(grid, system, dataset)
    return output(paths.METRICS, system=system, dataset=dataset)


def ends(grid: Grid) -> list[Output]:
    """Return what the tables of a grid are made of: what is last of each cell, and the slices of its datasets."""
    return [*(scores(grid, *cell) for cell in grid.runs), *slices(grid)]


def slices(grid: Grid) -> list[Output]:
    """Return the records of the slices of a grid's datasets."""
    return [output(paths.SLICE, dataset=dataset, slice=name) for dataset, name in grid.slices]


def weights(grid: Grid, name: str) -> Output:
    """Return the checkpoint of a model, by the name of its artifacts: with its corpus, if it is trained per corpus."""
    return output(paths.CHECKPOINT, grid, model=grid.weights_of(name))


def checkpoint(grid: Grid, model: str, corpus: str) -> Output:
    """Return the checkpoint of a model for a corpus."""
    return weights(grid, grid.artifacts_of(model, corpus))


def shards(grid: Grid, pattern: str, model: str, corpus: str, **wildcards: str) -> list[Output]:
    """Return what a model makes of all shards of a corpus."""
    named = {"model": grid.artifacts_of(model, corpus), "corpus": corpus, **wildcards}
    return [output(pattern, grid, **named, shard=shard) for shard in grid.shards(corpus)]


def vectors(grid: Grid, model: str, corpus: str) -> list[Output]:
    """Return the shards of vectors of a corpus."""
    return shards(grid, paths.EMBEDDINGS + FAMILIES[grid.model(model).family].embeddings, model, corpus)


def indexes(grid: Grid, model: str, corpus: str) -> list[Output]:
    """Return the shards of the exact index of a corpus."""
    return shards(grid, paths.INDEXES + FAMILIES[grid.model(model).family].index, model, corpus)


def exact_search(grid: Grid, system: str, dataset: str) -> dict[str, Any]:
    """Return what an exact search with a retriever reads."""
    corpus = grid.corpus(dataset)
    query_model = grid.query_model(system)
    # A query tower is not the model of the documents.
    role = "checkpoint" if query_model == grid.retriever(system) else "query_tower"
    return {
        role: checkpoint(grid, query_model, corpus),
        "corpus": documents(corpus),
        "indexes": indexes(grid, grid.retriever(system), corpus),
        "queries": queries(dataset),
    }


def lucene_lineage(grid: Grid, corpus: str, fields: str = "flat", expansion: str = "") -> Settings:
    """Return what makes two Lucene indexes of a corpus alike, for the jobs that build or search one."""
    return {"fields": fields, "language": grid.language(corpus), "expanded": bool(expansion)}


def rewriting_lineage(rewriting: Rewriting | None) -> Settings:
    """Return what makes two rewritings of a query alike, for the jobs that write or read the texts."""
    return {"rewriting": rewriting.name} if rewriting else {}


def lucene(corpus: str, fields: str = "flat", expansion: str = "") -> Output:
    """Return the Lucene index of a corpus. ``expansion`` is ``@model``, or ``~system`` for published expansions."""
    return output(paths.LUCENE, fields=fields, expansion=expansion, corpus=corpus)
