"""Evaluation sets on disk: a folder in BEIR layout, with description, pool, judgements and versions of the qrels.

set.json              name, guideline, grades, origin of documents and queries, models that judged, versions
corpus.jsonl          documents
queries.jsonl         queries
judgements.sqlite     the pool, and all judgements of all judges
versions/{n}.tsv      the qrels of each version; 0 has those of the dataset whose holes the set fills
qrels/test.tsv        the qrels of the newest version
"""

from __future__ import annotations

import datetime
import json
import shutil
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ..collections import qrels
from ..collections.collection import Document, write_jsonl
from ..collections.sources import LocalSource, judged_by
from ..config.datasets import Dataset, LocalCorpus
from ..core import files
from ..core.checkout import __version__, full_version
from ..core.errors import BeirgridError, DataError, quantity
from .agreement import Grades, Pair, Resolution, coefficients, resolve, without_adjudicators
from .queries import SetQuery
from .store import MODEL, JudgementStore

GUIDELINE = (
    "Judge whether the document answers the query, not whether its words match. Judge each document by itself, as if "
    "you saw no other one. If you cannot decide, skip it and say why."
)
GRADES = {
    0: "not relevant: the document has nothing to do with the query",
    1: "related: it is on the topic, but does not answer the query",
    2: "relevant: it answers the query in part",
    3: "perfectly relevant: it answers the query fully",
}


Grade = Annotated[int, Field(ge=-qrels.MAX_GRADE, le=qrels.MAX_GRADE)]


class Version(BaseModel):
    """A version of the qrels."""

    model_config = ConfigDict(extra="forbid")
    number: int
    date: str
    judges: list[str]
    judgements: int
    queries: int
    resolution: Resolution
    adjudicator: str = ""
    guideline: str
    agreement: list[dict[str, Any]] = Field(default_factory=list)
    sha256: str


class Description(BaseModel):
    """The content of set.json."""

    model_config = ConfigDict(extra="forbid")
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,79}$")]
    licence: str = ""
    guideline: str = GUIDELINE
    grades: dict[Grade, str] = Field(default_factory=lambda: dict(GRADES), min_length=2)
    documents: dict[str, Any] = Field(default_factory=dict)
    queries: dict[str, Any] = Field(default_factory=dict)
    pools: list[dict[str, Any]] = Field(default_factory=list)
    models: dict[str, dict[str, Any]] = Field(default_factory=dict)
    versions: list[Version] = Field(default_factory=list)
    # If version 0 has the qrels of a dataset that a grid ran: that dataset, and its corpus.
    dataset: str = ""
    corpus: str = ""
    made_with: str = f"beirgrid {__version__}"

    @property
    def in_grids(self) -> str:
        """The dataset as which grids know the set."""
        return self.dataset or self.name


def _by_pair(judged: Mapping[str, Mapping[str, int]]) -> dict[Pair, int]:
    return {(query, document): grade for query, grades in judged.items() for document, grade in grades.items()}


