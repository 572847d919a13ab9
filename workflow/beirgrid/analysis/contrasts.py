"""Choose queries to look at: the hardest, the easiest, and those on which two systems differ most.

Contrasts are chosen as DiffIR chooses them (Jose et al., SIGIR 2021): by the largest absolute difference of a metric.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ..collections.collection import Document

QUERY_COLUMNS = ["dataset", "kind", "query", "text", "mean", "low", "low_system", "high", "high_system", "relevant"]
# Ending of a truncated text.
_CUT = " …"
# Values that differ by less count as equal, so that rounding does not choose queries.
_DECIMALS = 9
_WORD = re.compile(r"[^\W_]+")
# Lucene's EnglishAnalyzer.ENGLISH_STOP_WORDS_SET: words that say nothing about why a document was found.
STOP_WORDS = frozenset(
    _WORD.findall(
        "a an and are as at be but by for if in into is it no not of on or such that the their then there these they "
        "this to was will with"
    )
)


class Caps(NamedTuple):
    """Limits of what is kept of a dataset.

    Attributes:
        queries: hardest queries, and as many of the easiest.
        contrasts: queries for each pair of systems.
        documents: top documents of each system, for each query.
        missed: relevant documents that are not among these, for each query.
        characters: characters of a query, or of a document's title or text.
    """

    queries: int = 5
    contrasts: int = 2
    documents: int = 3
    missed: int = 1
    characters: int = 160


class Contrast(NamedTuple):
    """A query on which two systems differ: their values of the metric."""

    system: str
    other: str
    query: str
    value: float
    other_value: float


class Chosen(NamedTuple):
    """The queries of a dataset that are worth reading; hard and easy ones with their highest and lowest system."""

    hardest: list[Contrast]
    easiest: list[Contrast]
    contrasts: list[Contrast]

    def queries(self) -> list[str]:
        """List all chosen queries, each once."""
        return list(dict.fromkeys(contrast.query for of_kind in self for contrast in of_kind))


def choose(
    scores: pd.DataFrame,
    pairs: Sequence[tuple[str, str]],
    qrels: Mapping[str, Mapping[str, int]],
    caps: Caps,
    *,
    lower_is_better: bool = False,
) -> Chosen:
    """Choose the hardest and easiest queries by their mean over the systems, and contrasts for each pair.

    Equal queries are chosen in the order of the file. A query without a relevant document is not hard, and a query on
    which two systems do not differ is no contrast.

    Args:
        scores: values of a metric, queries × systems.
        pairs: pairs of systems to compare.
        qrels: query to document id to grade.
        caps: how many to choose.
        lower_is_better: whether less is better in that metric.
    """
    answerable = [query for query in scores.index if max(qrels[query].values()) > 0]
    means = scores.loc[answerable].mean(axis=1) * (-1 if lower_is_better else 1)
    contrasts = []
    for system, other in pairs:
        difference = (scores[system] - scores[other]).abs()
        for query in _largest(difference[difference.round(_DECIMALS) > 0], caps.contrasts):
            contrasts.append(Contrast(system, other, query, *scores.loc[query, [system, other]].astype(float)))
    hardest, easiest = ([_extremes(scores, q) for q in _largest(way, caps.queries)] for way in (-means, means))
    return Chosen(hardest, easiest, contrasts)


def _extremes(scores: pd.DataFrame, query: str) -> Contrast:
    """Return the systems with the highest and the lowest value: of equal ones, the first and the last."""
    values = dict(zip(map(str, scores.columns), scores.loc[query].to_numpy(np.float64).tolist(), strict=True))
    high, low = max(values, key=values.__getitem__), min(reversed(values), key=values.__getitem__)
    return Contrast(high, low, query, values[high], values[low])


def _largest(values: pd.Series, most: int) -> list[str]:
    ranked = values.round(_DECIMALS).sort_values(ascending=False, kind="stable")
    return [str(query) for query in ranked.index[:most]]


def query_rows(
    dataset: str,
    scores: pd.DataFrame,
    chosen: Chosen,
    texts: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    caps: Caps,
) -> pd.DataFrame:
    """Return a row for each of the hardest and easiest queries: its mean, and the systems with the extreme values."""
    rows = []
    for kind, queries in (("hardest", chosen.hardest), ("easiest", chosen.easiest)):
        for system, other, query, high, low in queries:
            relevant = sum(grade > 0 for grade in qrels[query].values())
            text = cut(texts[query], caps.characters)
            mean = scores.loc[query].mean()
            rows.append((dataset, kind, query, text, mean, low, other, high, system, relevant))
    return pd.DataFrame(rows, columns=QUERY_COLUMNS)


def shown_documents(rankings: Sequence[Sequence[str]], grades: Mapping[str, int], caps: Caps) -> list[str]:
    """Choose the documents to show of a query: the top of each ranking, then relevant documents with the highest
    grades.
    """
    top = dict.fromkeys(document for ids in rankings for document in ids[: caps.documents])
    missed = sorted((d for d in grades if grades[d] > 0 and d not in top), key=lambda d: -grades[d])
    return [*top, *missed[: caps.missed]]


def matched_words(query: str, document: str) -> list[str]:
    """Return the words of a query that a document has: in lower case, in the query's order, without stop words."""
    of_document = set(_WORD.findall(document.lower()))
    words = dict.fromkeys(_WORD.findall(query.lower()))
    return [word for word in words if word in of_document and word not in STOP_WORDS]


