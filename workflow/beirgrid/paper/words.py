"""Measure the words of documents: lengths (BEIR paper, Figures 4, 5, Table 10), overlap of vocabularies (Figure 2).

A length is the number of words of title and text, cut at white space. A word of a vocabulary is a longest run of their
letters, marks and digits, in lower case (Appendix F).
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core import files

# Kinds of documents: retrieved by a system, or judged with a grade.
RETRIEVED = "retrieved"
JUDGED = "judged"
QUANTILES = {"p5": 0.05, "p25": 0.25, "median": 0.5, "p75": 0.75, "p95": 0.95}
GROUP = ["dataset", "kind", "system", "grade"]
# Lengths at which the bins of a histogram begin: 0, 1, 2 and so on, then ten for each power of ten.
_BEGINS = np.append(0, np.unique(np.geomspace(1, 1e7, 71).round())).astype(np.int64)
# Counts that are held before they are added up.
HELD = 2**22
_NO_WORD = r"[^\p{L}\p{M}\p{N}]+"
_SCHEMA = pa.schema([("word", pa.large_string()), ("count", pa.int64())])
OVERLAP_COLUMNS = ["dataset", "other", "similarity", "shared_words"]


# Lengths --------------------------------------------------------------------------------------------------------------


def lengths(
    dataset: str,
    retrieved: Mapping[str, Mapping[str, Sequence[str]]],
    qrels: Mapping[str, Mapping[str, int]],
    words: Mapping[str, int],
) -> pd.DataFrame:
    """Return a row for each document that a system retrieved or that is judged, once for each query.

    Args:
        retrieved: system to query to the ids of the top documents.
        qrels: query to document id to grade.
        words: document id to its number of words. The words of other documents are NaN.
    """
    rows: list[tuple[Any, ...]] = [
        (dataset, RETRIEVED, system, None, words.get(document))
        for system, of_query in retrieved.items()
        for ids in of_query.values()
        for document in ids
    ]
    judged = sorted((grade, document) for grades in qrels.values() for document, grade in grades.items())
    rows += [(dataset, JUDGED, "", grade, words.get(document)) for grade, document in judged]
    return pd.DataFrame(rows, columns=[*GROUP, "words"]).astype({"grade": "Int64", "words": "float64"})


def together(name: str, parts: Sequence[pd.DataFrame]) -> pd.DataFrame:
    """Combine the lengths of several datasets. A system that lacks one of them is left out."""
    systems = set.intersection(*(set(part["system"]) for part in parts))
    whole = pd.concat(parts, ignore_index=True)
    whole = whole[(whole["kind"] == JUDGED) | whole["system"].isin(list(systems))]
    return whole.assign(dataset=name).sort_values(["kind", "grade"], ascending=[False, True], kind="stable")


def describe(measured: pd.DataFrame) -> pd.DataFrame:
    """Return documents, ``unknown`` ones, mean and quantiles of lengths, a row for each dataset and system or grade."""
    groups = measured.groupby(GROUP, sort=False, dropna=False)["words"]
    measures: dict[str, Any] = {"documents": "count", "unknown": lambda words: words.isna().sum(), "mean": "mean"}
    measures |= {name: functools.partial(pd.Series.quantile, q=share) for name, share in QUANTILES.items()}
    described: pd.DataFrame = groups.agg(**measures).reset_index()
    return described


def histogram(measured: pd.DataFrame) -> pd.DataFrame:
    """Count the documents of each dataset and system or grade in bins: ``low`` to ``high`` words, both included.

    Bins without documents are left out, and so are documents of unknown length.
    """
    known = measured.dropna(subset=["words"])
    bins = np.searchsorted(_BEGINS, known["words"], side="right") - 1
    known = known.assign(low=_BEGINS[bins], high=np.append(_BEGINS[1:], _BEGINS[-1] + 1)[bins] - 1)
    counts = known.groupby([*GROUP, "low", "high"], sort=False, dropna=False).size()
    return counts.rename("documents").reset_index().sort_values([*GROUP, "low"], kind="stable", ignore_index=True)


def with_similarity(lengths: pd.DataFrame, similarities: Mapping[str, str]) -> pd.DataFrame:
    """Add how each system compares vectors: cosine, dot, or an empty text for systems without dense vectors."""
    return lengths.assign(similarity=lengths["system"].map(similarities).fillna(""))


# Vocabularies ---------------------------------------------------------------------------------------------------------


def count_words(corpora: Sequence[str | Path], *, held: int = HELD) -> pa.Table:
    """Count the words of one or several files of corpora: columns ``word``, each word once, and ``count``, int64.

    ``held`` is the number of counts that are held before they are added up.

    Raises:
        DataError: a corpus is missing or damaged.
    """
    sums = _SCHEMA.empty_table()
    blocks: list[pa.Table] = []
    for corpus in corpora:
        for texts in _texts(corpus):
            words = pc.split_pattern_regex(pc.utf8_lower(texts), pattern=_NO_WORD).flatten()
            counted = words.filter(pc.not_equal(words, "")).value_counts()
            blocks.append(pa.table([counted.field(0).cast(pa.large_string()), counted.field(1)], schema=_SCHEMA))
            if sum(map(len, blocks)) > max(held, len(sums)):
                sums = _summed([sums, *blocks])
                blocks = []
    return _summed([sums, *blocks])


def _texts(corpus: str | Path) -> Iterator[pa.Array]:
    """Yield title and text of the documents of each row group."""
    with files.reading(corpus), pq.ParquetFile(corpus, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["title", "text"])
            columns = [table[name].combine_chunks().cast(pa.large_string()) for name in table.column_names]
            yield pc.binary_join_element_wise(*columns, pa.scalar(" ", pa.large_string()))


def _summed(blocks: Sequence[pa.Table]) -> pa.Table:
    """Add up the counts of each word."""
    sums = pa.concat_tables(blocks).group_by("word").aggregate([("count", "sum")])
    return sums.select(["word", "count_sum"]).rename_columns(_SCHEMA.names)


def overlaps(counts: Mapping[str, pa.Table]) -> pd.DataFrame:
    """Return the weighted Jaccard similarity of each pair of vocabularies.

    With the frequency of a word divided by the occurrences of all words, S_k and T_k, the similarity is
    sum min(S_k, T_k) / sum max(S_k, T_k) over all words. ``counts`` has that of ``count_words`` by dataset.
    """
    frequencies = {}
    for name, words in counts.items():
        occurrences = words["count"].to_numpy()
        frequencies[name] = occurrences / max(occurrences.sum(), 1)
    rows = []
    for dataset, other in combinations(counts, 2):
        places = pc.index_in(counts[dataset]["word"], value_set=counts[other]["word"])
        both = places.is_valid().to_numpy()
        here = frequencies[dataset][both]
        there = frequencies[other][places.drop_null().to_numpy()]
        shared = float(np.minimum(here, there).sum())
        # Both frequencies add up to 1, so the sum of the larger ones is 2 less that of the smaller ones.
        rows.append((dataset, other, shared / (2 - shared), int(both.sum())))
    return pd.DataFrame(rows, columns=OVERLAP_COLUMNS)


def matrix(overlap: pd.DataFrame) -> pd.DataFrame:
    """Return the similarities of ``overlaps`` as datasets × datasets, with NaN on the diagonal."""
    both = pd.concat([overlap, overlap.rename(columns={"dataset": "other", "other": "dataset"})])
    names = list(dict.fromkeys([*overlap["dataset"], *overlap["other"]]))
    return both.pivot(index="dataset", columns="other", values="similarity").loc[names, names]


def places(overlap: pd.DataFrame) -> pd.DataFrame:
    """Return a place in the plane for each dataset, by classical multidimensional scaling of 1 - similarity.

    The columns are ``dataset``, ``x`` and ``y``. Only distances mean something, in units of 1 - similarity.
    """
    similarities = matrix(overlap)
    distances = 1 - similarities.fillna(1).to_numpy(np.float64)
    centring = np.eye(len(distances)) - 1 / max(len(distances), 1)
    values, vectors = np.linalg.eigh(-0.5 * centring @ distances**2 @ centring)  # in ascending order
    at = vectors[:, :-3:-1] * np.sqrt(values[:-3:-1].clip(min=0))
    at *= np.where(at[:1] < 0, -1, 1)  # the sign of a vector is arbitrary
    return pd.DataFrame({"dataset": similarities.index, "x": at[:, :1].ravel(), "y": at[:, 1:].ravel()})
