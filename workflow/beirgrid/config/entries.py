"""Registry entries and settings as typed classes: each key once, with its meaning, its default and its limits.

The JSON schema (``workflow/schemas/config.schema.json``) and the key tables of ``docs/configuration.md`` are generated
from these classes by ``make schema``. Checks that need several entries at once are in ``checks``.
"""

from __future__ import annotations

import math
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

# Upper limits: of what is counted (documents, training steps), and of depths and batches, which a 32-bit counter holds.
MOST_COUNTED, MOST_SIZE = 10_000_000_000, 1_000_000


def _as_tuple(value: Any) -> Any:
    """Accept YAML's lists where a tuple is kept, which strict validation would refuse."""
    return tuple(value) if isinstance(value, list) else value


def _once(names: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse a name that is listed twice."""
    if repeated := [name for name in names if names.count(name) > 1]:
        raise ValueError(f"{repeated[0]!r} is listed twice")
    return names


LIST = BeforeValidator(_as_tuple)
# What a text of a fixed form looks like, with the sentence that refuses another one.
FORMS = {
    r"^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$": (
        "A name has at most 80 letters, digits and . _ + @ - only, a letter or digit first."
    ),
    r"^[0-9a-f]{40}$": "A commit has 40 hex digits, in lower case (branches and tags may move).",
    r"^([0-9a-f]{40}|resolve)$": (
        "A commit has 40 hex digits, in lower case (branches and tags may move). 'resolve' asks the hub once for the "
        "commit of the branch main and keeps it in checkpoints.lock.json."
    ),
    r"^[0-9a-f]{64}$": "A SHA-256 has 64 hex digits, in lower case.",
    r"^[a-z]{2}$": "The documents' language is an ISO 639-1 code, two letters such as en.",
    r"^[^\x00-\x1f\x7f]{1,4095}$": "A path is one line of at most 4,095 characters.",
}
_NAME, _COMMIT, _RESOLVED, _DIGEST, _LANGUAGE, _PATH = FORMS
Name = Annotated[str, StringConstraints(pattern=_NAME)]
Folder = Annotated[str, StringConstraints(pattern=_PATH)]
Resolvable = Annotated[str, StringConstraints(pattern=_RESOLVED)]
Revision = Annotated[str, StringConstraints(pattern=_COMMIT)]
Digest = Annotated[str, StringConstraints(pattern=_DIGEST)]
Language = Annotated[str, StringConstraints(pattern=_LANGUAGE)]
Names = Annotated[tuple[str, ...], LIST, AfterValidator(_once), Field(min_length=1)]
Count = Annotated[int, Field(ge=1, le=MOST_COUNTED)]
Size = Annotated[int, Field(ge=1, le=MOST_SIZE)]
SizeOrZero = Annotated[int, Field(ge=0, le=MOST_SIZE)]
Length = Annotated[int, Field(ge=4, le=MOST_SIZE)]
Seed = Annotated[int, Field(ge=0, le=2**32 - 1)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, allow_inf_nan=False)]
Derive = Annotated[tuple[Literal["titles", "sentences"], ...], LIST]
Token = Annotated[str, StringConstraints(min_length=1)]
Pair = Annotated[tuple[Token, Token], LIST]
Precision = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda"]


class Entry(BaseModel):
    """What all entries share: they are immutable, take no unknown key and convert no type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False, defer_build=True)

    def given(self, *keys: str) -> dict[str, Any]:
        """Return the named keys that the entry was given (all without names), as JSON holds them, in that order.

        Defaults are left out, so that a new key with a default changes no artifact that exists.
        """
        values = self.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return {key: values[key] for key in keys or values if key in values}


# Corpora


class CorpusEntry(Entry):
    """Keys that corpora of every source have."""

    documents: Count | None = Field(
        None, description="Number of documents. fetch checks it; it decides the number of shards."
    )
    titles: bool = Field(True, description="Whether the documents have titles.")
    language: Language = Field("en", description="Language of the documents, an ISO 639-1 code.")
    licence: str = Field("", description="Licence as the publishers or the BEIR paper state it.")
    allow: Annotated[tuple[Literal["duplicate-documents", "duplicate-queries", "empty-queries"], ...], LIST] = Field(
        (), description="Flaws of the collection to accept. Of duplicates the first is kept."
    )


