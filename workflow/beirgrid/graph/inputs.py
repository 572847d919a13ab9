"""Input files of each rule's jobs."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from ..config import entries, find_local, resolve_path, run_file
from ..config.places import is_file
from ..config.systems import command_words
from ..core import paths
from ..core.families import FAMILIES
from ..models import checkpoints
from .grid import Grid


class Inputs:
    """Input functions of the rules. They take a job's wildcards."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid

    # Fetch: local files are inputs, so replacing one reruns the jobs that depend on it.

    def corpus_files(self, wildcards: Any) -> list[str]:
        """Return the local file of a corpus's documents; empty for a downloaded corpus."""
        return self._local_files(wildcards.corpus, "corpus.jsonl")

    def dataset_files(self, wildcards: Any) -> list[str]:
        """Return the local files of a dataset's queries and qrels."""
        dataset = wildcards.dataset
        qrels = f"qrels/{self.grid.config.datasets[dataset].split}.tsv"
        judged = [] if dataset in self.grid.not_judged else [qrels]
        return self._local_files(self.grid.corpus(dataset), "queries.jsonl", *judged)

    def _local_files(self, corpus: str, *names: str) -> list[str]:
        entry = self.grid.config.corpora[corpus]
        if not isinstance(entry, entries.LocalCorpus):
            return []
        folder = resolve_path(entry.path)
        return _without_wildcards(find_local(folder, name) or folder / name for name in names)

    def expansion_files(self, wildcards: Any) -> list[str]:
        """Return the local files of published expansions for a corpus."""
        entry = self.grid.expansion(wildcards.system, wildcards.corpus)
        if not isinstance(entry, entries.LocalExpansion):
            return []
        path = resolve_path(entry.path)
        return _without_wildcards(sorted(path.iterdir()) if path.is_dir() else [path])

    def model_files(self, wildcards: Any) -> list[str]:
        """Return the files of a model and of its adapter that fetch copies from folders."""
        entry = self.grid.model(wildcards.model)
        return _without_wildcards(sorted(checkpoints.copied(entry)))

    def run_files(self, wildcards: Any) -> list[str]:
        """Return the run file of an external system, if Snakemake can take it as an input."""
        return _without_wildcards([Path(self.run_file(wildcards))])

    def run_file(self, wildcards: Any) -> str:
        """Return the run file of an external system."""
        return str(run_file(self.grid.system_as(entries.External, wildcards.system).run, wildcards.dataset))

    # Programs: files named in a command are inputs too.

    def command_files(self, wildcards: Any) -> list[str]:
        """Return the files named in a search command, except a program given by its absolute path."""
        return _named_files(self.grid.program(wildcards.system).command)

    def index_command_files(self, wildcards: Any) -> list[str]:
        """Return the files named in an indexing command."""
        return _named_files(self.grid.program(wildcards.system).index_command or "")

    def program_index(self, wildcards: Any) -> list[str]:
        """Return the index that a program searches; empty if the program has no indexing command."""
        if not self.grid.program(wildcards.system).index_command:
            return []
        index = self.grid.program_index(wildcards.system)
        return [paths.PROGRAM_INDEX.format(system=index, corpus=self.grid.corpus(wildcards.dataset))]

    # Encode, index and retrieve

    def weights(self, wildcards: Any) -> str:
        """Return the checkpoint of the model that encodes a shard. A model trained per corpus has the corpus in its
        name.
        """
        return paths.CHECKPOINT.format(model=self.grid.weights_of(wildcards.model))

    def expansions(self, wildcards: Any) -> list[str]:
        """Return the expansions for the index ``@model`` (a file per shard) or ``~system`` (one file).

        The index of unexpanded documents has none.
        """
        expansion, corpus = wildcards.expansion, wildcards.corpus
        if expansion.startswith("~"):
            return [paths.PUBLISHED.format(system=expansion[1:], corpus=corpus)]
        model = expansion.removeprefix("@")
        shards = self.grid.shards(corpus) if model else ()
        return [paths.EXPANSIONS.format(model=model, corpus=corpus, shard=shard) for shard in shards]

    def corpus(self, wildcards: Any) -> str:
        """Return the corpus.parquet of a dataset."""
        return paths.CORPUS.format(corpus=self.grid.corpus(wildcards.dataset))

    def lucene(self, wildcards: Any) -> str:
        """Return the Lucene index that a BM25 system searches."""
        corpus = self.grid.corpus(wildcards.dataset)
        return paths.LUCENE.format(index=self.lucene_name(wildcards.system), corpus=corpus)

    def lucene_name(self, system: str) -> str:
        """Return the index name of a BM25 system: its fields and its document expansion.

        The expansion is ``@model``, or ``~system`` for the system that names published expansions. No name contains
        ``~``.
        """
        entry = self.grid.system_as(entries.Bm25, system)
        if isinstance(entry.expansion, entries.PublishedExpansion):
            return f"bm25-{entry.fields_}~{self.grid.published(system)}"
        return f"bm25-{entry.fields_}" + (f"@{entry.expansion}" if entry.expansion else "")

    def query_checkpoint(self, wildcards: Any) -> str:
        """Return the checkpoint that encodes the queries of a dataset for a neural retriever."""
        model = self.grid.query_model(wildcards.system)
        return self._checkpoint(model, self.grid.corpus(wildcards.dataset))

    def indexes(self, wildcards: Any) -> list[str]:
        """Return the index shards of a neural retriever; empty for an exhaustive search."""
        entry = self.grid.system(wildcards.system)
        if isinstance(entry, entries.LateInteractionRetriever) and entry.exhaustive:
            return []
        if isinstance(entry, entries.DenseRetriever) and entry.variant:
            return self._shards(wildcards, paths.VARIANTS.replace("{variant}", entry.variant))
        return self._index_shards(self.grid.retriever(wildcards.system), self.grid.corpus(wildcards.dataset))

    def exact_indexes(self, wildcards: Any) -> list[str]:
        """Return the exact index's shards, for comparison with the results of an approximate index."""
        entry = self.grid.system(wildcards.system)
        if not (isinstance(entry, entries.DenseRetriever) and entry.variant):
            return []
        return self._index_shards(entry.retriever, self.grid.corpus(wildcards.dataset))

    def tokens(self, wildcards: Any) -> list[str]:
        """Return the shards of token vectors with which late interaction scores candidates."""
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
        return paths.CHECKPOINT.format(model=self.grid.weights_of(self.grid.artifacts_of(model, corpus)))

    # Rerank and fuse

    def component_runs(self, wildcards: Any) -> list[str]:
        """Return the component runs of a reranked or fused system."""
        parts = self.grid.system(wildcards.system).parts
        return [paths.RUN.format(system=part, dataset=wildcards.dataset) for part in parts]

    def dev_runs(self, wildcards: Any) -> list[str]:
        """Return the runs on which the weights of a fusion are tuned; other fusions have none."""
        dev = self._dev(wildcards)
        return [paths.RUN.format(system=part, dataset=dev) for part in self.grid.system(wildcards.system).parts if dev]

    def dev_qrels(self, wildcards: Any) -> list[str]:
        """Return the qrels with which the weights of a fusion are tuned."""
        return [paths.QRELS.format(dataset=dev)] if (dev := self._dev(wildcards)) else []

    def queries_apart(self, wildcards: Any) -> list[str]:
        """Return the queries of a dataset and those on which the weights of a fusion are tuned."""
        dev = self._dev(wildcards)
        return [paths.QUERIES.format(dataset=name) for name in (wildcards.dataset, dev) if dev]

    def _dev(self, wildcards: Any) -> str:
        """Return the dataset on which the weights of a fusion are tuned; empty unless they are."""
        entry = self.grid.system(wildcards.system)
        if not (isinstance(entry, entries.WeightedSum) and entry.tuned):
            return ""
        return self.grid.config.datasets[wildcards.dataset].dev or ""

    def scorer(self, wildcards: Any) -> str:
        """Return the checkpoint of a reranker."""
        return paths.CHECKPOINT.format(model=self.grid.weights_of(wildcards.reranker))

    def pair_scores(self, wildcards: Any) -> str:
        """Return the manifest of a reranked system's pair scores."""
        entry = self.grid.system_as(entries.Reranked, wildcards.system)
        names = {"reranker": entry.reranker, "dataset": wildcards.dataset, "first": entry.first_stage}
        return paths.PAIRS_RECORD.format(**names)

    # Train

    def training_corpus(self, wildcards: Any) -> str:
        """Return the training corpus of a model."""
        return paths.CORPUS.format(corpus=self.grid.adapted_to(wildcards.model))

    def trained_with(self, key: str) -> Callable[[Any], list[str]]:
        """Return the input function of the checkpoint that training uses as base, teacher or generator, if any."""

        def checkpoint(wildcards: Any) -> list[str]:
            name = self.grid.training(wildcards.model).models.get(key)
            return [self._checkpoint(name, self.grid.adapted_to(wildcards.model))] if name else []

        return checkpoint

    def bm25_index(self, wildcards: Any) -> list[str]:
        """Return the index in which BM25 mines negatives, if BM25 is a miner."""
        train = self.grid.training(wildcards.model)
        if isinstance(train, entries.Gpl) and "bm25" not in train.miners:
            return []
        return [paths.LUCENE.format(index="bm25-flat", corpus=self.grid.adapted_to(wildcards.model))]

    def training_queries(self, wildcards: Any) -> list[str]:
        """Return the queries of a cross-encoder's training dataset, if any."""
        return self._judged(wildcards.model, paths.QUERIES)

    def training_qrels(self, wildcards: Any) -> list[str]:
        """Return the qrels of a cross-encoder's training dataset, if any."""
        return self._judged(wildcards.model, paths.QRELS)

    def _judged(self, model: str, pattern: str) -> list[str]:
        dataset = self.grid.training_as(entries.CrossEncoderTraining, model).dataset
        return [pattern.format(dataset=dataset)] if dataset else []

    def miners(self, wildcards: Any) -> list[str]:
        """Return the checkpoints of the dense models that mine negatives."""
        return [self._checkpoint(name, self.grid.adapted_to(wildcards.model)) for name in self._miners(wildcards)]

    def miner_indexes(self, wildcards: Any) -> list[str]:
        """Return the index shards in which dense models mine negatives, model by model."""
        corpus = self.grid.adapted_to(wildcards.model)
        return [shard for name in self._miners(wildcards) for shard in self._index_shards(name, corpus)]

    def _miners(self, wildcards: Any) -> list[str]:
        return self.grid.training_as(entries.Gpl, wildcards.model).dense_miners

    def examples(self, wildcards: Any) -> str:
        """Return the training examples of an adapted model: margins, training queries, or the corpus itself."""
        train, pattern = self.grid.training(wildcards.model), paths.CORPUS
        if isinstance(train, entries.WithQueries):
            pattern = paths.MARGINS if isinstance(train, entries.Gpl) else paths.TRAINING_QUERIES
        return pattern.format(model=wildcards.model, corpus=self.grid.adapted_to(wildcards.model))


def _named_files(command: str) -> list[str]:
    words = [Path(word) for word in command_words(command, {})]
    named = [word for number, word in enumerate(words) if is_file(word) and (number or not word.is_absolute())]
    return _without_wildcards(dict.fromkeys(named))


def _without_wildcards(files: Iterable[Path]) -> list[str]:
    """Drop files whose paths contain ``{x}`` or ``<x>``, which Snakemake would expand."""
    return [name for name in map(str, files) if not re.search(r"\{|<[a-z]", name)]
