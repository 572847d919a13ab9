"""Systems, the columns of a grid: one class per kind."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from typing import Annotated, Any, ClassVar, Literal, Union

from pydantic import AfterValidator, Discriminator, Field, GetCoreSchemaHandler, Tag, ValidationInfo, WrapValidator
from pydantic_core import CoreSchema

from ..core.errors import quantity
from ..core.families import RETRIEVERS, families_with_role
from ..measures import metric_key
from .fusions import METHODS, PARAMETERS, FusionName, Norm
from .models import HEADS, Chunks, Head, TrainedOn
from .query_changes import Rewriting, Rm3
from .values import LIST, Count, Entry, HubId, PathName, Positive, Refers, Revision, Seeds, Size

_CHUNKS = Field(None, description="Read documents in chunks. By default, as the model's entry says.")
# Documents of a corpus that late interaction searches without an index: about half a million tokens, at 250 each.
FEW_DOCUMENTS = 2000
# A value, or the text tuned: a text is compared with this text alone, so that a mistake is told once.
_Tuned = Annotated[Literal["tuned"], Tag("text")]
_OR_TUNED = Discriminator(lambda value: "text" if isinstance(value, str) else "value")
SizeOrTuned = Annotated[Annotated[Size, Tag("value")] | _Tuned, _OR_TUNED]
ShareOrTuned = Annotated[Annotated[float, Field(ge=0, le=1), Tag("value")] | _Tuned, _OR_TUNED]
WeightsOrTuned = Annotated[Annotated[tuple[float, ...], LIST, Tag("value")] | _Tuned, _OR_TUNED]
_PLACE = re.compile(r"\{([a-z_]+)\}")


def command_words(command: str, places: Mapping[str, object]) -> list[str]:
    """Return a command as words, with values in place of the names in braces; a name without a value stays."""
    return [_PLACE.sub(lambda place: str(places.get(place[1], place[0])), word) for word in shlex.split(command)]


def places_of(command: str | None) -> set[str]:
    """Return the placeholders of a command."""
    return set(_PLACE.findall(command or ""))


class PublishedExpansion(Entry):
    """Keys that published expansions of every source have."""

    queries: Size | None = Field(None, description="Queries to take per document, from the first. By default, all.")
    allow: Annotated[tuple[Literal["missing-documents"], ...], LIST] = Field(
        (), description="Flaws to accept: documents of the corpus without queries."
    )


class LocalExpansion(PublishedExpansion):
    """Expansions in a file or folder."""

    source: Literal["local"] = Field(description="Where the expansions come from.")
    path: PathName = Field(
        description="A .jsonl file (may be .gz) with an id and queries in each line, or a folder of such files. "
        "{corpus} stands for the corpus."
    )


class HubExpansion(PublishedExpansion):
    """Expansions in files of a dataset on the Hugging Face hub at a pinned commit."""

    source: Literal["huggingface"] = Field(description="Where the expansions come from.")
    id: HubId = Field(description="Dataset on the Hugging Face hub.")
    revision: Revision = Field(description="Commit of the dataset, 40 hex digits.")
    files: Annotated[tuple[str, ...], LIST, Field(min_length=1)] = Field(
        description="Files of the dataset, or patterns such as d2q/*.jsonl.gz. {corpus} stands for the corpus."
    )


Published = Annotated[LocalExpansion | HubExpansion, Field(discriminator="source")]


# The name of a model, or published expansions.
Expansion = str | Published


class Index(Entry):
    """An index of dense vectors. All kinds but ``flat`` trade quality for bytes or milliseconds."""

    @property
    def name(self) -> str:
        """The index's name in paths: its kind and what it is built with."""
        return "-".join(map(str, self.built().values()))

    def built(self) -> dict[str, Any]:
        """Return the keys that the index is built with, defaults filled in, in the order of its name."""
        return self.model_dump(mode="json", exclude={"search", "oversampling"})


class Flat(Index):
    """All vectors in float32, searched exactly."""

    kind: Literal["flat"] = Field("flat", description="Kind of index.")


class Hnsw(Index):
    """A graph of neighbours, with vectors in float32."""

    kind: Literal["hnsw"] = Field(description="Kind of index.")
    links: Annotated[int, Field(ge=2, le=256)] = Field(32, description="Neighbours per vector and layer.")
    construction: Size = Field(200, description="Candidates that are kept while a vector is added.")
    search: Size = Field(1000, description="Candidates that are kept during a search.")


class Int8(Index):
    """One byte per dimension, scaled to its range. All documents are scored, or those that are near by their bits."""

    kind: Literal["int8"] = Field(description="Kind of index.")
    oversampling: Size | None = Field(
        None,
        description="Documents that are found by their bits, as in a binary index, and scored by their bytes, for each "
        "one of the run. Without it, all documents are scored.",
    )


