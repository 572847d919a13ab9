"""The grid: its systems and datasets, what they are made from, and the shards of their corpora.

All answers follow from the configuration and from which folders exist, so the job graph is known before anything runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from ..config import absent_folder, is_unjudged, layers, with_parts
from ..config.endpoint_entries import Endpoint
from ..config.entries import (
    Bm25,
    Config,
    DenseRetriever,
    HubExpansion,
    LocalExpansion,
    ModelEntry,
    Program,
    PublishedExpansion,
    Repeated,
    Reranked,
    ReseededGenerator,
    Retriever,
    SystemEntry,
    Training,
)
from ..core import paths
from ..core.errors import ConfigError


class Grid:
    """Systems × datasets, and everything that they need."""

    def __init__(self, config: Config) -> None:
        """Take the checked configuration."""
        self.config = config

    # What is in the grid

    @cached_property
    def datasets(self) -> list[str]:
        """Datasets with queries of their own that can be run: means are replaced by their parts."""
        parts = [part for name in self.config.grid.datasets for part in self.parts(name)]
        return [part for part in dict.fromkeys(parts) if part not in self.not_supplied]

    @cached_property
    def systems(self) -> list[str]:
        """The grid's systems and those that they are made from, parts first."""
        return with_parts(self.config.systems, self.config.grid.systems)

    @property
    def cells(self) -> list[tuple[str, str]]:
        """Every (system, dataset) of the grid that has scores; a system with seeds is run as its members."""
        return [(system, dataset) for system, dataset in self.runs if dataset not in self.not_judged]

    @property
    def runs(self) -> list[tuple[str, str]]:
        """Every (system, dataset) of the grid that can be run; a system with seeds is run as its members."""
        members = [member for system in self.config.grid.systems for member in self.members(system)]
        return [(member, dataset) for dataset in self.datasets for member in members]

    def own(self, pattern: str, **values: str) -> str:
        """Return a path in the grid's own folder, from a pattern of ``paths``."""
        return fill(pattern, grid=self.config.grid.name, **values)

    @cached_property
    def baseline(self) -> str | None:
        """The system that the others are compared with: the configured one, or the first that is BM25."""
        systems = self.config.grid.systems
        lexical = (name for name in systems if isinstance(self.system(self.members(name)[0]), Bm25))
        return self.config.grid.baseline or next(lexical, None)

    def parts(self, dataset: str) -> tuple[str, ...]:
        """Return the datasets that a row of the grid is the mean of: itself, mostly."""
        return self.config.datasets[dataset].mean_of or (dataset,)

    @cached_property
    def not_supplied(self) -> dict[str, Path]:
        """Datasets that need a licence and whose folder is absent, with that folder."""
        missing = {}
        for part in dict.fromkeys(part for name in self.config.grid.datasets for part in self.parts(name)):
            if folder := absent_folder(self.config.corpora[self.corpus(part)]):
                missing[part] = folder
        return missing

    @cached_property
    def not_judged(self) -> set[str]:
        """Datasets without qrels: they are run, but not evaluated."""
        return {name for name in self.datasets if is_unjudged(self.config.corpora[self.corpus(name)])}

    # What things are made from

    def corpus(self, dataset: str) -> str:
        """Return the corpus that a dataset searches."""
        corpus = self.config.datasets[dataset].corpus
        assert corpus is not None, f"{dataset} is a mean"
        return corpus

    def model(self, name: str) -> ModelEntry:
        """Return the entry of a model."""
        return self.config.models[name]

    def system(self, name: str) -> SystemEntry:
        """Return the entry of a system."""
        return self.config.systems[name]

    def members(self, system: str) -> tuple[str, ...]:
        """Return the systems that are run for a column of the grid: itself, or one per seed."""
        entry = self.system(system)
        return entry.members if isinstance(entry, Repeated) else (system,)

    def training(self, model: str) -> Training:
        """Return how the workflow trains a model."""
        train = self.model(model).training
        assert train is not None, f"{model} is fetched"
        return train

    def adapted_to(self, model: str) -> str:
        """Return the corpus that the workflow adapts a model to."""
        corpus = self.training(model).corpus
        assert corpus is not None, f"{model} is a template"
        return corpus

    def retriever(self, system: str) -> str:
        """Return the model whose vectors a neural retriever searches."""
        entry = self.system(system)
        assert isinstance(entry, Retriever)
        return entry.retriever

    def query_model(self, system: str) -> str:
        """Return the model that encodes the queries of a neural retriever."""
        model = self.retriever(system)
        return self.model(model).query_tower or model

    def artifacts_of(self, model: str, corpus: str = "{corpus}") -> str:
        """Return the name that a model's artifacts have: a model per corpus has the corpus in it."""
        return f"{model}@{corpus}" if self.model(model).per_corpus else model

    def weights_of(self, model: str) -> str:
        """Return the name under which a model's checkpoint is kept: generators that differ in their seeds share one."""
        entry = self.config.models.get(model)
        return entry.weights if isinstance(entry, ReseededGenerator) else model

    def expansion(self, system: str, corpus: str) -> LocalExpansion | HubExpansion:
        """Return the entry of the expansion that others published, as it is for a corpus."""
        entry = self.system(system)
        assert isinstance(entry, Bm25)
        assert isinstance(entry.expansion, LocalExpansion | HubExpansion)
        if isinstance(entry.expansion, LocalExpansion):
            return entry.expansion.model_copy(update={"path": entry.expansion.path.replace("{corpus}", corpus)})
        files = tuple(name.replace("{corpus}", corpus) for name in entry.expansion.files)
        return entry.expansion.model_copy(update={"files": files})

    def published(self, system: str) -> str:
        """Return the first system with the same published expansion: its name is the expansion's."""
        same = self.system(system)
        assert isinstance(same, Bm25)
        return next(name for name, entry in self._with_published() if entry.expansion == same.expansion)

    def program(self, system: str) -> Program:
        """Return the entry of a system that is a program."""
        entry = self.system(system)
        assert isinstance(entry, Program)
        return entry

    def program_index(self, system: str) -> str:
        """Return the first system with the same command of indexing: its name is the index's."""
        same, programs = self.program(system), self.config.systems.items()
        alike = (same.index_command, same.version)
        return next(
            name for name, one in programs if isinstance(one, Program) and (one.index_command, one.version) == alike
        )

    def _with_published(self) -> list[tuple[str, Bm25]]:
        """Return the registered systems whose expansion others published."""
        lexical = [(name, entry) for name, entry in self.config.systems.items() if isinstance(entry, Bm25)]
        return [(name, entry) for name, entry in lexical if isinstance(entry.expansion, PublishedExpansion)]

    @cached_property
    def layers(self) -> dict[str, int]:
        """How many rerankings and fusions each registered system goes through."""
        return layers(self.config.systems)

    def depth(self, system: Reranked) -> int:
        """Return how deep a system reranks: its depth, or 100, or all of shorter runs."""
        return system.depth or min(100, self.config.retrieve.depth)

    def score_depth(self, reranker: str, first: str) -> int:
        """Return the deepest depth at which systems of this grid rerank ``first`` with ``reranker``."""
        entries = [entry for name in self.systems if isinstance(entry := self.system(name), Reranked)]
        depths = [self.depth(entry) for entry in entries if (entry.reranker, entry.first_stage) == (reranker, first)]
        if not depths:
            raise ConfigError(f"no system of the grid reranks {first!r} with {reranker!r}: add one to grid.systems")
        return max(depths)

    @cached_property
    def variants(self) -> dict[str, DenseRetriever]:
        """By the name of an index that is built from the exact one: a registered system that searches such an index."""
        dense = [entry for entry in self.config.systems.values() if isinstance(entry, DenseRetriever)]
        return {entry.variant: entry for entry in dense if entry.variant}

    def endpoint(self, wildcards: Mapping[str, str]) -> Endpoint | None:
        """Return the endpoint of the model that a job runs, if a server runs it."""
        model = wildcards.get("reranker") or wildcards.get("model") or self.query_model(wildcards["system"])
        return self.model(model).endpoint

    # Shards

    def shards(self, corpus: str) -> range:
        """Return the numbers of a corpus's shards; a corpus of unknown size is one shard."""
        documents = self.config.corpora[corpus].documents
        return range(math.ceil(documents / self.config.encode.shard) if documents else 1)

    def is_last(self, corpus: str, shard: int) -> bool:
        """Tell whether a corpus ends with a shard."""
        return shard == self.shards(corpus)[-1]

    def is_small(self, corpus: str) -> bool:
        """Tell whether a corpus is registered as small: one shard, and at most ``small_corpus`` documents."""
        documents = self.config.corpora[corpus].documents
        return documents is not None and documents <= min(self.config.small_corpus, self.config.encode.shard)

    # Names, as wildcard constraints

    def one_of(self, names: Iterable[str]) -> str:
        """Return a wildcard constraint that matches exactly these names.

        Models that are trained for each corpus are many (``genq@scifact``), and a long expression is slow to compile:
        recipes that have the same corpora share one list of them.
        """
        corpora: dict[str, list[str]] = {}
        for name in sorted(names):
            recipe, at, corpus = name.partition("@")
            corpora.setdefault(recipe, []).append(re.escape(at + corpus))
        recipes: dict[str, list[str]] = {}
        for recipe, ends in corpora.items():
            recipes.setdefault("|".join(ends), []).append(re.escape(recipe))
        return "|".join(f"(?:{'|'.join(starts)})(?:{ends})" for ends, starts in recipes.items()) or "(?!)"

    def systems_with_published_expansions(self) -> str:
        """Return the wildcard constraint for systems whose expansion others published."""
        return self.one_of(name for name, _ in self._with_published())

    def systems_of(self, *kinds: str) -> str:
        """Return the wildcard constraint for registered systems of some kinds."""
        return self.one_of(name for name, system in self.config.systems.items() if system.kind in kinds)

    def models_of_family(self, *families: str) -> str:
        """Return the wildcard constraint for registered models of some families."""
        return self.one_of(name for name, model in self.config.models.items() if model.family in families)

    def models_of_recipe(self, *recipes: str | None) -> str:
        """Return the wildcard constraint for models that these recipes train, or that are fetched (None)."""
        models = self.config.models.items()
        fitting = (name for name, model in models if (model.training.name if model.training else None) in recipes)
        return self.one_of(name for name in fitting if not self.model(name).per_corpus)


def fill(pattern: str, **values: Any) -> str:
    """Fill in some of a path pattern's wildcards."""
    for name, value in values.items():
        pattern = pattern.replace(f"{{{name}}}", str(value))
    return pattern


def runs_without_scores(grid: Grid) -> list[str]:
    """Return the runs of the datasets without qrels."""
    runs = [(system, dataset) for system, dataset in grid.runs if dataset in grid.not_judged]
    return [paths.RUN.format(system=system, dataset=dataset) for system, dataset in runs]


def metric_files(grid: Grid) -> list[str]:
    """Return the metrics of every cell of the grid."""
    return [paths.METRICS.format(system=system, dataset=dataset) for system, dataset in grid.cells]
