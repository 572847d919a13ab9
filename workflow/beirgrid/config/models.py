"""Models: one class per family."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from ..core.compute import Precision
from .lock import RESOLVE
from .recipes import Adaptation, CrossEncoderTraining, Training
from .servers import Endpoint
from .values import LIST, Entry, Folders, HubId, Length, NotNegative, PathName, Positive, Refers, Seed, Size, once

# A commit, or resolve; a SHA-256; tokens as the vocabulary of a checkpoint spells them.
Resolvable = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|resolve)$")]
Digest = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Token = Annotated[str, Field(min_length=1)]
Pair = Annotated[tuple[Token, Token], LIST]


class ModelSize(Entry):
    """How large a model is: job sizes follow from it."""

    parameters: Positive | None = Field(None, description="Parameters in millions.")
    embeddings: NotNegative | None = Field(None, description="Millions of these in word embeddings (no arithmetic).")
    dimensions: Size | None = Field(None, description="Dimensions of the model's vectors.")


class TrainedOn(Entry):
    """Registered collections whose relevance judgements a model was trained on."""

    names: Annotated[tuple[str, ...], LIST, AfterValidator(once), Refers(("datasets", "corpora"))] = Field(
        description="Datasets, or corpora, which stand for all datasets over them. An empty list: none of them."
    )
    source: str = Field(description="Publication or page that says so.")
    complete: bool = Field(True, description="Whether the source names all of them. If not, others may be among them.")


class Declined(Entry):
    """Datasets for which the publisher of a model declines a score, such as sets that its training has seen."""

    names: Annotated[tuple[str, ...], LIST, AfterValidator(once), Refers(("datasets",))] = Field(
        description="The datasets. Systems with the model do not run on them."
    )
    reason: str = Field(min_length=1, description="Why, and where the publisher says so.")


class DatasetPrompts(Entry):
    """The prompts of one dataset."""

    query: str = Field(description="Text put before each query.")


class Prompts(Entry):
    """Text put before queries and documents."""

    query: str | None = Field(None, description="Text put before each query.")
    document: str | None = Field(None, description="Text put before each document.")
    own: bool = Field(False, description="Use the checkpoint's own prompt on a side without a prompt here.")
    datasets: Annotated[dict[str, DatasetPrompts], Refers(("datasets",))] = Field(
        {}, description="Query prompts of single datasets. Documents have none: datasets share the vectors of a corpus."
    )


class Brackets(Entry):
    """The opening and the closing token of each side. They count towards max_length and survive truncation."""

    query: Pair | None = Field(None, description="Tokens around a query, as the checkpoint's vocabulary spells them.")
    document: Pair | None = Field(None, description="Tokens around a document.")


class Adapter(Entry):
    """A LoRA that is added to the weights of a checkpoint when the model is fetched."""

    checkpoint: HubId | None = Field(None, description="Id of the adapter on the Hugging Face hub.")
    revision: Resolvable | None = Field(None, description="Commit of the adapter, or resolve.")
    path: PathName | None = Field(None, description="Folder with the adapter, in place of an id.")
    pickled: bool = Field(False, description="If there are no safetensors, convert pickled weights.")

    def _problems(self) -> Iterator[str]:
        if bool(self.checkpoint) != bool(self.revision) or not (self.path or self.checkpoint):
            yield "needs a path, or a checkpoint with its revision"


class ModelEntry(Entry):
    """Keys that models of every family have."""

    checkpoint: HubId | None = Field(None, description="Model id on the Hugging Face hub.")
    revision: Resolvable | None = Field(None, description="Commit of the checkpoint, or resolve (docs/models.md).")
    path: PathName | None = Field(
        None,
        description="Folder with the checkpoint, resolved as that of a corpus. {seed} in it stands for 1, 2, … in the "
        "members of a system with seeds.",
    )
    paths: Folders | None = Field(None, description="Folders of trainings of one model: one for each of the seeds.")
    package: str | None = Field(
        None, description="Installed Python package with the checkpoint. Its code does not run."
    )
    adapter: Adapter | None = Field(None, description="LoRA that fetch adds to the checkpoint (docs/models.md).")
    endpoint: Endpoint | None = Field(None, description="Server that runs the model, in place of a checkpoint.")
    files: dict[str, Digest] = Field({}, description="Files of the checkpoint and their SHA-256, which fetch verifies.")
    pickled: bool = Field(False, description="Without safetensors, fetch pickled weights and convert them.")
    trust_remote_code: bool | None = Field(
        None,
        description="Run code that comes with the checkpoint. Read that code first. false opens what the library "
        "has in its place. Without this key, a checkpoint with code is refused.",
    )
    max_length: Length | None = Field(None, description="Tokens kept of a text (rerankers: of query and document).")
    precision: Precision | None = Field(None, description="Precision of this model, in place of encode.precision.")
    size: ModelSize = Field(ModelSize(), description="Size of the model. By default, that of its files.")
    trained_on: TrainedOn | None = Field(
        None,
        description="Collections whose judgements the model was trained on. Its scores there are not zero-shot. "
        "Without this key, nothing is known of its training data, and no score counts as zero-shot.",
    )
    declined: Declined | None = Field(None, description="Datasets for which its publisher declines a score.")
    licence: str = Field("", description="Licence of the weights.")
    source: str = Field("", description="Where the keys of the entry come from. Records of the checkpoint show it.")
    note: str = Field("", description="Note that the report shows beside every number made with the model.")
    family: str = Field(description="Decides how the checkpoint is opened and used: one of the families below.")

    @property
    def per_corpus(self) -> bool:
        """Whether the entry is a template: the workflow trains one model per corpus."""
        return self.training is not None and self.training.corpus is None

    @property
    def training(self) -> Training | None:
        """How the workflow trains the model, or None if it fetches the model."""
        return getattr(self, "train", None)

    def folder(self, seed: int) -> str | None:
        """Return the folder of the training of this number, from 1 on; None if the entry names none for each."""
        if self.paths:
            return self.paths[seed - 1]
        return self.path.replace("{seed}", str(seed)) if self.path and "{seed}" in self.path else None

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
        """The key that says where the weights come from: endpoint, train, path, paths, package or checkpoint."""
        origins = ("endpoint", "train", "path", "paths", "package", "checkpoint")
        return next((key for key in origins if getattr(self, key, None) is not None), "")

    def _problems(self) -> Iterator[str]:
        by = next((key for key in _UNREAD if getattr(self, key, None)), "")
        unread = [key for key in _UNREAD.get(by, ()) if key in self.model_fields_set]
        yield from (f"the key {key!r} does not go with {by}" for key in unread)
        yield from self._place_problems()
        if self.revision and not self.checkpoint and "revision" not in unread:
            yield "revision: needs the checkpoint of which it is a commit"
        yield from self._endpoint_problems() if by == "endpoint" else self._origin_problems(by)

    def _place_problems(self) -> Iterator[str]:
        if self.path and self.package:
            yield "the key 'package' does not go with path: 'package: null' takes it out"
        if self.paths and (self.path or self.package):
            yield f"the key 'paths' does not go with {'path' if self.path else 'package'}: one of them says where it is"
        if self.package and not self.files:
            yield "weights from a package need their SHA-256 under 'files'"

    def _endpoint_problems(self) -> Iterator[str]:
        if self.family not in _SERVED:
            yield f"endpoint: a server runs {', '.join(_SERVED)} models here, and this is a {self.family} model"
        given = self.endpoint.model_fields_set if self.endpoint else set()
        for key, families in _ASKED.items():
            if key in given and self.family in _SERVED and self.family not in families:
                yield f"endpoint.{key}: no request to a {self.family} model has it; leave it out"
        if self.prefixes.own:
            yield "prompts.own: a server does not tell the prompts of a model: name them"

    def _origin_problems(self, by: str) -> Iterator[str]:
        """Yield what is missing to say where the weights of a model come from."""
        if by == "engine" and (self.checkpoint is None or (self.path is None and self.revision is None)):
            yield "engine: mteb needs the checkpoint, as mteb lists it, and its revision (or a path to its files)"
        elif not self.origin:
            yield "needs a checkpoint with its revision, or a path, package, endpoint or train"
        elif self.origin == "checkpoint" and self.revision is None:
            yield (
                "needs a revision (40 hex digits), so that the numbers stay the same when the hub changes; "
                f"'{RESOLVE}' asks the hub for it once"
            )


# Families of which a server can run models.
_SERVED = ("dense", "cross-encoder", "listwise-reranker", "chat")
# Families of which the requests read a key of the endpoint that others do not.
_ASKED = {
    "protocol": ("cross-encoder",),
    "dimensions": ("dense",),
    "query_body": ("dense", "cross-encoder"),
    "batch": ("dense", "cross-encoder"),
}
# Keys that decide how weights are read, if a model is not a checkpoint that our engine opens, and keys unread then.
_UNREAD = {
    "train": (
        "path",
        "paths",
        "package",
        "checkpoint",
        "endpoint",
        "engine",
        "revision",
        "files",
        "adapter",
        "pickled",
    ),
    "endpoint": (
        *("checkpoint", "revision", "path", "paths", "package", "files", "pickled", "adapter", "trust_remote_code"),
        *("max_length", "precision", "pooling", "brackets", "special_tokens", "chunks", "engine", "tokens"),
    ),
    "engine": (
        *("prompts", "pooling", "brackets", "special_tokens", "max_length", "precision", "chunks"),
        *("head", "query_length", "query_lengths"),
    ),
    "query_model": ("query_length", "query_lengths"),
}

_ENGINE = Field(
    None,
    description="mteb: mteb's own loader runs the model, in its own precision. By default beirgrid's engine does.",
)


class Chunks(Entry):
    """How a document is read in parts, and how the parts make one vector or score of it."""

    tokens: Size = Field(description="Tokens of a document in a chunk. Prompt and special tokens are added.")
    stride: Size = Field(description="Tokens from the beginning of a chunk to that of the next one.")
    aggregate: Literal["max", "first", "mean"] = Field(
        description="max: a document has the score of its best chunk. mean: its vector, or the reranker's score, "
        "is the mean over its chunks. first: the model reads only the first chunk."
    )

    def _problems(self) -> Iterator[str]:
        if self.stride > self.tokens:
            yield f"stride {self.stride} is more than tokens {self.tokens}: no chunk would have the tokens between"

    @property
    def name(self) -> str:
        """The chunks in names of artifacts."""
        return f"{self.tokens}-{self.stride}-{self.aggregate}"


_CHUNKS = Field(
    None,
    description="Read documents in chunks, in all systems of the model. By default, the model reads the beginning of "
    "each document.",
)


QueryModel = Annotated[
    str | None,
    Refers(("models",)),
    Field(description="Model that encodes the queries, if the query encoder is a separate model (DPR)."),
]


class TaskModel(ModelEntry):
    """Keys of models that read a text of mteb's (engine: mteb) or of their checkpoint's (prompts.own) for each task."""

    task: str = Field("", description="mteb's task. The workflow sets it for each dataset.")
    task_type: str = Field("Retrieval", description="Type of that task.")
    tasks: dict[str, str] = Field({}, description="mteb's task of each dataset. Registered datasets have theirs.")


def similarity_of(stated: str | None) -> str:
    """Return a dense model's similarity: what its files or mteb state or, as sentence-transformers and mteb, cosine."""
    return "dot" if stated == "dot" else "cosine"