class Binary(Index):
    """One bit per dimension, its sign. Documents that are near by their bits are scored again by the query's floats."""

    kind: Literal["binary"] = Field(description="Kind of index.")
    oversampling: Size = Field(4, description="Documents that are scored again, for each one of the run.")


AnyIndex = Annotated[Flat | Hnsw | Int8 | Binary, Field(discriminator="kind")]


class SystemEntry(Entry):
    """A column of the grid.

    Attributes:
        kind: its name in plans and in messages.
        over: kinds that its component systems may have; empty for all.
    """

    kind: ClassVar[str]
    over: ClassVar[tuple[str, ...]] = ()
    seeds: Seeds | None = Field(None, description="Runs of the system, each with other seeds. Tables show the mean.")

    @property
    def parts(self) -> tuple[str, ...]:
        """Names of the component systems."""
        return tuple(name for _, name in self.references("systems"))

    @property
    def change(self) -> str:
        """What the system makes of its queries by itself; empty if they stay."""
        return ""

    def conflicts(self, config: Any) -> Iterator[str]:
        """Yield which keys of a system of a grid contradict other entries of its configuration (``Config``)."""
        yield from ()

    def _problems(self) -> Iterator[str]:
        if getattr(self, "head", None) and getattr(self, "chunks", None):
            yield "head: does not go with chunks"


class Bm25(SystemEntry):
    """BM25 through Lucene."""

    kind: ClassVar[str] = "lexical"
    retriever: Literal["bm25"] = Field(description="BM25 through Lucene.")
    expansion: Annotated[Expansion | None, Refers(("models",), families_with_role("expander"))] = Field(
        None,
        description="Query generator or term-weights model whose expansions are indexed instead of the documents, or "
        "an entry of published expansions.",
    )
    fields_: Literal["multifield", "flat"] = Field(
        "multifield", alias="fields", description="Title and text as two fields, as in the BEIR paper, or as one."
    )
    k1: Annotated[float, Field(ge=0, le=1000)] = Field(0.9, description="Saturation of term frequencies.")
    b: Annotated[float, Field(ge=0, le=1)] = Field(0.4, description="Normalisation by document length.")
    rm3: Rm3 | None = Field(None, description="Search again with words of the first documents. Needs fields: flat.")

    @property
    def change(self) -> str:
        """What RM3 makes of its queries; empty without it."""
        return f"RM3: {self.rm3.terms} words of {self.rm3.documents} documents" if self.rm3 else ""

    @property
    def index_fields(self) -> str:
        """The fields of its index, as the index is named. RM3 reads the words of documents from vectors there."""
        return "flat-vectors" if self.rm3 else self.fields_

    def _problems(self) -> Iterator[str]:
        if self.rm3 and self.fields_ != "flat":
            yield "rm3: Anserini's RM3 searches one field: write fields: flat"


class Retriever(SystemEntry):
    """A neural model, searched exactly. Families whose search has keys of its own have classes below this one."""

    kind: ClassVar[str] = "neural"
    retriever: Annotated[str, Refers(("models",), tuple(RETRIEVERS), also=("bm25",))] = Field(
        description="Dense, sparse or late-interaction model."
    )
    head: Head | None = Field(
        None, description="Of BGE-M3's three heads, in place of the dense one: a weight (sparse) or a vector per token."
    )


class DenseRetriever(Retriever):
    """A dense model: searched exactly, or in a smaller or faster index that is built from the exact one."""

    kind: ClassVar[str] = "dense"
    dimensions: Size | None = Field(None, description="Leading dimensions to keep (Matryoshka). By default, all.")
    index: AnyIndex = Field(Flat(), description="Index that is searched.")
    chunks: Chunks | None = _CHUNKS

    @property
    def variant(self) -> str:
        """The name of the index that is built from the exact one, with its parameters; empty for the exact one."""
        if self.dimensions is None and isinstance(self.index, Flat):
            return ""
        return self.index.name + (f"-d{self.dimensions}" if self.dimensions else "")


class LateInteractionRetriever(Retriever):
    """A late-interaction model: candidates by their nearest tokens, then MaxSim."""

    kind: ClassVar[str] = "late-interaction"
    candidates: Size = Field(
        100,
        description="Nearest tokens per query token whose documents are scored. Without this key, every document of a "
        f"corpus of at most {FEW_DOCUMENTS:,} documents is scored, without an index.",
    )
    exhaustive: bool = Field(False, description="Score every document, without an index: the slow reference.")

    def scores_all(self, documents: int | None) -> bool:
        """Tell whether every document is scored, of a corpus with so many documents, or an unknown number of them."""
        few = documents is not None and documents <= FEW_DOCUMENTS
        return self.exhaustive or (few and "candidates" not in self.model_fields_set)

    def _problems(self) -> Iterator[str]:
        yield from super()._problems()
        if self.exhaustive and "candidates" in self.model_fields_set:
            yield "candidates: does not go with exhaustive, which scores every document"


