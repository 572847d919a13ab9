"""The cost model: seconds, memory and disk of each job, from ``costs.csv`` and the work of the job.

A row of the table is ``rule, resource, amount, unit, origin``. A job takes ``amount`` of the resource for each unit of
its work, which ``Work`` counts. If ``RATES`` has the unit, the seconds are divided by the machine's rate. The rows
``neural`` apply to every job that runs a model, the rows ``plain`` to every other job. Files under ``written`` are kept
or temporary, depending on ``encode.keep``.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..analysis.permutations import permutations_of
from ..config import entries
from ..config.endpoint_entries import Endpoint
from ..config.indexes import token_lists
from ..config.mteb_collections import WORD_BYTES
from ..core.stages import STAGES
from .grid import Grid
from .sizes import QUERY_WORDS, WORD_PIECES, Sizes

TABLE = Path(__file__).with_name("costs.csv")

# Rates per second. On a CPU, the rates of models and searches are for ``CORES`` cores, and scale with a job's cores.
CORES, BY_CORES = 2, ("model_flops", "search_flops")
RATES: dict[str, dict[str, float]] = {
    # FLOPs of a model, attention included. CPU: MiniLM and a model of two layers reached 1.2e11 to 1.8e11 per core and
    # second on an AMD EPYC, in float32. GPU: a sixth of the 312e12 in NVIDIA's data sheet of the A100 (bfloat16).
    "model_flops": {"cpu": 3e11, "cuda": 5e13},
    # FLOPs of an exact search. The GPU's rate is not measured.
    "search_flops": {"cpu": 1e11, "cuda": 1e11},
    # MB of text that Lucene indexes, and postings that BM25 scores.
    "index_mb": {"cpu": 10, "cuda": 10},
    "lucene_postings": {"cpu": 5e7, "cuda": 5e7},
    # MB downloaded from a dataset host or a hub.
    "download_mb": {"cpu": 20, "cuda": 20},
    "model_download_mb": {"cpu": 20, "cuda": 20},
}

# Terms per document of sparse models: SPARTA's cap, and an assumption for SPLADE.
SPARSE_TERMS = {"sparta": 2000, "splade": 300, "bge-m3": 100}
# Tokens of a sampled query, and the cost of sampling a token relative to encoding one with the whole model. CPU:
# measured on 2 cores (part generation of make bench; 0.61 to 0.77 CPU seconds for 40 queries of a document of 150
# words, at 2.7e11 to 2.3e11 model_flops). GPU: three times that, not measured: a decoder step starts some 500 small
# kernels and reads all keys and values, where a GPU gains less than in matrix products.
SAMPLED_PIECES, SAMPLING_COST = 16, {"cpu": 0.33, "cuda": 1.0}
# Assumptions for published expansions: queries per document, bytes per query. The compressed download is a third.
PUBLISHED_QUERIES, PUBLISHED_BYTES = 40, 36
# Documents that encode reads at a time, and bytes in memory per byte of their text.
BLOCK, BLOCK_BYTES = 32_768, 4
# Cost of training relative to encoding the same texts: three times the arithmetic, in a library that pads. From the
# demo's two to three minutes of training on 2 cores (README). On a GPU, it is not measured.
TRAINING_COST = 6.0
# Training points per centroid of a token-vector index (search/maxsim.py), and iterations of faiss's k-means.
CENTROID_POINTS, CENTROID_ITERATIONS = 64, 10
# Tokens with which a chat model names a document in an order. Assumed.
RANKED = 5
# Assumed seconds per request: a batch of texts, and an ordering by a chat model.
REQUEST_SECONDS, ANSWER_SECONDS = 1.0, 5.0

Amounts = dict[str, float]


class Row(NamedTuple):
    """The cost in one row of ``costs.csv``."""

    resource: str
    amount: float
    unit: str


@dataclass(frozen=True)
class Need:
    """Estimate for a job: seconds, and MB of peak memory, kept files, temporary files and downloads."""

    seconds: float = 0.0
    memory: float = 0.0
    kept: float = 0.0
    temporary: float = 0.0
    download: float = 0.0


@cache
def table() -> dict[str, list[Row]]:
    """Return the rows of ``costs.csv`` and of stages that declare a cost, by rule."""
    rows: dict[str, list[Row]] = {}
    for stage in STAGES.values():
        if stage.cost:
            rows[stage.rule] = [Row(resource, amount, "job") for resource, amount in stage.cost._asdict().items()]
    with TABLE.open(encoding="utf-8", newline="") as stream:
        for rule, resource, amount, unit, _ in list(csv.reader(stream))[1:]:
            rows.setdefault(rule, []).append(Row(resource, float(amount), unit))
    return rows


def need(rule: str, units: Mapping[str, float], rates: Mapping[str, float], runs_model: bool, keep: bool) -> Need:
    """Estimate the time, memory, disk and download of a job.

    Args:
        rule: the job's rule.
        units: amount of each unit in the job; an absent unit is 0, ``job`` is 1.
        rates: units per second, for the units of ``RATES``.
        runs_model: whether the job starts PyTorch and opens a model.
        keep: whether vectors are kept after indexing.
    """
    taken = dict.fromkeys(("seconds", "memory", "kept", "temporary", "download"), 0.0)
    for row in [*table()["neural" if runs_model else "plain"], *table()[rule]]:
        amount = row.amount * (1.0 if row.unit == "job" else units.get(row.unit, 0.0))
        if row.resource == "seconds":
            amount /= rates.get(row.unit, 1.0)
        resource = ("kept" if keep else "temporary") if row.resource == "written" else row.resource
        taken[resource] += amount
    return Need(**taken)


def served_seconds(endpoint: Endpoint, requests: float, tokens: float, seconds: float) -> float:
    """Estimate the time of requests to a model server, within its limits per minute."""
    limits = [(requests, endpoint.requests_per_minute), (tokens, endpoint.tokens_per_minute)]
    waiting = [60 * amount / limit for amount, limit in limits if limit]
    return max([requests * seconds / endpoint.concurrency, *waiting])


def met_postings(queries: float, words: float, documents: float) -> float:
    """Estimate the postings that BM25 scores. Assumes that a word occurs in 1 of 50 documents, and that 1,000 hits cost
    500,000.
    """
    return queries * (words * documents / 50 + 5e5)


class Work:
    """The work of each job of a grid, in the units of ``costs.csv``. Data is in MB, arithmetic in FLOPs.

    A rule has a method of its name if its jobs have units beside those that follow from any job's wildcards.
    """

    def __init__(self, grid: Grid, sizes: Sizes, device: str) -> None:
        self.grid = grid
        self.config: entries.Config = grid.config
        self.sizes = sizes
        self.device = device

    def of(self, rule: str, **wildcards: str) -> Amounts:
        """Return the work of a job."""
        own = getattr(self, rule, None)
        return {**self._general(wildcards), **(own(**wildcards) if own else {})}

    def _general(self, wildcards: Mapping[str, str]) -> Amounts:
        """Return the units that follow from a job's dataset, or from its corpus or shard."""
        found = {"cuda_job": float(self.device != "cpu"), "cpu_batch": float(self.device == "cpu")}
        corpus, shard = wildcards.get("corpus"), wildcards.get("shard")
        if dataset := wildcards.get("dataset"):
            corpus = self.grid.corpus(dataset)
            found |= {"queries": self.sizes.queries(dataset), "hits": self._hits(dataset)}
        if corpus:
            number = None if shard is None else int(shard)
            found["documents"] = self.sizes.documents(corpus, number)
            found["text_mb"] = self.sizes.text_mb(corpus, number)
        return found

    def _hits(self, dataset: str) -> float:
        return self.sizes.queries(dataset) * self.config.retrieve.depth

    def _vectors(self, model: str, corpus: str, shard: str = "0") -> Amounts:
        """Return the sizes of a shard of vectors, as each family has them."""
        entry, documents = self.config.models[model], self.sizes.documents(corpus, int(shard))
        dimensions, tokens = self.sizes.model(model)["dimensions"], self._tokens(model, corpus, shard)
        terms = SPARSE_TERMS[entry.pooling if isinstance(entry, entries.SparseModel) else "splade"]
        return {
            "vectors_mb": self.sizes.vectors(model, corpus, int(shard)) * dimensions * 4 / 1e6,
            "postings_mb": documents * terms * 8 / 1e6,
            "tokens": tokens,
            "token_dimensions_mb": tokens * dimensions / 1e6,
        }

    def _tokens(self, model: str, corpus: str, shard: str = "0") -> float:
        return self.sizes.documents(corpus, int(shard)) * self.sizes.pieces(model, self.sizes.words[corpus])

    def _reading(self, model: str, texts: float, words: float) -> Amounts:
        """Return the work of encoding texts: a model's FLOPs, or a server's time."""
        entry, answers = self.config.models[model], 0.0
        if isinstance(entry, entries.ListwiseReranker):
            # Windows overlap, so a document is encoded more than once.
            answers = texts = texts * entry.window / entry.step
        if not entry.endpoint:
            flops = self.sizes.read_flops(model, texts, words)
            flops += self._sampling(model, answers * RANKED / SAMPLED_PIECES)
            return {"model_flops": flops, "weights_mb": self.sizes.weights_mb(model)}
        together, seconds = entry.endpoint.batch, REQUEST_SECONDS
        if isinstance(entry, entries.ListwiseReranker):
            together, seconds = entry.window, ANSWER_SECONDS
        tokens = texts * words * WORD_PIECES
        return {"served_seconds": served_seconds(entry.endpoint, texts / together, tokens, seconds)}

    def _sampling(self, model: str, queries: float) -> float:
        """Return the FLOPs of sampling queries with a query generator."""
        return SAMPLING_COST[self.device] * self.sizes.read_flops(model, queries, SAMPLED_PIECES / WORD_PIECES)

    # Fetch, encode and index

    def fetch_corpus(self, corpus: str) -> Amounts:
        return {"download_mb": self.sizes.download_mb(corpus)}

    def fetch_expansion(self, system: str, corpus: str) -> Amounts:
        entry = self.grid.expansion(system, corpus)
        queries_mb = (entry.queries or PUBLISHED_QUERIES) * self.sizes.documents(corpus) * PUBLISHED_BYTES / 1e6
        downloaded = queries_mb / 3 if isinstance(entry, entries.HubExpansion) else 0.0
        return {"published_mb": queries_mb, "download_mb": downloaded}

    def fetch_model(self, model: str) -> Amounts:
        entry = self.config.models[model]
        weights = 0.0 if entry.endpoint else self.sizes.weights_mb(model)
        downloaded = weights if entry.origin == "checkpoint" else 0.0
        converted = {"converted_job": 1.0, "converted_mb": weights} if entry.pickled else {}
        return {"weights_mb": weights, "model_download_mb": downloaded, **converted}

    def encode_dense(self, model: str, corpus: str, shard: str) -> Amounts:
        documents, words = self.sizes.documents(corpus, int(shard)), self.sizes.words[corpus]
        block = min(documents, BLOCK) * words * WORD_BYTES * BLOCK_BYTES / 1e6
        chunks, read = self.sizes.chunks(model, words)
        work = {"block_mb": block, **self._vectors(model, corpus, shard)}
        return work | self._reading(model, documents * chunks, read)

    encode_sparse = encode_late_interaction = encode_dense

    def expand(self, model: str, corpus: str, shard: str) -> Amounts:
        documents, entry = self.sizes.documents(corpus, int(shard)), self.config.models[model]
        queries = documents * entry.queries_per_document if isinstance(entry, entries.QueryGenerator) else 0
        flops = self.sizes.read_flops(model, documents, self.sizes.words[corpus]) + self._sampling(model, queries)
        return {"weights_mb": self.sizes.weights_mb(model), "model_flops": flops, "sampled_queries": queries}

    def index_lexical(self, fields: str, expansion: str, corpus: str) -> Amounts:
        text = self.sizes.text_mb(corpus)
        if expansion.startswith("~"):
            text += 2 * self.fetch_expansion(expansion[1:], corpus)["published_mb"]
        for shard in self.grid.shards(corpus) if expansion.startswith("@") else ():
            sampled = self.expand(expansion.removeprefix("@"), corpus, str(shard))["sampled_queries"]
            text += 2 * (0.2 * self.sizes.text_mb(corpus, shard) + SAMPLED_PIECES * 2e-6 * sampled)
        return {"text_mb": text, "index_mb": text}

    def index_program(self, system: str, **_: str) -> Amounts:
        entry = self.grid.program(system)
        return {"program_mb": entry.mem_mb, "program_minutes": entry.minutes}

    retrieve_program = index_program

    def index_dense(self, model: str, corpus: str, shard: str, variant: str = "") -> Amounts:
        return self._vectors(model, corpus, shard)

    index_sparse = index_approximate = index_dense

    def index_late_interaction(self, model: str, corpus: str, shard: str) -> Amounts:
        tokens, dimensions = self._tokens(model, corpus, shard), self.sizes.model(model)["dimensions"]
        lists = token_lists(tokens)
        # Each token is compared with every centroid once; each training point, once per k-means iteration.
        compared = lists * (tokens + CENTROID_POINTS * CENTROID_ITERATIONS * lists)
        return {"tokens": tokens, "centroid_flops": 2.0 * dimensions * compared}

    # Retrieve, score and fuse

    def retrieve_lexical(self, system: str, dataset: str) -> Amounts:
        documents = self.sizes.documents(self.grid.corpus(dataset))
        postings = met_postings(self.sizes.queries(dataset), self.sizes.query_words[dataset], documents)
        return {"lucene_postings": postings}

    def _retrieving(self, system: str, dataset: str) -> Amounts:
        """Return the work of encoding the queries of a neural retriever, and the size of its largest shard."""
        model = self.grid.query_model(system)
        reading = self._reading(model, self.sizes.queries(dataset), self.sizes.query_words[dataset])
        return reading | self._vectors(model, self.grid.corpus(dataset))

    def retrieve_dense(self, system: str, dataset: str) -> Amounts:
        model, corpus = self.grid.retriever(system), self.grid.corpus(dataset)
        numbers = self.sizes.vectors(model, corpus) * self.sizes.model(model)["dimensions"]
        vectors = self._vectors(model, corpus)["vectors_mb"]
        search = {"search_flops": 2.0 * self.sizes.queries(dataset) * numbers, "vectors_mb": vectors}
        return self._retrieving(system, dataset) | search

    def retrieve_sparse(self, system: str, dataset: str) -> Amounts:
        found = self._retrieving(system, dataset)
        # A query's terms cover about 1 % of all postings.
        postings = len(self.grid.shards(self.grid.corpus(dataset))) * found["postings_mb"] * 1e6 / 8
        return found | {"scored_postings": self.sizes.queries(dataset) * postings / 100}

    def retrieve_late_interaction(self, system: str, dataset: str) -> Amounts:
        found, queries = self._retrieving(system, dataset), self.sizes.queries(dataset)
        searches = queries * len(self.grid.shards(self.grid.corpus(dataset)))
        entry = self.config.systems[system]
        if isinstance(entry, entries.LateInteractionRetriever) and entry.exhaustive:
            # One dot product per query token; a query has about 64 tokens. No token is looked up in an index.
            flops = searches * found["token_dimensions_mb"] * 1e6 * 64
            return {**found, "tokens": 0, "search_flops": flops}
        return found | {"candidate_queries": queries, "candidate_searches": searches}

    def score(self, reranker: str, dataset: str, first: str) -> Amounts:
        pairs = self.sizes.queries(dataset) * self.grid.score_depth(reranker, first)
        chunks, words = self.sizes.chunks(reranker, self.sizes.words[self.grid.corpus(dataset)])
        words += self.sizes.query_words[dataset]
        return {"pairs": pairs * chunks, "words": words, **self._reading(reranker, pairs * chunks, words)}

    def rerank(self, system: str, dataset: str) -> Amounts:
        depth = self.grid.depth(self.grid.system_as(entries.Reranked, system))
        return {"pairs": self.sizes.queries(dataset) * depth}

    def fuse(self, system: str, dataset: str) -> Amounts:
        parts = len(self.config.systems[system].parts)
        return {"fused_queries": parts * self.sizes.queries(dataset), "fused_hits": (parts + 1) * self._hits(dataset)}

    # The grid

    def aggregate(self) -> Amounts:
        systems, metrics = len(self.config.grid.systems), len(self.config.metrics)
        supplied = [
            [part for part in self.grid.parts(row) if part not in self.grid.not_supplied]
            for row in self.config.grid.datasets
        ]
        rows = [sum(map(self.sizes.queries, parts)) for parts in supplied]
        pairs = metrics * systems * (systems - 1) // 2
        return {
            "compared_scores": systems * metrics * sum(rows),
            "compared_pairs": pairs * sum(rows),
            "shuffled_scores": systems * sum(queries * permutations_of(int(queries)) for queries in rows if queries),
            "pairs_at_once": pairs,
            "paired_queries": pairs * max(rows, default=0),
        }

    def analyses(self) -> Amounts:
        corpora = {self.grid.corpus(dataset) for dataset in self.grid.datasets}
        hits = [self._hits(dataset) for _, dataset in self.grid.cells]
        text = sum(self.sizes.text_mb(corpus) for corpus in corpora)
        return {"hits": max(hits, default=0), "hits_of_all": sum(hits), "text_mb": text}

    # Train

    def _learning(self, model: str, texts: float, words: float, batch: float) -> Amounts:
        activations = batch * self.sizes.pieces(model, words) * self.sizes.model(model)["dimensions"]
        return {
            "model_flops": TRAINING_COST * self.sizes.read_flops(model, texts, words),
            "weights_mb": self.sizes.weights_mb(model),
            "activations": activations if self.device == "cpu" else 0.0,
        }

    def train(self, model: str) -> Amounts:
        train = self.grid.training_as(entries.CrossEncoderTraining, model)
        corpus, group = train.corpus, 1 + train.hard_negatives + train.random_negatives
        documents, words = self.sizes.documents(corpus), self.sizes.words[corpus]
        pairs = documents * len(train.derive) + (self.sizes.judged(train.dataset) if train.dataset else 0)
        pairs = min(pairs, train.queries or pairs) * group * train.epochs
        work = self._learning(model, pairs, min(words + QUERY_WORDS, words * 2), train.batch * group)
        return work | {"text_mb": self.sizes.text_mb(corpus), "documents": documents}

    def _training_queries(self, train: entries.GenQ | entries.Gpl) -> tuple[int, int]:
        """Return the number of documents that a recipe samples, and of queries that it generates."""
        documents = min(train.documents, self.sizes.documents(train.corpus or ""))
        return documents, documents * train.queries_for_each(documents)

    def generate(self, model: str) -> Amounts:
        train = self.grid.training(model)
        assert isinstance(train, entries.GenQ | entries.Gpl)
        documents, queries = self._training_queries(train)
        work: Amounts = {"sampled_documents": documents, "queries": queries}
        if train.generator is None:
            return work | {"derived_documents": documents}
        flops = self.sizes.read_flops(train.generator, documents, self.sizes.words[train.corpus or ""])
        flops += self._sampling(train.generator, queries)
        return work | {"written_job": 1, "model_flops": flops, "weights_mb": self.sizes.weights_mb(train.generator)}

    def _gpl(self, model: str) -> tuple[entries.Gpl, int]:
        """Return the recipe of a GPL model, and the number of its queries."""
        train = self.grid.training_as(entries.Gpl, model)
        return train, self._training_queries(train)[1]

    def mine(self, model: str) -> Amounts:
        train, queries = self._gpl(model)
        corpus, dense = train.corpus or "", train.dense_miners
        documents = self.sizes.documents(corpus)
        dimensions = sum(self.sizes.model(name)["dimensions"] for name in dense)
        # BM25 searches only as deep as negatives are drawn: about a tenth of the work of 1,000 hits.
        postings = met_postings(queries, QUERY_WORDS, documents) / 10 if "bm25" in train.miners else 0.0
        return {
            "model_flops": sum(self.sizes.read_flops(name, queries, QUERY_WORDS) for name in dense),
            "search_flops": 2.0 * queries * documents * dimensions,
            "lucene_postings": postings,
            "weights_mb": max((self.sizes.weights_mb(name) for name in dense), default=0.0),
            "vectors_mb": max((self._vectors(name, corpus)["vectors_mb"] for name in dense), default=0.0),
            "query_vectors_mb": queries * dimensions * 4 / 1e6,
            "hits": queries * train.negative_depth * len(train.miners),
            "queries": queries,
        }

    def label(self, model: str) -> Amounts:
        train, queries = self._gpl(model)
        pairs = min(train.steps * train.batch, queries * 100) + queries
        words = QUERY_WORDS + self.sizes.words[train.corpus or ""]
        flops = self.sizes.read_flops(train.teacher, pairs, words)
        return {"model_flops": flops, "weights_mb": self.sizes.weights_mb(train.teacher), "pair_words": pairs * words}

    def adapt(self, model: str) -> Amounts:
        train = self.grid.training(model)
        assert isinstance(train, entries.GenQ | entries.Gpl | entries.Tsdae | entries.Mlm)
        words = self.sizes.words[train.corpus or ""]
        if isinstance(train, entries.Gpl):
            return self._learning(model, 3 * train.steps * train.batch, words, 3 * train.batch)
        documents = min(train.documents, self.sizes.documents(train.corpus or "")) * train.epochs
        if not isinstance(train, entries.Mlm):
            per_document = 2 * train.queries_per_document if isinstance(train, entries.GenQ) else 2
            return self._learning(model, documents * per_document, words, 2 * train.batch)
        # The head of masked language modelling computes a logit per vocabulary entry: logits, softmax and gradient,
        # four bytes each.
        size, work = self.sizes.model(model), self._learning(model, documents, words, train.batch)
        pieces, vocabulary = self.sizes.pieces(model, words), size["embeddings"] * 1e6 / size["dimensions"]
        work["model_flops"] += 3 * 2 * 2e6 * size["embeddings"] * pieces * documents
        logits = 3 * 4 * train.batch * pieces * vocabulary / 1e6
        return work | {"logits_mb": logits if self.device == "cpu" else 0.0}