class LocalCorpus(CorpusEntry):
    """A folder in BEIR layout. An entry that replaces a registered corpus keeps that corpus's other keys, unused."""

    source: Literal["local"] = Field(description="Where the corpus comes from.")
    path: Folder = Field(
        description="Folder in BEIR layout (corpus.jsonl, queries.jsonl, qrels/*.tsv, each may be .gz). A relative "
        "path starts at the working directory or, if nothing is there, at this checkout."
    )
    supplied: Literal["user"] | None = Field(
        None, description="user: the collection needs a licence. Without its folder, its cells read “not supplied”."
    )
    id: str | None = Field(None, description="Identifier of the registered corpus that the folder replaces. Unused.")
    revision: Revision | None = Field(None, description="Commit of the corpus that the folder replaces. Unused.")
    split: Name | None = Field(None, description="Split of the corpus that the folder replaces. Unused.")


class IrDatasetsCorpus(CorpusEntry):
    """A collection of the ir_datasets catalogue."""

    source: Literal["ir_datasets"] = Field(description="Where the corpus comes from.")
    id: str = Field(description="ir_datasets id, or dataset on the Hugging Face hub, with the documents.")


class HubCorpus(CorpusEntry):
    """A dataset on the Hugging Face hub at a pinned commit."""

    source: Literal["huggingface"] = Field(description="Where the corpus comes from.")
    id: str = Field(description="ir_datasets id, or dataset on the Hugging Face hub, with the documents.")
    revision: Revision = Field(description="Commit of the Hugging Face dataset, 40 hex digits.")
    split: Name | None = Field(None, description="Split of the documents, where the dataset has several (BRIGHT).")


Corpus = Annotated[LocalCorpus | IrDatasetsCorpus | HubCorpus, Field(discriminator="source")]


# Datasets


class Statistics(Entry):
    """Known figures of a dataset: job sizes follow from them."""

    relevant: Positive | None = Field(None, description="Relevant documents per query.")
    query_words: Positive | None = Field(None, description="Words per query.")
    document_words: Positive | None = Field(None, description="Words per document.")


class Dataset(Entry):
    """Queries and qrels over one corpus, or the mean of several such datasets (``mean_of``)."""

    corpus: str | None = Field(None, description="The corpus that is searched.")
    id: str | None = Field(
        None,
        description="ir_datasets id that holds queries and qrels, or Hugging Face dataset with the qrels (by default "
        "the corpus's own).",
    )
    revision: Revision | None = Field(None, description="Commit of the Hugging Face dataset with the qrels.")
    split: Name = Field(
        "test",
        description="Local corpora: the qrels file is qrels/{split}.tsv. Hugging Face: the split of the qrels.",
    )
    queries: Count | None = Field(None, description="Number of queries with qrels. fetch checks it.")
    queries_are_documents: bool | Literal["auto"] = Field(
        "auto",
        description="Whether the document with a query's id is that query, so that it is not ranked for the query. "
        "auto: only where their texts are equal too.",
    )
    task: str = Field("", description="Task, as in the BEIR paper. Tables show it.")
    domain: str = Field("", description="Domain, as in the BEIR paper. Tables show it.")
    relevance: Literal["", "binary", "3-level", "4-level", "5-level", "6-level"] = Field(
        "", description="Grades of the qrels. Tables show them."
    )
    group: str = Field("", description="Benchmark that the dataset belongs to.")
    statistics: Statistics = Field(
        Statistics(), description="Known figures (for BEIR, the paper's Table 1). Job sizes follow from them."
    )
    mean_of: Annotated[tuple[str, ...], LIST, AfterValidator(_once)] = Field(
        (), description="The dataset is the unweighted mean of these datasets, one row in tables."
    )


# Training


class Training(Entry):
    """Keys that all recipes have."""

    base: str = Field(description="Model whose weights training starts from.")
    corpus: str | None = Field(None, description="Corpus whose documents are the training documents.")
    seed: Seed = Field(0, description="Seed of samples, queries, negatives and the order of training.")
    batch: Size = Field(16, description="Queries (or documents, or lists) per step.")
    learning_rate: Positive = Field(5e-5, description="Highest learning rate.")

    @property
    def name(self) -> str:
        """The recipe: cross-encoder, genq, gpl, …"""
        return getattr(self, "recipe", "cross-encoder")

    @property
    def models(self) -> dict[str, str]:
        """The models that training needs, by the key that names them."""
        keys = ("base", "generator", "teacher")
        return {key: value for key in keys if (value := getattr(self, key, None))}


