"""Entries of models, reduced to the keys that change an output, so that no other key reruns a job."""

from __future__ import annotations

from typing import Any

from ..config import entries
from ..config.registry import KINDS, mteb_names
from .grid import Grid
from .stage import Settings

# Keys that name a model's source, or that reach a stage in another way or not at all.
_NOT_RUN = {
    *("checkpoint", "revision", "path", "paths", "package", "adapter", "files", "pickled", "size", "note"),
    *("licence", "source", "train", "trained_on", "declined"),
    *("prompts", "query_model", "query_length", "query_lengths", "tasks"),
}


def model_settings(model: entries.ModelEntry) -> Settings:
    """Return the keys that change what a model computes, without prompts and query lengths."""
    entry = {key: value for key, value in model.own_keys().items() if key not in _NOT_RUN}
    if "engine" in entry:  # mteb's loader for this model, which may run the model's code
        entry |= model.own_keys("checkpoint", "trust_remote_code")
    return entry | ({"endpoint": model.endpoint.identity()} if model.endpoint else {})


def with_prompts(model: entries.ModelEntry, **prompts: str | None) -> Settings:
    """Add the prompt and brackets of one side alone: a change of the other side reruns nothing."""
    sides: dict[str, Any] = {role: prompt for role, prompt in prompts.items() if prompt is not None}
    if model.prefixes.own and len(sides) < len(prompts):
        sides["own"] = True
    entry = model_settings(model)
    if "brackets" in entry:
        entry["brackets"] = {role: entry["brackets"][role] for role in prompts}
    return entry | ({"prompts": sides} if sides else {})


def document_settings(model: entries.ModelEntry) -> Settings:
    """Return the entry of a model that reads documents."""
    return with_prompts(model, document=model.prefixes.document)


def corpus_settings(grid: Grid, model: entries.ModelEntry, corpus: str) -> Settings:
    """Return the entry of a model that reads the documents of a corpus."""
    if not model.prefixes.own:
        return document_settings(model)
    over = [name for name, entry in grid.config.datasets.items() if entry.corpus == corpus]
    return document_settings(model) | task_of(grid, model, over)


def query_settings(grid: Grid, model: entries.ModelEntry, dataset: str, *, passages: bool = False) -> Settings:
    """Return the entry of a model that reads the queries of a dataset, and passages as it reads documents."""
    own = _of_dataset(grid, model.prefixes.datasets, dataset)
    sides = {"query": own.query if own else model.prefixes.query}
    entry = with_prompts(model, **sides, **({"document": model.prefixes.document} if passages else {}))
    return entry | task_of(grid, model, [dataset]) | query_length(grid, model, dataset)


def task_of(grid: Grid, model: entries.ModelEntry, datasets: list[str]) -> Settings:
    """Return mteb's task of the first dataset that has one, and its type, for a model that reads texts of tasks."""
    if not isinstance(model, entries.TaskModel) or not (model.prefixes.own or getattr(model, "engine", None)):
        return {}
    known = ({} if model.task else mteb_names()) | model.tasks
    tasks = {name: _of_dataset(grid, known, name) for name in datasets}
    dataset = next(filter(tasks.get, tasks), datasets[0])
    kinds = {kind.lower(): kind for kind in KINDS[1:]}
    task = {"task": tasks[dataset], "task_type": kinds.get(grid.config.datasets[dataset].task)}
    return {key: value for key, value in task.items() if value}


def query_length(grid: Grid, model: entries.ModelEntry, dataset: str) -> Settings:
    """Return the length of a dataset's queries, of a model that has one."""
    if not isinstance(model, entries.LateInteractionModel):
        return {}
    length = _of_dataset(grid, model.query_lengths, dataset) or model.query_length
    return {"query_length": length} if length else {}


def _of_dataset(grid: Grid, values: dict[str, Any], dataset: str) -> Any:
    """Look up a model's value for a dataset, for the averaged dataset that contains it, or for the one whose ``dev`` it
    is; None if absent.
    """
    above = [name for name, entry in grid.config.datasets.items() if dataset in (*entry.mean_of, entry.dev)]
    return next((values[name] for name in (dataset, *above) if name in values), None)
