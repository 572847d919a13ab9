"""Collect the documents of a page's queries, with grades and with ranks in all systems."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from pathlib import Path
from typing import Any

from ..collections import collection, qrels
from ..core import files, paths
from ..results.summary import GridSummary
from ..runs import runs

# Most bytes of a dataset's runs, and of its corpus, that a report reads, because reports are made often.
MOST_RUNS = 40_000_000
MOST_CORPUS = 200_000_000
# Most documents of a page.
MOST_DOCUMENTS = 4_000
# Documents per query, beside these relevant ones that no system ranks high.
OF_QUERY = 8
MISSED = 2
# Characters of a text.
CHARACTERS = 160
# Ending of a truncated text.
_CUT = " …"
_WORD = re.compile(r"[^\W_]+")
# Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET: words that say nothing about why a document was found.
STOP_WORDS = _WORD.findall("""a an and are as at be but by for if in into is it no not of on or such that the their then
    there these they this to was will with""")
# Lowest rank that is shown.
DEPTH = 100


def _is_small(grid: GridSummary, dataset: str) -> bool:
    """Tell whether a dataset has runs, and these and its corpus are small enough to be read for a page."""
    corpus = Path(paths.CORPUS.format(corpus=grid.datasets[dataset].corpus))
    runs = _runs(grid, dataset).values()
    judged = Path(paths.QRELS.format(dataset=dataset)).is_file() and corpus.is_file() and runs
    return bool(judged) and sum(map(files.size, runs)) <= MOST_RUNS and files.size(corpus) <= MOST_CORPUS


def _runs(grid: GridSummary, dataset: str) -> dict[str, Path]:
    """Return the runs of a dataset by system, without systems with seeds."""
    of_system = {system: Path(paths.RUN.format(system=system, dataset=dataset)) for system in grid.systems}
    return {system: path for system, path in of_system.items() if path.is_file()}


def documents(grid: GridSummary, queries: Mapping[str, Sequence[str]]) -> dict[str, dict[str, Any]]:
    """Return by dataset what the page shows of the documents of these queries, of which the most telling are first.

    ``systems`` are those with ranks. ``queries`` has the documents of each query, which are the top of each system and
    relevant ones that are not among these: each has its title (or id), the beginning of its text, its grade (None: not
    judged), the words that it shares with the query, and its ranks. A rank of 0 stands for none.
    """
    searched = {name: grid.slices.get(name, name) for name in grid.datasets}
    names = [name for name in grid.datasets if queries.get(name) and _is_small(grid, searched[name])]
    of_dataset = MOST_DOCUMENTS // (OF_QUERY + MISSED) // max(len(names), 1)
    return {name: _of_dataset(grid, searched[name], queries[name][:of_dataset]) for name in names}


def _of_dataset(grid: GridSummary, dataset: str, queries: Sequence[str]) -> dict[str, Any]:
    entry = grid.datasets[dataset]
    judged = qrels.read(paths.QRELS.format(dataset=dataset))
    ranked = {system: runs.read_top(path, queries, DEPTH) for system, path in _runs(grid, dataset).items()}
    shown = {query: _shown([ranking[query] for ranking in ranked.values()], judged.get(query, {})) for query in queries}
    corpus = paths.CORPUS.format(corpus=entry.corpus)
    known = {document.id: document for document in collection.pick_documents(corpus, {*chain(*shown.values())})}
    texts = collection.read_queries(paths.QUERIES.format(dataset=dataset))

    def row(query: str, document: str) -> list[Any]:
        ranks = [ranking[query].index(document) + 1 if document in ranking[query] else 0 for ranking in ranked.values()]
        title = document
        text = ""
        words: list[str] = []
        if entry.show_text and document in known:
            shown = known[document]
            title = cut(shown.title, CHARACTERS) or document
            text = cut(shown.text, CHARACTERS)
            words = matched_words(texts.get(query, ""), shown.full_text)
        return [title, text, judged.get(query, {}).get(document), ", ".join(words), ranks]

    rows = {query: [row(query, document) for document in shown[query]] for query in queries}
    return {"systems": list(ranked), "queries": rows}


def _shown(rankings: Iterable[Sequence[str]], grades: Mapping[str, int]) -> list[str]:
    """Choose the documents of a query to show: those at rank 1 of each system, at rank 2, …, then relevant ones."""
    by_rank = chain.from_iterable(zip_longest(*rankings))
    top = list(dict.fromkeys(document for document in by_rank if document is not None))[:OF_QUERY]
    relevant = [document for document in grades if grades[document] > 0 and document not in top]
    relevant.sort(key=lambda document: -grades[document])
    return [*top, *relevant[:MISSED]]


def matched_words(query: str, document: str) -> list[str]:
    """Return the words of a query that a document has: in lower case, in the query's order, without stop words."""
    of_document = set(_WORD.findall(document.lower()))
    words = dict.fromkeys(_WORD.findall(query.lower()))
    return [word for word in words if word in of_document and word not in STOP_WORDS]


def cut(text: str, characters: int) -> str:
    """Truncate a text to a number of characters, with a mark."""
    return text if len(text) <= characters else text[: characters - len(_CUT)] + _CUT