class CrossEncoderTraining(Training):
    """A reranker is distilled from a dense teacher, or learns from qrels."""

    corpus: str = Field(description="Corpus whose documents are the training documents.")
    dataset: str | None = Field(None, description="Dataset whose queries and qrels are training pairs.")
    teacher: str | None = Field(None, description="Dense model whose similarities are the labels.")
    derive: Derive = Field((), description="Queries that are derived from documents.")
    queries: Count | None = Field(None, description="Largest number of training queries. Without it, all.")
    hard_negatives: SizeOrZero = Field(4, description="BM25 negatives per positive pair.")
    random_negatives: SizeOrZero = Field(0, description="Random negatives per positive pair.")
    negative_depth: Size = Field(50, description="Depth of the ranking that negatives are drawn from.")
    epochs: Size = Field(1, description="Passes over the pairs.")


class Adaptive(Training):
    """Keys of the recipes that adapt a dense model to a corpus."""

    corpus: str | None = Field(
        None, description="Corpus to adapt to. Without it, one model per corpus of the grid: {model}@{corpus}."
    )
    learning_rate: Positive = Field(2e-5, description="Highest learning rate.")


class WithQueries(Adaptive):
    """Keys of the recipes that need training queries."""

    generator: str | None = Field(None, description="Query generator that writes the training queries.")
    derive: Derive = Field((), description="Queries that are derived from documents, in place of a generator.")


class GenQ(WithQueries):
    """Each query tells its document from the others of the batch, as in the BEIR paper."""

    recipe: Literal["genq"] = Field(description="How a dense model is adapted.")
    documents: Count = Field(100_000, description="Largest number of documents, sampled with the seed.")
    queries_per_document: Size = Field(5, description="Queries per document.")
    epochs: Size = Field(1, description="Passes over the queries.")
    batch: Size = Field(75, description="Queries per step.")
    warmup: NotNegative = Field(0.1, description="Steps of rising learning rate; below 1, the share of all steps.")

    def queries_for_each(self, documents: int) -> int:
        """Return how many queries are written for each of so many documents."""
        return self.queries_per_document


class Gpl(WithQueries):
    """The margins of a cross-encoder over mined negatives are learnt, as its authors' code does."""

    recipe: Literal["gpl"] = Field(description="How a dense model is adapted.")
    documents: Count = Field(83_334, description="Largest number of documents, sampled with the seed.")
    queries: Count = Field(250_000, description="Queries in all, if queries_per_document does not say how many.")
    queries_per_document: Size | None = Field(None, description="Queries per document, in place of queries.")
    teacher: str = Field(description="Cross-encoder whose margins are learnt.")
    retrievers: Names | None = Field(
        None, description="Sources of negatives: bm25, dense models. The base unless given."
    )
    negative_depth: Size = Field(50, description="Depth of the rankings that negatives are drawn from.")

    def queries_for_each(self, documents: int) -> int:
        """Return how many queries are written for each of so many documents, as GPL's own code decides."""
        return self.queries_per_document or math.ceil(self.queries / documents)

    @property
    def miners(self) -> tuple[str, ...]:
        """What mines the negatives: bm25, and dense models."""
        return self.retrievers or (self.base,)

    @property
    def dense_miners(self) -> list[str]:
        """The dense models that mine negatives."""
        return [name for name in self.miners if name != "bm25"]

    steps: Count = Field(140_000, description="Training steps.")
    batch: Size = Field(32, description="Queries per step.")
    warmup: NotNegative = Field(1000, description="Steps of rising learning rate; below 1, the share of all steps.")


class Pretraining(Adaptive):
    """Keys of the recipes that read documents alone. A genq or gpl model can go on from such a model."""

    documents: Count = Field(100_000, description="Largest number of documents, sampled with the seed.")
    warmup: NotNegative = Field(0, description="Steps of rising learning rate; below 1, the share of all steps.")


class Tsdae(Pretraining):
    """Documents are restored from the vector of what is left of them without 60 % of their words."""

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


# Models


class ModelSize(Entry):
    """How large a model is: job sizes follow from it."""

    parameters: Positive | None = Field(None, description="Parameters in millions.")
    embeddings: NotNegative | None = Field(
        None, description="Millions of these that are word embeddings, which cost no arithmetic."
    )
    dimensions: Size | None = Field(None, description="Dimensions of the model's vectors.")


class DatasetPrompts(Entry):
    """The prompts of one dataset."""

    query: str = Field(description="Text put before each query.")