class DenseModel(TaskModel):
    """One vector per text."""

    family: Literal["dense"] = Field(description="Decides how the checkpoint is opened and searched.")
    similarity: Literal["cosine", "dot"] = Field(description="How vectors are compared. cosine normalises them.")
    pooling: Literal["cls", "mean", "weightedmean", "lasttoken", "pooler", "own"] | None = Field(
        None,
        description="How token vectors become one vector, if the checkpoint has no modules.json that says so. "
        "weightedmean weights tokens by position (SGPT); pooler is the model's own output (DPR); own is what "
        "sentence-transformers does: what modules.json says, or else the mean.",
    )
    separator: str = Field(" ", description="Text between a document's title and its text.")
    engine: Literal["mteb"] | None = _ENGINE
    chunks: Chunks | None = _CHUNKS
    query_model: QueryModel = None
    prompts: Prompts = Field(Prompts(), description="Text put before queries and documents.")
    brackets: Brackets | None = Field(None, description="Two tokens around each query and each document (SGPT).")
    special_tokens: Literal["end", "both"] | None = Field(
        None, description="Tokens around a text, over those of the tokenizer's files: end, or first and end (both)."
    )
    train: Adaptation | None = Field(None, description="How the workflow adapts the model to a corpus.")


class SparseModel(TaskModel):
    """One weight per term."""

    family: Literal["sparse"] = Field(description="Decides how the checkpoint is opened and searched.")
    similarity: Literal["dot"] = Field("dot", description="How vectors are compared.")
    pooling: Literal["splade", "sparta", "bge-m3"] = Field(
        "splade", description="Source of weights: a language model's head, input embeddings (sparta), or BGE-M3's head."
    )
    engine: Literal["mteb"] | None = _ENGINE
    query_model: QueryModel = None
    prompts: Prompts = Field(Prompts(), description="Text put before queries and documents.")