class EvaluationSet:
    """The folder of an evaluation set."""

    def __init__(self, folder: Path) -> None:
        """Open a set; raise DataError if the folder is none, or its set.json is damaged."""
        self.folder = folder
        self.description = _read_description(folder)
        self.corpus = LocalCorpus(source="local", path=str(folder.resolve()))
        self.dataset = Dataset(corpus=self.description.name, queries_are_documents=False)
        self.source = LocalSource(self.corpus)
        self.store = JudgementStore(folder / "judgements.sqlite")

    @classmethod
    def create(
        cls, folder: Path, documents: list[Document], origin: str, licence: str = "", **facts: Any
    ) -> EvaluationSet:
        """Create a set with its corpus, named after its folder; ``facts`` are more about the documents, for set.json.

        Raises:
            BeirgridError: the folder already has a set, or its name cannot be a dataset's.
            DataError: two documents have the same id.
        """
        if (folder / "set.json").exists():
            raise BeirgridError(f"{folder} is an evaluation set already; delete it, or choose another folder")
        name = folder.resolve().name
        about = {"from": origin, "number": len(documents), **facts}
        try:
            description = Description(name=name, licence=licence, documents=about)
        except ValidationError:
            raise BeirgridError(
                f"{name!r} cannot be the name of a dataset: use up to 80 letters, digits, _, . and -"
            ) from None
        _refuse_repeated("documents", (document.id for document in documents))
        with files.atomic(folder / "corpus.jsonl") as temporary:
            write_jsonl([documents], temporary)
        files.write_text(folder / "set.json", description.model_dump_json(indent=2))
        return cls(folder)

    def adopt(self, dataset: str, corpus: str, judged: qrels.Qrels) -> None:
        """Take the qrels of a dataset as version 0, and their grades as those of the set."""
        grades = sorted({grade for of_query in judged.values() for grade in of_query.values() if grade > 0})
        how = {grade: f"relevant, grade {grade} of {grades[-1]}" if len(grades) > 1 else "relevant" for grade in grades}
        pairs = _by_pair(judged)
        with self.edit() as description:
            description.dataset = dataset
            description.corpus = corpus
            description.grades = {0: GRADES[0], **how}
            self._add_version(0, pairs, judges=[dataset], resolution="majority")

    def adopted(self) -> dict[Pair, int]:
        """Return the grades of version 0, if the set fills the holes of a dataset."""
        judged = self.qrels(0) if self.description.dataset else {}
        return _by_pair(judged)

    @contextmanager
    def edit(self) -> Iterator[Description]:
        """Yield the description, read again for the block to change, and write it when the block ends.

        What a person or another command changed in set.json since this one began thus stays. Other blocks wait.
        """
        with files.locked(self.folder / ".lock"):
            self.description = _read_description(self.folder)
            yield self.description
            files.write_text(self.folder / "set.json", self.description.model_dump_json(indent=2) + "\n")

    def write_queries(self, queries: Iterable[SetQuery], **facts: Any) -> None:
        """Replace queries.jsonl. A query that a model wrote is marked as synthetic."""
        asked = list(queries)
        rows = []
        _refuse_repeated("queries", (query.id for query in asked))
        for identifier, text, times, stratum, source in asked:
            about = {"synthetic": True, "source": source} if source else {"stratum": stratum, "times": times}
            rows.append({"_id": identifier, "text": text, "metadata": about})
        _write_json_lines(self.folder / "queries.jsonl", rows)
        with self.edit() as description:
            description.queries = {**facts, "number": len(asked)}

    def queries(self) -> dict[str, str]:
        """Return the queries: id to text."""
        if not (self.folder / "queries.jsonl").is_file():
            raise DataError(f"{self.folder} has no queries: beirgrid set queries adds them")
        return {query.id: query.text for query in self.source.queries(self.dataset)}

    def each_document(self) -> Iterator[Document]:
        """Yield the documents."""
        return (Document(*document[:3]) for document in self.source.documents())

    def documents(self, wanted: Iterable[str]) -> dict[str, Document]:
        """Return some documents by their ids, which runs found; raise DataError if the set lacks one."""
        known = set(wanted)
        texts = {document.id: document for document in self.each_document() if document.id in known}
        if lacking := known - texts.keys():
            raise DataError(f"the runs found document {min(lacking)!r}, which {self.folder} lacks: run the grid again")
        return texts

    def changed_texts(self) -> list[Pair]:
        """Return the judged pairs whose query or document had another text when this was called before."""
        pool = self.store.pool()
        queries = self.queries()
        pooled = {document for _, document in pool}
        texts = {document.id: document[1:3] for document in self.each_document() if document.id in pooled}
        shown = {(query, document): repr((queries.get(query), texts.get(document))) for query, document in pool}
        return self.store.changed(shown) if shown else []

    def grades(self) -> Grades:
        """Return the grades by judge, including models, without skipped pairs."""
        grades: dict[str, dict[Pair, int]] = {}
        for judgement in self.store.judgements():
            if judgement.grade is not None:
                grades.setdefault(judgement.judge, {})[judgement.query, judgement.document] = judgement.grade
        return grades

    def people(self) -> Grades:
        """Return the grades by judge, without models."""
        return {judge: of_judge for judge, of_judge in self.grades().items() if not judge.startswith(MODEL)}

    def waiting_queries(self) -> set[str]:
        """Return the queries of the pool that people have not judged whole."""
        judged = {
            (judgement.query, judgement.document)
            for judgement in self.store.judgements()
            if not judgement.judge.startswith(MODEL)
        }
        return {query for query, document in self.store.pool() if (query, document) not in judged}

    def accept(self, how: Resolution, adjudicator: str = "", without: Iterable[str] = (), model: str = "") -> Version:
        """Make a version of the qrels from the judgements of people, or of one model, and use it as the set's qrels.

        Args:
            how: resolution of disagreements (``agreement.resolve``).
            adjudicator: the judge who decides them, for ``adjudicated``.
            without: people whose judgements are excluded.
            model: the model whose judgements replace people's.

        Raises:
            BeirgridError: a named judge has not judged, a grade is not one of the set's, an adjudicator has not
                decided all disagreements, or none of the judged documents is relevant.
        """
        everyone = self.grades()
        excluded = set(without)
        people = {judge: of_judge for judge, of_judge in self.people().items() if judge not in excluded}
        names = ", ".join(everyone) or "none"
        if unknown := excluded.union([MODEL + model] if model else []) - everyone.keys():
            raise BeirgridError(f"nobody has graded as {min(unknown)!r} (judges are {names})")
        grades = {MODEL + model: everyone[MODEL + model]} if model else people
        self._refuse_other_grades(grades)
        resolved, undecided = resolve(grades, how, adjudicator)
        if undecided:
            query, document = undecided[0]
            raise BeirgridError(
                f"judges disagree on {quantity(len(undecided), 'pair')} that {adjudicator!r} has not judged, first "
                f"document {document!r} for query {query!r}: beirgrid set status {self.folder} --disagreements "
                f"FILE lists them, and beirgrid set judge {self.folder} --take-back {adjudicator!r} FILE stores the "
                "column grade"
            )
        if not any(grade > 0 for grade in resolved.values()) and not (resolved and self.description.dataset):
            counted = f"none of the {len(resolved)} judged documents is relevant (judges are {names})"
            raise BeirgridError(f"{self.folder}: {counted}: every score would be 0")
        measured = coefficients(without_adjudicators(people | grades, {adjudicator}))
        adopted = self.adopted()
        with self.edit() as description:  # or else two commands may take one number
            return self._add_version(
                1 + max((made.number for made in description.versions), default=0),
                adopted | resolved,
                judges=[*sorted(grades), *([description.dataset] if adopted else [])],
                resolution=how,
                adjudicator=adjudicator,
                agreement=[coefficient._asdict() for coefficient in measured if coefficient.pairs],
            )

    def _refuse_other_grades(self, grades: Mapping[str, Mapping[Pair, int]]) -> None:
        """Raise BeirgridError if a judge gave a grade that the set does not have."""
        scale = self.description.grades
        others = [(judge, grade) for judge, own in grades.items() for grade in own.values() if grade not in scale]
        if others:
            judge, grade = others[0]
            raise BeirgridError(
                f"{self.folder}/set.json has the grades {', '.join(map(str, scale))}, but "
                f"{quantity(len(others), 'judgement has', 'judgements have')} others, first {grade} by {judge}: put "
                "the scale back, or judge these pairs again"
            )

    def _add_version(self, number: int, resolved: Mapping[Pair, int], **about: Any) -> Version:
        """Write the qrels of a version, describe it, and use it as the set's qrels."""
        lines = (f"{query}\t{document}\t{grade}\n" for (query, document), grade in sorted(resolved.items()))
        text = "query-id\tcorpus-id\tscore\n" + "".join(lines)
        path = self.folder / f"versions/{number}.tsv"
        files.write_text(path, text)
        version = Version(
            number=number,
            date=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            judgements=len(resolved),
            queries=len({query for query, _ in resolved}),
            guideline=self.description.guideline,
            sha256=files.sha256(path),
            **about,
        )
        self.description.versions.append(version)
        files.write_text(self.folder / "qrels/test.tsv", text)
        return version

    def qrels(self, version: int) -> Mapping[str, Mapping[str, int]]:
        """Return the qrels of a version; raise BeirgridError if there is none, or its file was changed since."""
        hashes = {made.number: made.sha256 for made in self.description.versions}
        if version not in hashes:
            has = ", ".join(map(str, hashes)) or "none"
            raise BeirgridError(f"{self.folder} has no version {version} (it has {has})")
        path = self.folder / f"versions/{version}.tsv"
        if files.sha256(path) != hashes[version]:
            raise DataError(f"{path} was changed after version {version} was accepted")
        return qrels.read(path)

    def export(self, output: Path) -> Version:
        """Write the newest version to a folder that beir, mteb, datasets and ir_datasets read, without names of judges.

        Raises:
            BeirgridError: the folder exists, or the set has no version.
            DataError: a file of the set is damaged.
        """
        if not self.description.versions:
            raise BeirgridError(f"{self.folder} has no version of its qrels yet: beirgrid set accept makes one")
        if output.exists():
            raise BeirgridError(f"{output} exists already: name a new folder")
        version = self.description.versions[-1]
        judged = [(query, *pair) for query, grades in self.qrels(version.number).items() for pair in grades.items()]
        with files.atomic(output, directory=True) as folder:
            shutil.copyfile(self.folder / "corpus.jsonl", folder / "corpus.jsonl")
            # Loaders expect the same keys in each line. The frequency of a query in a log stays private.
            queries = (
                {"_id": query.id, "text": query.text, "metadata": {"synthetic": query.synthetic}}
                for query in self.source.queries(self.dataset)
            )
            _write_json_lines(folder / "queries.jsonl", queries)
            (folder / "qrels").mkdir()
            shutil.copyfile(self.folder / f"versions/{version.number}.tsv", folder / "qrels/test.tsv")
            trec = (f"{query} 0 {document} {grade}\n" for query, document, grade in judged)
            files.write_text(folder / "qrels/test.trec", "".join(trec))
            # Hugging Face's datasets reads a folder in one format. A .tsv would make it parse JSON as CSV.
            keys = ("query-id", "corpus-id", "score")
            _write_json_lines(folder / "qrels/test.jsonl", (dict(zip(keys, row, strict=True)) for row in judged))
            files.write_text(folder / "README.md", _card(self.description, version))
        return version