class Prompts(Entry):
    """Text put before queries and documents."""

    query: str | None = Field(None, description="Text put before each query.")
    document: str | None = Field(None, description="Text put before each document.")
    datasets: dict[str, DatasetPrompts] = Field(
        {}, description="Query prompts of single datasets. Documents have none: datasets share a corpus's vectors."
    )


class Brackets(Entry):
    """The opening and the closing token of each side. They count towards max_length and survive truncation."""

    query: Pair | None = Field(None, description="Tokens around a query, as the checkpoint's vocabulary spells them.")
    document: Pair | None = Field(None, description="Tokens around a document.")


class ModelEntry(Entry):
    """Keys that models of every family have."""

    checkpoint: str | None = Field(None, description="Model id on the Hugging Face hub.")
    revision: Resolvable | None = Field(
        None, description="Commit of the checkpoint, 40 hex digits. resolve: the hub is asked once, see docs/models.md."
    )
    path: Folder | None = Field(None, description="Folder with the checkpoint. It is found as a corpus path is.")
    package: str | None = Field(
        None, description="Installed Python package with the checkpoint. Its files are read, its code is not run."
    )
    files: dict[str, Digest] = Field({}, description="Files of the checkpoint and their SHA-256, which fetch verifies.")
    pickled: bool = Field(
        False, description="Fetch weights in pickle form where there are no safetensors, and convert them to these."
    )
    trust_remote_code: bool = Field(False, description="Run code that comes with the checkpoint. Read that code first.")
    max_length: Length | None = Field(
        None, description="Word pieces kept of a text (rerankers: of query and document together)."
    )
    precision: Precision | None = Field(None, description="Precision of this model, in place of encode.precision.")
    size: ModelSize = Field(
        ModelSize(), description="How large the model is. Without it, the files or BERT-base are assumed."
    )
    note: str = Field("", description="Note that the report shows beside every number made with the model.")
    family: str

    @property
    def per_corpus(self) -> bool:
        """Whether the entry is a template: the workflow trains one model per corpus."""
        return self.training is not None and self.training.corpus is None

    @property
    def training(self) -> Training | None:
        """How the workflow trains the model, or None if it fetches the model."""
        return getattr(self, "train", None)

    @property
    def query_tower(self) -> str | None:
        """The model that encodes queries in place of this one, if there is one (DPR)."""
        return getattr(self, "query_model", None)

    @property
    def prefixes(self) -> Prompts:
        """The prompts of the model: none in a family without that key."""
        return getattr(self, "prompts", Prompts())

    @property
    def origin(self) -> str:
        """The key that says where the weights come from: train, path, package or checkpoint."""
        origins = {"train": self.training, "path": self.path, "package": self.package, "checkpoint": self.checkpoint}
        return next((key for key, value in origins.items() if value is not None), "")


class DenseModel(ModelEntry):
    """One vector per text."""

    family: Literal["dense"] = Field(description="Decides how the checkpoint is opened and searched.")
    similarity: Literal["cosine", "dot"] = Field(description="How vectors are compared. cosine normalises them.")
    pooling: Literal["cls", "mean", "weightedmean", "lasttoken", "pooler"] | None = Field(
        None,
        description="How token vectors become one vector, for a checkpoint without a modules.json that says so. "
        "weightedmean weights tokens by position (SGPT); pooler is the model's own output (DPR).",
    )
    separator: str = Field(" ", description="Text between a document's title and its text.")
    query_model: str | None = Field(None, description="Model that encodes the queries: the other of two towers.")
    prompts: Prompts = Field(Prompts(), description="Text put before queries and documents.")
    brackets: Brackets | None = Field(None, description="Two tokens around each query and each document (SGPT).")
    train: Adaptation | None = Field(None, description="How the workflow adapts the model to a corpus.")


class SparseModel(ModelEntry):
    """One weight per term."""

    family: Literal["sparse"] = Field(description="Decides how the checkpoint is opened and searched.")
    similarity: Literal["dot"] = Field("dot", description="How vectors are compared.")
    pooling: Literal["splade", "sparta"] = Field(
        "splade", description="Where term weights come from: a language model's head, or input embeddings (sparta)."
    )
    query_model: str | None = Field(None, description="Model that encodes the queries: the other of two towers.")
    prompts: Prompts = Field(Prompts(), description="Text put before queries and documents.")


