"""Sources of collections: each yields documents, queries and qrels in one form.

Sources stream, without holding a corpus in memory. Every value carries its ``place``, so that an error can name file
and line.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from itertools import chain, islice
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

from ..config.datasets import Corpus, Dataset, HubCorpus, IrDatasetsCorpus, LocalCorpus, MtebCorpus, is_unjudged
from ..core import files
from ..core.checkout import resolve_path
from ..core.errors import DataError, quoted
from . import downloads, lines, qrels
from .collection import Document
from .qrels import Judgement


class Query(NamedTuple):
    """One query.

    Attributes:
        synthetic: whether a model wrote the query.
        columns: what else the source has of it, by key; of BEIR's metadata, the keys within.
    """

    id: str
    text: str
    place: str
    synthetic: bool = False
    columns: Mapping[str, Any] = MappingProxyType({})


class Restriction(NamedTuple):
    """A document that is not ranked for a query or, with ``alone``, one of the only documents that are."""

    query: str
    document: str
    alone: bool = False


class Source(Protocol):
    """A source of one collection. It yields the documents in the collection's order, the queries of a dataset, judged
    or not, its qrels, and which documents are not, or alone, ranked for a query.
    """

    def documents(self) -> Iterator[Document]: ...

    def queries(self, dataset: Dataset) -> Iterator[Query]: ...

    def judgements(self, dataset: Dataset) -> Iterator[Judgement | Restriction]: ...

    def version(self, dataset: Dataset) -> str:
        """Phrase the version of the qrels and their judges; empty if the source tells none."""
        return ""


def open_source(corpus: Corpus) -> Source:
    """Open the source of a corpus entry."""
    if isinstance(corpus, LocalCorpus):
        return LocalSource(corpus)
    if isinstance(corpus, MtebCorpus):
        return MtebSource(corpus)
    return HubSource(corpus) if isinstance(corpus, HubCorpus) else IrDatasetsSource(corpus)


class LocalSource(Source):
    """A folder in BEIR layout: corpus.jsonl, queries.jsonl, qrels/{split}.tsv, each plain or .gz."""

    def __init__(self, corpus: LocalCorpus) -> None:
        self.corpus = corpus
        self.folder = resolve_path(corpus.path)

    def documents(self) -> Iterator[Document]:
        for row, place in json_lines(self._file("corpus.jsonl")):
            yield _document(row, place)

    def queries(self, dataset: Dataset) -> Iterator[Query]:
        for row, place in json_lines(self._file("queries.jsonl")):
            facts = row["metadata"] if isinstance(row.get("metadata"), dict) else {}
            text = read_text(row, "text", place, required=True)
            yield Query(read_id(row, place), text, place, facts.get("synthetic") is True, {**facts, **row})

    def judgements(self, dataset: Dataset) -> Iterator[Judgement]:
        if not is_unjudged(self.corpus):
            yield from qrels.judgements(self._file(f"qrels/{dataset.qrels(self.corpus)[1]}.tsv"))

    def version(self, dataset: Dataset) -> str:
        """Phrase the version of the qrels and the judges, if the folder is an evaluation set with qrels."""
        about = self.folder / "set.json"
        if is_unjudged(self.corpus) or not about.is_file():
            return ""
        with files.reading(about):
            versions = {accepted["sha256"]: accepted for accepted in files.read_json(about)["versions"]}
        accepted = versions.get(files.sha256(self._file(f"qrels/{dataset.qrels(self.corpus)[1]}.tsv")))
        if accepted is None:
            return "its qrels are not an accepted version (set.json)"
        return f"version {accepted['number']} of its qrels, {judged_by(accepted['judges'])}"

    def _file(self, name: str) -> Path:
        forms = files.forms(self.folder / name)
        if not forms:
            raise DataError(f"{self.folder} has no {name} (or {name}.gz)")
        if len(forms) > 1:
            raise DataError(f"{self.folder} has both {name} and {name}.gz: keep one of them")
        return forms[0]


def judged_by(judges: Iterable[str]) -> str:
    """Phrase who judged: people, or a model, whose name has a prefix."""
    models = [judge.removeprefix("model:") for judge in judges if judge.startswith("model:")]
    return f"judged by a model ({models[0]})" if models else "judged by people"


def json_lines(path: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield the JSON object of each line with its place; raise DataError for any other line."""
    for line, place in lines.read(path):
        try:
            row = json.loads(line, object_pairs_hook=files.distinct)
        except json.JSONDecodeError as error:
            raise DataError(f"{place}: not JSON ({error.msg} at column {error.colno})") from None
        except (RecursionError, ValueError) as error:  # nested too deeply, a number too long, a duplicate key
            raise DataError(f"{place}: JSON that cannot be read ({error})") from None
        if not isinstance(row, dict):
            raise DataError(f"{place}: expected a JSON object, got {type(row).__name__}")
        yield row, place


