"""Estimate the sizes of corpora, datasets and models from the registry, from files, or by default.

The work of jobs follows from them. Data is in MB, arithmetic in FLOPs.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from functools import cache, cached_property

from ..collections import downloads
from ..config import entries
from ..config.entries import LocalCorpus
from ..config.models import QUERY_LENGTH, Chunks
from ..config.mteb_collections import WORD_BYTES
from ..core import files
from ..core.checkout import resolve_path
from .grid import Grid

Amounts = dict[str, float]
# Defaults for entries without statistics: about the mean of BEIR, and BERT-base.
DOCUMENTS = 100_000
DOCUMENT_WORDS = 150.0
QUERIES = 1000
QUERY_WORDS = 12.0
MODEL = {"parameters": 110.0, "embeddings": 24.0, "dimensions": 768.0}
# Subword tokens per word of English, approximately.
WORD_PIECES = 1.35
# Compression ratio of texts under gzip.
GZIPPED = 3
# Terms per document of sparse models: SPARTA's cap, and an assumption for SPLADE.
SPARSE_TERMS = {"sparta": 2000, "splade": 300, "bge-m3": 100}
# Tokens of a sampled query, and the cost of sampling a token relative to encoding one with the whole model. CPU:
# measured on 2 cores (part generation of make bench; 0.61 to 0.77 CPU seconds for 40 queries of a document of 150
# words, at 2.7e11 to 2.3e11 model_flops). GPU: three times that, not measured: a decoder step starts some 500 small
# kernels and reads all keys and values, where a GPU gains less than in matrix products.
SAMPLED_PIECES = 16
SAMPLING_COST = {"cpu": 0.33, "cuda": 1.0}
# Cost of training relative to encoding the same texts: three times the arithmetic, in a library that pads. From the
# demo's two to three minutes of training on 2 cores (README). On a GPU, it is not measured.
TRAINING_COST = 6.0
# Texts whose vectors an encoder has in memory at a time (encoders/protocol.py).
WINDOW = 2048
# Assumed seconds per request: a batch of texts, and an ordering by a chat model.
REQUEST_SECONDS = 1.0
ANSWER_SECONDS = 5.0
# MB of a document's published queries: 40 of 36 bytes, assumed. The compressed download is a third.
PUBLISHED_MB = 40 * 36e-6


class Sizes:
    """Sizes of all that a grid names. Counts of documents and queries are integers; other values are estimates."""

    def __init__(self, grid: Grid, device: str) -> None:
        """Set up for a grid whose models run on ``device``."""
        self.grid = grid
        self.device = device
        self.config = grid.config
        self.model = cache(self._model)
        self._guess = cache(self._guess_documents)

    def documents(self, corpus: str, shard: int | None = None) -> int:
        """Return the number of documents of a corpus or shard, estimated if unregistered."""
        registered = self.config.corpora[corpus].documents
        documents = registered or self._guess(corpus)
        size = self.config.encode.shard
        return documents if shard is None or not registered else min(size, documents - shard * size)

    def _guess_documents(self, corpus: str) -> int:
        """Estimate the number of documents of a corpus from the size of its file."""
        entry = self.config.corpora[corpus]
        stored = files.forms(resolve_path(entry.path) / "corpus.jsonl") if isinstance(entry, LocalCorpus) else []
        if not stored:
            return DOCUMENTS
        file = stored[0]
        whole = file.stat().st_size * (GZIPPED if file.suffix == ".gz" else 1)
        return max(1, round(whole / (WORD_BYTES * DOCUMENT_WORDS)))

    @cached_property
    def words(self) -> dict[str, float]:
        """Words per document of each corpus."""
        known = {self.config.datasets[name].corpus: words for name, words in self._statistics("document_words").items()}
        return {corpus: known.get(corpus, DOCUMENT_WORDS) for corpus in self.config.corpora}

    @cached_property
    def query_words(self) -> dict[str, float]:
        """Words per query of each dataset."""
        return dict.fromkeys(self.config.datasets, QUERY_WORDS) | self._statistics("query_words")

    def _statistics(self, key: str) -> dict[str, float]:
        """Look up a statistic per dataset; parts of an averaged dataset inherit its value."""
        known = {name: getattr(entry.statistics, key) for name, entry in self.config.datasets.items()}
        return {
            part: value
            for name, value in known.items()
            if value is not None
            for part in (self.config.datasets[name].mean_of or (name,))
        }

    def queries(self, dataset: str) -> int:
        """Return the number of queries of a dataset."""
        return self.config.datasets[dataset].queries or QUERIES

    def judged(self, dataset: str) -> float:
        """Return the number of relevant judgements of a dataset, by default two per query."""
        return self.queries(dataset) * self._statistics("relevant").get(dataset, 2.0)

    def text_mb(self, corpus: str, shard: int | None = None) -> float:
        """Return the text size of a corpus or a shard, in MB."""
        return self.documents(corpus, shard) * self.words[corpus] * WORD_BYTES / 1e6

    def download_mb(self, corpus: str) -> float:
        """Return a corpus's share of its download, in MB: the forums of CQADupStack share one file."""
        entry = self.config.corpora[corpus]
        if isinstance(entry, LocalCorpus):
            return 0.0
        file, size = downloads.size(entry.id)
        return size / max(1, self._downloads[file]) if size else self.text_mb(corpus) / GZIPPED

    @cached_property
    def _downloads(self) -> Counter[str]:
        """The number of the grid's corpora in each downloaded file."""
        corpora = {self.grid.corpus(name) for name in self.grid.datasets}
        return Counter(downloads.size(self.config.corpora[name].id or "")[0] for name in corpora)

    def _model(self, model: str) -> dict[str, float]:
        """Return a model's parameters and word embeddings (millions), and its vector dimension."""
        entry = self.config.models[model]
        if entry.training:
            return self.model(entry.training.base)
        given = {key: float(value) for key, value in entry.size.model_dump(exclude_none=True).items()}
        if entry.endpoint and entry.endpoint.dimensions:
            given = {"dimensions": float(entry.endpoint.dimensions), **given}
        stored = sum(map(files.size, resolve_path(entry.path).rglob("*.safetensors"))) if entry.path else 0
        return {**MODEL, **({"parameters": stored / 4e6, "embeddings": 0.0} if stored else {}), **given}

    def weights_mb(self, model: str) -> float:
        """Return the size of a model's weights in float32, in MB."""
        return self.model(model)["parameters"] * 4

    def pieces(self, model: str, words: float) -> float:
        """Return the subword tokens that a model reads of a text with ``words`` words."""
        return min(words * WORD_PIECES + 2, float(self.config.models[model].max_length or 512))

    def chunks(self, model: str, words: float) -> tuple[float, float]:
        """Return how many texts a model reads of a document with ``words`` words, and the words of each."""
        chunks: Chunks | None = getattr(self.config.models[model], "chunks", None)
        if chunks is None:
            return 1.0, words
        further = max(0.0, words * WORD_PIECES - chunks.tokens) if chunks.aggregate != "first" else 0.0
        return 1.0 + math.ceil(further / chunks.stride), min(words, chunks.tokens / WORD_PIECES)

    def vectors(self, model: str, corpus: str, shard: int | None = None) -> float:
        """Return the vectors of the documents of a corpus or shard: several of each if its best chunk counts."""
        chunks: Chunks | None = getattr(self.config.models[model], "chunks", None)
        several = self.chunks(model, self.words[corpus])[0] if chunks and chunks.aggregate == "max" else 1.0
        return self.documents(corpus, shard) * several

    def read_flops(self, model: str, texts: float, words: float) -> float:
        """Return the FLOPs of encoding ``texts`` texts of ``words`` words each."""
        size = self.model(model)
        pieces = self.pieces(model, words)
        # A layer has about 12 width² weights, and attention takes 4 width FLOPs per pair of tokens.
        attention = 1 + pieces / (6 * MODEL["dimensions"])
        return texts * 2e6 * (size["parameters"] - size["embeddings"]) * pieces * attention

    # Work

    def of_any_job(self, wildcards: Mapping[str, str]) -> Amounts:
        """Return the work that follows from a job's dataset, or from its corpus or shard and model."""
        work = {"job": 1.0, "cuda_job": float(self.device != "cpu")}
        corpus = wildcards.get("corpus")
        shard = wildcards.get("shard")
        if dataset := wildcards.get("dataset"):
            corpus = self.grid.corpus(dataset)
            work |= {"queries": self.queries(dataset), "hits": self.hits(dataset)}
        if corpus:
            number = None if shard is None else int(shard)
            work |= {"documents": self.documents(corpus, number), "text_mb": self.text_mb(corpus, number)}
        return work

    def hits(self, dataset: str) -> int:
        """Return the number of documents in a run of a dataset."""
        return self.queries(dataset) * self.config.retrieve.depth

    def vector_sizes(self, model: str, corpus: str, shard: int) -> Amounts:
        """Return the sizes of a shard of vectors, as each family has them."""
        entry = self.config.models[model]
        documents = self.documents(corpus, shard)
        dimensions = self.model(model)["dimensions"]
        tokens = documents * self.pieces(model, self.words[corpus])
        terms = SPARSE_TERMS[entry.pooling if isinstance(entry, entries.SparseModel) else "splade"]
        return {
            "vectors_mb": self.vectors(model, corpus, shard) * dimensions * 4 / 1e6,
            "postings_mb": documents * terms * 8 / 1e6,
            "tokens": tokens,
            "token_dimensions_mb": tokens * dimensions / 1e6,
            "window_mb": min(1.0, WINDOW / documents) * tokens * dimensions * 4 / 1e6,
        }

    def reading(self, model: str, texts: float, words: float) -> Amounts:
        """Return the work of encoding texts: a model's FLOPs, or a server's time."""
        entry = self.config.models[model]
        if not entry.endpoint:
            return self._computing(model, self.read_flops(model, texts, words))
        together = entry.endpoint.batch
        seconds = REQUEST_SECONDS
        if isinstance(entry, entries.ListwiseReranker):  # each answer moves the window by a step
            together = entry.step
            seconds = ANSWER_SECONDS
        return {"served_seconds": texts / together * seconds / entry.endpoint.concurrency}

    def rewriting(self, model: str, queries: float, words: float, texts: int) -> Amounts:
        """Return the work of writing texts for queries, each as long as it may be: of a model, or of a server."""
        entry = self.config.models[model]
        longest = entry.endpoint.longest_answer() if entry.endpoint else 0
        pieces = longest or getattr(entry, "tokens", QUERY_LENGTH)
        if not entry.endpoint:
            return self.writing(model, queries, words, queries * texts * pieces / SAMPLED_PIECES)
        price = entry.endpoint.price
        tokens = price.input * words * WORD_PIECES + price.output * pieces
        return {
            "served_seconds": queries * texts * ANSWER_SECONDS / entry.endpoint.concurrency,
            "price": queries * texts * (tokens / 1e6 + price.request / 1e3),
        }

    def writing(self, model: str, documents: float, words: float, queries: float) -> Amounts:
        """Return the work of reading documents with a model that writes queries for them."""
        sampling = SAMPLING_COST[self.device] * self.read_flops(model, queries, SAMPLED_PIECES / WORD_PIECES)
        return self._computing(model, self.read_flops(model, documents, words) + sampling)

    def queries_of_each(self, model: str) -> int:
        """Return the queries that a model writes for each document."""
        entry = self.config.models[model]
        return entry.queries_per_document if isinstance(entry, entries.QueryGenerator) else 0

    def learning(self, model: str, texts: float, words: float, batch: float) -> Amounts:
        """Return the work of training a model on texts."""
        activations = batch * self.pieces(model, words) * self.model(model)["dimensions"]
        work = self._computing(model, TRAINING_COST * self.read_flops(model, texts, words))
        return work | {"activations": activations if self.device == "cpu" else 0.0}

    def _computing(self, model: str, flops: float) -> Amounts:
        return {"model_flops": flops, "weights_mb": self.weights_mb(model)}


def met_postings(queries: float, words: float, documents: float) -> float:
    """Estimate the postings that BM25 scores. Assumes that a word occurs in 1 of 50 documents, and that 1,000 hits cost
    500,000.
    """
    return queries * (words * documents / 50 + 5e5)