class LateInteractionModel(TaskModel):
    """One vector per token."""

    family: Literal["late-interaction"] = Field(description="Decides how the checkpoint is opened and searched.")
    head: Literal["bge-m3", "none"] | None = Field(
        None,
        description="Vectors of tokens are those of BGE-M3's third head (bge-m3), or the last layer's of a checkpoint "
        "that has no projection of tokens (none). By default, the checkpoint must have one.",
    )
    engine: Literal["mteb"] | None = _ENGINE
    query_model: QueryModel = None
    query_length: Length | None = Field(None, description="Tokens of a query (max_length is for documents).")
    query_lengths: Annotated[dict[str, Length], Refers(("datasets",))] = Field(
        {}, description="Query lengths of single datasets (or of all parts of a mean), in place of query_length."
    )


Head = Literal["sparse", "tokens"]
# Families of the heads of BGE-M3 beside its dense one, and of another dense model's last layer.
HEADS: dict[str, str] = {"sparse": "sparse", **dict.fromkeys(("tokens", "last-layer"), "late-interaction")}


def of_head(model: ModelEntry, head: str) -> SparseModel | LateInteractionModel:
    """Return the entry of another head, or of the vectors of tokens, of a dense model's checkpoint."""
    shared = {key: getattr(model, key) for key in ModelEntry.model_fields if key in model.model_fields_set}
    if head == "sparse":
        return SparseModel(**shared | {"family": HEADS[head], "pooling": "bge-m3"})
    tokens = {"head": "bge-m3" if head == "tokens" else "none", "query_length": model.max_length}
    return LateInteractionModel(**shared | {"family": HEADS[head], **tokens})


