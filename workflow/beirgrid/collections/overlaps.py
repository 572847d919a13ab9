"""Find queries whose texts, or whose relevant documents, are in a training set, by runs of words that both have."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from . import collection
from . import qrels as judgements

# Words of a run, as for PaLM (Chowdhery et al., 2022).
LENGTH = 8
# Share of its runs with which a text counts as seen (same source).
SHARE = 0.7
_WORD = re.compile(r"[^\W_]+")


def texts(corpus: Path, qrels: Path, queries: Path) -> Iterator[tuple[str, str]]:
    """Yield each query with its text, and then with the text of each of its relevant documents."""
    yield from collection.read_queries(queries).items()
    relevant: dict[str, list[str]] = {}
    for query, grades in judgements.read(qrels).items():
        for document, grade in grades.items():
            if grade > 0:
                relevant.setdefault(document, []).append(query)
    for found in collection.pick_documents(corpus, {*relevant}):
        yield from ((query, found.full_text) for query in relevant[found.id])


def seen(tested: Iterable[tuple[str, str]], training: Iterable[tuple[str, str]]) -> set[str]:
    """Return the queries of which a text has at least ``SHARE`` of its runs of words in the texts of a training set.

    Runs are compared by 64-bit hashes. Only those of the tested texts are held.
    """
    runs = [(query, _runs(text)) for query, text in tested]
    wanted = {run for _, of_text in runs for run in of_text}
    found = set[int]()
    for _, text in training:
        found |= wanted & _runs(text)
    return {query for query, of_text in runs if of_text and len(of_text & found) >= SHARE * len(of_text)}


def _runs(text: str) -> set[int]:
    """Return the hashes of all runs of ``LENGTH`` words; of a shorter text, that of all its words."""
    words = _WORD.findall(text.lower())
    starts = range(max(1, len(words) - LENGTH + 1))
    return {hash(" ".join(words[start : start + LENGTH])) for start in starts} if words else set()