class SeededSystem(SystemEntry):
    """A system with seeds after the configuration was loaded: the names of its members, one per seed."""

    kind: ClassVar[str] = "seeds"
    members: Annotated[tuple[str, ...], Refers(("systems",))] = Field(description="Systems that differ in seeds.")


class Reranked(SystemEntry):
    """A system whose top documents a reranker reorders."""

    kind: ClassVar[str] = "rerank"
    first_stage: Annotated[str, Refers(("systems",))] = Field(description="System whose run is reranked.")
    reranker: Annotated[str, Refers(("models",))] = Field(description="Reranker, or late-interaction model.")
    depth: Size | None = Field(None, description="Documents per query to rerank. By default 100, or all if fewer.")
    head: Literal["tokens", "last-layer"] | None = Field(
        None,
        description="MaxSim over the vectors of tokens of a dense model: those of a checkpoint with the three heads of "
        "BGE-M3 (tokens), or the last layer's of any other (last-layer).",
    )
    chunks: Chunks | None = _CHUNKS


class Rewritten(SystemEntry):
    """A retriever that searches with other texts in place of the queries."""

    kind: ClassVar[str] = "rewritten"
    over: ClassVar[tuple[str, ...]] = ("lexical", "dense")
    first_stage: Annotated[str, Refers(("systems",))] = Field(description="BM25 or dense system that searches.")
    query: Rewriting = Field(description="What becomes of its queries.")


class Adopted(SystemEntry):
    """Keys of every system of other software."""

    allow: Annotated[tuple[Literal["missing-queries"], ...], LIST] = Field(
        (), description="Flaws to accept: judged queries that the run lacks. They count 0."
    )
    trained_on: TrainedOn | None = Field(None, description="Collections whose judgements trained it, as for a model.")


class External(Adopted):
    """Runs that other software made."""

    kind: ClassVar[str] = "external"
    run: PathName = Field(
        description="Run of each dataset in TREC format, plain or gzipped (.gz). {dataset} stands for the dataset's "
        "name. A relative path starts at the working directory."
    )


class Program(Adopted):
    """A program that searches: beirgrid gives it the documents and the queries, and checks the run that it writes."""

    kind: ClassVar[str] = "program"
    command: str = Field(
        description="Command that answers the queries of a dataset. It reads the file {queries}, writes a run in TREC "
        "format to {run}, and may name {corpus}, {index}, {depth} and {threads}."
    )
    index_command: str | None = Field(None, description="Command that indexes first: reads {corpus}, fills {index}.")
    version: str = Field("", description="Version of the program, for the records. A change runs the commands again.")
    threads: Size = Field(1, description="Cores of a job.")
    mem_mb: Count = Field(4000, description="Memory in MB that a job is expected to take.")
    minutes: Positive = Field(10.0, description="Minutes that a job is expected to take.")
    gpu: bool = Field(False, description="Whether jobs need a GPU, unless device is cpu.")

    def _problems(self) -> Iterator[str]:
        for key, needed in (("command", {"queries", "run"}), ("index_command", {"corpus", "index"})):
            if (command := getattr(self, key)) is not None:
                try:
                    shlex.split(command)
                except ValueError as error:
                    yield f"{key}: {error}"
                yield from (f"{key}: needs {{{name}}}" for name in sorted(needed - places_of(command)))


