"""The files that each rule's jobs read."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..config import find_local, resolve_path, run_file
from ..config.entries import (
    ADAPTATIONS,
    Bm25,
    CrossEncoderTraining,
    DenseRetriever,
    External,
    Gpl,
    LateInteractionRetriever,
    LocalCorpus,
    LocalExpansion,
    PublishedExpansion,
    Reranked,
    WithQueries,
)
from ..core import paths
from ..core.families import FAMILIES, RETRIEVERS, alike, named
from ..data import checkpoints
from .grid import Grid

Files = str | list[str]


class Inputs:
    """Inputs of the rules: a method per rule or kind of file."""

    def __init__(self, grid: Grid) -> None:
        """Take the grid."""
        self.grid = grid

    # Fetch: local files are inputs, so that replacing one makes its artifacts again.

    def local_files(self, corpus: str, *names: str) -> list[str]:
        """Return files of a local corpus; a corpus from elsewhere has none."""
        entry = self.grid.config.corpora[corpus]
        if not isinstance(entry, LocalCorpus):
            return []
        folder = resolve_path(entry.path)
        return _without_wildcards(find_local(folder, name) or folder / name for name in names)

    def dataset_files(self, dataset: str) -> list[str]:
        """Return the local files of a dataset's queries and qrels."""
        qrels = f"qrels/{self.grid.config.datasets[dataset].split}.tsv"
        judged = [] if dataset in self.grid.not_judged else [qrels]
        return self.local_files(self.grid.corpus(dataset), "queries.jsonl", *judged)

    def expansion_files(self, system: str, corpus: str) -> list[str]:
        """Return the local files of published expansions for a corpus."""
        entry = self.grid.expansion(system, corpus)
        if not isinstance(entry, LocalExpansion):
            return []
        path = resolve_path(entry.path)
        return _without_wildcards(sorted(path.iterdir()) if path.is_dir() else [path])

    def model_files(self, model: str) -> list[str]:
        """Return the files of a model in a folder that fetch copies."""
        entry = self.grid.model(model)
        return _without_wildcards(sorted(checkpoints.copied(entry))) if entry.path is not None else []

    def run_file(self, system: str, dataset: str) -> str:
        """Return the file of an external system's run."""
        entry = self.grid.system(system)
        assert isinstance(entry, External)
        return str(run_file(entry.run, dataset))

    def run_files(self, system: str, dataset: str) -> list[str]:
        """Return the same as a list, which is empty if Snakemake cannot take the file as an input."""
        return _without_wildcards([Path(self.run_file(system, dataset))])

    # Retrieve

    def corpus(self, dataset: str) -> str:
        """Return the corpus.parquet that a dataset searches."""
        return paths.CORPUS.format(corpus=self.grid.corpus(dataset))

    def checkpoint(self, system: str, dataset: str) -> str:
        """Return the checkpoint with which a neural retriever encodes the queries of a dataset."""
        return self.checkpoint_of(self.grid.query_model(system), self.grid.corpus(dataset))

    def checkpoint_of(self, model: str, corpus: str) -> str:
        """Return the checkpoint of a model, of the one of a corpus if there is one per corpus."""
        return paths.CHECKPOINT.format(model=self.grid.artifacts_of(model, corpus))

    def weights(self, model: str) -> str:
        """Return the checkpoint of a model that reads a shard. A model per corpus has the corpus in its name."""
        return paths.CHECKPOINT.format(model=self.grid.weights_of(model))

    def indexes(self, system: str, dataset: str) -> list[str]:
        """Return the shards of the index that a neural retriever searches; an exhaustive search has none."""
        entry = self.grid.system(system)
        if isinstance(entry, LateInteractionRetriever) and entry.exhaustive:
            return []
        model, corpus = self.grid.retriever(system), self.grid.corpus(dataset)
        if isinstance(entry, DenseRetriever) and entry.variant:
            return self._shards(paths.VARIANTS.replace("{variant}", entry.variant), "", model, corpus)
        return self.index_shards(model, corpus)

    def index_shards(self, model: str, corpus: str) -> list[str]:
        """Return the shards of the index of a model's vectors."""
        return self._shards(paths.INDEXES, FAMILIES[self.grid.model(model).family].index, model, corpus)

    def vectors(self, system: str, dataset: str) -> list[str]:
        """Return the shards of vectors that a retriever reads beside its index.

        Late interaction scores candidates by them. What another index of dense vectors finds is held against them.
        """
        entry, model, corpus = self.grid.system(system), self.grid.retriever(system), self.grid.corpus(dataset)
        if isinstance(entry, DenseRetriever):
            return self.index_shards(model, corpus) if entry.variant else []
        family = FAMILIES[self.grid.model(model).family]
        return self._shards(paths.EMBEDDINGS, family.embeddings, model, corpus) if family.folder else []

    def _shards(self, pattern: str, suffix: str, model: str, corpus: str) -> list[str]:
        name = self.grid.artifacts_of(model, corpus)
        shards = self.grid.shards(corpus)
        return [(pattern + suffix).format(model=name, corpus=corpus, shard=shard) for shard in shards]

    def lucene(self, system: str, dataset: str) -> str:
        """Return the Lucene index that a BM25 system searches."""
        return paths.LUCENE.format(index=self.lucene_name(system), corpus=self.grid.corpus(dataset))

    def lucene_name(self, system: str) -> str:
        """Return the name of the index of a BM25 system: its fields, and what expands documents.

        That is @ a model, or ~ the system that names published expansions. No name has a ~ in it.
        """
        entry = self.grid.system(system)
        assert isinstance(entry, Bm25)
        if isinstance(entry.expansion, PublishedExpansion):
            return f"bm25-{entry.fields_}~{self.grid.published(system)}"
        return f"bm25-{entry.fields_}" + (f"@{entry.expansion}" if entry.expansion else "")

    def expansions(self, expansion: str, corpus: str) -> list[str]:
        """Return the expansions for the index ``@model`` (a file per shard) or ``~system`` (one file).

        The index of the documents themselves has none.
        """
        if expansion.startswith("~"):
            return [paths.PUBLISHED.format(system=expansion[1:], corpus=corpus)]
        model = expansion.removeprefix("@")
        shards = self.grid.shards(corpus) if model else ()
        return [paths.EXPANSIONS.format(model=model, corpus=corpus, shard=shard) for shard in shards]

    # Rerank and fuse

    def part_runs(self, system: str, dataset: str) -> list[str]:
        """Return the runs that a reranked or fused system is made from."""
        return [paths.RUN.format(system=part, dataset=dataset) for part in self.grid.system(system).parts]

    def pair_scores(self, system: str, dataset: str) -> str:
        """Return the manifest of the pair scores that a reranked system uses."""
        entry = self.grid.system(system)
        assert isinstance(entry, Reranked)
        return paths.PAIRS_RECORD.format(reranker=entry.reranker, dataset=dataset, first=entry.first_stage)

    # Train

    def training_step(self, stage: str) -> Callable[[Any], dict[str, Files]]:
        """Return the function of the wildcards that names the inputs of one step of a model's training."""
        step: Callable[[str], dict[str, Files]] = getattr(self, f"_{stage}")
        return lambda wildcards: step(wildcards.model)

    def training_options(self, stage: str, wildcards: Any, threads: int) -> list[str]:
        """Return the inputs of one step of a model's training as options; steps that search take threads, too."""
        files = self.training_step(stage)(wildcards)
        options = [word for name, named in files.items() for word in _option(name, named)]
        return [*options, "--threads", str(threads)] if "index" in files or "indexes" in files else options

    def _train(self, model: str) -> dict[str, Files]:
        train = self.grid.training(model)
        assert isinstance(train, CrossEncoderTraining)
        inputs: dict[str, Files] = {
            "base": paths.CHECKPOINT.format(model=train.base),
            "corpus": paths.CORPUS.format(corpus=train.corpus),
            "index": paths.LUCENE.format(index="bm25-flat", corpus=train.corpus),
        }
        if train.teacher:
            inputs["teacher"] = paths.CHECKPOINT.format(model=train.teacher)
        if train.dataset:
            inputs["queries"] = paths.QUERIES.format(dataset=train.dataset)
            inputs["qrels"] = paths.QRELS.format(dataset=train.dataset)
        return inputs

    def _generate(self, model: str) -> dict[str, Files]:
        train, corpus = self.grid.training(model), self.grid.adapted_to(model)
        inputs: dict[str, Files] = {"corpus": paths.CORPUS.format(corpus=corpus)}
        if generator := train.models.get("generator"):
            inputs["generator"] = self.checkpoint_of(generator, corpus)
        return inputs

    def _mine(self, model: str) -> dict[str, Files]:
        train, corpus = self.grid.training(model), self.grid.adapted_to(model)
        assert isinstance(train, Gpl)
        inputs: dict[str, Files] = {
            "queries": paths.TRAINING_QUERIES.format(model=model),
            "corpus": paths.CORPUS.format(corpus=corpus),
        }
        if "bm25" in train.miners:
            inputs["index"] = paths.LUCENE.format(index="bm25-flat", corpus=corpus)
        if dense := train.dense_miners:
            inputs["checkpoints"] = [self.checkpoint_of(name, corpus) for name in dense]
            inputs["indexes"] = [shard for name in dense for shard in self.index_shards(name, corpus)]
        return inputs

    def _label(self, model: str) -> dict[str, Files]:
        train, corpus = self.grid.training(model), self.grid.adapted_to(model)
        return {
            "queries": paths.TRAINING_QUERIES.format(model=model),
            "negatives": paths.NEGATIVES.format(model=model),
            "teacher": self.checkpoint_of(train.models["teacher"], corpus),
            "corpus": paths.CORPUS.format(corpus=corpus),
        }

    def _adapt(self, model: str) -> dict[str, Files]:
        train, corpus = self.grid.training(model), self.grid.adapted_to(model)
        examples = paths.CORPUS
        if isinstance(train, WithQueries):
            examples = paths.MARGINS if isinstance(train, Gpl) else paths.TRAINING_QUERIES
        return {"base": self.checkpoint_of(train.base, corpus), "examples": examples.format(model=model, corpus=corpus)}


