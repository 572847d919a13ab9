"""Measure the vocabulary overlap of corpora (BEIR paper, Figure 2 and Appendix F).

A word is a longest run of letters, marks and digits of title and text, in lower case.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ..core import files

# Counts that are held before they are added up.
HELD = 2**22
_NO_WORD = r"[^\p{L}\p{M}\p{N}]+"
_SCHEMA = pa.schema([("word", pa.large_string()), ("count", pa.int64())])
OVERLAP_COLUMNS = ["dataset", "other", "similarity", "shared_words"]


def count_words(corpora: Sequence[str | Path], *, held: int = HELD) -> pa.Table:
    """Count the words of one or several corpora, read a row group at a time.

    Args:
        corpora: corpus.parquet of each corpus.
        held: counts that are held before they are added up.

    Returns:
        columns ``word``, each word once, and ``count``, int64.

    Raises:
        DataError: a corpus is missing or damaged.
    """
    sums, blocks = _SCHEMA.empty_table(), list[pa.Table]()
    for corpus in corpora:
        for texts in _texts(corpus):
            words = pc.split_pattern_regex(pc.utf8_lower(texts), pattern=_NO_WORD).flatten()
            counted = words.filter(pc.not_equal(words, "")).value_counts()
            blocks.append(pa.table([counted.field(0).cast(pa.large_string()), counted.field(1)], schema=_SCHEMA))
            if sum(map(len, blocks)) > max(held, len(sums)):
                sums, blocks = _summed([sums, *blocks]), []
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
    sum min(S_k, T_k) / sum max(S_k, T_k) over all words.

    Args:
        counts: by the name of the dataset, what ``count_words`` returns.

    Returns:
        columns ``dataset``, ``other``, ``similarity`` and ``shared_words``; each pair once.
    """
    shares = {name: of["count"].to_numpy() / max(pc.sum(of["count"]).as_py() or 0, 1) for name, of in counts.items()}
    rows = []
    for dataset, other in combinations(counts, 2):
        places = pc.index_in(counts[dataset]["word"], value_set=counts[other]["word"])
        both = places.is_valid().to_numpy()
        shared = float(np.minimum(shares[dataset][both], shares[other][places.drop_null().to_numpy()]).sum())
        # Both frequencies add up to 1, so the sum of the larger ones is 2 less that of the smaller ones.
        rows.append((dataset, other, shared / (2 - shared), int(both.sum())))
    return pd.DataFrame(rows, columns=OVERLAP_COLUMNS)


def matrix(overlap: pd.DataFrame) -> pd.DataFrame:
    """Return the similarities of ``overlaps`` as datasets × datasets, with NaN on the diagonal."""
    both = pd.concat([overlap, overlap.rename(columns={"dataset": "other", "other": "dataset"})])
    names = list(dict.fromkeys([*overlap["dataset"], *overlap["other"]]))
    return both.pivot(index="dataset", columns="other", values="similarity").loc[names, names]
