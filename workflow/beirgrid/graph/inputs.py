"""The files that the jobs of each rule read."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ..config import find_local, resolve_path, run_file
from ..config.entries import (
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
from ..config.places import is_file
from ..config.systems import command_words
from ..core import paths
from ..core.families import FAMILIES
from ..models import checkpoints
from .grid import Grid


class Inputs:
    """Inputs of the rules. The methods that rules name take the wildcards of a job."""

    def __init__(self, grid: Grid) -> None:
        """Take the grid."""
        self.grid = grid

    # Fetch: local files are inputs, so that replacing one makes its artifacts again.

    def corpus_files(self, wildcards: Any) -> list[str]:
        """Return the local file of a corpus's documents; a corpus from elsewhere has none."""
        return self._local_files(wildcards.corpus, "corpus.jsonl")

    def dataset_files(self, wildcards: Any) -> list[str]:
        """Return the local files of a dataset's queries and qrels."""
        dataset = wildcards.dataset
        qrels = f"qrels/{self.grid.config.datasets[dataset].split}.tsv"
        judged = [] if dataset in self.grid.not_judged else [qrels]
        return self._local_files(self.grid.corpus(dataset), "queries.jsonl", *judged)

    def _local_files(self, corpus: str, *names: str) -> list[str]:
        entry = self.grid.config.corpora[corpus]
        if not isinstance(entry, LocalCorpus):
            return []
        folder = resolve_path(entry.path)
        return _without_wildcards(find_local(folder, name) or folder / name for name in names)

    def expansion_files(self, wildcards: Any) -> list[str]:
        """Return the local files of published expansions for a corpus."""
        entry = self.grid.expansion(wildcards.system, wildcards.corpus)
        if not isinstance(entry, LocalExpansion):
            return []
        path = resolve_path(entry.path)
        return _without_wildcards(sorted(path.iterdir()) if path.is_dir() else [path])

    def model_files(self, wildcards: Any) -> list[str]:
        """Return the files of a model in a folder that fetch copies."""
        entry = self.grid.model(wildcards.model)
        return _without_wildcards(sorted(checkpoints.copied(entry))) if entry.folder is not None else []

    def run_files(self, wildcards: Any) -> list[str]:
        """Return the file of an external system's run, if Snakemake can take it as an input."""
        return _without_wildcards([Path(self.run_file(wildcards))])

    def run_file(self, wildcards: Any) -> str:
        """Return the file of an external system's run."""
        entry = self.grid.system(wildcards.system)
        assert isinstance(entry, External)
        return str(run_file(entry.run, wildcards.dataset))

    # Programs: files that a command names are inputs, too.

    def command_files(self, wildcards: Any) -> list[str]:
        """Return the files that the command of a search names; a program by its absolute path is left out."""
        return _named_files(self.grid.program(wildcards.system).command)

    def index_command_files(self, wildcards: Any) -> list[str]:
        """Return the files that the command of an index names."""
        return _named_files(self.grid.program(wildcards.system).index_command or "")

    def program_index(self, wildcards: Any) -> list[str]:
        """Return the index that a program searches; a program without a command for indexing has none."""
        if not self.grid.program(wildcards.system).index_command:
            return []
        index = self.grid.program_index(wildcards.system)
        return [paths.PROGRAM_INDEX.format(system=index, corpus=self.grid.corpus(wildcards.dataset))]

    # Encode, index and retrieve

    def weights(self, wildcards: Any) -> str:
        """Return the checkpoint of a model that reads a shard. A model per corpus has the corpus in its name."""
        return paths.CHECKPOINT.format(model=self.grid.weights_of(wildcards.model))

    def expansions(self, wildcards: Any) -> list[str]:
        """Return the expansions for the index ``@model`` (a file per shard) or ``~system`` (one file).

        The index of the documents themselves has none.
        """
        expansion, corpus = wildcards.expansion, wildcards.corpus
        if expansion.startswith("~"):
            return [paths.PUBLISHED.format(system=expansion[1:], corpus=corpus)]
        model = expansion.removeprefix("@")
        shards = self.grid.shards(corpus) if model else ()
        return [paths.EXPANSIONS.format(model=model, corpus=corpus, shard=shard) for shard in shards]

    def corpus(self, wildcards: Any) -> str:
        """Return the corpus.parquet that a dataset searches."""
        return paths.CORPUS.format(corpus=self.grid.corpus(wildcards.dataset))

    def lucene(self, wildcards: Any) -> str:
        """Return the Lucene index that a BM25 system searches."""
        corpus = self.grid.corpus(wildcards.dataset)
        return paths.LUCENE.format(index=self.lucene_name(wildcards.system), corpus=corpus)

    def lucene_name(self, system: str) -> str:
        """Return the name of the index of a BM25 system: its fields, and what expands documents.

        That is @ a model, or ~ the system that names published expansions. No name has a ~ in it.
        """
        entry = self.grid.system(system)
        assert isinstance(entry, Bm25)
        if isinstance(entry.expansion, PublishedExpansion):
            return f"bm25-{entry.fields_}~{self.grid.published(system)}"
        return f"bm25-{entry.fields_}" + (f"@{entry.expansion}" if entry.expansion else "")

    def query_checkpoint(self, wildcards: Any) -> str:
        """Return the checkpoint with which a neural retriever encodes the queries of a dataset."""
        model = self.grid.query_model(wildcards.system)
        return self._checkpoint(model, self.grid.corpus(wildcards.dataset))

    def indexes(self, wildcards: Any) -> list[str]:
        """Return the shards of the index that a neural retriever searches; an exhaustive search has none."""
        entry = self.grid.system(wildcards.system)
        if isinstance(entry, LateInteractionRetriever) and entry.exhaustive:
            return []
        if isinstance(entry, DenseRetriever) and entry.variant:
            return self._shards(wildcards, paths.VARIANTS.replace("{variant}", entry.variant))
        return self._index_shards(self.grid.retriever(wildcards.system), self.grid.corpus(wildcards.dataset))

    def exact_indexes(self, wildcards: Any) -> list[str]:
        """Return the shards of the exact index that the results of another index are compared with."""
        entry = self.grid.system(wildcards.system)
        if not (isinstance(entry, DenseRetriever) and entry.variant):
            return []
        return self._index_shards(entry.retriever, self.grid.corpus(wildcards.dataset))

    def tokens(self, wildcards: Any) -> list[str]:
        """Return the shards of token vectors by which late interaction scores candidates."""
        family = FAMILIES[self.grid.model(self.grid.retriever(wildcards.system)).family]
        return self._shards(wildcards, paths.EMBEDDINGS + family.embeddings)

    def _shards(self, wildcards: Any, pattern: str) -> list[str]:
        return self._shards_of(pattern, self.grid.retriever(wildcards.system), self.grid.corpus(wildcards.dataset))

    def _index_shards(self, model: str, corpus: str) -> list[str]:
        return self._shards_of(paths.INDEXES + FAMILIES[self.grid.model(model).family].index, model, corpus)

    def _shards_of(self, pattern: str, model: str, corpus: str) -> list[str]:
        name = self.grid.artifacts_of(model, corpus)
        return [pattern.format(model=name, corpus=corpus, shard=shard) for shard in self.grid.shards(corpus)]

    def _checkpoint(self, model: str, corpus: str) -> str:
        """Return the checkpoint of a model, of the one of a corpus if there is one per corpus."""
        return paths.CHECKPOINT.format(model=self.grid.artifacts_of(model, corpus))

    # Rerank and fuse

    def part_runs(self, wildcards: Any) -> list[str]:
        """Return the runs that a reranked or fused system is made from."""
        parts = self.grid.system(wildcards.system).parts
        return [paths.RUN.format(system=part, dataset=wildcards.dataset) for part in parts]

    def pair_scores(self, wildcards: Any) -> str:
        """Return the manifest of the pair scores that a reranked system uses."""
        entry = self.grid.system(wildcards.system)
        assert isinstance(entry, Reranked)
        names = {"reranker": entry.reranker, "dataset": wildcards.dataset, "first": entry.first_stage}
        return paths.PAIRS_RECORD.format(**names)

    # Train

    def training_corpus(self, wildcards: Any) -> str:
        """Return the corpus that a model is trained on or adapted to."""
        return paths.CORPUS.format(corpus=self.grid.adapted_to(wildcards.model))

    def base(self, wildcards: Any) -> str:
        """Return the checkpoint that training starts from."""
        return self._trained_with(wildcards.model, "base")[0]

    def teacher(self, wildcards: Any) -> list[str]:
        """Return the checkpoint of the model that labels training pairs, if there is one."""
        return self._trained_with(wildcards.model, "teacher")

    def generator(self, wildcards: Any) -> list[str]:
        """Return the checkpoint of the model that writes training queries, if there is one."""
        return self._trained_with(wildcards.model, "generator")

    def _trained_with(self, model: str, key: str) -> list[str]:
        names = [name] if (name := self.grid.training(model).models.get(key)) else []
        return [self._checkpoint(name, self.grid.adapted_to(model)) for name in names]

    def bm25_index(self, wildcards: Any) -> list[str]:
        """Return the index in which BM25 finds negatives, unless other retrievers alone find them."""
        train = self.grid.training(wildcards.model)
        if isinstance(train, Gpl) and "bm25" not in train.miners:
            return []
        return [paths.LUCENE.format(index="bm25-flat", corpus=self.grid.adapted_to(wildcards.model))]

    def training_queries(self, wildcards: Any) -> list[str]:
        """Return the queries of the dataset that a cross-encoder is trained on, if there is one."""
        return self._judged(wildcards.model, paths.QUERIES)

    def training_qrels(self, wildcards: Any) -> list[str]:
        """Return the qrels of the dataset that a cross-encoder is trained on, if there is one."""
        return self._judged(wildcards.model, paths.QRELS)

    def _judged(self, model: str, pattern: str) -> list[str]:
        train = self.grid.training(model)
        assert isinstance(train, CrossEncoderTraining)
        return [pattern.format(dataset=train.dataset)] if train.dataset else []

    def miners(self, wildcards: Any) -> list[str]:
        """Return the checkpoints of the dense models that mine negatives."""
        return [self._checkpoint(name, self.grid.adapted_to(wildcards.model)) for name in self._miners(wildcards)]

    def miner_indexes(self, wildcards: Any) -> list[str]:
        """Return the indexes that dense models mine negatives in: all shards of a model, then those of the next."""
        corpus = self.grid.adapted_to(wildcards.model)
        return [shard for name in self._miners(wildcards) for shard in self._index_shards(name, corpus)]

    def _miners(self, wildcards: Any) -> list[str]:
        train = self.grid.training(wildcards.model)
        assert isinstance(train, Gpl)
        return train.dense_miners

    def examples(self, wildcards: Any) -> str:
        """Return what a model is adapted with: margins, training queries, or the corpus itself."""
        train, pattern = self.grid.training(wildcards.model), paths.CORPUS
        if isinstance(train, WithQueries):
            pattern = paths.MARGINS if isinstance(train, Gpl) else paths.TRAINING_QUERIES
        return pattern.format(model=wildcards.model, corpus=self.grid.adapted_to(wildcards.model))


def _named_files(command: str) -> list[str]:
    words = [Path(word) for word in command_words(command, {})]
    named = [word for number, word in enumerate(words) if is_file(word) and (number or not word.is_absolute())]
    return _without_wildcards(dict.fromkeys(named))


def _without_wildcards(files: Iterable[Path]) -> list[str]:
    """Return the files that can be inputs of a rule: Snakemake fills in ``{x}`` and ``<x>`` in their paths."""
    return [name for name in map(str, files) if not re.search(r"\{|<[a-z]", name)]
