"""Retrieval equals brute force (dense) and pyserini (BM25)."""

from __future__ import annotations

import gc
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from helpers import fetch_corpus, main, python

from beirgrid.collections import collection
from beirgrid.core.errors import DataError
from beirgrid.runs import runs
from beirgrid.search import impact, lucene
from beirgrid.search.flat import search_shards

BM25 = {"k1": 0.9, "b": 0.4, "threads": 2, "memory_mb": 800}


def _index(folder: Path, vectors: np.ndarray, number: int) -> Path:
    np.save(folder / f"{number}.npy", vectors)
    words = ["--output", f"{folder}/{number}.faiss", "--record", f"{folder}/{number}.json"]
    assert main(["index", "dense", "--vectors", f"{folder}/{number}.npy", *words]) == 0
    return folder / f"{number}.faiss"


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
    dense = [_index(tmp_path, rng.standard_normal((200, 8), np.float32), number) for number in range(3)]
    search_shards(_one_at_a_time(dense), np.ones((2, 8), np.float32), 5)
    sparse = [tmp_path / f"{number}.impact" for number in range(3)]
    for folder in sparse:
        folder.mkdir()
        impact.write_index(scipy.sparse.csr_matrix(rng.random((200, 8), np.float32)), folder)
    impact.search_shards(_one_at_a_time(sparse), scipy.sparse.csr_matrix(np.ones((2, 8), np.float32)), 5)


def test_of_a_corpus_only_the_ids_that_were_found_are_kept(tmp_path):
    names = [f"d{row}" for row in range(1000)]
    with pq.ParquetWriter(tmp_path / "corpus.parquet", collection.CORPUS_SCHEMA) as writer:
        for start in range(0, 1000, 300):
            part = names[start : start + 300]
            writer.write_table(pa.table([part, part, part], schema=collection.CORPUS_SCHEMA))
    found = np.array([[999, 0, 300, -1], [300, 299, 1, -1]])
    ids = collection.read_ids(tmp_path / "corpus.parquet", found)
    assert ids.names.to_pylist() == ["d0", "d1", "d299", "d300", "d999"]
    assert ids.take(found[0, :3]).to_pylist() == ["d999", "d0", "d300"]
    nothing = collection.read_ids(tmp_path / "corpus.parquet", [np.zeros(0, np.int64)])
    assert nothing.take(np.zeros(0, np.int64)).to_pylist() == []
    assert collection.known_ids(tmp_path / "corpus.parquet", {"d999", "d1000", "d0"}) == {"d0", "d999"}


def test_a_model_of_another_dimension_is_refused(tmp_path):
    shard = _index(tmp_path, np.eye(8, dtype=np.float32), 0)
    with pytest.raises(DataError, match=r"dimension 8.*gives 16"):
        search_shards([shard], np.ones((1, 16), np.float32), 3)


@pytest.mark.slow
@pytest.mark.parametrize("fields", ["multifield", "flat"])
def test_bm25_equals_pyserini(tmp_path, root, fields):
    demo = root / "workflow" / "resources" / "demo"
    assert main(fetch_corpus({"source": "local", "path": str(demo)}, tmp_path)) == 0
    (jsonl := tmp_path / "jsonl").mkdir()
    collection.write_jsonl(collection.read_documents(tmp_path / "corpus.parquet"), jsonl / "corpus.jsonl")
    lucene.build_index(jsonl, tmp_path / "index", fields, "en", threads=2, memory_mb=800)
    with (demo / "queries.jsonl").open() as stream:
        rows = [json.loads(line) for line in stream]
    queries = {row["_id"]: row["text"] for row in rows[::12]}
    found = lucene.search(tmp_path / "index", queries, fields=fields, language="en", depth=50, **BM25)
    (tmp_path / "pyserini.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in queries.items()))
    command = [python(), "-m", "pyserini.search.lucene", "--index", str(tmp_path / "index")]
    command += ["--topics", str(tmp_path / "pyserini.tsv"), "--output", str(tmp_path / "pyserini.trec")]
    command += ["--bm25", "--hits", "50"]
    command += ["--fields", "contents=1.0", "title=1.0"] if fields == "multifield" else []
    # with which pyserini's own import finds Java and its jar
    home = Path(lucene.java()).parent.parent
    java = {"JAVA_HOME": str(home), "JVM_PATH": str(home / "lib" / "server" / "libjvm.so")}
    java |= {"ANSERINI_CLASSPATH": "/nonexistent", "CLASSPATH": str(lucene.jar()), "OPENAI_API_KEY": "unused"}
    subprocess.run(command, env={**os.environ, **java}, check=True, capture_output=True)
    expected = runs.read(tmp_path / "pyserini.trec")
    assert expected.keys() == {query for query, (ids, _) in found.items() if ids}
    for query, ranking in expected.items():
        ours = runs.canonical(query, *found[query])
        assert ours.ids == ranking.ids
        np.testing.assert_array_equal(ours.scores, ranking.scores)


@pytest.mark.parametrize(
    ("language", "text", "query", "found"),
    [
        ("fr", "ils cherchent des chevaux", "cheval", True),
        ("zh", "信息检索系统", "检索", True),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                ("en", "ils cherchent des chevaux", "cheval", False),
                ("fi", "kirjastoissa", "kirjasto", True),
                ("te", "పుస్తకాలు చదివాడు", "పుస్తకాలు", True),
                ("sw", "vitabu vya shule", "vitabu", True),  # by white space
            )
        ),
    ],
)
def test_index_and_queries_are_read_in_the_corpuss_language(tmp_path, language, text, query, found):
    (tmp_path / "corpus").mkdir()
    (tmp_path / "corpus" / "corpus.jsonl").write_text(json.dumps({"_id": "d", "title": "", "text": text}) + "\n")
    lucene.build_index(tmp_path / "corpus", tmp_path / "index", "flat", language, threads=1, memory_mb=500)
    ranking = lucene.search(tmp_path / "index", {"q": query}, fields="flat", language=language, depth=10, **BM25)
    assert (ranking["q"][0] == ["d"]) == found