def read_id(row: dict[str, Any], place: str, key: str = "_id") -> str:
    """Return the id of a row; raise DataError if it is missing."""
    value = row.get(key)
    if value is None or value == "":
        raise DataError(f"{place}: no {key}")
    if not isinstance(value, str | int) or isinstance(value, bool):
        raise DataError(f"{place}: {key!r} should be text, got {type(value).__name__}")
    return encodable(str(value), key, place)


def read_text(row: dict[str, Any], key: str, place: str, required: bool = False) -> str:
    """Return a text of a row; raise DataError if it is not a text."""
    value = row.get(key)
    if value is None and not required:
        return ""  # BEIR collections without titles omit the key or have null
    if not isinstance(value, str):
        raise DataError(f"{place}: {key!r} should be text, got {type(value).__name__}")
    return encodable(value, key, place)


def _document(row: dict[str, Any], place: str) -> Document:
    """Return the document of a row, which may lack title or text; raise DataError if another key may have its text."""
    if "text" not in row and not row.keys() <= {"_id", "id", "title", "metadata"}:
        raise DataError(f"{place}: no 'text' (it has {', '.join(row)})")
    identifier = read_id(row, place)
    lines.check_id(identifier, place)
    return Document(identifier, read_text(row, "title", place), read_text(row, "text", place), place)


