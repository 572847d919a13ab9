"""Count the work of each job in the units of ``costs.csv``. Each rule has a method of its name."""

from __future__ import annotations

from collections.abc import Callable

from ..analysis.permutations import permutations_of
from ..config.endpoint_entries import Endpoint
from ..config.entries import (
    Config,
    CrossEncoderTraining,
    GenQ,
    Gpl,
    HubExpansion,
    LateInteractionRetriever,
    ListwiseReranker,
    Mlm,
    QueryGenerator,
    Reranked,
    SparseModel,
    Training,
    Tsdae,
    WithQueries,
)
from ..config.indexes import token_lists
from .grid import Grid
from .sizes import QUERY_WORDS, WORD_BYTES, WORD_PIECES, Sizes

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
# Cost of training relative to encoding the same texts: three times the arithmetic, in a library that pads. CPU: from
# the demo's two to three minutes of training on 2 cores (README). GPU: not measured.
TRAINING_COST = {"cpu": 6.0, "cuda": 6.0}
# Training points per centroid of a token-vector index (search/maxsim.py), and iterations of faiss's k-means.
CENTROID_POINTS, CENTROID_ITERATIONS = 64, 10

# Tokens with which a chat model names a document in an order. Assumed.
RANKED = 5
# Assumed seconds per request: a batch of texts, and an ordering by a chat model.
REQUEST_SECONDS, ANSWER_SECONDS = 1.0, 5.0

Amounts = dict[str, float]


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