def _without_wildcards(files: Iterable[Path]) -> list[str]:
    """Return the files that can be inputs of a rule: Snakemake fills in ``{x}`` and ``<x>`` in their paths."""
    return [name for name in map(str, files) if not re.search(r"\{|<[a-z]", name)]


def _option(name: str, files: Files) -> list[str]:
    return [f"--{name}", *([files] if isinstance(files, str) else files)]


@dataclass(frozen=True)
class ShardStep:
    """A rule that runs models over one shard of a corpus: what it does and leaves, and the families of its models."""

    rule: str
    stage: str
    purpose: str
    output: str
    record: str
    families: tuple[str, ...]
    folder: bool = False


SHARD_STEPS = (
    *(
        ShardStep(
            f"encode_{family.rule}",
            "encode",
            "Encoding",
            paths.EMBEDDINGS + family.embeddings,
            paths.EMBEDDINGS_RECORD,
            alike(family.name),
            family.folder,
        )
        for family in RETRIEVERS.values()
        if not family.like
    ),
    ShardStep("expand", "expand", "Expanding", paths.EXPANSIONS, paths.EXPANSIONS_RECORD, tuple(named("expander"))),
)


@dataclass(frozen=True)
class TrainingStep:
    """One step of training a model: its stage, what it does, what it leaves, and the recipes that it belongs to.

    ``settings`` are params that it has whatever the configuration says.
    """

    stage: str
    purpose: str
    output: str
    record: str
    recipes: tuple[str, ...]
    folder: bool = False
    settings: Mapping[str, str] = field(default_factory=dict)


TRAINING_STEPS = (
    TrainingStep(
        "train",
        "Training",
        paths.CHECKPOINT,
        paths.MODEL_RECORD,
        ("cross-encoder",),
        folder=True,
        settings={"precision": "auto"},  # encode.precision is that of models that are only used
    ),
    TrainingStep(
        "generate",
        "Writing training queries for",
        paths.TRAINING_QUERIES,
        paths.TRAINING_QUERIES_RECORD,
        ("genq", "gpl"),
    ),
    TrainingStep("mine", "Mining negatives for", paths.NEGATIVES, paths.NEGATIVES_RECORD, ("gpl",)),
    TrainingStep("label", "Labelling training pairs for", paths.MARGINS, paths.MARGINS_RECORD, ("gpl",)),
    TrainingStep("adapt", "Adapting", paths.CHECKPOINT, paths.MODEL_RECORD, ADAPTATIONS, folder=True),
)