def encodable(text: str, key: str, place: str) -> str:
    """Return a text; refuse lone surrogates, which JSON and YAML can escape but UTF-8 cannot encode."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise DataError(f"{place}: {key!r} has a lone surrogate, {text[error.start]!a}") from None
    return text


class IrDatasetsSource(Source):
    """A collection of the ir_datasets catalogue, which downloads files and checks their MD5."""

    def __init__(self, corpus: IrDatasetsCorpus) -> None:
        self.corpus = corpus

    def documents(self) -> Iterator[Document]:
        with self._loaded(self.corpus.id) as loaded:
            # ir_datasets yields the first document only after the download.
            with downloads.one_at_a_time(self.corpus.id):
                documents = iter(loaded.docs_iter())
                first = list(islice(documents, 1))
            for document in chain(first, documents):
                # ``text`` in BEIR, ``body`` in TREC collections
                text = next((getattr(document, key) for key in ("text", "body") if hasattr(document, key)), None)
                row = {
                    "_id": document.doc_id,
                    "title": getattr(document, "title", None),
                    "text": document.default_text() if text is None else text,
                }
                yield _document(row, f"{self.corpus.id} document {document.doc_id!a}")

    def queries(self, dataset: Dataset) -> Iterator[Query]:
        with self._loaded(dataset.id) as loaded:
            for query in loaded.queries_iter():
                place = f"{dataset.id} query {query.query_id!a}"
                # BRIGHT's queries have no default_text.
                text = query.default_text() if hasattr(query, "default_text") else query.text
                yield Query(query.query_id, encodable(text, "text", place), place, columns=query._asdict())

    def judgements(self, dataset: Dataset) -> Iterator[Judgement | Restriction]:
        with self._loaded(dataset.id) as loaded:
            if not loaded.has_qrels():
                raise DataError(
                    f"{dataset.id} has no qrels in ir_datasets; a subset may have them ({dataset.id}/test?)"
                )
            # In BRIGHT's qrels, the grade -100 marks an excluded document.
            excluded = {grade for grade, meaning in loaded.qrels_defs().items() if meaning.startswith("Excluded")}
            for row in loaded.qrels_iter():
                place = f"{dataset.id} qrels of query {quoted(row.query_id)}"
                if row.relevance in excluded:
                    yield Restriction(row.query_id, row.doc_id)
                else:
                    yield Judgement(row.query_id, row.doc_id, row.relevance, place)

    @contextmanager
    def _loaded(self, identifier: str | None) -> Iterator[Any]:
        """Yield a dataset of the catalogue, and convert errors of the block."""
        import ir_datasets

        home = os.environ.get("IR_DATASETS_HOME", "~/.ir_datasets")
        remedy = f" Run again to fetch it; if an old file is broken, delete it first under {home}."
        try:
            loaded = ir_datasets.load(identifier)
        except KeyError:
            raise DataError(f"ir_datasets has no dataset {identifier!r}; see ir-datasets.com for the ids") from None
        with errors_of_library(str(identifier), remedy):
            yield loaded


class HubSource(Source):
    """A dataset of the Hugging Face hub at a pinned commit, in BEIR, NanoBEIR or MTEB layout.

    Its qrels are a configuration, or a separate dataset (BeIR/scifact-qrels). No code of a dataset runs.
    """

    def __init__(self, corpus: HubCorpus) -> None:
        self.corpus = corpus

    def documents(self) -> Iterator[Document]:
        split = self.corpus.split or ""
        for row, place in _hub_rows(self.corpus.id, self.corpus.revision, (self._named("corpus"),), split):
            yield _document(row, place)

    def queries(self, dataset: Dataset) -> Iterator[Query]:
        names = ("query", self._named("queries"))  # in mteb's order, as are those of qrels
        for row, place in _hub_rows(self.corpus.id, self.corpus.revision, names, dataset.split):
            text = read_text(row, "text", place, required=True)
            yield Query(read_id(row, place), text, place, columns=row)

    def judgements(self, dataset: Dataset) -> Iterator[Judgement]:
        # The configuration is checked: id and revision go together.
        identifier = dataset.id or self.corpus.id
        revision = dataset.revision or self.corpus.revision
        names = (self._named("qrels"),) if self.corpus.subset else ("default", "qrels")
        for row, place in _hub_rows(identifier, revision, names, dataset.split):
            grade = row.get("score", 1)  # NanoBEIR lists only relevant documents, without scores
            if isinstance(grade, bool) or not isinstance(grade, int | float) or not float(grade).is_integer():
                raise DataError(f"{place}: the score {quoted(grade)} is not a whole number")
            yield Judgement(read_id(row, place, "query-id"), read_id(row, place, "corpus-id"), int(grade), place)

    def _named(self, name: str) -> str:
        """Return the name of a configuration, for the subset if the entry has one."""
        return f"{self.corpus.subset}-{name}" if self.corpus.subset else name


class MtebSource(Source):
    """A task of mteb that loads its data with its own code, from a pinned commit on the hub."""

    def __init__(self, corpus: MtebCorpus) -> None:
        self.corpus = corpus

    def documents(self) -> Iterator[Document]:
        for row in self._of(Dataset(split=self.corpus.split))["corpus"]:
            yield _document({"_id": row["id"], **row}, f"{self.corpus.task} document {row['id']!a}")

    def queries(self, dataset: Dataset) -> Iterator[Query]:
        from mteb._create_dataloaders import _retrieval_texts
        from mteb.types import PromptType

        # As models of mteb read a query: with its instruction, and a conversation as one text.
        asked = self._of(dataset)["queries"]
        for row, text in zip(asked, _retrieval_texts(asked, PromptType.query), strict=True):
            place = f"{self.corpus.task} query {row['id']!a}"
            yield Query(read_id(row, place, "id"), encodable(text, "text", place), place, columns=row)

    def judgements(self, dataset: Dataset) -> Iterator[Judgement | Restriction]:
        loaded = self._of(dataset)
        qrels: dict[str, dict[str, int]] = loaded["relevant_docs"]
        changes = self._changes()
        for name, documents in changes.items():
            judged = {document for state in ("og", "changed") for document in qrels.get(f"{name}-{state}", ())}
            if lacking := documents - judged:
                raise DataError(
                    f"{self.corpus.task}: qrel_diff of {name!r} has {quoted(min(lacking))}, not in its qrels"
                )
        for query, grades in qrels.items():
            place = f"{self.corpus.task} qrels of query {query!r}"
            changed = changes.get(str(query).rpartition("-")[0], ())
            for document, grade in grades.items():
                yield Judgement(str(query), str(document), int(grade), place, document in changed)
        top_ranked = loaded.get("top_ranked") or {}
        everything = {row["id"] for row in loaded["corpus"]} if top_ranked else set()
        # Some tasks list all documents but few, which their benchmark excludes (BRIGHT).
        nearly_all = all(2 * len(documents) > len(everything) for documents in top_ranked.values())
        for query, documents in top_ranked.items():
            for document in sorted(everything.difference(documents) if nearly_all else set(documents)):
                yield Restriction(str(query), str(document), alone=not nearly_all)

    def _changes(self) -> dict[str, set[str]]:
        """Return FollowIR's lists of documents whose relevance an instruction changes, by query without its suffix."""
        if self._task.metadata.main_score != "p-MRR":
            return {}
        import datasets

        where = {"path": self._task.metadata.dataset["path"], "revision": self.corpus.revision}
        language = self.corpus.subset.removeprefix("eng-")  # that of the documents, in mFollowIRCrossLingual
        name = "qrel_diff" if language == "default" else f"qrel_diff-{language}"
        with errors_of_library(f"{name} of {self.corpus.task}"):
            if name not in datasets.get_dataset_config_names(**where):
                return {}
            rows = datasets.load_dataset(name=name, split="qrel_diff", **where)
            return {row["query-id"]: set(row["corpus-ids"]) for row in rows}

    @cached_property
    def _task(self) -> Any:
        with errors_of_library(self.corpus.task, " Its data are loaded by mteb, which environments of conda lack."):
            import mteb

            task = mteb.get_task(self.corpus.task)
        if (pinned := task.metadata.dataset["revision"]) != self.corpus.revision:
            raise DataError(
                f"{self.corpus.task}: mteb {mteb.__version__} reads commit {pinned}, its entry says "
                f"{self.corpus.revision}. Remove the dataset from checkpoints.lock.json to use the other commit"
            )
        return task

    def _of(self, dataset: Dataset) -> dict[str, Any]:
        """Return the data of a dataset's split; raise DataError unless its documents are those of the corpus."""
        _, split = dataset.qrels(self.corpus)
        loaded = self._loaded.get(split, {})
        own = self._loaded.get(self.corpus.split, {})
        if not loaded or (loaded is not own and [*loaded["corpus"]] != [*own.get("corpus", ())]):
            reason = f"mteb has no split {split!r} over the documents of {self.corpus.split!r}"
            raise DataError(f"{self.corpus.task}: {reason} (its splits are {', '.join(self._loaded)})")
        return loaded

    @cached_property
    def _loaded(self) -> dict[str, dict[str, Any]]:
        """The data from the task's own code, by split: corpus, queries, relevant_docs and top_ranked."""
        task = self._task
        with errors_of_library(f"{self.corpus.task} at {self.corpus.revision[:12]}"):
            task.load_data()
            task.convert_v1_dataset_format_to_v2(num_proc=None)  # needed after older loading code
            loaded: dict[str, dict[str, Any]] = task.dataset[self.corpus.subset]
        return loaded