def cut(text: str, characters: int) -> str:
    """Truncate a text to a number of characters, with a mark."""
    return text if len(text) <= characters else text[: characters - len(_CUT)] + _CUT


def shown_by_contrast(
    chosen: Chosen,
    rankings: Mapping[str, Mapping[str, Sequence[str]]],
    qrels: Mapping[str, Mapping[str, int]],
    caps: Caps,
) -> dict[Contrast, list[str]]:
    """Return the documents to show of each query that was chosen.

    Args:
        rankings: system to query to document ids, best first.
        qrels: query to document id to grade.
        caps: how many to show.
    """
    return {
        contrast: shown_documents(_of_both(rankings, contrast), qrels[contrast.query], caps)
        for of_kind in chosen
        for contrast in of_kind
    }


def _of_both(rankings: Mapping[str, Mapping[str, Sequence[str]]], contrast: Contrast) -> list[Sequence[str]]:
    """Return the rankings of both systems; a system without results has an empty one."""
    return [rankings[system].get(contrast.query, ()) for system in (contrast.system, contrast.other)]


def as_json(
    chosen: Chosen,
    shown: Mapping[Contrast, Sequence[str]],
    rankings: Mapping[str, Mapping[str, Sequence[str]]],
    texts: Mapping[str, str],
    qrels: Mapping[str, Mapping[str, int]],
    documents: Mapping[str, Document],
    caps: Caps,
) -> dict[str, Any]:
    """Return the chosen queries of a dataset with the texts, grades and ranks that explain them.

    Args:
        shown: the documents to show of each.
        rankings: system to query to document ids, best first.
        texts: query to its text.
        qrels: query to document id to grade.
        documents: the documents to show. The corpus may lack one that the qrels name.
        caps: characters of texts.

    Returns:
        ``queries`` (id to text), ``documents`` (id to title and text), and ``hardest``, ``easiest`` and ``contrasts``.
        An entry of these three has the query, two systems, their values, and documents; each document has its grade
        (null: not judged), its ranks with both systems (null: not retrieved), and the words that it shares with the
        query.
    """

    def row(contrast: Contrast, document: str) -> dict[str, Any]:
        of_systems = _of_both(rankings, contrast)
        found = documents.get(document, Document(document, "", ""))
        return {
            "document": document,
            "grade": qrels[contrast.query].get(document),
            "ranks": [ids.index(document) + 1 if document in ids else None for ids in of_systems],
            "matched": matched_words(texts[contrast.query], found.joined),
        }

    def entry(contrast: Contrast) -> dict[str, Any]:
        return {
            "query": contrast.query,
            "system": contrast.system,
            "other": contrast.other,
            "values": [round(contrast.value, 6), round(contrast.other_value, 6)],
            "documents": [row(contrast, document) for document in shown[contrast]],
        }

    return {
        "queries": {contrast.query: cut(texts[contrast.query], caps.characters) for contrast in shown},
        "documents": {
            document: {
                part: cut(getattr(documents[document], part), caps.characters)
                for part in ("title", "text")
                if document in documents
            }
            for ids in shown.values()
            for document in ids
        },
        **{kind: [entry(contrast) for contrast in of_kind] for kind, of_kind in chosen._asdict().items()},
    }
