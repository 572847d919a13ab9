"""Measure the vocabulary overlap of corpora (BEIR paper, Figure 2 and Appendix F).

A word is a longest run of letters, marks and digits of title and text, in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core import files

# Counts in memory while a corpus is read, and words to keep of a corpus. Without room, half of the counts survive, so a
# corpus of at most KEPT different words loses none.
HELD = 2**22
KEPT = 2**20
_NO_WORD = r"[^\p{L}\p{M}\p{N}]+"
_SCHEMA = pa.schema([("word", pa.large_string()), ("count", pa.int64())])
OVERLAP_COLUMNS = ["dataset", "other", "similarity", "at_most", "shared_words"]


class Vocabulary(NamedTuple):
    """The words of a corpus, the most frequent first; their counts, int64 [words]; and the occurrences of all words.

    ``total`` includes the words that were left out.
    """

    words: pa.Array
    counts: np.ndarray
    total: int

    @property
    def shares(self) -> np.ndarray:
        """Frequency of each word, divided by the occurrences of all words: float64 [words]."""
        shares: np.ndarray = self.counts / max(self.total, 1)
        return shares

    @property
    def left_out(self) -> float:
        """Share of the occurrences of words that were left out."""
        return 1 - int(self.counts.sum()) / self.total if self.total else 0.0


def count_words(corpora: Sequence[str | Path], *, held: int = HELD, kept: int = KEPT) -> Vocabulary:
    """Count the words of one or several corpora, read a row group at a time.

    Memory is bounded: where a corpus has too many different words, the rarest are left out. ``Vocabulary.left_out`` is
    the share of occurrences that this costs.

    Args:
        corpora: corpus.parquet of each corpus.
        held: counts that are held at a time.
        kept: most words to return.

    Raises:
        DataError: a corpus is missing or damaged.
    """
    total, blocks = 0, [_SCHEMA.empty_table()]
    for corpus in corpora:
        for texts in _texts(corpus):
            words = pc.split_pattern_regex(pc.utf8_lower(texts), pattern=_NO_WORD).flatten()
            counted = words.filter(pc.not_equal(words, "")).value_counts()
            blocks.append(pa.table([counted.field(0).cast(pa.large_string()), counted.field(1)], schema=_SCHEMA))
            total += pc.sum(counted.field(1)).as_py() or 0
            if sum(map(len, blocks)) > held:
                blocks = [_most_frequent(blocks, held // 2)]
    table = _most_frequent(blocks, kept)
    return Vocabulary(table["word"].combine_chunks(), table["count"].to_numpy(), total)


def _texts(corpus: str | Path) -> Iterator[pa.Array]:
    """Yield title and text of the documents of each row group."""
    with files.reading(corpus), pq.ParquetFile(corpus, page_checksum_verification=True) as file:
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=["title", "text"])
            columns = [table[name].combine_chunks().cast(pa.large_string()) for name in table.column_names]
            yield pc.binary_join_element_wise(*columns, pa.scalar(" ", pa.large_string()))


def _most_frequent(blocks: Sequence[pa.Table], most: int) -> pa.Table:
    """Sum counts and return the largest ``most`` sums; equal counts are in the order of their words."""
    counts = pa.concat_tables(blocks).group_by("word").aggregate([("count", "sum")])
    counts = counts.select(["word", "count_sum"]).rename_columns(_SCHEMA.names)
    return counts.take(pc.sort_indices(counts, [("count", "descending"), ("word", "ascending")])[:most])


def overlaps(vocabularies: Mapping[str, Vocabulary]) -> pd.DataFrame:
    """Return the weighted Jaccard similarity of each pair of vocabularies.

    With the frequency of a word divided by the occurrences of all words, S_k and T_k, the similarity is
    sum min(S_k, T_k) / sum max(S_k, T_k) over all words. Words left out can only raise it: ``at_most`` says to what.

    Args:
        vocabularies: by the name of the dataset.

    Returns:
        columns ``dataset``, ``other``, ``similarity``, ``at_most`` and ``shared_words``; each pair once.
    """
    rows = []
    for (dataset, first), (other, second) in combinations(vocabularies.items(), 2):
        places = pc.index_in(first.words, value_set=second.words)
        both = places.is_valid().to_numpy(zero_copy_only=False)
        theirs = second.shares[places.drop_null().to_numpy()]
        shared = float(np.minimum(first.shares[both], theirs).sum())
        most = min(1.0, shared + first.left_out + second.left_out)
        # Both frequencies add up to 1, so the sum of the larger ones is 2 less that of the smaller ones.
        rows.append((dataset, other, shared / (2 - shared), most / (2 - most), int(both.sum())))
    return pd.DataFrame(rows, columns=OVERLAP_COLUMNS)


def matrix(overlap: pd.DataFrame) -> pd.DataFrame:
    """Return the similarities of ``overlaps`` as datasets × datasets, with NaN on the diagonal."""
    both = pd.concat([overlap, overlap.rename(columns={"dataset": "other", "other": "dataset"})])
    names = list(dict.fromkeys([*overlap["dataset"], *overlap["other"]]))
    return both.pivot(index="dataset", columns="other", values="similarity").loc[names, names]


def word_counts(vocabularies: Mapping[str, Vocabulary]) -> pd.DataFrame:
    """Tabulate the counts of each dataset: distinct ``words``, ``occurrences``, and the share ``left_out``."""
    rows = [(name, len(of.words), of.total, of.left_out) for name, of in vocabularies.items()]
    return pd.DataFrame(rows, columns=["dataset", "words", "occurrences", "left_out"])


def places(overlap: pd.DataFrame) -> pd.DataFrame:
    """Return a place in the plane for each dataset, by classical multidimensional scaling of 1 - similarity.

    Args:
        overlap: output of ``overlaps``.

    Returns:
        columns ``dataset``, ``x`` and ``y``; only distances mean something.
    """
    similarities = matrix(overlap)
    distances = 1 - similarities.fillna(1).to_numpy(np.float64)
    centring = np.eye(len(distances)) - 1 / max(len(distances), 1)
    values, vectors = np.linalg.eigh(-0.5 * centring @ distances**2 @ centring)  # in ascending order
    at = vectors[:, :-3:-1] * np.sqrt(values[:-3:-1].clip(min=0))
    at *= np.where(at[:1] < 0, -1, 1)  # the sign of a vector is arbitrary
    return pd.DataFrame({"dataset": similarities.index, "x": at[:, :1].ravel(), "y": at[:, 1:].ravel()})
