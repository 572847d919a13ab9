"""Readers name damaged artifacts without records; and facts of records about artifacts."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import faiss
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import scipy.sparse
from helpers import main, write_record

from beirgrid.collections import collection
from beirgrid.collections.qrels import read as read_qrels
from beirgrid.core import provenance
from beirgrid.core.errors import DataError
from beirgrid.graph.stage import Stage
from beirgrid.runs import pairs, runs
from beirgrid.search import flat, impact, maxsim
from beirgrid.stages.fuse.plan import Fuse
from beirgrid.stages.index.plan import IndexLexical

QUERIES = scipy.sparse.csr_matrix(np.ones((1, 3), np.float32))
VECTORS = np.arange(12, dtype=np.float32).reshape(4, 3)


@contextlib.contextmanager
def recorded(stage: Stage, record: Path, output: Path) -> Iterator[None]:
    """Write the record of what the block makes."""
    yield
    write_record(stage, record, [output])


def _corpus(folder: Path) -> Path:
    columns = [[f"d{i}" for i in range(50)], [""] * 50, [f"text {i}" for i in range(50)]]
    table = pa.table(columns, schema=collection.CORPUS_SCHEMA)
    pq.write_table(table, folder / "corpus.parquet", row_group_size=10)
    return folder / "corpus.parquet"


def _queries(folder: Path) -> Path:
    pq.write_table(pa.table([["q"], ["text"]], schema=collection.QUERIES_SCHEMA), folder / "queries.parquet")
    return folder / "queries.parquet"


def _qrels(folder: Path) -> Path:
    (folder / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nq2\td1\t1\n")
    return folder / "qrels.tsv"


def _run(folder: Path) -> Path:
    path = folder / "a.run.gz"
    runs.write(path, {f"q{i}": runs.Ranking(["d1", "d2"], np.array([2, 1], np.float32)) for i in range(99)}, "a")
    return path


def _faiss(folder: Path) -> Path:
    index = faiss.IndexFlatIP(3)
    index.add(VECTORS)
    faiss.write_index(index, str(folder / "0.faiss"))
    return folder / "0.faiss"


def _impact(folder: Path) -> Path:
    (folder / "0.impact").mkdir()
    impact.write_index(scipy.sparse.csr_matrix(VECTORS), folder / "0.impact")
    return folder / "0.impact"


def _tokens(folder: Path) -> Path:
    (folder / "0.tokens").mkdir()
    maxsim.write_vectors(folder / "0.tokens", [maxsim.TokenVectors(VECTORS, np.array([1, 3]))], 2, 3)
    return folder / "0.tokens"


def _dense(folder: Path) -> Path:
    np.save(folder / "0.npy", VECTORS)
    return folder / "0.npy"


def _sparse(folder: Path) -> Path:
    scipy.sparse.save_npz(folder / "0.npz", scipy.sparse.csr_matrix(VECTORS), compressed=False)
    return folder / "0.npz"


def _index(kind: str, embeddings: Path) -> None:
    """Index embeddings as the command line does, and raise its errors."""
    output = embeddings.with_suffix(".index")
    written = ["--output", str(output), "--record", f"{output}.json"]
    assert main(["index", kind, "--vectors", str(embeddings), *written]) == 1
    raise DataError(f"{embeddings} was refused")


READERS = [
    ("corpus-count", _corpus, "", collection.count),
    ("corpus-read", _corpus, "", lambda path: list(collection.read_documents(path))),
    ("corpus-pick", _corpus, "", lambda path: list(collection.pick_documents(path, {"d3"}))),
    ("corpus-ids", _corpus, "", lambda path: collection.read_ids(path, np.array([[1]]))),
    ("corpus-known", _corpus, "", lambda path: collection.known_ids(path, {"d1"})),
    ("queries", _queries, "", collection.read_queries),
    ("excluded", _queries, "", collection.read_restrictions),
    ("qrels", _qrels, "", read_qrels),
    ("run", _run, "", runs.read),
    ("faiss", _faiss, "", lambda path: flat.search_shards([path], VECTORS, 2)),
    ("npy", _dense, "", lambda path: _index("dense", path)),
    ("npz", _sparse, "", lambda path: _index("sparse", path)),
    *(
        (f"impact-{name}", _impact, f"{name}.npy", lambda path: impact.search_shards([path], QUERIES, 2))
        for name in ("shape", "starts", "documents", "impacts")
    ),
    *((f"tokens-{name}", _tokens, f"{name}.npy", maxsim.TokenShard) for name in ("offsets", "vectors")),
]


@pytest.mark.parametrize("size", ["empty", "half", "one byte less", "garbage", "missing"])
@pytest.mark.parametrize(("make", "part", "read"), [case[1:] for case in READERS], ids=[case[0] for case in READERS])
def test_a_damaged_file_is_named(tmp_path, make, part, read, size):
    path = make(tmp_path)
    damaged = path / part if part else path
    content = damaged.read_bytes()
    if size == "missing":
        damaged.unlink()
    else:
        cuts = {"empty": 0, "half": len(content) // 2, "one byte less": len(content) - 1}
        damaged.write_bytes(content[: cuts[size]] if size in cuts else bytes(reversed(content)))
    if (make, size) == (_qrels, "one byte less"):
        pytest.skip("the last line of a text may end without a line end")
    with pytest.raises((DataError, OSError) if size == "missing" else DataError, match=path.name):
        read(path)


@pytest.mark.parametrize("shape", [(12,), (1, 4, 3), (4, 0), (0, 3)])
def test_an_array_that_holds_no_vectors_is_refused(tmp_path, capsys, shape):
    np.save(tmp_path / "0.npy", np.zeros(shape, np.float32))
    with pytest.raises(DataError):
        _index("dense", tmp_path / "0.npy")
    assert f"0.npy is damaged (it holds an array of shape {shape}" in capsys.readouterr().err


@pytest.mark.parametrize("at", [0.2, 0.5, 0.8])
def test_a_run_with_other_bits_is_refused(tmp_path, at):
    path = _run(tmp_path)
    content = bytearray(path.read_bytes())
    content[int(len(content) * at)] ^= 0xFF
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"a\.run\.gz"):
        runs.read(path)


def _store(folder: Path) -> tuple[Path, set[pairs.Pair]]:
    scored = [("q", f"d{i}") for i in range(40)]
    for start in (0, 20):
        pairs.write_part(folder, scored[start : start + 20], np.arange(start, start + 20, dtype=np.float32))
    return folder, set(scored)


def _flip(content: bytes) -> bytes:
    """Change a byte in the column of scores, after those of queries and documents."""
    at = content.index(b"d19") + 60
    return content[:at] + bytes([content[at] ^ 0x01]) + content[at + 1 :]


@pytest.mark.parametrize("damage", [lambda _: b"", lambda c: c[: len(c) // 2], lambda c: c[:-1], _flip, lambda _: b"x"])
def test_a_damaged_part_of_the_pair_scores_is_dropped(tmp_path, capsys, damage):
    store, scored = _store(tmp_path)
    part = min(store.glob("*.parquet"))
    part.write_bytes(damage(part.read_bytes()))
    found = pairs.read_parts(list(store.glob("*.parquet")), scored)
    assert found == {("q", f"d{i}"): i for i in range(20, 40)}
    assert not part.exists()
    assert f"warning: {part} is damaged" in capsys.readouterr().err
    assert len(pairs.read_parts(list(store.glob("*.parquet")), scored)) == 20


@pytest.mark.parametrize("table", [{"query": ["q"]}, {"query": ["q"], "document": ["d1"], "score": ["high"]}])
def test_a_part_with_other_columns_is_dropped(tmp_path, table):
    store, scored = _store(tmp_path)
    pq.write_table(pa.table(table), store / "0.parquet")
    assert len(pairs.read_parts(list(store.glob("*.parquet")), scored)) == 40
    assert not (store / "0.parquet").exists()


def _recorded(folder: Path, name: str) -> Path:
    path = folder / f"{name}.run.gz"
    with recorded(Fuse(), folder / f"{name}.json", path):
        path.write_bytes(b"some bytes")
    return path


def test_a_record_has_the_bytes_of_each_file(tmp_path):
    index = tmp_path / "lucene"
    with recorded(IndexLexical(), tmp_path / "lucene.json", index):
        index.mkdir()
        (index / "segments").write_bytes(b"x" * 5)
    outputs = json.loads((tmp_path / "lucene.json").read_text())["outputs"]
    assert {name: output["bytes"] for name, output in outputs.items()} == {"lucene/segments": 5}
    assert provenance.artifact(index) == index
    (index / "segments").unlink()
    with pytest.raises(DataError, match=r"lucene/segments is missing"):
        provenance.artifact(index)


def test_one_bit_of_a_large_file_is_seen(tmp_path):
    path, record = tmp_path / "large.npy", tmp_path / "large.json"
    with recorded(Fuse(), record, path):
        path.write_bytes(bytes(2**24 + 1))
    assert provenance.artifact(path) == path
    with path.open("r+b") as stream:
        stream.seek(2**23)
        stream.write(b"\x01")
    with pytest.raises(DataError, match=r"large\.npy is damaged: its SHA-256 is not the one in .*large\.json"):
        provenance.artifact(path)


def test_a_run_of_ones_own_needs_no_record(tmp_path):
    run = tmp_path / "mine.run.gz"
    run.write_bytes(b"1")
    assert provenance.artifact(run) == run
    for text in ("[]", '{"outputs": {"other.run.gz": {"bytes": 3}}}', '{"name": "no record"}'):
        (tmp_path / "mine.json").write_text(text)
        provenance.artifact(run)


def test_names_with_dots_find_their_record(tmp_path):
    path = _recorded(tmp_path, "v1.0")
    path.write_bytes(b"")
    with pytest.raises(DataError, match=r"v1\.0\.run\.gz is damaged"):
        provenance.artifact(path)
