"""Corpora, and the datasets over them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, WithJsonSchema

from ..core.checkout import resolve_path
from ..measures import USUAL, metric_key
from .values import LIST, Count, Entry, Language, Name, Names, PathName, Positive, Refers, Revision


class CorpusEntry(Entry):
    """Keys that corpora of every source have."""

    documents: Count | None = Field(None, description="Documents, which fetch compares. Shards follow from it.")
    language: Language = Field("en", description="Language of the documents, an ISO 639-1 code.")
    licence: str = Field("", description="Licence as the publishers or the BEIR paper state it.")
    show_text: bool = Field(True, description="false: reports show ids in place of texts, as some licences ask.")
    allow: Annotated[tuple[Literal["duplicate-documents", "duplicate-queries", "empty-queries"], ...], LIST] = Field(
        (), description="Flaws of the collection to accept. beirgrid keeps the first of several duplicates."
    )


class LocalCorpus(CorpusEntry):
    """A folder in BEIR layout. If it replaces a registered corpus, the other keys of that corpus are not used."""

    source: Literal["local"] = Field(description="Where the corpus comes from.")
    path: PathName = Field(
        description="Folder in BEIR layout (corpus.jsonl, queries.jsonl, qrels/*.tsv, each may be .gz). A relative "
        "path starts at the working directory or, if nothing is there, at this checkout."
    )
    supplied: Literal["user"] | None = Field(
        None, description="user: it needs a licence. Without its folder, cells are “not supplied”."
    )
    id: str | None = Field(None, description="Identifier of the registered corpus that the folder replaces. Unused.")
    revision: Revision | None = Field(None, description="Commit of the corpus that the folder replaces. Unused.")
    split: Name | None = Field(None, description="Split of the corpus that the folder replaces. Unused.")


class IrDatasetsCorpus(CorpusEntry):
    """A collection of the ir_datasets catalogue."""

    source: Literal["ir_datasets"] = Field(description="Where the corpus comes from.")
    id: str = Field(description="ir_datasets id with the documents.")


class HubCorpus(CorpusEntry):
    """A dataset on the Hugging Face hub at a pinned commit."""

    source: Literal["huggingface"] = Field(description="Where the corpus comes from.")
    id: str = Field(description="Dataset on the Hugging Face hub with the documents.")
    revision: Revision = Field(description="Commit of the Hugging Face dataset, 40 hex digits.")
    split: Name | None = Field(None, description="Split of the documents, if the dataset has several.")
    subset: Name | None = Field(None, description="Subset, if there are several ({subset}-corpus, -queries, -qrels).")


class MtebCorpus(CorpusEntry):
    """A task of mteb that loads its data with code of its own. fetch runs this code, which comes with mteb."""

    source: Literal["mteb"] = Field(description="Where the corpus comes from.")
    task: str = Field(description="Name of the task.")
    revision: Revision = Field(description="Commit of the task's dataset on the Hugging Face hub, 40 hex digits.")
    split: Name = Field("test", description="Split of the task with the documents.")
    subset: Name = Field("default", description="Subset of the task.")

    @property
    def id(self) -> str:
        """The name of the task."""
        return self.task


Corpus = Annotated[LocalCorpus | IrDatasetsCorpus | HubCorpus | MtebCorpus, Field(discriminator="source")]


class Statistics(Entry):
    """Known figures of a dataset: job sizes follow from them."""

    relevant: Positive | None = Field(None, description="Relevant documents per query.")
    query_words: Positive | None = Field(None, description="Words per query.")
    document_words: Positive | None = Field(None, description="Words per document.")


class Slice(Entry):
    """A named group of queries of a dataset: those to which all of its keys apply. Nothing is computed again for it."""

    path: PathName | None = Field(None, description="File with the ids of its queries, one per line.")
    column: str = Field("", description="Key of the queries in their source, or of their metadata. Goes with value.")
    value: str | int | bool | None = Field(None, description="What its queries have in the column.")
    dataset: Annotated[str | None, Refers(("datasets",))] = Field(
        None, description="Dataset that has its queries, by id: SciFactDecontaminated has 41 of scifact."
    )
    seen_in: Annotated[str | None, Refers(("datasets",))] = Field(
        None,
        description="Training set: queries that share their words, or those of a relevant document, with a query or a "
        "relevant document of it.",
    )
    least_words: Count | None = Field(None, description="Fewest words of its queries, cut at white space.")
    most_words: Count | None = Field(None, description="Most words of its queries.")
    language: Annotated[str, Field(pattern="^[a-z]{2,3}$")] | None = Field(
        None, description="Language of its queries by py3langid, as ISO 639 writes it (de). Unsure texts have none."
    )
    invert: bool = Field(False, description="true: all other queries of the dataset.")

    def _problems(self) -> Iterator[str]:
        if bool(self.column) != (self.value is not None):
            yield "column and value go together"
        if not self.model_fields_set - {"invert"}:
            yield "needs one of the keys path, column, dataset, seen_in, least_words, most_words, language"


class Dataset(Entry):
    """Queries and qrels over one corpus, or the mean of several such datasets (``mean_of``)."""

    corpus: Annotated[str | None, Refers(("corpora",))] = Field(None, description="The corpus that is searched.")
    id: str | None = Field(None, description="ir_datasets id, or hub dataset with the qrels (default: the corpus's).")
    revision: Revision | None = Field(None, description="Commit of the Hugging Face dataset with the qrels.")
    split: Name = Field("test", description="Split of the qrels (qrels/{split}.tsv). By default, a task of mteb's own.")
    dev: Annotated[str | None, Refers(("datasets",))] = Field(
        None, description="Dataset of other queries over the same corpus, on which fusions are tuned."
    )
    queries: Count | None = Field(None, description="Number of queries with qrels, which fetch compares.")
    queries_are_documents: bool | Literal["auto"] = Field(
        "auto", description="Whether a document with a query's id is that query, not ranked. auto: if texts are equal."
    )
    task: str = Field("", description="Task, as in the BEIR paper. Tables show it.")
    domain: str = Field("", description="Domain, as in the BEIR paper. Tables show it.")
    metric: Annotated[str, Field(pattern="@"), AfterValidator(metric_key)] = Field(
        USUAL, description="Main metric, name@k: what main stands for among metrics."
    )
    relevance: Literal["", "binary", "3-level", "4-level", "5-level", "6-level"] = Field(
        "", description="Grades of the qrels. Tables show them."
    )
    group: str = Field("", description="Benchmark that the dataset belongs to.")
    statistics: Statistics = Field(Statistics(), description="Known figures (BEIR: the paper's Table 1) for job sizes.")
    mean_of: Annotated[Names, Refers(("datasets",))] = Field((), description="Datasets whose mean this one is.")
    slices: dict[Annotated[Name, WithJsonSchema({"type": "string"})], Slice] = Field(
        {}, description="Groups of its queries, which have rows of their own."
    )

    def _problems(self) -> Iterator[str]:
        own = {"corpus", "id", "revision", "split", "dev", "queries", "queries_are_documents", "slices"}
        own &= self.model_fields_set
        if self.mean_of and own:
            yield f"{', '.join(sorted(own))}: does not go with mean_of"
        elif not self.mean_of and self.corpus is None:
            yield "needs the key corpus (or mean_of)"

    def qrels(self, corpus: CorpusEntry) -> tuple[str, str]:
        """Return the source of the qrels over a corpus (a folder, an id or a task), and their split.

        Without the key ``split``, ``beir/fiqa/dev`` has the split ``dev`` in a folder that replaces ``beir/fiqa``.
        """
        given = "split" in self.model_fields_set
        if isinstance(corpus, MtebCorpus):
            return f"{corpus.task} {corpus.subset}", self.split if given else corpus.split
        if isinstance(corpus, LocalCorpus):
            prefix, _, split = (self.id or "").rpartition("/")
            return str(resolve_path(corpus.path).resolve()), self.split if given or prefix != corpus.id else split
        return f"{self.id or getattr(corpus, 'id', '')} {getattr(corpus, 'subset', '')}", self.split


def is_unjudged(corpus: CorpusEntry) -> bool:
    """Tell whether a collection has no qrels at all: its datasets are run, but not evaluated."""
    return isinstance(corpus, LocalCorpus) and not splits(resolve_path(corpus.path))


def splits(folder: Path) -> list[str]:
    """Return the splits of which a folder has qrels."""
    return sorted(path.name.split(".tsv")[0] for path in folder.glob("qrels/*.tsv*"))


def lack_of_qrels(folder: Path, split: str) -> str:
    """Return that a folder lacks the file of qrels that is read, and its names like that, which are not read."""
    like = {*folder.glob("*[qQ][rR][eE][lL]*"), *folder.glob("qrels/[!.]*")}
    others = like - {folder / "qrels", *folder.glob("qrels/*.tsv*")}
    names = ", ".join(sorted(str(path.relative_to(folder)) for path in others))
    return f"has no qrels/{split}.tsv" + f" ({names}: such names are not read)" * bool(names)
