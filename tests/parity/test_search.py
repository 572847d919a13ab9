"""Searches read one shard at a time, and keep only the ids that are found."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse

from beirgrid.collections import collection
from beirgrid.search import flat, impact


def _one_at_a_time(shards: list[Path]) -> Iterator[Path]:
    """Yield shards; no other shard may be mapped by this process at the same time."""
    for shard in shards:
        gc.collect()  # numba, where it had to compile, leaves what it was called with in cycles
        mapped = Path("/proc/self/maps").read_text()
        assert not [other for other in shards if str(other) in mapped]
        yield shard


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="no /proc tells what is mapped")
def test_only_one_shard_is_mapped_at_a_time(tmp_path):
    rng = np.random.default_rng(0)
    dense, sparse = ([tmp_path / f"{number}.{kind}" for number in range(3)] for kind in ("faiss", "impact"))
    for path, folder in zip(dense, sparse, strict=True):
        flat.write_index(rng.standard_normal((200, 8), np.float32), path)
        folder.mkdir()
        impact.write_index(scipy.sparse.csr_matrix(rng.random((200, 8), np.float32)), folder)
    flat.search_shards(_one_at_a_time(dense), np.ones((2, 8), np.float32), 5)
    impact.search_shards(_one_at_a_time(sparse), scipy.sparse.csr_matrix(np.ones((2, 8), np.float32)), 5)


def test_of_a_corpus_only_the_ids_that_were_found_are_kept(tmp_path):
    names = [f"d{row}" for row in range(1000)]
    table = pa.table([names] * 3, schema=collection.CORPUS_SCHEMA)
    pq.write_table(table, tmp_path / "corpus.parquet", row_group_size=300)
    found = np.array([[999, 0, 300, -1], [300, 299, 1, -1]])
    ids = collection.read_ids(tmp_path / "corpus.parquet", found)
    assert ids.names.to_pylist() == ["d0", "d1", "d299", "d300", "d999"]
    assert ids.take(found[0, :3]).to_pylist() == ["d999", "d0", "d300"]
    nothing = collection.read_ids(tmp_path / "corpus.parquet", [np.zeros(0, np.int64)])
    assert nothing.take(np.zeros(0, np.int64)).to_pylist() == []
    assert collection.known_ids(tmp_path / "corpus.parquet", {"d999", "d1000", "d0"}) == {"d0", "d999"}
