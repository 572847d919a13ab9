"""Vocabularies of corpora and their overlap, compared with an independent count."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from beirgrid.collections.collection import CORPUS_SCHEMA
from beirgrid.paper import words


def write(path: Path, texts: list[tuple[str, str]], rows: int = 7) -> Path:
    columns = [[f"d{i}" for i in range(len(texts))], [title for title, _ in texts], [text for _, text in texts]]
    pq.write_table(pa.table(columns, schema=CORPUS_SCHEMA), path, row_group_size=rows)
    return path


def texts(seed: int, documents: int = 40) -> list[tuple[str, str]]:
    """Words of which some are frequent, in mixed case and with odd characters between them."""
    choose = random.Random(seed)
    choices = [f"{choose.choice('aäéßжאЯ文Z9')}{number}" for number in range(60 * seed, 60 * seed + 90)]
    weights = [1 / rank for rank in range(1, 91)]
    between = [" ", ", ", "_", "-", "'", "\n", " … ", "(", "\u00a0"]

    def text(most: int) -> str:
        some = choose.choices(choices, weights, k=choose.randint(0, most))
        return "".join(word + choose.choice(between) for word in some)

    return [(text(3), text(25)) for _ in range(documents)]


def slow_count(collection: list[tuple[str, str]]) -> Counter[str]:
    return Counter(word for title, text in collection for word in re.findall(r"[^\W_]+", f"{title} {text}".lower()))


def slow_similarity(first: Counter[str], second: Counter[str]) -> float:
    shares = [(first[word] / first.total(), second[word] / second.total()) for word in first.keys() | second.keys()]
    return sum(map(min, shares)) / sum(map(max, shares))


@pytest.mark.parametrize("held", [1, 40, words.HELD])
def test_words_are_counted_over_all_row_groups_of_all_corpora(tmp_path, held):
    corpora = [texts(1), texts(2)]
    found = words.count_words([write(tmp_path / f"{i}.parquet", c) for i, c in enumerate(corpora)], held=held)
    both = found["word"].to_pylist(), found["count"].to_pylist()
    assert dict(zip(*both, strict=True)) == slow_count(corpora[0] + corpora[1])


def test_overlaps_equal_the_definition(tmp_path):
    corpora = {f"set{seed}": texts(seed) for seed in (1, 2, 3)}
    counted = {name: words.count_words([write(tmp_path / name, c)]) for name, c in corpora.items()}
    table = words.overlaps(counted)
    assert table[["dataset", "other"]].to_numpy().tolist() == [["set1", "set2"], ["set1", "set3"], ["set2", "set3"]]
    for row in table.itertuples():
        first, second = slow_count(corpora[row.dataset]), slow_count(corpora[row.other])
        assert row.similarity == pytest.approx(slow_similarity(first, second), abs=1e-12)
        assert row.shared_words == len(first.keys() & second.keys())
    assert 0 < table["similarity"].iloc[0] < 1


def test_a_corpus_equals_itself_and_shares_nothing_with_one_without_words(tmp_path):
    some = words.count_words([write(tmp_path / "some", texts(4))])
    empty = words.count_words([write(tmp_path / "empty", [("", "…"), ("", "")])])
    counts = {"a": some, "b": some, "empty": empty}
    assert words.overlaps(counts)["similarity"].tolist() == pytest.approx([1, 0, 0])
