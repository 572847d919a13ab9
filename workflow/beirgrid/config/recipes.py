"""How the workflow trains a model: the keys of each recipe."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import Field

from .values import Count, Derive, Entry, Names, NotNegative, Positive, Refers, Seed, Size, SizeOrZero


class Training(Entry):
    """Keys that all recipes have."""

    base: Annotated[str, Refers(("models",))] = Field(description="Model that training starts from.")
    corpus: Annotated[str | None, Refers(("corpora",))] = Field(None, description="Corpus of the training documents.")
    seed: Seed = Field(0, description="Seed of samples, queries, negatives and the order of training.")
    batch: Size = Field(16, description="Queries (or documents, or lists) per step.")
    learning_rate: Positive = Field(5e-5, description="Highest learning rate.")

    @property
    def name(self) -> str:
        """The recipe: cross-encoder, genq, gpl, …"""
        return getattr(self, "recipe", "cross-encoder")

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The models that training needs, those that mine negatives among them, with the key that names each."""
        known = ("bm25", self.base)
        named = self.references("models")
        return [(key, model) for key, model in named if key != "retrievers" or model not in known]


class CrossEncoderTraining(Training):
    """A reranker is distilled from a dense teacher, or learns from qrels."""

    corpus: Annotated[str, Refers(("corpora",))] = Field(description="Corpus of the training documents.")
    dataset: Annotated[str | None, Refers(("datasets",))] = Field(
        None, description="Dataset whose queries and qrels are training pairs."
    )
    teacher: Annotated[str | None, Refers(("models",), ("dense",))] = Field(
        None, description="Dense model whose similarities are the labels."
    )
    derive: Derive = Field((), description="Queries that are derived from documents.")
    queries: Count | None = Field(None, description="Largest number of training queries. Without it, all.")
    hard_negatives: SizeOrZero = Field(4, description="BM25 negatives per positive pair.")
    random_negatives: SizeOrZero = Field(0, description="Random negatives per positive pair.")
    negative_depth: Size = Field(50, description="Depth of the ranking that negatives are drawn from.")
    epochs: Size = Field(1, description="Passes over the pairs.")
    layers: Size | None = Field(None, description="First layers of a BERT that are kept. Without it, all.")
    compact: bool = Field(
        False, description="Keep a BERT's frequent word pieces and those of the training texts, in float16."
    )
    dropped_words: Annotated[float, Field(gt=0, lt=1)] | None = Field(
        None,
        description="Share of the words of a query that its document has too and that are left out. Then each pass has "
        "other words and negatives, too.",
    )

    def _problems(self) -> Iterator[str]:
        if self.dataset is None and not self.derive:
            yield "needs training pairs: a dataset, or derive: [titles, sentences]"


class Adaptive(Training):
    """Keys of the recipes that adapt a dense model to a corpus."""

    base: Annotated[str, Refers(("models",), ("dense",))] = Field(description="Model that training starts from.")
    corpus: Annotated[str | None, Refers(("corpora",))] = Field(
        None, description="Corpus to adapt to. Without it, one model per corpus of the grid: {model}@{corpus}."
    )
    learning_rate: Positive = Field(2e-5, description="Highest learning rate.")


class WithQueries(Adaptive):
    """Keys of the recipes that need training queries."""

    generator: Annotated[str | None, Refers(("models",), ("query-generator",))] = Field(
        None, description="Query generator that writes the training queries."
    )
    derive: Derive = Field((), description="Queries that are derived from documents, in place of a generator.")

    def _problems(self) -> Iterator[str]:
        if (self.generator is not None) == bool(self.derive):
            yield "needs queries from a generator or from derive: [titles, sentences], one of them"


class GenQ(WithQueries):
    """The model learns to tell the document of a query from the others of the batch, as in the BEIR paper."""

    recipe: Literal["genq"] = Field(description="How a dense model is adapted.")
    documents: Count = Field(100_000, description="Largest number of documents, sampled with the seed.")
    queries_per_document: Size = Field(5, description="Queries per document.")
    epochs: Size = Field(1, description="Passes over the queries.")
    batch: Size = Field(75, description="Queries per step.")
    warmup: NotNegative = Field(0.1, description="Warm-up steps of the learning rate. Below 1: share of all steps.")


class Gpl(WithQueries):
    """The model learns a cross-encoder's margins over mined negatives, as in the code of GPL's authors."""

    recipe: Literal["gpl"] = Field(description="How a dense model is adapted.")
    documents: Count = Field(83_334, description="Largest number of documents, sampled with the seed.")
    queries: Count = Field(250_000, description="Queries in total, unless queries_per_document is given.")
    queries_per_document: Size | None = Field(None, description="Queries per document, instead of a total.")
    teacher: Annotated[str, Refers(("models",), ("cross-encoder",))] = Field(description="Cross-encoder to learn from.")
    retrievers: Annotated[Names | None, Refers(("models",), ("dense",), also=("bm25",))] = Field(
        None, description="Sources of negatives: bm25 or dense models. By default, the base."
    )
    negative_depth: Size = Field(50, description="Depth of the rankings that negatives are drawn from.")
    steps: Count = Field(140_000, description="Training steps.")
    batch: Size = Field(32, description="Queries per step.")
    warmup: NotNegative = Field(1000, description="Warm-up steps of the learning rate. Below 1: share of all steps.")

    @property
    def miners(self) -> tuple[str, ...]:
        """What mines the negatives: bm25, and dense models."""
        return self.retrievers or (self.base,)

    @property
    def dense_miners(self) -> list[str]:
        """The dense models that mine negatives."""
        return [name for name in self.miners if name != "bm25"]


class Pretraining(Adaptive):
    """Keys of the recipes that read documents alone. A genq or gpl model can go on from such a model."""

    documents: Count = Field(100_000, description="Largest number of documents, sampled with the seed.")
    warmup: NotNegative = Field(0, description="Warm-up steps of the learning rate. Below 1: share of all steps.")


class Tsdae(Pretraining):
    """60 % of the words of a document are deleted. The model restores the document from the vector of the rest."""

    recipe: Literal["tsdae"] = Field(description="How a dense model is adapted.")
    epochs: Size = Field(1, description="Passes over the documents.")
    batch: Size = Field(8, description="Documents per step.")
    learning_rate: Positive = Field(3e-5, description="Highest learning rate.")


class Mlm(Pretraining):
    """Masked language modelling: 15 % of the tokens are restored (sentence-transformers' train_mlm.py)."""

    recipe: Literal["mlm"] = Field(description="How a dense model is adapted.")
    epochs: Size = Field(3, description="Passes over the documents.")
    batch: Size = Field(64, description="Documents per step.")
    learning_rate: Positive = Field(5e-5, description="Highest learning rate.")


Adaptation = Annotated[GenQ | Gpl | Tsdae | Mlm, Field(discriminator="recipe")]
ADAPTATIONS = ("genq", "gpl", "tsdae", "mlm")
PRETRAINING = ("tsdae", "mlm")


def queries_for_each(recipe: Any, documents: int) -> int:
    """Return the number of queries of each sampled document: given, or as many as GPL's code writes in total."""
    return int(recipe.queries_per_document or math.ceil(recipe.queries / documents))
