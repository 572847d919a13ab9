"""The arguments of each stage: registry entries with only the keys that change its output, and options.

A changed param reruns the stage. Params therefore leave out what the stage does not read, such as a model's note and
the prompts of the side that the stage does not encode.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from typing import Any

from ..config import resolve_path
from ..config.entries import (
    Bm25,
    CrossEncoderTraining,
    DenseRetriever,
    External,
    Gpl,
    LateInteractionModel,
    LateInteractionRetriever,
    LocalCorpus,
    LocalExpansion,
    ModelEntry,
    Rrf,
    WeightedSum,
)
from .commands import in_file
from .grid import Grid
from .inputs import Inputs

_CORPUS_KEYS = ("source", "id", "revision", "split", "path", "documents", "allow")
_DATASET_KEYS = ("corpus", "id", "revision", "split", "queries", "queries_are_documents")
_FETCH_KEYS = ("checkpoint", "revision", "path", "package", "files", "pickled", "trust_remote_code")
# Of these, keys without a meaning where the entry names a folder.
_HUB_KEYS = ("checkpoint", "revision")
# Keys that say where a model comes from, or that what runs it receives in another way, if at all.
_NOT_RUN = {
    *("checkpoint", "revision", "path", "package", "files", "pickled", "size", "note", "train", "trained_on"),
    *("licence", "source"),
    *("prompts", "query_model", "query_length", "query_lengths", "weights"),
}
# Keys of a recipe that each stage of an adaptation receives: another learning rate writes no new queries.
_STAGE_KEYS = {
    "generate": ("derive", "documents", "queries", "queries_per_document", "seed"),
    "mine": ("negative_depth",),
    "label": ("steps", "batch", "seed"),
    "adapt": ("recipe", "documents", "epochs", "steps", "batch", "learning_rate", "warmup", "seed"),
}
# Keys of its own entry that a model is trained with.
_TRAINED_KEYS = ("similarity", "max_length", "prompts", "precision")


def _json(entry: dict[str, Any]) -> str:
    """Return an entry as one line of ASCII, whatever a prompt holds."""
    return json.dumps(entry)


class Params:
    """Entries as JSON and options as words of a command line: a method per argument."""

    def __init__(self, grid: Grid, inputs: Inputs) -> None:
        """Take the grid, and what names its files."""
        self.grid = grid
        self.inputs = inputs

    # Entries

    def corpus(self, corpus: str) -> str:
        """Return the entry of a corpus that the fetch command receives."""
        entry = self.grid.config.corpora[corpus]
        given = entry.given(*_CORPUS_KEYS)
        return _json(given | {"path": str(resolve_path(entry.path))} if isinstance(entry, LocalCorpus) else given)

    def dataset(self, dataset: str) -> str:
        """Return the entry of a dataset that the fetch command receives."""
        return _json(self.grid.config.datasets[dataset].given(*_DATASET_KEYS))

    def expansion(self, system: str, corpus: str) -> str:
        """Return the entry of published expansions that the fetch command receives."""
        entry = self.grid.expansion(system, corpus)
        given = entry.given()
        return _json(given | {"path": str(resolve_path(entry.path))} if isinstance(entry, LocalExpansion) else given)

    def checkpoint(self, model: str) -> str:
        """Return the entry of a model that the fetch command receives."""
        entry = self.grid.model(model)
        given = entry.given(*_FETCH_KEYS)
        if entry.path is not None:
            given = {key: value for key, value in given.items() if key not in _HUB_KEYS}
            given["path"] = str(resolve_path(entry.path))
        return _json(given)

    def prompted(self, model: str) -> list[str]:
        """Return the options that name the sides, query and document, for which a model's entry has a prompt.

        fetch refuses a checkpoint whose own prompts the entry leaves out. Another prompt fetches nothing again.
        """
        prompts = self.grid.model(model).prefixes
        sides = [side for side in ("query", "document") if prompts.own or getattr(prompts, side) is not None]
        return ["--prompts", *sides] if sides else []

    def source(self, model: str) -> list[str]:
        """Return the option that says where a model's entry comes from, which the record keeps. It reruns nothing."""
        return ["--source", source] if (source := self.grid.model(model).source) else []

    def model(self, model: str) -> str:
        """Return the entry of a model that encodes or expands documents, or scores pairs."""
        return _json(self._model(model))

    def _model(self, model: str) -> dict[str, Any]:
        return _with_prompts(self.grid.model(model), document=self.grid.model(model).prefixes.document)

    def query_model(self, system: str, dataset: str) -> str:
        """Return the entry of the model with which a system encodes the queries of a dataset."""
        model = self.grid.model(self.grid.query_model(system))
        own = self._of_dataset(model.prefixes.datasets, dataset)
        entry = _with_prompts(model, query=own.query if own else model.prefixes.query)
        if isinstance(model, LateInteractionModel):
            length = self._of_dataset(model.query_lengths, dataset) or model.query_length
            entry |= {"query_length": length} if length else {}
        return _json(entry)

    def _of_dataset(self, values: dict[str, Any], dataset: str) -> Any:
        """Return what a model's entry says for a dataset or for a mean that it is a part of, or None."""
        means = [name for name, entry in self.grid.config.datasets.items() if dataset in entry.mean_of]
        return next((values[name] for name in (dataset, *means) if name in values), None)

    def training(self, model: str) -> str:
        """Return a reranker's training recipe, with its max_length, its language and its teacher's entry."""
        train = self.grid.training(model)
        assert isinstance(train, CrossEncoderTraining)
        entry = {**train.given(), "language": self.language(train.corpus)}
        entry["max_length"] = self.grid.model(model).max_length
        if train.teacher:
            teacher = self.grid.model(train.teacher)
            entry["teacher"] = _run(teacher) | teacher.given("prompts")
        return _json(entry)

    def recipe(self, model: str, stage: str) -> str:
        """Return what one stage of an adaptation needs of its recipe, defaults filled in."""
        entry, train = self.grid.model(model), self.grid.training(model)
        values = train.model_dump(mode="json", by_alias=True)
        if values.get("queries_per_document"):
            values.pop("queries", None)
        wanted = {key: values[key] for key in _STAGE_KEYS[stage] if values.get(key) is not None}
        if stage == "adapt":
            wanted |= entry.given(*_TRAINED_KEYS)
        if isinstance(train, Gpl) and stage == "mine":
            dense = {name: self.grid.model(name) for name in train.dense_miners}
            wanted["language"] = self.language(self.grid.adapted_to(model))
            wanted["dense"] = [_with_prompts(entry, query=entry.prefixes.query) for entry in dense.values()]
        for key, user in (("generator", "generate"), ("teacher", "label"), ("base", "adapt")):
            if stage == user and key in train.models:
                wanted[key] = self._model(train.models[key])
        return _json(wanted)

    def language(self, corpus: str) -> str:
        """Return the language of a corpus."""
        return self.grid.config.corpora[corpus].language

    # Options

    def bm25(self, system: str) -> list[str]:
        """Return the options of a BM25 search."""
        entry = self.grid.system(system)
        assert isinstance(entry, Bm25)
        return ["--k1", str(entry.k1), "--b", str(entry.b)]

    def search(self, system: str, dataset: str) -> list[str]:
        """Return the indexes that a neural retriever searches, and the options that its search has beside them."""
        entry, indexes = self.grid.system(system), self.inputs.indexes(system, dataset)
        if self.grid.query_model(system) != self.grid.retriever(system):
            indexes = [*indexes, "--two-towers"]
        if isinstance(entry, DenseRetriever) and entry.variant:
            searched = ["--index", _json(entry.index.model_dump(mode="json")), *_dimensions(entry)]
            return [*indexes, *searched, "--exact", *self.inputs.vectors(system, dataset)]
        if not isinstance(entry, LateInteractionRetriever):
            return indexes
        candidates = [] if entry.exhaustive else ["--candidates", str(entry.candidates)]
        return [*indexes, *candidates, "--tokens", *self.inputs.vectors(system, dataset)]

    def variant(self, model: str, variant: str) -> list[str]:
        """Return the options that build an index from the exact one of a dense model."""
        entry, similarity = self.grid.variants[variant], self.grid.model(model).given("similarity")["similarity"]
        return ["--index", _json(entry.index.built()), *_dimensions(entry), "--similarity", similarity]

    def accepted(self, system: str) -> list[str]:
        """Return the options that accept flaws of an external run."""
        entry = self.grid.system(system)
        assert isinstance(entry, External)
        return ["--allow", *entry.allow] if entry.allow else []

    def fusion(self, system: str) -> list[str]:
        """Return the options of the fuse command."""
        entry = self.grid.system(system)
        if isinstance(entry, Rrf):
            return ["--method", "rrf", "--k", str(entry.k)]
        assert isinstance(entry, WeightedSum)
        weights = ["--weights", json.dumps(list(entry.weights))] if entry.weights is not None else []
        return ["--method", "wsum", "--norm", entry.norm, *weights]

    def training_step(self, stage: str) -> Callable[[Any], str]:
        """Return the function of the wildcards that names the file with one training step's recipe."""
        entry = self.training if stage == "train" else partial(self.recipe, stage=stage)
        return lambda wildcards: in_file(entry(wildcards.model))


def _dimensions(entry: DenseRetriever) -> list[str]:
    return ["--dimensions", str(entry.dimensions)] if entry.dimensions else []


def _run(model: ModelEntry) -> dict[str, Any]:
    """Return the keys of a model's entry that decide what it computes, but for prompts and query lengths."""
    return {key: value for key, value in model.given().items() if key not in _NOT_RUN}


def _with_prompts(model: ModelEntry, **prompts: str | None) -> dict[str, Any]:
    """Return a model's entry with prompt and brackets of one side only: those of the other must rerun nothing."""
    given: dict[str, Any] = {role: prompt for role, prompt in prompts.items() if prompt is not None}
    if model.prefixes.own and len(given) < len(prompts):
        given["own"] = True
    entry = _run(model)
    if "brackets" in entry:
        entry["brackets"] = {role: entry["brackets"][role] for role in prompts}
    return entry | ({"prompts": given} if given else {})
