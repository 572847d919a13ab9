"""``beirgrid search SYSTEM DATASET QUERY``: search with a system of a finished grid."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from json import dumps
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

from ..config.values import SizeOrZero
from ..core import paths, provenance
from ..core.errors import BeirgridError, show
from ..results import results_folder
from .options import ResultsPlace

if TYPE_CHECKING:
    from ..collections.collection import Document
    from ..runs.runs import Ranking

# Most characters of a document to print.
_CHARACTERS = 160


class Hit(NamedTuple):
    """A document that a query found. ``matched`` has the words of the query that the document has."""

    rank: int
    score: float
    id: str
    title: str
    text: str
    matched: list[str]


def search(
    system: Annotated[str, "a system of a finished grid"],
    dataset: Annotated[str, "a dataset on which the system was run: its corpus is searched"],
    query: Annotated[tuple[str, ...], "the words to search for"],
    *,
    depth: Annotated[SizeOrZero, "documents to print"] = 10,
    device: Annotated[Literal["auto", "cpu", "cuda"], "where models run"] = "auto",
    directory: ResultsPlace = Path(),
    json: Annotated[bool, "print JSON, with whole texts"] = False,
) -> None:
    """Search, and print the documents, best first.

    Raises:
        BeirgridError: no such system was run on the dataset.
    """
    os.chdir(results_folder.working_folder(directory)[0])
    refuse_unknown(system, dataset)
    from .open_systems import hold_back_output, open_system

    text = " ".join(query)
    with hold_back_output(), ExitStack() as stack:
        ranking = open_system(system, dataset, device, stack).rank(text)
    listed = hits(text, ranking, dataset, depth)
    if json:
        print(dumps([hit._asdict() for hit in listed], ensure_ascii=False, indent=1))
    else:
        show(*list(_lines(listed)) or ["no document was found"])


def refuse_unknown(system: str, dataset: str) -> None:
    """Raise BeirgridError if the working directory has no run of a system on a dataset."""
    runs = Path().glob(paths.RUN.format(system="*", dataset="*"))
    cells = {(path.parent.name, path.name.removesuffix(".run.gz")) for path in runs}
    if (system, dataset) not in cells:  # which no path to elsewhere is
        names = ", ".join(sorted({name for cell in cells for name in cell})) or "nothing"
        raise BeirgridError(f"there is no run of {system!r} on {dataset!r} here; there are runs with {names}")


def hits(query: str, ranking: Ranking, dataset: str, depth: int) -> list[Hit]:
    """Return the first documents of a ranking with their texts."""
    from ..page.documents import matched_words

    texts = documents(dataset, ranking.ids[:depth])
    return [
        Hit(rank, float(score), name, texts[name].title, texts[name].text, matched_words(query, texts[name].full_text))
        for rank, (name, score) in enumerate(zip(ranking.ids[:depth], ranking.scores, strict=False), start=1)
    ]


def documents(dataset: str, ids: Collection[str]) -> dict[str, Document]:
    """Return documents of a dataset's corpus by id."""
    from ..collections import collection

    about: dict[str, Any] = provenance.read_record(paths.DATASET_RECORD.format(dataset=dataset))["settings"]
    corpus = paths.CORPUS.format(corpus=about["corpus"])
    by_id = {document.id: document for document in collection.pick_documents(corpus, set(ids))}
    collection.refuse_unknown(corpus, "document", ids, by_id)
    return by_id


def _lines(listed: list[Hit]) -> Iterator[str]:
    for hit in listed:
        yield f"{hit.rank:>3}  {hit.score:.4f}  {hit.id}  {hit.title}".rstrip()
        yield f"     {excerpt(hit.text, hit.matched)}"
        if hit.matched:
            yield f"     matched: {', '.join(hit.matched)}"


def excerpt(text: str, words: Collection[str] = ()) -> str:
    """Return a part of a text that fits on a line or two, from the first of some words on."""
    text = " ".join(text.split())
    lower = text.lower()
    first = min((place for word in words if (place := lower.find(word)) >= 0), default=0)
    begin = 0 if first < _CHARACTERS // 2 else text.rfind(" ", 0, first - 20) + 1
    cut = text[begin : begin + _CHARACTERS]
    return f"{'… ' if begin else ''}{cut}{' …' if begin + _CHARACTERS < len(text) else ''}"
