"""The grid: systems, datasets, the models and corpora behind them, and shards.

Everything is derived from the configuration and from which folders exist, so the job graph is known before any job
runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from operator import attrgetter
from pathlib import Path
from typing import Any, TypeVar

from ..config import entries
from ..config.checks import absent_folder, layers, models_behind, with_parts
from ..config.datasets import is_unjudged
from ..core.errors import ConfigError

EntryT = TypeVar("EntryT", bound=entries.Entry)


class Grid:
    """Systems × datasets, and all that they depend on."""

    def __init__(self, config: entries.Config, left_out: Mapping[str, str] | None = None) -> None:
        """Derive the grid of a configuration, without the cells of some systems, each with the reason."""
        self.config = config
        self.left_out = dict(left_out or {})
        self.inputs: dict[Any, Any] = {}  # of each job (dag.Job.inputs)

    # Contents of the grid

    @cached_property
    def datasets(self) -> list[str]:
        """Datasets to run: averaged datasets are replaced by their parts, and datasets that are not supplied are left
        out.
        """
        parts = [part for name in self.config.grid.datasets for part in self.parts(name)]
        return [part for part in dict.fromkeys(parts) if part not in self.not_supplied]

    @cached_property
    def systems(self) -> list[str]:
        """The grid's systems and their component systems, components first."""
        return with_parts(self.config.systems, self.config.grid.systems)

    @property
    def cells(self) -> list[tuple[str, str]]:
        """Every (system, dataset) with scores. A system with seeds is replaced by one system per seed."""
        return [(system, dataset) for system, dataset in self.runs if dataset not in self.not_judged]

    @property
    def runs(self) -> list[tuple[str, str]]:
        """Every (system, dataset) to run. A system with seeds is replaced by one system per seed."""
        runs = ((member, dataset) for dataset in self.datasets for member in self.single_systems)
        runs = ((member, dataset) for member, dataset in runs if member not in self.left_out)
        return [(member, dataset) for member, dataset in runs if dataset not in self.declined.get(member, ())]

    @cached_property
    def single_systems(self) -> list[str]:
        """The systems behind all columns: one per seed of a system with seeds."""
        return [member for system in self.config.grid.systems for member in self.members(system)]

    @cached_property
    def declined(self) -> dict[str, dict[str, str]]:
        """Datasets that the publisher of a model behind a system declines, each with the reason, by system."""
        found = {member: dict(self._declined(member)) for member in self.single_systems}
        return {member: reasons for member, reasons in found.items() if reasons}

    def _declined(self, system: str) -> Iterator[tuple[str, str]]:
        for name in models_behind(self.config, [system]):
            if entry := self.model(name).declined:
                rows = {part for row in entry.names for part in self.parts(row)}
                yield from ((row, entry.reason) for row in self.datasets if row in rows)

    def own(self, pattern: str, **values: str) -> str:
        """Fill in a pattern of ``paths`` with the grid's name."""
        return fill(pattern, grid=self.config.grid.name, **values)

    @cached_property
    def baseline(self) -> str | None:
        """The baseline of comparisons: the configured system, or the first BM25 system."""
        systems = self.config.grid.systems
        lexical = (name for name in systems if isinstance(self.system(self.members(name)[0]), entries.Bm25))
        return self.config.grid.baseline or next(lexical, None)

    def parts(self, dataset: str) -> tuple[str, ...]:
        """Return the datasets whose mean a row of the grid shows; usually only the dataset itself."""
        return self.config.datasets[dataset].mean_of or (dataset,)

    @cached_property
    def not_supplied(self) -> dict[str, Path]:
        """Licensed datasets whose folder is absent, with that folder."""
        missing = {}
        for part in dict.fromkeys(part for name in self.config.grid.datasets for part in self.parts(name)):
            if folder := absent_folder(self.config.corpora[self.corpus(part)]):
                missing[part] = folder
        return missing

    @cached_property
    def not_judged(self) -> set[str]:
        """Datasets without qrels, which are run but not evaluated."""
        return {name for name in self.datasets if is_unjudged(self.config.corpora[self.corpus(name)])}

    @property
    def slices(self) -> list[tuple[str, str]]:
        """Every (dataset, slice) of the rows that are supplied and judged. They are rows, too, beside the datasets."""
        rows = [row for row in self.config.grid.datasets if row in self.datasets and row not in self.not_judged]
        return [(row, name) for row in rows for name in self.config.datasets[row].slices]

    # Dependencies

    def corpus(self, dataset: str) -> str:
        """Return the corpus of a dataset."""
        corpus = self.config.datasets[dataset].corpus
        assert corpus is not None, f"{dataset} is a mean"
        return corpus

    def language(self, corpus: str) -> str:
        """Return the language of a corpus."""
        return self.config.corpora[corpus].language

    def model(self, name: str) -> entries.ModelEntry:
        """Return the entry of a model."""
        return self.config.models[name]

    def system(self, name: str) -> entries.SystemEntry:
        """Return the entry of a system."""
        return self.config.systems[name]

    def searched(self, name: str) -> entries.SystemEntry:
        """Return the entry of a system, or of its first stage if that searches with its rewritten queries."""
        entry = self.system(name)
        return self.system(entry.first_stage) if isinstance(entry, entries.Rewritten) else entry

    def rewriting(self, name: str) -> entries.Rewriting | None:
        """Return how a system rewrites its queries; None if it does not."""
        entry = self.system(name)
        return entry.query if isinstance(entry, entries.Rewritten) else None

    @cached_property
    def rewritings(self) -> dict[str, entries.Rewriting]:
        """How registered systems rewrite queries, by the names of the texts."""
        found = filter(None, map(self.rewriting, self.config.systems))
        return {rewriting.name: rewriting for rewriting in found}

    def system_as(self, kind: type[EntryT], name: str) -> EntryT:
        """Return the entry of a system that searches, whose class the caller knows."""
        entry = self.searched(name)
        assert isinstance(entry, kind), f"a {kind.__name__} is expected"
        return entry

    def members(self, system: str) -> tuple[str, ...]:
        """Return the systems behind a column of the grid: one per seed, or the system itself."""
        entry = self.system(system)
        return entry.members if isinstance(entry, entries.SeededSystem) else (system,)

    def training(self, model: str) -> Any:
        """Return the training recipe of a model. Its class follows from the stage's ``recipes``."""
        train = self.model(model).training
        assert train is not None, f"{model} is fetched"
        return train

    def retriever(self, system: str) -> str:
        """Return the document encoder of a neural retriever."""
        return self.system_as(entries.Retriever, system).retriever

    def query_model(self, system: str) -> str:
        """Return the query encoder of a neural retriever."""
        model = self.retriever(system)
        return self.model(model).query_tower or model

    def artifacts_of(self, model: str, corpus: str = "{corpus}") -> str:
        """Return the name of a model's artifacts. It contains the corpus if the model is trained per corpus."""
        return f"{model}@{corpus}" if self.model(model).per_corpus else model

    def weights_of(self, model: str) -> str:
        """Return the name of a model's stored checkpoint: models that differ only in chunks or head share one."""
        return re.sub("~[^@]+", "", model)

    def expansion(self, system: str, corpus: str) -> entries.LocalExpansion | entries.HubExpansion:
        """Return the entry of a published expansion for a corpus."""
        entry = self.system_as(entries.Bm25, system).expansion
        if isinstance(entry, entries.LocalExpansion):
            return entry.model_copy(update={"path": entry.path.replace("{corpus}", corpus)})
        assert isinstance(entry, entries.HubExpansion), "an expansion of the hub is expected"
        return entry.model_copy(update={"files": tuple(name.replace("{corpus}", corpus) for name in entry.files)})

    def published(self, system: str) -> str:
        """Return the first system with the same published expansion; the expansion is stored under its name."""
        same = self.system_as(entries.Bm25, system).expansion
        return next(name for name, entry in self.with_published.items() if entry.expansion == same)

    def program(self, system: str) -> entries.Program:
        """Return the entry of a system that is a program."""
        return self.system_as(entries.Program, system)

    def program_index(self, system: str) -> str:
        """Return the first system with the same indexing command; the index is stored under its name."""
        systems = self.config.systems.items()
        programs = [(name, program) for name, program in systems if isinstance(program, entries.Program)]
        index = attrgetter("index_command", "version")
        return next(name for name, program in programs if index(program) == index(self.program(system)))

    @cached_property
    def with_published(self) -> dict[str, entries.Bm25]:
        """Registered systems with a published expansion."""
        lexical = [(name, entry) for name, entry in self.config.systems.items() if isinstance(entry, entries.Bm25)]
        return {name: entry for name, entry in lexical if isinstance(entry.expansion, entries.PublishedExpansion)}

    @cached_property
    def layers(self) -> dict[str, int]:
        """The number of reranking and fusion steps of each registered system."""
        return layers(self.config.systems)

    def depth(self, system: entries.Reranked) -> int:
        """Return the depth to which a system reranks, 100 by default."""
        return system.depth or min(100, self.config.retrieve.depth)

    def score_depth(self, reranker: str, first: str) -> int:
        """Return the deepest depth at which systems of this grid rerank ``first`` with ``reranker``."""
        reranked = [entry for name in self.systems if isinstance(entry := self.system(name), entries.Reranked)]
        depths = [self.depth(entry) for entry in reranked if (entry.reranker, entry.first_stage) == (reranker, first)]
        if not depths:
            raise ConfigError(f"no system of the grid reranks {first!r} with {reranker!r}: add one to grid.systems")
        return max(depths)

    @cached_property
    def variants(self) -> dict[str, entries.DenseRetriever]:
        """Registered systems with an approximate index, by the index's name."""
        dense = [entry for entry in self.config.systems.values() if isinstance(entry, entries.DenseRetriever)]
        return {entry.variant: entry for entry in dense if entry.variant}

    # Shards

    def shards(self, corpus: str) -> range:
        """Return the shard numbers of a corpus. A corpus of unknown size has one shard."""
        documents = self.config.corpora[corpus].documents
        return range(math.ceil(documents / self.config.encode.shard) if documents else 1)

    def is_small(self, corpus: str) -> bool:
        """Tell whether a corpus is small: one shard, and at most ``small_corpus`` documents in the registry."""
        documents = self.config.corpora[corpus].documents
        return documents is not None and documents <= min(self.config.small_corpus, self.config.encode.shard)

    # Names, as wildcard constraints

    def one_of(self, names: Iterable[str]) -> str:
        """Return a wildcard constraint that matches exactly these names.

        There are many models per corpus (``genq@scifact``), and long expressions compile slowly, so recipes with the
        same corpora share one list of them.
        """
        corpora: dict[str, list[str]] = {}
        for name in sorted(names):
            recipe, at, corpus = name.partition("@")
            corpora.setdefault(recipe, []).append(re.escape(at + corpus))
        recipes: dict[str, list[str]] = {}
        for recipe, ends in corpora.items():
            recipes.setdefault("|".join(ends), []).append(re.escape(recipe))
        return "|".join(f"(?:{'|'.join(starts)})(?:{ends})" for ends, starts in recipes.items()) or "(?!)"


def fill(pattern: str, **values: Any) -> str:
    """Fill in some wildcards of a path pattern."""
    for name, value in values.items():
        pattern = pattern.replace(f"{{{name}}}", str(value))
    return pattern