class LateInteractionModel(ModelEntry):
    """One vector per token."""

    family: Literal["late-interaction"] = Field(description="Decides how the checkpoint is opened and searched.")
    query_model: str | None = Field(None, description="Model that encodes the queries: the other of two towers.")
    query_length: Length | None = Field(
        None, description="Word pieces of a query, its marker and expansion included (max_length is for documents)."
    )
    query_lengths: dict[str, Length] = Field(
        {}, description="Query lengths of single datasets (or of all parts of a mean), in place of query_length."
    )


class CrossEncoder(ModelEntry):
    """A sequence classifier that scores pairs of query and document."""

    family: Literal["cross-encoder"] = Field(description="Decides how the checkpoint is opened and searched.")
    train: CrossEncoderTraining | None = Field(None, description="How the workflow trains the model.")


class Seq2SeqReranker(ModelEntry):
    """A T5 trained as monoT5."""

    family: Literal["seq2seq-reranker"] = Field(description="Decides how the checkpoint is opened and searched.")


class QueryGenerator(ModelEntry):
    """A T5 that writes queries for a document (docT5query)."""

    family: Literal["query-generator"] = Field(description="Decides how the checkpoint is opened and searched.")
    queries_per_document: Size = Field(40, description="Queries that are sampled per document.")
    seed: Seed = Field(0, description="Seed of the sampling.")
    top_k: Size = Field(10, description="Each word piece is drawn from the k most likely ones.")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="Of the top_k word pieces, the most likely that together reach this probability are kept."
    )
    prompts: Prompts = Field(Prompts(), description="Text put before documents.")


class TermWeightsModel(ModelEntry):
    """A model that weights the words of a document (DeepCT)."""

    family: Literal["term-weights"] = Field(description="Decides how the checkpoint is opened and searched.")
    smoothing: Literal["sqrt"] | None = Field(None, description="Applied to weights before they become frequencies.")
    keep_terms: bool = Field(False, description="Index a word whose weight rounds to 0 once, instead of dropping it.")


Model = Annotated[
    DenseModel
    | SparseModel
    | LateInteractionModel
    | CrossEncoder
    | Seq2SeqReranker
    | QueryGenerator
    | TermWeightsModel,
    Field(discriminator="family"),
]


# Systems