def _card(about: Description, version: Version) -> str:
    """Format the dataset card. Hugging Face's datasets and mteb read its header."""
    splits = [("default", "test", "qrels/test"), ("corpus", "corpus", "corpus"), ("queries", "queries", "queries")]
    configs = [
        {"config_name": name, "data_files": [{"split": split, "path": f"{path}.jsonl"}]} for name, split, path in splits
    ]
    header = {"pretty_name": about.name, "task_categories": ["text-retrieval"], "configs": configs}
    scale = "\n".join(f"- {grade}: {meaning}" for grade, meaning in sorted(about.grades.items()))
    judged = quantity(version.judgements, "judgement")
    return f"""\
---
{yaml.safe_dump(header, sort_keys=False, allow_unicode=True)}---

# {about.name}

{quantity(about.documents.get("number", 0), "document")}. {judged} of {quantity(version.queries, "query")}.
Version {version.number} of {version.date}, {judged_by(version.judges)} ({version.resolution}).
{"A model wrote the queries: they are synthetic." if about.queries.get("synthetic") else ""}
Made by beirgrid {full_version()}.

## Licence

{about.licence or "Not stated. Ask the owner of the documents."}

## Guideline

{version.guideline}

{scale}

## Files

`corpus.jsonl`, `queries.jsonl` and `qrels/test.tsv` are BEIR's layout. `qrels/test.jsonl` has the same judgements for
MTEB, and `qrels/test.trec` for ir_datasets and trec_eval.
"""


def _write_json_lines(path: Path, rows: Iterable[dict[str, Any]]) -> None:
    """Write a JSON object per line, atomically."""
    files.write_text(path, "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


def _read_description(folder: Path) -> Description:
    path = folder / "set.json"
    if not path.is_file():
        raise DataError(f"{folder} is not an evaluation set: it has no set.json (beirgrid set init makes one)")
    try:
        return Description.model_validate_json(path.read_bytes())
    except ValidationError as error:
        raise DataError(f"{path}: {error}") from None


def _refuse_repeated(what: str, ids: Iterable[str]) -> None:
    if repeated := [identifier for identifier, count in Counter(ids).items() if count > 1]:
        raise DataError(f"two {what} have the id {min(repeated)!r}")
