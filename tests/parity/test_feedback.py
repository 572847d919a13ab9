"""Vector feedback equals exact products with moved queries, and pyserini's own classes over faiss."""

from __future__ import annotations

import json
import os
import random
import subprocess
import tracemalloc
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from checkpoints import save_changed, save_dense
from helpers import python, run_work

from beirgrid.collections import collection
from beirgrid.config.models import DenseModel
from beirgrid.config.query_changes import Moves
from beirgrid.core.compute import Compute
from beirgrid.core.errors import DataError
from beirgrid.encoders import open_encoder
from beirgrid.runs import runs
from beirgrid.search import flat, lucene
from beirgrid.stages.feedback import work

DENSE = DenseModel(family="dense", similarity="cosine")
CPU = Compute(device="cpu", precision="float32")
DEPTH = 60
MOVES: list[dict[str, Any]] = [
    {},
    {"documents": 5, "alpha": 0.4, "beta": 0.6},
    {"documents": 4, "negatives": 3, "gamma": 0.2},
    {"method": "average", "documents": 3},
    {"method": "average", "documents": DEPTH},
]
# Searches an index with vectors of queries, moves these by the rule of pyserini, and searches again.
PYSERINI = """
import json, sys
import numpy as np
from pyserini.search.faiss import FaissSearcher
from pyserini.search.faiss._prf import DenseVectorAveragePrf, DenseVectorRocchioPrf
folder, moves, deep, depth = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
rule = DenseVectorAveragePrf()
if moves["method"] == "rocchio":
    rule = DenseVectorRocchioPrf(*(moves[key] for key in ("alpha", "beta", "gamma", "documents", "negatives")))
searcher = FaissSearcher(folder, None)
found = []
for query in np.load(folder + "/queries.npy"):
    query, first = searcher.search(query[None], k=deep, return_vector=True)
    moved = np.expand_dims(rule.get_prf_q_emb(query[0], first), axis=0).astype("float32")
    found.append([(hit.docid, float(hit.score)) for hit in searcher.search(moved, k=depth)])
json.dump(found, open(folder + "/found.json", "w"))
"""


class Site(NamedTuple):
    """A small corpus, of which every tenth text stands there twice, with its vectors and queries."""

    folder: Path
    names: list[str]
    documents: np.ndarray
    queries: np.ndarray

    @property
    def given(self) -> dict[str, Any]:
        """What any job is given."""
        files = {name: self.folder / f"{name}.parquet" for name in ("corpus", "queries")}
        return {**files, "indexes": sorted(self.folder.glob("*.faiss")), "checkpoint": self.folder / "checkpoint"}

    def run(self, moves: Moves, **changed: Path) -> runs.Run:
        """Run the stage over the first run, and return its run."""
        given = {"dense_run": self.folder / "first.run.gz", **self.given, **changed}
        inputs = [name for name in given if name != "checkpoint" or "query_tower" not in given]
        values = {"system": "s", "model": DENSE, **{name: given[name] for name in inputs}}
        record = self.folder / "moved.json"
        output = self.folder / "moved.run.gz"
        run_work(work.feedback, record, *inputs, **values, moves=moves, depth=DEPTH, compute=CPU, output=output)
        return runs.read(output)


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Site:
    folder = tmp_path_factory.mktemp("feedback")
    choose = random.Random(1)
    words = [a + b for a in "abcdefgh" for b in "abcdefgh"]
    texts = [" ".join(choose.choices(words, k=choose.choice([2, 5, 30]))) for _ in range(200)]
    texts += texts[::10]
    names = [f"d{number}" for number in range(len(texts))]
    asked = [" ".join(choose.choices(words, k=3)) for _ in range(9)]
    pq.write_table(pa.table([names, [""] * len(names), texts], collection.CORPUS_SCHEMA), folder / "corpus.parquet")
    ids = [f"q{number}" for number in range(len(asked))]
    pq.write_table(pa.table([ids, asked], collection.QUERIES_SCHEMA), folder / "queries.parquet")
    save_dense(folder / "checkpoint")
    encoder = open_encoder(folder / "checkpoint", DENSE, CPU.start())
    documents = encoder.encode_documents(texts)
    for shard, start in enumerate(range(0, len(names), 90)):
        flat.write_index(documents[start : start + 90], folder / f"{shard}.faiss")
    made = Site(folder, names, documents, encoder.encode_queries(asked))
    runs.write(folder / "first.run.gz", dict(zip(ids, _best(made, made.queries), strict=True)), "first")
    return made


def _best(site: Site, queries: np.ndarray) -> list[runs.Ranking]:
    """Rank by products in float64."""
    scores = queries.astype(float) @ site.documents.astype(float).T
    return [runs.canonical("q", site.names, of_query, DEPTH) for of_query in scores]


def _moved(site: Site, moves: Moves) -> np.ndarray:
    """Move queries by the formulas of Li et al. (2022), in float64."""
    vectors = dict(zip(site.names, site.documents.astype(float), strict=True))
    moved = []
    for query, ranking in zip(site.queries.astype(float), _best(site, site.queries), strict=True):
        ranked = [vectors[name] for name in ranking.ids]
        if moves.method == "average":
            moved.append((query + sum(ranked[: moves.documents])) / (1 + moves.documents))
            continue
        new = moves.alpha * query + moves.beta * sum(ranked[: moves.documents]) / moves.documents
        if moves.negatives:
            new -= moves.gamma * sum(ranked[-moves.negatives :]) / moves.negatives
        moved.append(new)
    return np.array(moved)


