"""The params of each stage: options, and registry entries reduced to the keys that change its output.

A changed param reruns the stage. Params therefore omit what the stage does not read, such as a model's note or the
prompts of the side that it does not encode.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..config import entries, resolve_path
from ..config.metric_names import MAIN
from ..config.tasks import KINDS, named
from ..core.cli import as_words
from .grid import Grid

Entry = dict[str, Any]

_CORPUS_KEYS = ("source", "id", "task", "revision", "split", "subset", "path", "documents", "allow")
_DATASET_KEYS = ("corpus", "id", "revision", "split", "queries", "queries_are_documents")
_FETCH_KEYS = ("checkpoint", "revision", "path", "package", "adapter", "files", "pickled", "trust_remote_code")
# Keys among them that mean nothing in an entry with a local folder.
_HUB_KEYS = ("checkpoint", "revision")
# Keys that name a model's source, or that reach the stage in another way or not at all.
_NOT_RUN = {
    *("checkpoint", "revision", "path", "package", "adapter", "files", "pickled", "size", "note", "train"),
    *("licence", "source", "trained_on"),
    *("prompts", "query_model", "query_length", "query_lengths", "tasks", "weights"),
}
# Recipe keys that each stage of an adaptation receives. A changed learning rate must not regenerate queries.
_STAGE_KEYS = {
    "generate": ("derive", "documents", "queries", "queries_per_document", "seed"),
    "mine": ("negative_depth",),
    "label": ("steps", "batch", "seed"),
    "adapt": ("recipe", "documents", "epochs", "steps", "batch", "learning_rate", "warmup", "seed"),
}
# Keys of the model's own entry that its training reads.
_TRAINED_KEYS = ("similarity", "max_length", "prompts", "precision")


class Params:
    """Param functions of the rules. They take a job's wildcards. Those that also take ``output`` return values that do
    not change the output.
    """

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    # Fetch

    def corpus(self, wildcards: Any) -> Entry:
        """Return the entry of a corpus."""
        return self._corpus(wildcards.corpus)

    def searched_corpus(self, wildcards: Any) -> Entry:
        """Return the entry of a dataset's corpus."""
        return self._corpus(self.grid.corpus(wildcards.dataset))

    def _corpus(self, corpus: str) -> Entry:
        given = self.grid.config.corpora[corpus].given(*_CORPUS_KEYS)
        return given | {"path": str(resolve_path(given["path"]))} if "path" in given else given

    def dataset(self, wildcards: Any) -> Entry:
        """Return the entry of a dataset."""
        return self.grid.config.datasets[wildcards.dataset].given(*_DATASET_KEYS)

    def expansion(self, wildcards: Any) -> Entry:
        """Return the entry of published expansions."""
        entry = self.grid.expansion(wildcards.system, wildcards.corpus)
        given = entry.given()
        return given | {"path": str(resolve_path(entry.path))} if isinstance(entry, entries.LocalExpansion) else given

    def checkpoint(self, wildcards: Any) -> Entry:
        """Return the source of a model's checkpoint."""
        entry = self.grid.model(wildcards.model)
        if entry.endpoint:
            return {"family": entry.family, "endpoint": entry.endpoint.identity()}
        given = entry.given(*_FETCH_KEYS)
        if not entry.trust_remote_code:
            given.pop("trust_remote_code", None)  # fetches no code, whatever it says
        if entry.folder is not None:
            given = {key: value for key, value in given.items() if key not in _HUB_KEYS}
            given["path"] = str(resolve_path(entry.folder))
        if entry.adapter and entry.adapter.path:
            given["adapter"] = given["adapter"] | {"path": str(resolve_path(entry.adapter.path))}
        return given

    def described(self, wildcards: Any, output: Any) -> list[str]:
        """Return fetch options that do not change the checkpoint: sides with a prompt, the entry's source, its server.

        The sides are query and document. Fetch refuses a checkpoint that has its own prompt for a side without one in
        the entry.
        """
        entry = self.grid.model(wildcards.model)
        prompts = entry.prefixes
        own = prompts.own or bool(getattr(entry, "engine", None))
        sides = [side for side in ("query", "document") if own or getattr(prompts, side) is not None]
        connection = json.dumps(entry.endpoint.connection()) if entry.endpoint else None
        return as_words({"prompts": sides, "source": entry.source or None, "connection": connection})

    def accepted_flaws(self, wildcards: Any) -> tuple[str, ...]:
        """Return the flaws that an entry accepts in the run of other software."""
        return tuple(self.grid.system_as(entries.Foreign, wildcards.system).allow)

    def main(self, wildcards: Any) -> str | None:
        """Return the metric of a dataset that ``main`` stands for, if the grid asks for that."""
        return self.grid.config.datasets[wildcards.dataset].metric if MAIN in self.grid.config.metrics else None

    # Train

    def recipe(self, stage: str) -> Callable[[Any], Entry]:
        """Return the param function for one stage of a training recipe."""
        return lambda wildcards: self.training(wildcards.model, stage)

    def training(self, model: str, stage: str) -> Entry:
        """Return the recipe keys that one stage of a model's training reads, with defaults."""
        entry, train = self.grid.model(model), self.grid.training(model)
        if isinstance(train, entries.CrossEncoderTraining):
            return self._distillation(entry, train)
        values = train.model_dump(mode="json", by_alias=True)
        if values.get("queries_per_document"):
            values.pop("queries", None)
        wanted = {key: values[key] for key in _STAGE_KEYS[stage] if values.get(key) is not None}
        if stage == "adapt":
            wanted |= entry.given(*_TRAINED_KEYS)
        if isinstance(train, entries.Gpl) and stage == "mine":
            dense = {name: self.grid.model(name) for name in train.dense_miners}
            wanted["language"] = self._language(self.grid.adapted_to(model))
            wanted["dense"] = [_with_prompts(entry, query=entry.prefixes.query) for entry in dense.values()]
        for key, user in (("generator", "generate"), ("teacher", "label"), ("base", "adapt")):
            if stage == user and key in train.models:
                wanted[key] = _reading(self.grid.model(train.models[key]))
        return wanted

    def _distillation(self, model: entries.ModelEntry, train: entries.CrossEncoderTraining) -> Entry:
        """Return a reranker's training recipe with its max_length, language and teacher entry."""
        entry = {**train.given(), "language": self._language(train.corpus), "max_length": model.max_length}
        if train.teacher:
            teacher = self.grid.model(train.teacher)
            entry["teacher"] = _run(teacher) | teacher.given("prompts")
        return entry

    # Encode and index

    def model(self, wildcards: Any) -> Entry:
        """Return the entry of a model that encodes or expands documents."""
        model = self.grid.model(wildcards.model)
        if not model.prefixes.own:
            return _reading(model)
        over = [name for name, entry in self.grid.config.datasets.items() if entry.corpus == wildcards.corpus]
        return _reading(model) | self._task(model, over)

    def is_last(self, wildcards: Any) -> bool:
        """Tell whether a shard is the corpus's last."""
        return int(wildcards.shard) == self.grid.shards(wildcards.corpus)[-1]

    def language(self, wildcards: Any) -> str:
        """Return the language of a corpus."""
        return self._language(wildcards.corpus)

    def _language(self, corpus: str) -> str:
        return self.grid.config.corpora[corpus].language

    def family(self, wildcards: Any, output: Any) -> str:
        """Return a model's family, which is a word of the command."""
        return self.grid.model(wildcards.model).family

    def variant(self, wildcards: Any) -> dict[str, Any]:
        """Return the options of an approximate index, which is built from a dense model's exact index."""
        entry = self.grid.variants[wildcards.variant]
        similarity = self.grid.model(wildcards.model).given("similarity")["similarity"]
        return {"index": entry.index.built(), "dimensions": entry.dimensions, "similarity": similarity}

    # Retrieve

    def bm25(self, wildcards: Any) -> dict[str, Any]:
        """Return the options of a BM25 search."""
        entry = self.grid.system_as(entries.Bm25, wildcards.system)
        language = self._language(self.grid.corpus(wildcards.dataset))
        return {"fields": entry.fields_, "language": language, "k1": entry.k1, "b": entry.b}

    def retriever(self, wildcards: Any, output: Any) -> str:
        """Return the family of a system's retriever, which is a word of the command."""
        return self.grid.model(self.grid.retriever(wildcards.system)).family

    def query_model(self, wildcards: Any) -> Entry:
        """Return the entry of the model that encodes a dataset's queries."""
        model = self.grid.model(self.grid.query_model(wildcards.system))
        own = self._of_dataset(model.prefixes.datasets, wildcards.dataset)
        entry = _with_prompts(model, query=own.query if own else model.prefixes.query)
        return entry | self._task(model, [wildcards.dataset]) | self._query_length(model, wildcards.dataset)

    def _task(self, model: entries.ModelEntry, datasets: list[str]) -> dict[str, str]:
        """Return mteb's task of the first dataset that has one, and its type, for a model that reads texts of tasks."""
        if not isinstance(model, entries.TaskModel) or not (model.prefixes.own or getattr(model, "engine", None)):
            return {}
        known = ({} if model.task else named()) | model.tasks
        tasks = {name: self._of_dataset(known, name) for name in datasets}
        dataset = next(filter(tasks.get, tasks), datasets[0])
        kinds = {kind.lower(): kind for kind in KINDS[1:]}
        found = {"task": tasks[dataset], "task_type": kinds.get(self.grid.config.datasets[dataset].task)}
        return {key: value for key, value in found.items() if value}

    def _query_length(self, model: entries.ModelEntry, dataset: str) -> dict[str, int]:
        """Return the length of a dataset's queries, of a model that has one."""
        if not isinstance(model, entries.LateInteractionModel):
            return {}
        length = self._of_dataset(model.query_lengths, dataset) or model.query_length
        return {"query_length": length} if length else {}

    def _of_dataset(self, values: dict[str, Any], dataset: str) -> Any:
        """Look up a model's value for a dataset or for the averaged dataset that contains it; None if absent."""
        means = [name for name, entry in self.grid.config.datasets.items() if dataset in entry.mean_of]
        return next((values[name] for name in (dataset, *means) if name in values), None)

    def search(self, wildcards: Any) -> dict[str, Any]:
        """Return the search options: approximate index, candidates, separate query encoder."""
        system, entry = wildcards.system, self.grid.system(wildcards.system)
        options: dict[str, Any] = {"two_towers": self.grid.query_model(system) != self.grid.retriever(system)}
        if isinstance(entry, entries.DenseRetriever) and entry.variant:
            return options | {"index": entry.index.model_dump(mode="json"), "dimensions": entry.dimensions}
        if isinstance(entry, entries.LateInteractionRetriever) and not entry.exhaustive:
            return options | {"candidates": entry.candidates}
        return options

    def program(self, key: str) -> Callable[[Any], Entry]:
        """Return the param function for one command of a program, with the program's version."""

        def options(wildcards: Any) -> Entry:
            entry = self.grid.program(wildcards.system)
            return {"command": getattr(entry, key), "version": entry.version or None}

        return options

    def program_threads(self, wildcards: Any) -> int:
        """Return the threads of a program's job."""
        return self.grid.program(wildcards.system).threads

    # Rerank and fuse

    def reranker(self, wildcards: Any) -> Entry:
        """Return the entry of a reranker."""
        model = self.grid.model(wildcards.reranker)
        return _reading(model) | self._task(model, [wildcards.dataset]) | self._query_length(model, wildcards.dataset)

    def score_depth(self, wildcards: Any) -> int:
        """Return the number of documents to score per query."""
        return self.grid.score_depth(wildcards.reranker, wildcards.first)

    def rerank_depth(self, wildcards: Any) -> int:
        """Return the number of documents to rerank per query."""
        return self.grid.depth(self.grid.system_as(entries.Reranked, wildcards.system))

    def fusion(self, wildcards: Any) -> dict[str, Any]:
        """Return the options of a fusion."""
        if isinstance(rrf := self.grid.system(wildcards.system), entries.Rrf):
            return {"method": "rrf", "k": rrf.k}
        entry = self.grid.system_as(entries.WeightedSum, wildcards.system)
        options = {"method": "wsum", "norm": entry.norm}
        if entry.tuned:
            return options | {"tune": self.grid.config.datasets[wildcards.dataset].metric}
        return options | {"weights": json.dumps(entry.weights) if entry.weights is not None else None}


def _run(model: entries.ModelEntry) -> dict[str, Any]:
    """Return the keys of a model's entry that change its output, without prompts and query lengths."""
    entry = {key: value for key, value in model.given().items() if key not in _NOT_RUN}
    if "engine" in entry:  # mteb's loader for this model, which may run the model's code
        entry |= model.given("checkpoint", "trust_remote_code")
    return entry | ({"endpoint": model.endpoint.identity()} if model.endpoint else {})


def _with_prompts(model: entries.ModelEntry, **prompts: str | None) -> dict[str, Any]:
    """Keep the prompt and brackets of one side only, so that changing the other side reruns nothing."""
    given: dict[str, Any] = {role: prompt for role, prompt in prompts.items() if prompt is not None}
    if model.prefixes.own and len(given) < len(prompts):
        given["own"] = True
    entry = _run(model)
    if "brackets" in entry:
        entry["brackets"] = {role: entry["brackets"][role] for role in prompts}
    return entry | ({"prompts": given} if given else {})


def _reading(model: entries.ModelEntry) -> dict[str, Any]:
    return _with_prompts(model, document=model.prefixes.document)