def _hub_rows(
    identifier: str, revision: str, configurations: tuple[str, ...], split: str = ""
) -> Iterator[tuple[dict[str, Any], str]]:
    """Yield (row, place) from the first configuration that the dataset has.

    If there are several splits, read the named one, or the one with the configuration's name.
    """
    import datasets

    datasets.disable_progress_bars()
    with errors_of_library(f"{identifier} at {revision[:12]}"):
        have = datasets.get_dataset_config_names(identifier, revision=revision)
        name = next((name for name in configurations if name in have), None)
        if limiting := [configuration for configuration in have if configuration in ("top_ranked", "instruction")]:
            raise DataError(
                f"{identifier} has {' and '.join(limiting)} of its queries, which source: huggingface does not read: "
                "name its task of mteb, which source: mteb reads"
            )
        if name is None:
            raise DataError(
                f"{identifier} has no configuration {' or '.join(configurations)} (it has {', '.join(have)}), "
                "so it is not in BEIR, NanoBEIR or MTEB layout"
            )
        # The library's cache knows a folder by its name and README alone: it would give the rows of an earlier one.
        splits = datasets.load_dataset(identifier, name, revision=revision, streaming=Path(identifier).is_dir())
        chosen = next((key for key in (split, name) if key in splits), None)
        # Queries and documents often have a single split of any name; qrels must have the requested one.
        if chosen is None and (len(splits) > 1 or name in ("qrels", "default")):
            raise DataError(
                f"{identifier}: its configuration {name!r} has no split {split or name!r} (it has {', '.join(splits)})"
            )
        batches = splits[chosen or next(iter(splits))].iter(1000)  # twenty times as fast as single rows
        number = 0
        for batch in batches:
            for values in zip(*batch.values(), strict=True):
                row = dict(zip(batch, values, strict=True))
                number += 1
                yield {"_id": row.get("id"), **row}, f"{identifier} {name} row {number}"


@contextmanager
def errors_of_library(what: str, remedy: str = "") -> Iterator[None]:
    """Convert any exception of a library on a missing, unreachable or broken dataset to one DataError.

    A full disk and a missing permission are raised unchanged, because the dataset is not at fault.
    """
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EACCES):
            raise
        reason = " ".join(str(error).split())  # the hub's have several lines
        raise DataError(f"{what} cannot be read ({type(error).__name__}: {reason}).{remedy}") from error