class Fused(SystemEntry):
    """One run made of several."""

    kind: ClassVar[str] = "fusion"
    fusion: FusionName = Field(description="Method, as ranx names it: rrf, wsum, mnz, condorcet, … (docs/systems.md).")
    of: Annotated[tuple[str, ...], LIST, Field(min_length=2), Refers(("systems",))] = Field(
        description="Fused systems."
    )
    norm: Norm | None = Field(None, description="Normalisation of scores, as ranx names it. By default min-max.")
    weights: WeightsOrTuned | None = Field(
        None, description="One weight per fused system, or tuned. By default, all weights are equal."
    )
    k: SizeOrTuned | None = Field(None, description="Constant of rrf, or tuned. By default 60.")
    gamma: ShareOrTuned | None = Field(None, description="Exponent of gmnz, between sum (0) and mnz (1).")
    sigma: ShareOrTuned | None = Field(None, description="Summand of logn_isr. By default 0.01.")
    phi: ShareOrTuned | None = Field(None, description="Persistence of rbc.")
    n_segments: SizeOrTuned | None = Field(None, description="Segments of a run for probfuse.")
    w: SizeOrTuned | None = Field(None, description="Ranks on each side of a window of slidefuse.")
    tuned: Literal["dev", "folds"] = Field(
        "dev",
        description="Queries that choose the parameter: those of the dataset's key dev, or, for each fold of its own "
        "queries, the other folds.",
    )
    metric: Annotated[str, AfterValidator(metric_key)] | None = Field(
        None, description="Metric of the choice. By default, the dataset's main metric."
    )

    @property
    def parameter_value(self) -> Any:
        """The value of the method's parameter; None if it is tuned, or has none."""
        method = METHODS[self.fusion]
        value = getattr(self, method.parameter, None)
        return method.default if value is None else None if value == "tuned" else value

    @property
    def learns(self) -> bool:
        """Whether judged queries decide how it fuses."""
        method = METHODS[self.fusion]
        return method.trained or getattr(self, method.parameter, None) == "tuned"

    def _problems(self) -> Iterator[str]:
        method = METHODS[self.fusion]
        for key in PARAMETERS:
            if getattr(self, key) is not None and key != method.parameter:
                yield f"{key}: {self.fusion} takes {method.parameter or 'no parameter'}"
        if self.norm and self.norm not in method.norms:
            kept = ", which this norm does not keep" if method.norms else " alone"
            yield f"norm: {self.fusion} reads the ranks of documents{kept}"
        if isinstance(self.weights, tuple):
            yield from self._weights_problems(self.weights)
        if self.learns:
            return
        if method.parameter not in ("", "weights") and self.parameter_value is None:
            yield f"{method.parameter}: {self.fusion} needs a number here, or tuned"
        for key in sorted({"tuned", "metric"} & self.model_fields_set):
            write = f": write {method.parameter}: tuned" if method.parameter else ", and it has no parameter"
            yield f"{key}: {self.fusion} is not tuned{write}"

    def _weights_problems(self, weights: tuple[float, ...]) -> Iterator[str]:
        if len(weights) != len(self.of):
            yield f"weights: {quantity(len(weights), 'weight')} for {quantity(len(self.of), 'system')}"
        if not any(weights):
            yield "weights: all are 0, so all scores would be"


@cache
def retriever_of(family: str) -> type[Retriever]:
    """Return the class of the systems that retrieve with models of a family."""
    own: dict[str, type[Retriever]] = {kind.kind: kind for kind in Retriever.__subclasses__() if kind in _KINDS}
    return own.get(family) or type(Retriever.__name__, (Retriever,), {"kind": family, "__module__": __name__})


_KINDS = (
    Bm25,
    DenseRetriever,
    LateInteractionRetriever,
    Retriever,
    External,
    Program,
    Reranked,
    Rewritten,
    Fused,
)


@cache
def kinds() -> tuple[type[SystemEntry], ...]:
    """Return the classes of all kinds of systems: those above, and those that stand in the plans of stages.

    Plans import the configuration, so this asks for them when the first configuration is read.
    """
    stages = importlib.import_module(f"{__name__.partition('.')[0]}.graph.dag").stages().values()
    return (*_KINDS, *dict.fromkeys(stage.entry for stage in stages if stage.entry))


@cache
def _needed() -> dict[type[SystemEntry], set[str]]:
    """Return the keys that a system needs, by kind. Those of retrievers come last."""
    ordered = sorted(kinds(), key=lambda kind: issubclass(kind, Bm25 | Retriever))
    return {kind: {key for key, field in kind.model_fields.items() if field.is_required()} for kind in ordered}


def _of_its_kind(entry: dict[str, Any], _: Any, info: ValidationInfo) -> Any:
    """Validate a system as the class that needs most of its keys; a retriever, as that of its model's family."""
    models: dict[str, Any] = info.context["models"] if info.context else {}
    needed = _needed()
    kind = max(needed, key=lambda kind: len(needed[kind].intersection(entry)))
    if issubclass(kind, Bm25 | Retriever) or not needed[kind].intersection(entry):
        name = str(entry.get("retriever"))
        kind = Bm25
        if name != "bm25":
            family = str(HEADS.get(str(entry.get("head")), models.get(name, {}).get("family", "dense")))
            kind = retriever_of(family) if family in RETRIEVERS else Retriever
    return kind.model_validate(entry, context=info.context)


class _OfAnyKind:
    """Marks a system of any kind. pydantic asks for its schema when the first configuration is read."""

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> CoreSchema:
        return handler.generate_schema(Annotated[Union[kinds()], WrapValidator(_of_its_kind)])  # noqa: UP007


System = Annotated[SystemEntry, _OfAnyKind()]