class SystemEntry(Entry):
    """A column of the grid."""

    kind: ClassVar[str]

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the systems whose runs this system is made from."""
        return ()


class Bm25(SystemEntry):
    """BM25 through Lucene."""

    kind: ClassVar[str] = "lexical"
    retriever: Literal["bm25"] = Field(description="bm25, or a dense, sparse or late-interaction model.")
    expansion: str | None = Field(
        None, description="Query generator or term-weights model whose expansions are indexed instead of the documents."
    )
    fields_: Literal["multifield", "flat"] = Field(
        "multifield", alias="fields", description="Title and text as two fields, as in the BEIR paper, or as one."
    )
    k1: NotNegative = Field(0.9, description="Saturation of term frequencies.")
    b: Annotated[float, Field(ge=0, le=1)] = Field(0.4, description="Normalisation by document length.")


class Retriever(SystemEntry):
    """Keys of every neural retriever."""

    retriever: str = Field(description="bm25, or a dense, sparse or late-interaction model.")


class DenseRetriever(Retriever):
    """A dense model, searched exactly."""

    kind: ClassVar[str] = "dense"


class SparseRetriever(Retriever):
    """A sparse model, searched exactly."""

    kind: ClassVar[str] = "sparse"


class LateInteractionRetriever(Retriever):
    """A late-interaction model: candidates by their nearest tokens, then MaxSim."""

    kind: ClassVar[str] = "late-interaction"
    candidates: Size = Field(100, description="Nearest tokens per query token whose documents are scored.")
    exhaustive: bool = Field(False, description="Score every document, without an index: the slow reference.")


class Reranked(SystemEntry):
    """A system whose top documents a reranker reorders."""

    kind: ClassVar[str] = "rerank"
    first_stage: str = Field(description="System whose run is reranked.")
    reranker: str = Field(description="Cross-encoder or seq2seq-reranker model.")
    depth: Size | None = Field(None, description="Documents per query that are reranked. 100, or all of shorter runs.")

    @property
    def parts(self) -> tuple[str, ...]:
        """The first stage."""
        return (self.first_stage,)


class Fused(SystemEntry):
    """Keys of every fusion."""

    kind: ClassVar[str] = "fusion"
    of: Annotated[tuple[str, ...], LIST] = Field(description="Systems whose runs are fused.")

    @property
    def parts(self) -> tuple[str, ...]:
        """The fused systems."""
        return self.of


class Rrf(Fused):
    """Reciprocal rank fusion."""

    fusion: Literal["rrf"] = Field(description="Method: reciprocal rank fusion, or a weighted sum of scores.")
    k: Size = Field(60, description="Constant of reciprocal rank fusion.")


class WeightedSum(Fused):
    """A weighted sum of normalised scores."""

    fusion: Literal["wsum"] = Field(description="Method: reciprocal rank fusion, or a weighted sum of scores.")
    norm: Literal["min-max", "max", "sum", "zmuv", "rank", "borda"] = Field(
        "min-max", description="Normalisation of scores before the sum."
    )
    weights: Annotated[tuple[float, ...], LIST] | None = Field(
        None, description="Weights, one per fused system. Equal ones unless given."
    )


System = Bm25 | DenseRetriever | SparseRetriever | LateInteractionRetriever | Reranked | Rrf | WeightedSum


# Settings


class GridSettings(Entry):
    """What to run: every system on every dataset."""

    systems: Names = Field(description="Columns of the grid.")
    datasets: Names = Field(description="Rows of the grid.")


class NodeLimits(Entry):
    """What one kind of cluster node has. Changing it reruns nothing."""

    mem_mb: Annotated[int, Field(ge=1000, le=MOST_COUNTED)] = Field(64_000, description="Memory of a node in MB.")
    runtime: Count = Field(1440, description="Time limit of a job in minutes.")
    partition: str = Field("", description="SLURM partition with these nodes. Empty: the default partition.")
    gpu_model: str = Field("", description="GPU type to ask for, where nodes have several (gres name).")


class Nodes(Entry):
    """Limits of jobs, by the kind of node."""

    cpu: NodeLimits = Field(NodeLimits(), description="Nodes without a GPU.")
    gpu: NodeLimits = Field(NodeLimits(), description="Nodes with GPUs.")


class RetrieveSettings(Entry):
    """Settings of first-stage retrieval."""

    depth: Size = Field(1000, description="Documents kept per query in a run.")


class BatchTokens(Entry):
    """Tokens per batch, padding included, by device."""

    cpu: Size = Field(2048, description="On a CPU. Small batches are as fast as larger ones.")
    cuda: Size = Field(65536, description="On a GPU. More where the GPU has more memory.")


class EncodeSettings(Entry):
    """Settings of every stage that runs a model."""

    precision: Precision = Field("auto", description="Format of matrix products. auto: the fastest that is native.")
    shard: Count = Field(500_000, description="Documents per shard: the unit of one encoding job, and of its memory.")
    batch_tokens: BatchTokens = Field(BatchTokens(), description="Tokens per batch, padding included, by device.")
    keep: bool = Field(False, description="Keep embeddings after they are indexed.")


class Settings(Entry):
    """Everything in the configuration but the four registries."""

    grid: GridSettings = Field(description="What to run: every system on every dataset.")
    metrics: Names = Field(description="Metrics to compute, name@k.")
    device: Device = Field("auto", description="Where models run. auto takes a GPU where there is one.")
    mirror: str = Field("", description="Folder or URL prefix with files of ir_datasets, named by their MD5 sums.")
    nodes: Nodes = Field(Nodes(), description="The most that a job may ask for, by the kind of node.")
    retrieve: RetrieveSettings = Field(RetrieveSettings(), description="First-stage retrieval.")
    encode: EncodeSettings = Field(EncodeSettings(), description="Stages that run a model.")
    small_corpus: Annotated[int, Field(ge=0, le=MOST_COUNTED)] = Field(
        0,
        description="Corpora of at most this many documents share cluster jobs (docs/cluster.md). 0: one job a stage.",
    )
    tolerances: dict[str, NotNegative] = Field(
        {}, description="Class of published values → the largest difference that counts as reproduced."
    )


class Config(Settings):
    """The checked configuration: settings, and the four registries by name."""

    corpora: dict[str, Corpus] = Field(description="Collections of documents.")
    datasets: dict[str, Dataset] = Field(description="Test queries and qrels over the corpora.")
    models: dict[str, Model] = Field(description="Neural models.")
    systems: dict[str, System] = Field(description="Columns of the grid: retrievers, reranked systems, fusions.")