class CrossEncoder(TaskModel):
    """A sequence classifier that scores pairs of query and document."""

    family: Literal["cross-encoder"] = Field(description="Decides how the checkpoint is opened and searched.")
    engine: Literal["mteb"] | None = _ENGINE
    chunks: Chunks | None = _CHUNKS
    train: CrossEncoderTraining | None = Field(None, description="How the workflow trains the model.")


def _with_places(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Refuse the parts of a prompt unless they have the places of query and document, once each."""
    for place in ("{query}", "{document}"):
        if "".join(parts).count(place) != 1:
            raise ValueError(f"the parts must have {place} once in all")
    return parts


Prompt = Annotated[
    tuple[Token, ...],
    LIST,
    AfterValidator(_with_places),
    Field(
        description="Text that the model reads for a pair, in parts that are tokenized one by one. {query} and "
        "{document} stand for the texts. If the pair is too long, only the part with the document is cut."
    ),
]
Answers = Annotated[
    tuple[Token, ...],
    LIST,
    Field(min_length=1, max_length=2, description="Token for a relevant document, and one for another, if it counts."),
]


class AnsweringReranker(ModelEntry):
    """Keys of models that answer a prompt about a pair."""

    prompt: Prompt
    answers: Answers
    chunks: Chunks | None = _CHUNKS


class Seq2SeqReranker(AnsweringReranker):
    """A T5 that says whether a document is relevant; monoT5 by default."""

    family: Literal["seq2seq-reranker"] = Field(description="Decides how the checkpoint is opened and searched.")
    # What monoT5 is trained on (Nogueira et al. 2020). The end must survive truncation: it asks for the answer.
    prompt: Prompt = ("Query: {query} Document: {document}", "Relevant:")
    answers: Answers = ("▁true", "▁false")


class DecoderReranker(AnsweringReranker):
    """A decoder that says whether a document is relevant (Qwen3-Reranker, BGE's reranker of Gemma)."""

    family: Literal["decoder-reranker"] = Field(description="Decides how the checkpoint is opened and searched.")


class ListwiseReranker(ModelEntry):
    """A chat model of an endpoint that orders the documents of a window, as RankGPT asks for it."""

    family: Literal["listwise-reranker"] = Field(description="Decides how the checkpoint is opened and searched.")
    window: Annotated[int, Field(ge=2, le=1000)] = Field(20, description="Documents that the model orders at a time.")
    step: Size = Field(10, description="Documents by which the window moves from the last document to the first.")
    words: Size = Field(300, description="Words of each document in the prompt.")

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.origin not in ("", "endpoint"):
            yield "needs an endpoint: serve the checkpoint (vLLM, Ollama, llama.cpp)"
        if self.step > self.window:
            yield f"step: {self.step} is more than the window of {self.window}, so documents would be left out"


# Maximum tokens per query that a query generator writes (Nogueira and Lin, docTTTTTquery).
QUERY_LENGTH = 64


class QueryGenerator(ModelEntry):
    """A T5 that writes queries for a document (docT5query)."""

    family: Literal["query-generator"] = Field(description="Decides how the checkpoint is opened and searched.")
    queries_per_document: Size = Field(40, description="Queries that are sampled per document.")
    seed: Seed = Field(0, description="Seed of the sampling.")
    top_k: Size = Field(10, description="Each token is drawn from the k most likely ones.")
    top_p: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="Of the top_k tokens, only the most likely that together reach this probability are kept."
    )
    prompts: Prompts = Field(Prompts(), description="Text put before documents.")


class ChatModel(ModelEntry):
    """A model that answers messages: a decoder, or a model that a server runs. It writes texts for queries."""

    family: Literal["chat"] = Field(description="Decides how the checkpoint is opened and used.")
    temperature: NotNegative = Field(0.7, description="Temperature of the sampling. 0: the likeliest tokens.")
    tokens: Size = Field(512, description="Tokens of the longest text. Of a server, body has them (max_tokens).")


class TermWeightsModel(ModelEntry):
    """A model that weights the words of a document (DeepCT)."""

    family: Literal["term-weights"] = Field(description="Decides how the checkpoint is opened and searched.")
    smoothing: Literal["sqrt"] | None = Field(None, description="Applied to weights before they become frequencies.")
    keep_terms: bool = Field(False, description="Index a word whose weight rounds to 0 once instead of dropping it.")


Model = Annotated[
    DenseModel
    | SparseModel
    | LateInteractionModel
    | CrossEncoder
    | Seq2SeqReranker
    | DecoderReranker
    | ListwiseReranker
    | QueryGenerator
    | ChatModel
    | TermWeightsModel,
    Field(discriminator="family"),
]
Writer = Annotated[QueryGenerator | ChatModel, Field(discriminator="family")]
Reranker = Annotated[
    CrossEncoder | Seq2SeqReranker | DecoderReranker | ListwiseReranker | LateInteractionModel,
    Field(discriminator="family"),
]
