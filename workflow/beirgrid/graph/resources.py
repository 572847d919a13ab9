"""What each job needs: memory, time, disk and downloads, computed from the registry before anything runs.

Snakemake asks it for the resources of every job, and ``python -m beirgrid plan`` adds them up. Memory is
fitted to what the records of runs say (``peak_memory_mb``), time to rates that ``plan --calibrate`` measures.
"""

from __future__ import annotations

import contextlib
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ..config import CROSS_ENCODER_RECIPE, RECIPES, queries_per_document, resolve_path
from ..core import files, paths
from ..core.errors import ConfigError
from ..data import downloads

if TYPE_CHECKING:
    from .grid import Grid

CALIBRATION = "results/calibration.json"

# What a machine does per second, where nobody has measured it: deliberately slow ones.
RATES: dict[str, dict[str, float]] = {
    # Multiplications and additions of a model. GPU: a sixth of the 312e12 that NVIDIA's data sheet gives an A100 in
    # bfloat16. CPU: half of what two cores of 2023 do in bfloat16.
    "model_flops": {"cpu": 2e11, "cuda": 5e13},
    # Multiplications and additions of an exact search, on a CPU in both cases.
    "search_flops": {"cpu": 1e11, "cuda": 1e11},
    # MB of text that Lucene indexes, and documents that it adds to a BM25 score.
    "index_mb": {"cpu": 10, "cuda": 10},
    "lucene_postings": {"cpu": 5e7, "cuda": 5e7},
    # MB that arrive from a dataset host or a hub.
    "download_mb": {"cpu": 20, "cuda": 20},
}

# Assumed of corpora, datasets and models whose registry entries do not say: about the mean of BEIR, BERT-base.
DOCUMENTS, DOCUMENT_WORDS, QUERIES, QUERY_WORDS = 100_000, 150.0, 1000, 12.0
SIZE = {"parameters": 110.0, "embeddings": 24.0, "dimensions": 768}
# Of English, about: bytes per word with its space, word pieces per word.
WORD_BYTES, WORD_PIECES = 6.0, 1.35
# Term weights of a document, by how a sparse model makes them: SPARTA's are capped, SPLADE's assumed.
SPARSE_TERMS = {"sparta": 2000, "splade": 300}
# Sampling a word piece does as much arithmetic as reading one, but one piece at a time.
SAMPLING_COST, SAMPLED_PIECES = 10.0, 16
# Start-up of Python with the libraries of a stage, in seconds, and in MB of memory.
PLAIN, NEURAL = (1.0, 200.0), (8.0, 750.0)
# Of a process that uses a GPU: CUDA's libraries and context are in its memory too. Assumed, not measured.
CUDA_MB = 4000.0
# A job of a cluster is a Snakemake that starts the stage: 180 + 333 MB were measured.
SNAKEMAKE_MB = 600
# What is asked for, as a multiple of what is expected; minutes that every job gets beside.
MEMORY_MARGIN, TIME_MARGIN, LEAST_MINUTES, DISK_MARGIN = 1.4, 3.0, 20, 1.5

# At most so many of the jobs that share one run one after another (four encoded, then indexed): their times are added.
GROUP_LAYERS = 8
# The rules that may share a job, by what of the grid says whether they do.
SHARED = {
    "shard_job": {"encode", "encode_sparse", "encode_late", "index_faiss", "index_impact", "index_late"},
    "cell_job": {"rerank", "fuse", "evaluate"} | {f"retrieve_{kind}" for kind in ("lucene", "faiss", "impact", "late")},
}

# The rules that run a model.
ON_GPU = {
    *("encode", "encode_sparse", "encode_late", "expand", "retrieve_faiss", "retrieve_impact", "retrieve_late"),
    *("score", "train", "generate", "mine", "label", "adapt"),
}


@dataclass(frozen=True)
class Need:
    """What a job is expected to take: seconds; MB of peak memory, of files (kept, or until used), downloaded."""

    seconds: float
    memory: float
    kept: float = 0.0
    temporary: float = 0.0
    download: float = 0.0