@pytest.mark.parametrize("keys", MOVES)
def test_a_run_is_that_of_the_moved_queries(site, keys):
    """The exact products of the formulas: scores, documents, and the order of equal vectors."""
    moves = Moves(**keys)
    for ranking, expected in zip(site.run(moves).values(), _best(site, _moved(site, moves)), strict=True):
        assert ranking.scores == pytest.approx(expected.scores, abs=2e-6)
        near = np.abs(np.diff(expected.scores)) < 1e-5
        if not near.any():
            assert ranking.ids == expected.ids
        of_name = dict(zip(*expected, strict=True))
        assert all(
            score == pytest.approx(of_name.get(name, score), abs=2e-6) for name, score in zip(*ranking, strict=True)
        )
        assert sorted(zip(ranking.scores, ranking.ids, strict=True), reverse=True) == list(
            zip(ranking.scores, ranking.ids, strict=True)
        )


def test_the_query_encoder_of_two_towers_reads_the_queries(site, tmp_path):
    """Documents, and their vectors, are those of the other tower."""
    save_changed(tmp_path / "tower", site.folder / "checkpoint", _disturb)
    encoder = open_encoder(tmp_path / "tower", DENSE, CPU.start())
    texts = collection.read_queries(site.folder / "queries.parquet")
    towers = site._replace(queries=encoder.encode_queries([*texts.values()]))
    first = tmp_path / "first.run.gz"
    runs.write(first, dict(zip(texts, _best(towers, towers.queries), strict=True)), "first")
    found = site.run(Moves(), query_tower=tmp_path / "tower", dense_run=first)
    for ranking, expected, other in zip(
        found.values(), _best(towers, _moved(towers, Moves())), _best(site, _moved(site, Moves())), strict=True
    ):
        assert ranking.scores == pytest.approx(expected.scores, abs=2e-6)
        assert ranking.scores != pytest.approx(other.scores, abs=1e-4)


def _disturb(weights: dict[str, Any]) -> None:
    weights["embeddings.word_embeddings.weight"] = weights["embeddings.word_embeddings.weight"].flip(0).contiguous()


def test_memory_is_below_that_of_the_corpus(tmp_path):
    """Vectors of few documents, a thousandth of 41 MB, take less than a hundredth."""
    vectors = np.ones((20_000, 64), np.float32)
    for shard in range(8):
        vectors[:, 0] = np.arange(20_000) + 20_000 * shard
        flat.write_index(vectors, tmp_path / f"{shard}.faiss")
    rows = np.arange(0, 160_000, 1_000)[::-1]
    tracemalloc.start()
    found = flat.vectors_of(sorted(tmp_path.glob("*.faiss")), rows)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found[:, 0].tolist() == rows.tolist()
    assert peak < 8 * vectors.nbytes / 100


@pytest.mark.slow
@pytest.mark.parametrize("keys", MOVES)
def test_a_run_is_that_of_pyserini(site, keys):
    moves = Moves(**keys)
    import faiss

    index = faiss.IndexFlatIP(site.documents.shape[1])
    index.add(site.documents)
    faiss.write_index(index, str(site.folder / "index"))
    (site.folder / "docid").write_text("".join(f"{name}\n" for name in site.names))
    np.save(site.folder / "queries.npy", site.queries)
    deep = DEPTH if moves.negatives else moves.documents
    home = Path(lucene.java()).parent.parent
    java = {"JAVA_HOME": str(home), "JVM_PATH": str(home / "lib" / "server" / "libjvm.so")}
    java |= {"ANSERINI_CLASSPATH": "/nonexistent", "CLASSPATH": str(lucene.jar()), "OPENAI_API_KEY": "unused"}
    words = [str(site.folder), moves.model_dump_json(), str(deep), str(DEPTH)]
    subprocess.run([python(), "-c", PYSERINI, *words], env={**os.environ, **java}, check=True, capture_output=True)
    found = json.loads((site.folder / "found.json").read_text())
    for ranking, theirs in zip(site.run(moves).values(), found, strict=True):
        # faiss leaves equal scores in the order of its heap
        expected = runs.canonical("q", *zip(*theirs, strict=True), DEPTH)
        assert ranking.scores == pytest.approx(expected.scores, abs=1e-6)
        tops = [{*one.ids[: np.searchsorted(-one.scores, -expected.scores[-1] - 1e-5)]} for one in (ranking, expected)]
        assert tops[0] == tops[1]


def test_a_query_without_documents_stays(site):
    """The first run has no documents of one query, as of software that found nothing."""
    first = runs.read(site.folder / "first.run.gz")
    kept = (site.folder / "first.run.gz").read_bytes()
    runs.write(site.folder / "first.run.gz", {**first, "q4": runs.EMPTY}, "first")
    ranking = site.run(Moves())["q4"]
    (site.folder / "first.run.gz").write_bytes(kept)
    assert ranking.ids == first["q4"].ids
    assert ranking.scores == pytest.approx(first["q4"].scores, abs=1e-6)


def test_a_document_that_the_corpus_lacks_is_named(site):
    kept = (site.folder / "first.run.gz").read_bytes()
    first = {query: runs.Ranking(["other"], np.ones(1)) for query in runs.read(site.folder / "first.run.gz")}
    runs.write(site.folder / "first.run.gz", first, "first")
    with pytest.raises(DataError, match=r"corpus\.parquet has no document 'other'"):
        site.run(Moves())
    (site.folder / "first.run.gz").write_bytes(kept)