class Units:
    """The work of each job of a grid. Data is in MB, arithmetic in FLOPs."""

    def __init__(self, grid: Grid, sizes: Sizes, device: str) -> None:
        self.grid = grid
        self.config: Config = grid.config
        self.sizes = sizes
        self.device = device

    def of(self, rule: str, **wildcards: str) -> Amounts:
        """Return the work of a job, and the size of its model's process."""
        count: Callable[..., Amounts] = getattr(self, rule)
        on_cpu = self.device == "cpu"
        return {"cuda_job": float(not on_cpu), "cpu_batch": float(on_cpu), **count(**wildcards)}

    def fetch_corpus(self, corpus: str) -> Amounts:
        sizes = self.sizes
        counted = {"documents": sizes.documents(corpus), "text_mb": sizes.text_mb(corpus)}
        return {**counted, "download_mb": sizes.download_mb(corpus)}

    def fetch_dataset(self, dataset: str) -> Amounts:
        return {"documents": self.sizes.documents(self._corpus(dataset)), "queries": self.sizes.queries(dataset)}

    def fetch_expansion(self, system: str, corpus: str) -> Amounts:
        entry, documents = self.grid.expansion(system, corpus), self.sizes.documents(corpus)
        queries_mb = (entry.queries or PUBLISHED_QUERIES) * documents * PUBLISHED_BYTES / 1e6
        downloaded = queries_mb / 3 if isinstance(entry, HubExpansion) else 0.0
        return {"documents": documents, "published_mb": queries_mb, "download_mb": downloaded}

    def fetch_model(self, model: str) -> Amounts:
        entry = self.config.models[model]
        weights = 0.0 if entry.endpoint else self.sizes.weights_mb(model)
        downloaded = weights if entry.origin == "checkpoint" else 0.0
        converted = {"converted_job": 1.0, "converted_mb": weights} if entry.pickled else {}
        return {"weights_mb": weights, "model_download_mb": downloaded, **converted}

    def fetch_run(self, system: str, dataset: str) -> Amounts:
        return {"documents": self.sizes.documents(self._corpus(dataset)), "hits": self._hits(dataset)}

    def encode_dense(self, model: str, corpus: str, shard: str) -> Amounts:
        return self._encoding(model, corpus, shard) | {"vectors_mb": self._vectors_mb(model, corpus, shard)}

    def encode_sparse(self, model: str, corpus: str, shard: str) -> Amounts:
        return self._encoding(model, corpus, shard) | {"postings_mb": self._postings_mb(model, corpus, shard)}

    def encode_late_interaction(self, model: str, corpus: str, shard: str) -> Amounts:
        dimensions = self._tokens(model, corpus, shard) * self.sizes.model(model)["dimensions"]
        return self._encoding(model, corpus, shard) | {"token_dimensions_mb": dimensions / 1e6}

    def _encoding(self, model: str, corpus: str, shard: str) -> Amounts:
        documents, words = self.sizes.documents(corpus, int(shard)), self.sizes.words[corpus]
        chunks, words_read = self.sizes.chunks(model, words)
        return {
            "block_mb": min(documents, BLOCK) * words * WORD_BYTES * BLOCK_BYTES / 1e6,
            **self._reading(model, documents * chunks, words_read),
        }

    def _reading(self, model: str, texts: float, words: float) -> Amounts:
        """Return the work of encoding texts: a model's FLOPs, or a server's time."""
        entry, answers = self.config.models[model], 0.0
        if isinstance(entry, ListwiseReranker):
            # Windows overlap, so a document is encoded more than once.
            answers = texts = texts * entry.window / entry.step
        if not entry.endpoint:
            flops = self.sizes.read_flops(model, texts, words) + self._sampling(
                model, answers * RANKED / SAMPLED_PIECES
            )
            return {"model_flops": flops, "weights_mb": self.sizes.weights_mb(model)}
        together, seconds = entry.endpoint.batch, REQUEST_SECONDS
        if isinstance(entry, ListwiseReranker):
            together, seconds = entry.window, ANSWER_SECONDS
        return {
            "served_seconds": served_seconds(entry.endpoint, texts / together, texts * words * WORD_PIECES, seconds)
        }

    def _corpus(self, dataset: str) -> str:
        return self.grid.corpus(dataset)

    def _vectors_mb(self, model: str, corpus: str, shard: str = "0") -> float:
        return self.sizes.vectors(model, corpus, int(shard)) * self.sizes.model(model)["dimensions"] * 4 / 1e6

    def _postings_mb(self, model: str, corpus: str, shard: str = "0") -> float:
        entry = self.config.models[model]
        terms = SPARSE_TERMS[entry.pooling if isinstance(entry, SparseModel) else "splade"]
        return self.sizes.documents(corpus, int(shard)) * terms * 8 / 1e6

    def _tokens(self, model: str, corpus: str, shard: str = "0") -> float:
        return self.sizes.documents(corpus, int(shard)) * self.sizes.pieces(model, self.sizes.words[corpus])

    def expand(self, model: str, corpus: str, shard: str) -> Amounts:
        documents, entry = self.sizes.documents(corpus, int(shard)), self.config.models[model]
        queries = documents * entry.queries_per_document if isinstance(entry, QueryGenerator) else 0
        flops = self.sizes.read_flops(model, documents, self.sizes.words[corpus]) + self._sampling(model, queries)
        work = {"weights_mb": self.sizes.weights_mb(model), "model_flops": flops}
        return {**work, "text_mb": self.sizes.text_mb(corpus, int(shard)), "sampled_queries": queries}

    def _sampling(self, model: str, queries: float) -> float:
        """Return the FLOPs of sampling queries with a query generator."""
        return SAMPLING_COST[self.device] * self.sizes.read_flops(model, queries, SAMPLED_PIECES / WORD_PIECES)

    def index_lexical(self, fields: str, expansion: str, corpus: str) -> Amounts:
        text = self.sizes.text_mb(corpus)
        if expansion.startswith("~"):
            text += 2 * self.fetch_expansion(expansion[1:], corpus)["published_mb"]
        for shard in self.grid.shards(corpus) if expansion.startswith("@") else ():
            expanded = self.expand(expansion.removeprefix("@"), corpus, str(shard))
            text += 2 * (0.2 * expanded["text_mb"] + SAMPLED_PIECES * 2e-6 * expanded["sampled_queries"])
        return {"text_mb": text, "index_mb": text, "documents": self.sizes.documents(corpus)}

    def index_dense(self, model: str, corpus: str, shard: str) -> Amounts:
        return {"vectors_mb": self._vectors_mb(model, corpus, shard)}

    def index_approximate(self, model: str, corpus: str, variant: str, shard: str) -> Amounts:
        return {"vectors_mb": self._vectors_mb(model, corpus, shard)}

    def index_sparse(self, model: str, corpus: str, shard: str) -> Amounts:
        return {"postings_mb": self._postings_mb(model, corpus, shard)}

    def index_late_interaction(self, model: str, corpus: str, shard: str) -> Amounts:
        tokens = self._tokens(model, corpus, shard)
        lists, dimensions = token_lists(tokens), self.sizes.model(model)["dimensions"]
        # Each token is compared with every centroid once; each training point, once per k-means iteration.
        compared = lists * (tokens + CENTROID_POINTS * CENTROID_ITERATIONS * lists)
        return {"tokens": tokens, "centroid_flops": 2.0 * dimensions * compared}

    def retrieve_lexical(self, system: str, dataset: str) -> Amounts:
        documents = self.sizes.documents(self._corpus(dataset))
        postings = met_postings(self.sizes.queries(dataset), self.sizes.query_words[dataset], documents)
        return {"lucene_postings": postings, "documents": documents, "hits": self._hits(dataset)}

    def _hits(self, dataset: str) -> float:
        return self.sizes.queries(dataset) * self.config.retrieve.depth

    def index_program(self, system: str, corpus: str) -> Amounts:
        text, entry = self.sizes.text_mb(corpus), self.grid.program(system)
        return {"program_mb": entry.mem_mb, "program_minutes": entry.minutes, "text_mb": text}

    def retrieve_program(self, system: str, dataset: str) -> Amounts:
        corpus = self._corpus(dataset)
        return {**self.index_program(system, corpus), **self.fetch_run(system, dataset)}

    def retrieve_dense(self, system: str, dataset: str) -> Amounts:
        model, corpus, queries = self.grid.retriever(system), self._corpus(dataset), self.sizes.queries(dataset)
        flops = 2.0 * queries * self.sizes.vectors(model, corpus) * self.sizes.model(model)["dimensions"]
        search = {"search_flops": flops, "vectors_mb": self._vectors_mb(model, corpus)}
        return self._retrieving(system, dataset) | search

    def retrieve_sparse(self, system: str, dataset: str) -> Amounts:
        corpus, queries = self._corpus(dataset), self.sizes.queries(dataset)
        shard = self._postings_mb(self.grid.query_model(system), corpus)
        # A query's terms cover about 1 % of all postings.
        scored = queries * len(self.grid.shards(corpus)) * shard * 1e6 / 8 / 100
        return self._retrieving(system, dataset) | {"postings_mb": shard, "scored_postings": scored}

    def retrieve_late_interaction(self, system: str, dataset: str) -> Amounts:
        model, corpus, queries = self.grid.query_model(system), self._corpus(dataset), self.sizes.queries(dataset)
        shards, tokens = len(self.grid.shards(corpus)), self._tokens(model, corpus)
        entry = self.config.systems[system]
        if isinstance(entry, LateInteractionRetriever) and entry.exhaustive:
            # One dot product per query token; a query has about 64 tokens.
            flops = queries * shards * tokens * self.sizes.model(model)["dimensions"] * 64
            return self._retrieving(system, dataset) | {"search_flops": flops}
        search = {"candidate_queries": queries, "candidate_searches": queries * shards, "tokens": tokens}
        return self._retrieving(system, dataset) | search

    def _retrieving(self, system: str, dataset: str) -> Amounts:
        model, queries = self.grid.query_model(system), self.sizes.queries(dataset)
        work = self._reading(model, queries, self.sizes.query_words[dataset])
        return {**work, "queries": queries, "hits": self._hits(dataset)}

    def score(self, reranker: str, dataset: str, first: str) -> Amounts:
        pairs = self.sizes.queries(dataset) * self.grid.score_depth(reranker, first)
        chunks, words = self.sizes.chunks(reranker, self.sizes.words[self._corpus(dataset)])
        words += self.sizes.query_words[dataset]
        work = {"pairs": pairs * chunks, "words": words, "hits": self._hits(dataset)}
        return work | self._reading(reranker, pairs * chunks, words)

    def rerank(self, system: str, dataset: str) -> Amounts:
        entry, queries = self.config.systems[system], self.sizes.queries(dataset)
        assert isinstance(entry, Reranked)
        return {"queries": queries, "hits": self._hits(dataset), "pairs": queries * self.grid.depth(entry)}

    def fuse(self, system: str, dataset: str) -> Amounts:
        parts, queries = len(self.config.systems[system].parts), self.sizes.queries(dataset)
        fused = {"fused_queries": parts * queries, "fused_hits": (parts + 1) * self._hits(dataset)}
        return {**fused, "hits": self._hits(dataset)}

    def evaluate(self, system: str, dataset: str) -> Amounts:
        return {"queries": self.sizes.queries(dataset), "hits": self._hits(dataset)}

    def aggregate(self) -> Amounts:
        systems, metrics = len(self.config.grid.systems), len(self.config.metrics)
        rows = [sum(map(self._supplied_queries, self.grid.parts(row))) for row in self.config.grid.datasets]
        pairs = metrics * systems * (systems - 1) // 2
        return {
            "compared_scores": systems * metrics * sum(rows),
            "compared_pairs": pairs * sum(rows),
            "shuffled_scores": systems * sum(queries * permutations_of(int(queries)) for queries in rows if queries),
            "pairs_at_once": pairs,
            "paired_queries": pairs * max(rows, default=0),
        }

    def _supplied_queries(self, dataset: str) -> float:
        return 0 if dataset in self.grid.not_supplied else self.sizes.queries(dataset)

    def report(self) -> Amounts:
        return {}

    def analyses(self) -> Amounts:
        corpora = {self._corpus(dataset) for dataset in self.grid.datasets}
        hits = [self._hits(dataset) for _, dataset in self.grid.cells]
        text = sum(self.sizes.text_mb(corpus) for corpus in corpora)
        return {"hits": max(hits, default=0), "hits_of_all": sum(hits), "text_mb": text}

    def train(self, model: str) -> Amounts:
        train = self._training(model)
        assert isinstance(train, CrossEncoderTraining)
        corpus, group = train.corpus, 1 + train.hard_negatives + train.random_negatives
        documents, words = self.sizes.documents(corpus), self.sizes.words[corpus]
        pairs = documents * len(train.derive) + (self.sizes.judged(train.dataset) if train.dataset else 0)
        pairs = min(pairs, train.queries or pairs) * group * train.epochs
        work = self._learning(model, pairs, min(words + QUERY_WORDS, words * 2), train.batch * group)
        return work | {"text_mb": self.sizes.text_mb(corpus), "documents": documents}

    def _training(self, model: str) -> Training:
        train = self.config.models[model].training
        assert train is not None
        return train

    def _learning(self, model: str, texts: float, words: float, batch: float) -> Amounts:
        activations = batch * self.sizes.pieces(model, words) * self.sizes.model(model)["dimensions"]
        return {
            "model_flops": TRAINING_COST[self.device] * self.sizes.read_flops(model, texts, words),
            "weights_mb": self.sizes.weights_mb(model),
            "activations": activations if self.device == "cpu" else 0.0,
        }

    def generate(self, model: str) -> Amounts:
        train = self._training(model)
        assert isinstance(train, GenQ | Gpl)
        documents, queries = self._training_queries(train)
        work: Amounts = {"sampled_documents": documents, "queries": queries}
        if train.generator is None:
            return work | {"derived_documents": documents}
        flops = self.sizes.read_flops(train.generator, documents, self.sizes.words[train.corpus or ""])
        flops += self._sampling(train.generator, queries)
        return work | {"written_job": 1, "model_flops": flops, "weights_mb": self.sizes.weights_mb(train.generator)}

    def _training_queries(self, train: WithQueries) -> tuple[int, int]:
        """Return the number of documents that a recipe samples, and of queries that it generates."""
        assert isinstance(train, GenQ | Gpl)
        documents = min(train.documents, self.sizes.documents(train.corpus or ""))
        return documents, documents * train.queries_for_each(documents)

    def mine(self, model: str) -> Amounts:
        train = self._training(model)
        assert isinstance(train, Gpl)
        corpus, (_, queries) = train.corpus or "", self._training_queries(train)
        documents, dense = self.sizes.documents(corpus), train.dense_miners
        dimensions = [self.sizes.model(name)["dimensions"] for name in dense]
        # BM25 searches only as deep as negatives are drawn: about a tenth of the work of 1,000 hits.
        postings = met_postings(queries, QUERY_WORDS, documents) / 10 if "bm25" in train.miners else 0.0
        return {
            "model_flops": sum(self.sizes.read_flops(name, queries, QUERY_WORDS) for name in dense),
            "search_flops": 2.0 * queries * documents * sum(dimensions),
            "lucene_postings": postings,
            "weights_mb": max((self.sizes.weights_mb(name) for name in dense), default=0.0),
            "vectors_mb": max((self._vectors_mb(name, corpus) for name in dense), default=0.0),
            "query_vectors_mb": queries * sum(dimensions) * 4 / 1e6,
            "hits": queries * train.negative_depth * len(train.miners),
            "queries": queries,
        }

    def label(self, model: str) -> Amounts:
        train = self._training(model)
        assert isinstance(train, Gpl)
        _, queries = self._training_queries(train)
        pairs = min(train.steps * train.batch, queries * 100) + queries
        words = QUERY_WORDS + self.sizes.words[train.corpus or ""]
        flops = self.sizes.read_flops(train.teacher, pairs, words)
        return {"model_flops": flops, "weights_mb": self.sizes.weights_mb(train.teacher), "pair_words": pairs * words}

    def adapt(self, model: str) -> Amounts:
        train = self._training(model)
        assert isinstance(train, GenQ | Gpl | Tsdae | Mlm)
        words = self.sizes.words[train.corpus or ""]
        if isinstance(train, Gpl):
            return self._learning(model, 3 * train.steps * train.batch, words, 3 * train.batch)
        documents = min(train.documents, self.sizes.documents(train.corpus or "")) * train.epochs
        if isinstance(train, Mlm):
            return self._masked_language_model(model, documents, words, train.batch)
        per_document = 2 * train.queries_per_document if isinstance(train, GenQ) else 2
        return self._learning(model, documents * per_document, words, 2 * train.batch)

    def _masked_language_model(self, model: str, documents: float, words: float, batch: float) -> Amounts:
        """Return the work of masked language modelling, whose head computes a logit per vocabulary entry."""
        size, work = self.sizes.model(model), self._learning(model, documents, words, batch)
        pieces = self.sizes.pieces(model, words)
        work["model_flops"] += 3 * 2 * 2e6 * size["embeddings"] * pieces * documents
        vocabulary = size["embeddings"] * 1e6 / size["dimensions"]
        # Logits, softmax and gradient, four bytes each.
        return work | {"logits_mb": 3 * 4 * batch * pieces * vocabulary / 1e6 if self.device == "cpu" else 0.0}