class Needs:
    """The needs of a grid's jobs, each named by its rule and wildcards."""

    def __init__(self, grid: Grid, calibration: Path | None = None) -> None:
        self.grid = grid
        self.config = grid.config
        self.measured = _read_calibration(calibration or Path(CALIBRATION))
        self.of: Callable[..., Need] = cache(self._of)
        self.size: Callable[[str], dict[str, float]] = cache(self._size)
        self.guess: Callable[[str], int] = cache(self._guess)

    @cached_property
    def device(self) -> str:
        """Where models are expected to run, cpu or cuda: ``auto`` is a GPU unless a calibration found none."""
        if self.config.device != "auto":
            return self.config.device
        return str(self.measured.get("device", "cuda"))

    def rate(self, name: str) -> float:
        """Return what is done per second: as measured, models on the same device, or as assumed."""
        elsewhere = name == "model_flops" and self.measured.get("device") != self.device
        measured = {} if elsewhere else self.measured.get("rates", {})
        return float(measured.get(name, RATES[name][self.device]))

    # What the rules ask for

    def mem_mb(self, rule: str, wildcards: Mapping[str, str], attempt: int) -> int:
        """Return the memory to ask for, in MB: doubled at each further attempt, never more than a node has."""
        expected: float = self.of(rule, **dict(wildcards.items())).memory
        wanted = (expected * MEMORY_MARGIN + SNAKEMAKE_MB) * (1 << attempt - 1)
        return min(math.ceil(wanted / 100) * 100, self.most("mem_mb", rule, wildcards))

    def runtime(self, rule: str, wildcards: Mapping[str, str], attempt: int) -> int:
        """Return the time to ask for, in minutes: growing with the attempt, never more than a node gives."""
        expected = self.of(rule, **dict(wildcards.items())).seconds / 60
        wanted = (LEAST_MINUTES + expected * TIME_MARGIN) * attempt
        return min(math.ceil(wanted), self.most("runtime", rule, wildcards))

    def disk_mb(self, rule: str, wildcards: Mapping[str, str]) -> int:
        """Return the disk that a job writes to, in MB: what it keeps, and what goes when it or the next one ends."""
        need = self.of(rule, **dict(wildcards.items()))
        return math.ceil((need.kept + need.temporary) * DISK_MARGIN / 100 + 1) * 100

    def heap_mb(self, mem_mb: int) -> int:
        """Return the Java heap, in MB, of a job with so much memory: Snakemake, Java and Python take their part."""
        return max(500, mem_mb - SNAKEMAKE_MB - 400)

    def node(self, rule: str, wildcards: Mapping[str, str]) -> str:
        """Return the kind of node that a job runs on, ``gpu`` or ``cpu``; what shares a job runs where that does."""
        models: Any = rule in ON_GPU
        if rule == "generate":
            models = "generator" in self.grid.generation_inputs(wildcards["model"])
        elif rule == "mine":
            models = self.grid.mining_inputs(wildcards["model"])["checkpoints"]
        elif rule not in ON_GPU:
            models = (self._shared_job(rule, wildcards) or "").startswith(("encode", "retrieve-model"))
        return "gpu" if self.grid.gpus(models) else "cpu"

    def most(self, resource: str, rule: str, wildcards: Mapping[str, str]) -> int:
        """Return the most of a resource that a job may ask for: what a node has, or its part of the time."""
        most = int(self.config.nodes[self.node(rule, wildcards)][resource])
        return max(1, most // GROUP_LAYERS) if resource == "runtime" and self._shared_job(rule, wildcards) else most

    def _shared_job(self, rule: str, wildcards: Mapping[str, str]) -> str | None:
        """Return the group of the jobs that a cluster runs together with this one, one after another."""
        names = SimpleNamespace(**dict(wildcards.items()))
        if rule in SHARED["shard_job"]:
            return self.grid.shard_job(names)
        return self.grid.cell_job(names) if rule in SHARED["cell_job"] else None

    # Facts

    def documents(self, corpus: str, shard: int | None = None) -> int:
        """Return the documents of a corpus or of one of its shards, about, if the registry does not say."""
        documents = self.config.corpora[corpus].documents or self.guess(corpus)
        size = self.grid.shard_size()
        return documents if shard is None or corpus not in self._sharded else min(size, documents - shard * size)

    @cached_property
    def _sharded(self) -> set[str]:
        return {name for name, corpus in self.config.corpora.items() if corpus.documents}

    def _guess(self, corpus: str) -> int:
        """Return the documents of a corpus of one's own: as many as were fetched, or by the size of its file."""
        fetched = Path(paths.CORPUS_MADE.format(corpus=corpus))
        with contextlib.suppress(OSError, ValueError, LookupError, TypeError):  # none yet, or damaged: made again
            return max(1, int(files.read_json(fetched)["facts"]["documents"]))
        sizes = [
            Path(path).stat().st_size for path in self.grid.local_files(corpus, "corpus.jsonl") if Path(path).exists()
        ]
        return max(1, int(sum(sizes) / (WORD_BYTES * DOCUMENT_WORDS))) if sizes else DOCUMENTS

    @cached_property
    def _words(self) -> dict[str, float]:
        """Words per document of each corpus."""
        of_datasets = self._statistics("document_words")
        known = {self.config.datasets[name].corpus: words for name, words in of_datasets.items()}
        return {corpus: known.get(corpus, DOCUMENT_WORDS) for corpus in self.config.corpora}

    @cached_property
    def _query_words(self) -> dict[str, float]:
        """Words per query of each dataset."""
        known = self._statistics("query_words")
        return {dataset: known.get(dataset, QUERY_WORDS) for dataset in self.config.datasets}

    def _statistics(self, key: str) -> dict[str, float]:
        """Return what the registry says of datasets, of the parts of a mean what it says of the mean."""
        known = [entry for entry in self.config.datasets.values() if key in entry.statistics]
        return {name: entry.statistics[key] for entry in known for name in (entry.mean_of or (entry.name,))}

    def text_mb(self, corpus: str, shard: int | None = None) -> float:
        """Return the MB of text of a corpus or a shard."""
        return self.documents(corpus, shard) * self._words[corpus] * WORD_BYTES / 1e6

    def _queries(self, dataset: str) -> int:
        return self.config.datasets[dataset].queries or QUERIES

    def _size(self, model: str) -> dict[str, float]:
        """Return a model's parameters and word embeddings, in millions, and the dimensions of its vectors."""
        entry = self.config.models[model]
        if entry.train:
            return self.size(entry.train["base"])
        return {**SIZE, **_size_on_disk(entry.spec), **entry.spec.get("size", {})}

    def _weights_mb(self, model: str) -> float:
        return self.size(model)["parameters"] * 4

    def _train(self, model: str) -> dict[str, Any]:
        train = self.config.models[model].train or {}
        recipe: dict[str, Any] = {**RECIPES.get(train.get("recipe", ""), {}), **train}
        return recipe

    # Costs

    def _pieces(self, model: str, words: float) -> float:
        """Return the word pieces that a model reads of a text of so many words."""
        return min(words * WORD_PIECES + 2, float(self.config.models[model].spec.get("max_length", 512)))

    def _read(self, model: str, texts: float, words: float) -> float:
        """Return the seconds in which a model reads texts, each of so many words."""
        size = self.size(model)
        flops = 2e6 * (size["parameters"] - size["embeddings"]) * self._pieces(model, words)
        return texts * flops / self.rate("model_flops")

    def _write(self, model: str, queries: float) -> float:
        """Return the seconds in which a query generator samples so many queries."""
        return SAMPLING_COST * self._read(model, queries, SAMPLED_PIECES / WORD_PIECES)

    def _neural_mb(self, model: str) -> float:
        """Return the memory of a process that has a model open: twice its weights, as they are read and cast."""
        return NEURAL[1] + 2 * self._weights_mb(model) + (CUDA_MB if self.device == "cuda" else 0)

    def _neural(self, model: str, seconds: float, memory: float, kept: float = 0.0, temporary: float = 0.0) -> Need:
        return Need(NEURAL[0] + seconds, self._neural_mb(model) + memory, kept, temporary)

    def _of(self, rule: str, **wildcards: str) -> Need:
        """Return the need of a job."""
        estimate: Callable[..., Need] = getattr(self, f"_of_{rule}")
        return estimate(**wildcards)

    def _of_fetch_corpus(self, corpus: str) -> Need:
        text, download = self.text_mb(corpus), self._download_mb(corpus)
        seconds = download / self.rate("download_mb") + text / 20
        memory = PLAIN[1] + 150 * self.documents(corpus) / 1e6
        return Need(PLAIN[0] + seconds, memory, text * 0.6 + download, 0.0, download)

    def _download_mb(self, corpus: str) -> float:
        """Return a corpus's share of what is downloaded: the forums of CQADupStack come in one file."""
        entry = self.config.corpora[corpus]
        if entry.source == "local":
            return 0.0
        file, size = downloads.size(entry.id or "")
        if not size:
            return self.text_mb(corpus) / 3  # as JSON lines are compressed, about
        others = {self.config.datasets[name].corpus for name in self.grid.datasets}
        return size / max(1, sum(downloads.size(self.config.corpora[name].id or "")[0] == file for name in others))

    def _of_fetch_dataset(self, dataset: str) -> Need:
        documents = self.documents(self.config.datasets[dataset].corpus)
        return Need(PLAIN[0] + documents / 2e6, PLAIN[1] + 100 * documents / 1e6, self._queries(dataset) / 1e4)

    def _of_fetch_model(self, model: str) -> Need:
        entry, weights = self.config.models[model].spec, self._weights_mb(model)
        download = weights if "checkpoint" in entry and not {"path", "package"} & set(entry) else 0.0
        seconds = PLAIN[0] + download / self.rate("download_mb") + weights / 200
        if not entry.get("pickled"):
            return Need(seconds, PLAIN[1], weights, 0.0, download)
        # Converting holds the weights twice, as they are read and as they are written.
        return Need(seconds + NEURAL[0] + weights / 200, NEURAL[1] + 2 * weights, weights, weights, download)

    def _of_encode(self, model: str, corpus: str, shard: str) -> Need:
        vectors = self.documents(corpus, int(shard)) * self.size(model)["dimensions"] * 4 / 1e6
        return self._encoding(model, corpus, shard, 150.0, **self._until_indexed(vectors))

    def _of_encode_sparse(self, model: str, corpus: str, shard: str) -> Need:
        postings = self._postings_mb(model, corpus, shard)
        return self._encoding(model, corpus, shard, 2.2 * postings, **self._until_indexed(postings))

    def _of_encode_late(self, model: str, corpus: str, shard: str) -> Need:
        return self._encoding(model, corpus, shard, 600.0, kept=self._tokens_mb(model, corpus, shard))

    def _encoding(self, model: str, corpus: str, shard: str, memory: float, **files: float) -> Need:
        documents = self.documents(corpus, int(shard))
        block = min(documents, 32768) * self._words[corpus] * WORD_BYTES * 4 / 1e6
        seconds = self._read(model, documents, self._words[corpus])
        return self._neural(model, seconds, memory + block + self._batch_mb, **files)

    def _until_indexed(self, size: float) -> dict[str, float]:
        return {"kept" if self.config.encode["keep"] else "temporary": size}

    @property
    def _batch_mb(self) -> float:
        """Activations and page-keeping of a CPU's batches; a GPU has them in its own memory."""
        return 400.0 if self.device == "cpu" else 0.0

    def _postings_mb(self, model: str, corpus: str, shard: str) -> float:
        terms = SPARSE_TERMS.get(self.config.models[model].spec.get("pooling", "splade"), SPARSE_TERMS["splade"])
        return self.documents(corpus, int(shard)) * terms * 8 / 1e6

    def _tokens_mb(self, model: str, corpus: str, shard: str, size: float = 2) -> float:
        """Return the MB of a shard's token vectors, at ``size`` bytes a dimension."""
        tokens = self.documents(corpus, int(shard)) * self._pieces(model, self._words[corpus])
        return tokens * self.size(model)["dimensions"] * size / 1e6

    def _of_expand(self, model: str, corpus: str, shard: str) -> Need:
        documents, queries = self.documents(corpus, int(shard)), 0
        seconds = self._read(model, documents, self._words[corpus])
        if self.config.models[model].family == "query-generator":
            queries = self.config.models[model].spec.get("queries_per_document", 40)
            seconds += self._write(model, documents * queries)
        kept = self.text_mb(corpus, int(shard)) * 0.2 + documents * queries * SAMPLED_PIECES * 2 / 1e6
        return self._neural(model, seconds, 300 + self._batch_mb, kept)

    def _of_index_lucene(self, fields: str, expansion: str, corpus: str) -> Need:
        text = self.text_mb(corpus)
        if expansion:
            shards = self.grid.shards(corpus)
            text += sum(self._of_expand(expansion.removeprefix("@"), corpus, str(n)).kept for n in shards) * 2
        memory = 1500 + 300 * self.documents(corpus) / 1e6
        return Need(PLAIN[0] + text / self.rate("index_mb"), memory, text * 0.25, text * 1.3)

    def _of_index_faiss(self, model: str, corpus: str, shard: str) -> Need:
        vectors = self.documents(corpus, int(shard)) * self.size(model)["dimensions"] * 4 / 1e6
        return Need(PLAIN[0] + vectors / 200, 100 + 2.2 * vectors, vectors)

    def _of_index_impact(self, model: str, corpus: str, shard: str) -> Need:
        postings = self._postings_mb(model, corpus, shard)
        return Need(PLAIN[0] + postings / 100, 100 + 3.2 * postings, postings)

    def _of_index_late(self, model: str, corpus: str, shard: str) -> Need:
        tokens = self._tokens_mb(model, corpus, shard, 1) * 1e6 / self.size(model)["dimensions"]
        return Need(PLAIN[0] + tokens / 20_000, 1500 + tokens * 30 / 1e6, tokens * 40 / 1e6)

    def _run_mb(self, dataset: str) -> float:
        """Return the MB in memory of a run that is being written."""
        return self._queries(dataset) * self.config.depth * 1.2e-4

    def _of_retrieve_lucene(self, system: str, dataset: str) -> Need:
        corpus = self.config.datasets[dataset].corpus
        postings = met_postings(self._queries(dataset), self._query_words[dataset], self.documents(corpus))
        memory = 1900 + 40 * self.documents(corpus) / 1e6 + 2 * self._run_mb(dataset)
        return Need(PLAIN[0] + postings / self.rate("lucene_postings"), memory, self._run_file_mb(dataset))

    def _of_retrieve_faiss(self, system: str, dataset: str) -> Need:
        model = self.grid.query_model(system)
        corpus, queries = self.config.datasets[dataset].corpus, self._queries(dataset)
        flops = 2.0 * queries * self.documents(corpus) * self.size(model)["dimensions"]
        shard = self._of_index_faiss(model, corpus, "0").kept
        return self._retrieving(system, dataset, flops / self.rate("search_flops"), shard)

    def _of_retrieve_impact(self, system: str, dataset: str) -> Need:
        model = self.grid.query_model(system)
        corpus, queries = self.config.datasets[dataset].corpus, self._queries(dataset)
        shard = self._postings_mb(model, corpus, "0")
        met = queries * len(self.grid.shards(corpus)) * shard * 1e6 / 8 / 100  # postings that a query's terms have
        return self._retrieving(system, dataset, met / 2e8, shard)

    def _of_retrieve_late(self, system: str, dataset: str) -> Need:
        model = self.grid.query_model(system)
        corpus, queries = self.config.datasets[dataset].corpus, self._queries(dataset)
        shards = len(self.grid.shards(corpus))
        if self._exhaustive(system):
            read = queries * shards * self._tokens_mb(model, corpus, "0", 1) * 1e6 * 64  # a product per query token
            return self._retrieving(system, dataset, read / self.rate("search_flops"), 1000)
        index = self._of_index_late(model, corpus, "0").kept
        return self._retrieving(system, dataset, queries * (0.1 + 0.05 * shards), 500 + index)

    def _exhaustive(self, system: str) -> bool:
        return bool(self.config.systems[system].spec.get("exhaustive"))

    def _retrieving(self, system: str, dataset: str, search: float, shard: float) -> Need:
        model, queries = self.grid.query_model(system), self._queries(dataset)
        seconds = self._read(model, queries, self._query_words[dataset]) + search + queries / 500
        memory = shard + self._run_mb(dataset) + self._batch_mb / 4
        return self._neural(model, seconds, memory, self._run_file_mb(dataset))

    def _run_file_mb(self, dataset: str) -> float:
        return self._queries(dataset) * self.config.depth * 1.5e-5

    def _of_score(self, reranker: str, dataset: str, first: str) -> Need:
        depth = self.grid.score_depth(reranker, first)
        pairs = self._queries(dataset) * depth
        words = self._query_words[dataset] + self._words[self.config.datasets[dataset].corpus]
        memory = 2.5 * self._batch_mb + pairs * 6e-4 + 20_000 * words * WORD_BYTES * 2 / 1e6 + self._run_mb(dataset)
        return self._neural(reranker, self._read(reranker, pairs, words), memory, pairs * 2e-5)

    def _of_rerank(self, system: str, dataset: str) -> Need:
        pairs = self._queries(dataset) * self.grid.depth(system)
        memory = PLAIN[1] + 2 * self._run_mb(dataset) + pairs * 6e-4
        return Need(PLAIN[0] + self._queries(dataset) / 500, memory, self._run_file_mb(dataset))

    def _of_fuse(self, system: str, dataset: str) -> Need:
        parts, queries = len(self.config.systems[system].parts), self._queries(dataset)
        chunk = min(queries, 500) * parts * 1.3 * self.config.depth / 1000
        memory = PLAIN[1] + chunk + (parts + 1) * self._run_mb(dataset)
        return Need(5 + parts * queries / 100, memory, self._run_file_mb(dataset))

    def _of_evaluate(self, system: str, dataset: str) -> Need:
        return Need(2 + self._queries(dataset) / 200, 350 + 2 * self._run_mb(dataset), self._queries(dataset) / 1e4)

    def _of_aggregate(self) -> Need:
        return Need(PLAIN[0] + 2, 300, 1)

    def _of_report(self) -> Need:
        return self._of_aggregate()

    def _training(self, model: str, texts: float, words: float, batch: float) -> Need:
        """Return the need of training on so many texts: thrice the arithmetic of reading them, in float32."""
        size = self.size(model)
        activations = batch * self._pieces(model, words) * size["dimensions"] * 6e-4
        memory = 4 * self._weights_mb(model) + (activations if self.device == "cpu" else 0)
        return self._neural(model, 3 * 2 * self._read(model, texts, words), memory, self._weights_mb(model))

    def _of_train(self, model: str) -> Need:
        train = {**CROSS_ENCODER_RECIPE, **self._train(model)}
        corpus, group = train["corpus"], 1 + train["hard_negatives"] + train["random_negatives"]
        documents = self.documents(corpus)
        pairs = documents * len(train["derive"]) + (self._judged(train["dataset"]) if "dataset" in train else 0)
        pairs = min(pairs, train["queries"] or pairs) * group * train["epochs"]
        words = min(self._words[corpus] + QUERY_WORDS, self._words[corpus] * 2)
        need = self._training(model, pairs, words, train["batch"] * group)
        return replace(need, memory=need.memory + 1.2 * self.text_mb(corpus) + 400 * documents / 1e6)

    def _judged(self, dataset: str) -> float:
        """Return the relevant judgements of a dataset, of some two a query if the registry does not say."""
        return self._queries(dataset) * self._statistics("relevant").get(dataset, 2.0)

    def _of_generate(self, model: str) -> Need:
        train = self._train(model)
        documents = min(train["documents"], self.documents(train["corpus"]))
        queries = self._training_queries(train)
        if "generator" not in train:
            return Need(PLAIN[0] + documents / 2000, PLAIN[1] + documents * 2e-3, queries * 3e-4)
        writer = train["generator"]
        seconds = self._read(writer, documents, self._words[train["corpus"]]) + self._write(writer, queries)
        return self._neural(writer, seconds, 300 + documents * 2e-3, queries * 3e-4)

    def _training_queries(self, train: dict[str, Any]) -> int:
        documents = int(min(train["documents"], self.documents(train["corpus"])))
        return documents * queries_per_document(train, documents)

    def _of_mine(self, model: str) -> Need:
        train, corpus = self._train(model), self._train(model)["corpus"]
        queries, documents = self._training_queries(train), self.documents(corpus)
        retrievers = self.grid.retrievers(model)
        seconds, held, widest = 0.0, 0.0, 0.0
        if "bm25" in retrievers:
            seconds += met_postings(queries, QUERY_WORDS, documents) / 10 / self.rate("lucene_postings")
        for name in (name for name in retrievers if name != "bm25"):
            dimensions = self.size(name)["dimensions"]
            seconds += self._read(name, queries, QUERY_WORDS)
            seconds += 2.0 * queries * documents * dimensions / self.rate("search_flops")
            held += queries * (dimensions * 4 + train["negative_depth"] * 12) / 1e6
            widest = max(widest, dimensions)
        vectors = min(documents, self.grid.shard_size()) * widest * 4 / 1e6
        return self._neural(model, seconds, 1500 + vectors + held, queries * 1e-3)

    def _of_label(self, model: str) -> Need:
        train = self._train(model)
        pairs = min(train["steps"] * train["batch"], self._training_queries(train) * 100) + self._training_queries(
            train
        )
        words = QUERY_WORDS + self._words[train["corpus"]]
        seconds = self._read(train["teacher"], pairs, words)
        return self._neural(train["teacher"], seconds, 800 + 2.5 * self._batch_mb, pairs * words * 4e-6)

    def _of_adapt(self, model: str) -> Need:
        train, words = self._train(model), self._words[self._train(model)["corpus"]]
        if train["recipe"] == "gpl":
            return self._training(model, 3 * train["steps"] * train["batch"], words, 3 * train["batch"])
        documents = min(train["documents"], self.documents(train["corpus"])) * train["epochs"]
        if train["recipe"] == "mlm":
            return self._masked_language_model(model, documents, words, train["batch"])
        per_document = 2 if train["recipe"] == "tsdae" else 2 * train["queries_per_document"]
        return self._training(model, documents * per_document, words, 2 * train["batch"])

    def _masked_language_model(self, model: str, documents: float, words: float, batch: float) -> Need:
        """Return the need of training a language model, whose head has a logit for each word of the vocabulary."""
        size = self.size(model)
        need = self._training(model, documents, words, batch)
        head = 3 * 2 * 2e6 * size["embeddings"] * self._pieces(model, words) * documents / self.rate("model_flops")
        vocabulary = size["embeddings"] * 1e6 / size["dimensions"]
        # Logits, their softmax and its gradient, four bytes each.
        logits = 3 * 4 * batch * self._pieces(model, words) * vocabulary / 1e6 if self.device == "cpu" else 0
        return replace(need, seconds=need.seconds + head, memory=need.memory + logits)


def met_postings(queries: float, words: float, documents: float) -> float:
    """Return the postings that BM25 goes through: a word is in a 50th of the documents; 1,000 hits cost 500,000."""
    return queries * (words * documents / 50 + 5e5)


def _size_on_disk(spec: Mapping[str, Any]) -> dict[str, float]:
    """Return the size of a model of one's own, read from its files; nothing if they are not there."""
    folder = resolve_path(spec["path"]) if "path" in spec else None
    parameters = sum(map(_parameters, folder.rglob("*.safetensors"))) if folder else 0
    if not (folder and parameters and (folder / "config.json").is_file()):
        return {}
    shape = files.read_json(folder / "config.json")
    width = shape.get("hidden_size", shape.get("d_model", shape.get("dim", SIZE["dimensions"])))
    embeddings = min(shape.get("vocab_size", 0) * width, 0.9 * parameters)
    return {"parameters": parameters / 1e6, "embeddings": embeddings / 1e6, "dimensions": width}


def _parameters(weights: Path) -> int:
    """Return the parameters of a safetensors file, whatever type they are stored in, by its header."""
    with weights.open("rb") as stream:
        length = int.from_bytes(stream.read(8), "little")
        try:
            header = json.loads(stream.read(min(length, weights.stat().st_size)))
        except ValueError:  # no such file: fetching the model will say so
            return 0
    return sum(math.prod(entry["shape"]) for name, entry in header.items() if name != "__metadata__")


def _read_calibration(path: Path) -> dict[str, Any]:
    """Return what a calibration measured, or nothing if there was none."""
    if not path.is_file():
        return {}
    try:
        measured: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        if not set(measured["rates"]) <= set(RATES) or min(measured["rates"].values()) <= 0:
            raise ValueError
    except (ValueError, KeyError, TypeError):
        raise ConfigError(f"{path} is not what plan --calibrate writes: delete it, or calibrate again") from None
    return measured
