"""The table of model families: one row says how a family's models are stored, indexed and used.

A new family needs an entry class (``config.models``), an encoder (``encoders``), a search (``search``), and a row here
that names the encoder and the search. ``docs/extending.md`` shows how to add one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class Family:
    """One family of models, as the job graph sees it.

    Attributes:
        name: name in registry entries and commands.
        role: role of such a model in a system.
        reranks: whether a model that retrieves may rerank, too.
        embeddings: suffix of a shard of vectors; empty for a family that encodes no corpus.
        index: suffix of the index of a shard of vectors.
        encoder: the class or function in ``encoders`` that opens its checkpoints, with its module.
        search: module in ``search`` that stores, indexes and searches its vectors (see there).
        folder: whether a shard of vectors is a folder. The search also reads such a shard, so it is kept.
        index_folder: whether the index of a shard is a folder.
        like: another family whose suffixes, rules and costs this family shares; without it, the family has its own.
    """

    name: str
    role: Literal["retriever", "reranker", "expander", "writer"]
    embeddings: str = ""
    index: str = ""
    encoder: str = ""
    search: str = ""
    folder: bool = False
    index_folder: bool = False
    like: str = ""
    reranks: bool = False

    @property
    def rule(self) -> str:
        """The last part of the family's rule names (``encode_dense``)."""
        return (self.like or self.name).replace("-", "_")


FAMILIES = {
    family.name: family
    for family in (
        Family("dense", "retriever", ".npy", ".faiss", "dense:open_dense", "flat"),
        Family("sparse", "retriever", ".npz", ".impact", "sparse:open_sparse", "impact", index_folder=True),
        Family(
            "late-interaction",
            "retriever",
            ".tokens",
            ".faiss",
            "late_interaction:LateInteractionEncoder",
            "maxsim",
            folder=True,
            reranks=True,
        ),
        Family("cross-encoder", "reranker", encoder="cross_encoder:CrossEncoderScorer"),
        Family("seq2seq-reranker", "reranker", encoder="answering:AnswerScorer"),
        Family("decoder-reranker", "reranker", encoder="answering:AnswerScorer"),
        Family("listwise-reranker", "reranker"),  # a server runs it
        Family("query-generator", "expander", encoder="query_generator:GeneratorModel"),
        Family("chat", "writer", encoder="answering:ChatWriter"),
        Family("term-weights", "expander", encoder="term_weights:TermWeighter"),
    )
}
RETRIEVERS = {name: family for name, family in FAMILIES.items() if family.role == "retriever"}
# Families whose models write texts for queries.
WRITERS = ("query-generator", "chat")
RERANKERS = [name for name, family in FAMILIES.items() if family.role == "reranker" or family.reranks]


def families_with_role(role: str) -> tuple[str, ...]:
    """Return the names of the families with a role."""
    return tuple(family.name for family in FAMILIES.values() if family.role == role)
