"""The settings of each stage: registry entries with only the keys that change its output, and options.

A changed param reruns the stage. Params therefore leave out what the stage does not read, such as a model's note and
the prompts of the side that the stage does not encode.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..config import resolve_path
from ..config.entries import (
    Bm25,
    CrossEncoderTraining,
    DenseModel,
    DenseRetriever,
    Foreign,
    Gpl,
    LateInteractionModel,
    LateInteractionRetriever,
    LocalCorpus,
    LocalExpansion,
    ModelEntry,
    Reranked,
    Rrf,
    WeightedSum,
)
from ..core.cli import as_words
from .grid import Grid

Entry = dict[str, Any]

_CORPUS_KEYS = ("source", "id", "task", "revision", "split", "subset", "path", "documents", "allow")
_DATASET_KEYS = ("corpus", "id", "revision", "split", "queries", "queries_are_documents")
_FETCH_KEYS = ("checkpoint", "revision", "path", "package", "files", "pickled", "trust_remote_code")
# Of these, keys without a meaning where the entry names a folder.
_HUB_KEYS = ("checkpoint", "revision")
# Keys that say where a model comes from, or that what runs it receives in another way, if at all.
_NOT_RUN = {
    *("checkpoint", "revision", "path", "package", "files", "pickled", "size", "note", "train", "trained_on"),
    *("licence", "source"),
    *("prompts", "query_model", "query_length", "query_lengths", "tasks", "weights"),
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


class Params:
    """The settings of jobs, from their wildcards. Methods that take ``output`` return what is no setting."""

    def __init__(self, grid: Grid) -> None:
        """Take the grid."""
        self.grid = grid

    # Fetch

    def corpus(self, wildcards: Any) -> Entry:
        """Return the entry of a corpus."""
        return self._corpus(wildcards.corpus)

    def searched_corpus(self, wildcards: Any) -> Entry:
        """Return the entry of the corpus that a dataset searches."""
        return self._corpus(self.grid.corpus(wildcards.dataset))

    def _corpus(self, corpus: str) -> Entry:
        entry = self.grid.config.corpora[corpus]
        given = entry.given(*_CORPUS_KEYS)
        return given | {"path": str(resolve_path(entry.path))} if isinstance(entry, LocalCorpus) else given

    def dataset(self, wildcards: Any) -> Entry:
        """Return the entry of a dataset."""
        return self.grid.config.datasets[wildcards.dataset].given(*_DATASET_KEYS)

    def expansion(self, wildcards: Any) -> Entry:
        """Return the entry of published expansions."""
        entry = self.grid.expansion(wildcards.system, wildcards.corpus)
        given = entry.given()
        return given | {"path": str(resolve_path(entry.path))} if isinstance(entry, LocalExpansion) else given

    def checkpoint(self, wildcards: Any) -> Entry:
        """Return where a model's checkpoint comes from."""
        entry = self.grid.model(wildcards.model)
        if entry.endpoint:
            return {"family": entry.family, "endpoint": entry.endpoint.identity()}
        given = entry.given(*_FETCH_KEYS)
        if entry.folder is not None:
            given = {key: value for key, value in given.items() if key not in _HUB_KEYS}
            given["path"] = str(resolve_path(entry.folder))
        return given

    def described(self, wildcards: Any, output: Any) -> list[str]:
        """Return the options that fetch a model as before: sides with a prompt, its entry's source, its server.

        The sides are query and document: fetch refuses a checkpoint whose own prompts the entry leaves out.
        """
        entry = self.grid.model(wildcards.model)
        prompts = entry.prefixes
        own = prompts.own or bool(getattr(entry, "engine", None))
        sides = [side for side in ("query", "document") if own or getattr(prompts, side) is not None]
        connection = json.dumps(entry.endpoint.connection()) if entry.endpoint else None
        return as_words({"prompts": sides, "source": entry.source or None, "connection": connection})

    def accepted_flaws(self, wildcards: Any) -> tuple[str, ...]:
        """Return the flaws of a run of other software that its entry accepts."""
        entry = self.grid.system(wildcards.system)
        assert isinstance(entry, Foreign)
        return tuple(entry.allow)

    # Train

    def recipe(self, stage: str) -> Callable[[Any], Entry]:
        """Return the function of the wildcards that gives what one stage of a model's training needs of its recipe."""
        return lambda wildcards: self.training(wildcards.model, stage)

    def training(self, model: str, stage: str) -> Entry:
        """Return what one stage of a model's training needs of its recipe, defaults filled in."""
        entry, train = self.grid.model(model), self.grid.training(model)
        if isinstance(train, CrossEncoderTraining):
            return self._distillation(entry, train)
        values = train.model_dump(mode="json", by_alias=True)
        if values.get("queries_per_document"):
            values.pop("queries", None)
        wanted = {key: values[key] for key in _STAGE_KEYS[stage] if values.get(key) is not None}
        if stage == "adapt":
            wanted |= entry.given(*_TRAINED_KEYS)
        if isinstance(train, Gpl) and stage == "mine":
            dense = {name: self.grid.model(name) for name in train.dense_miners}
            wanted["language"] = self._language(self.grid.adapted_to(model))
            wanted["dense"] = [_with_prompts(entry, query=entry.prefixes.query) for entry in dense.values()]
        for key, user in (("generator", "generate"), ("teacher", "label"), ("base", "adapt")):
            if stage == user and key in train.models:
                wanted[key] = _reading(self.grid.model(train.models[key]))
        return wanted

    def _distillation(self, model: ModelEntry, train: CrossEncoderTraining) -> Entry:
        """Return a reranker's training recipe, with its max_length, its language and its teacher's entry."""
        entry = {**train.given(), "language": self._language(train.corpus), "max_length": model.max_length}
        if train.teacher:
            teacher = self.grid.model(train.teacher)
            entry["teacher"] = _run(teacher) | teacher.given("prompts")
        return entry

    # Encode and index

    def model(self, wildcards: Any) -> Entry:
        """Return the entry of a model that encodes or expands documents."""
        return _reading(self.grid.model(wildcards.model))

    def is_last(self, wildcards: Any) -> bool:
        """Tell whether a corpus ends with a shard."""
        return self.grid.is_last(wildcards.corpus, int(wildcards.shard))

    def language(self, wildcards: Any) -> str:
        """Return the language of a corpus."""
        return self._language(wildcards.corpus)

    def _language(self, corpus: str) -> str:
        return self.grid.config.corpora[corpus].language

    def family(self, wildcards: Any, output: Any) -> str:
        """Return the family of a model, a word of the command."""
        return self.grid.model(wildcards.model).family

    def variant(self, wildcards: Any) -> dict[str, Any]:
        """Return the options that build an index from the exact one of a dense model."""
        entry = self.grid.variants[wildcards.variant]
        similarity = self.grid.model(wildcards.model).given("similarity")["similarity"]
        return {"index": entry.index.built(), "dimensions": entry.dimensions, "similarity": similarity}

    # Retrieve

    def bm25(self, wildcards: Any) -> dict[str, Any]:
        """Return the options of a BM25 search."""
        entry = self.grid.system(wildcards.system)
        assert isinstance(entry, Bm25)
        language = self._language(self.grid.corpus(wildcards.dataset))
        return {"fields": entry.fields_, "language": language, "k1": entry.k1, "b": entry.b}

    def retriever(self, wildcards: Any, output: Any) -> str:
        """Return the family of a system's retriever, a word of the command."""
        return self.grid.model(self.grid.retriever(wildcards.system)).family

    def query_model(self, wildcards: Any) -> Entry:
        """Return the entry of the model with which a system encodes the queries of a dataset."""
        model = self.grid.model(self.grid.query_model(wildcards.system))
        own = self._of_dataset(model.prefixes.datasets, wildcards.dataset)
        entry = _with_prompts(model, query=own.query if own else model.prefixes.query)
        if isinstance(model, DenseModel) and (task := self._of_dataset(model.tasks, wildcards.dataset)):
            entry["task"] = task
        return entry | self._query_length(model, wildcards.dataset)

    def _query_length(self, model: ModelEntry, dataset: str) -> dict[str, int]:
        """Return the length of a dataset's queries, of a model that has one."""
        if not isinstance(model, LateInteractionModel):
            return {}
        length = self._of_dataset(model.query_lengths, dataset) or model.query_length
        return {"query_length": length} if length else {}

    def _of_dataset(self, values: dict[str, Any], dataset: str) -> Any:
        """Return what a model's entry says for a dataset or for a mean that it is a part of, or None."""
        means = [name for name, entry in self.grid.config.datasets.items() if dataset in entry.mean_of]
        return next((values[name] for name in (dataset, *means) if name in values), None)

    def search(self, wildcards: Any) -> dict[str, Any]:
        """Return the options of a search: an index that is not exact, candidates, a query encoder of its own."""
        system, entry = wildcards.system, self.grid.system(wildcards.system)
        options: dict[str, Any] = {"two_towers": self.grid.query_model(system) != self.grid.retriever(system)}
        if isinstance(entry, DenseRetriever) and entry.variant:
            return options | {"index": entry.index.model_dump(mode="json"), "dimensions": entry.dimensions}
        if isinstance(entry, LateInteractionRetriever) and not entry.exhaustive:
            return options | {"candidates": entry.candidates}
        return options

    def program(self, key: str) -> Callable[[Any], Entry]:
        """Return the function of the wildcards that gives a command of a program, and the program's version."""

        def options(wildcards: Any) -> Entry:
            entry = self.grid.program(wildcards.system)
            return {"command": getattr(entry, key), "version": entry.version or None}

        return options

    def program_threads(self, wildcards: Any) -> int:
        """Return the cores of a program's job."""
        return self.grid.program(wildcards.system).threads

    # Rerank and fuse

    def reranker(self, wildcards: Any) -> Entry:
        """Return the entry of a model that scores pairs."""
        model = self.grid.model(wildcards.reranker)
        return _reading(model) | self._query_length(model, wildcards.dataset)

    def score_depth(self, wildcards: Any) -> int:
        """Return how many documents of each query are scored."""
        return self.grid.score_depth(wildcards.reranker, wildcards.first)

    def rerank_depth(self, wildcards: Any) -> int:
        """Return how many documents of each query are reordered."""
        entry = self.grid.system(wildcards.system)
        assert isinstance(entry, Reranked)
        return self.grid.depth(entry)

    def fusion(self, wildcards: Any) -> dict[str, Any]:
        """Return the options of a fusion."""
        entry = self.grid.system(wildcards.system)
        if isinstance(entry, Rrf):
            return {"method": "rrf", "k": entry.k}
        assert isinstance(entry, WeightedSum)
        weights = json.dumps(entry.weights) if entry.weights is not None else None
        return {"method": "wsum", "norm": entry.norm, "weights": weights}


def _run(model: ModelEntry) -> dict[str, Any]:
    """Return the keys of a model's entry that decide what it computes, but for prompts and query lengths."""
    entry = {key: value for key, value in model.given().items() if key not in _NOT_RUN}
    if "engine" in entry:  # the loader of this model, which may run its code
        entry |= model.given("checkpoint", "trust_remote_code")
    return entry | ({"endpoint": model.endpoint.identity()} if model.endpoint else {})


def _with_prompts(model: ModelEntry, **prompts: str | None) -> dict[str, Any]:
    """Return a model's entry with prompt and brackets of one side only: those of the other must rerun nothing."""
    given: dict[str, Any] = {role: prompt for role, prompt in prompts.items() if prompt is not None}
    if model.prefixes.own and len(given) < len(prompts):
        given["own"] = True
    entry = _run(model)
    if "brackets" in entry:
        entry["brackets"] = {role: entry["brackets"][role] for role in prompts}
    return entry | ({"prompts": given} if given else {})


def _reading(model: ModelEntry) -> dict[str, Any]:
    """Return the entry of a model that reads documents or pairs."""
    return _with_prompts(model, document=model.prefixes.document)
