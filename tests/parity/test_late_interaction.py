"""ColBERT equals plain transformers code and brute-force MaxSim, and its candidates include the exact results."""

from __future__ import annotations

import json
import string
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from checkpoints import encode_texts, normalised, opened, random_texts, save_pylate, states
from graph import inputs, records, settings
from helpers import main, quick_first, tracked_configuration
from safetensors.torch import load_file
from sentence_transformers import MultiVectorEncoder
from transformers import AutoModel, AutoTokenizer

from beirgrid import config
from beirgrid.collections import collection
from beirgrid.core.errors import DataError
from beirgrid.core.progress import Progress
from beirgrid.encoders.protocol import parts
from beirgrid.graph.grid import Grid
from beirgrid.runs import runs
from beirgrid.search import maxsim
from beirgrid.search.maxsim import TokenShard, TokenVectors

SPEC = {"family": "late-interaction", "max_length": 48, "query_length": 24}
_texts = partial(random_texts, longest=60, letters="abcdefghij    .,-")
MARKERS = {"late-interaction": ("[Q] ", "[D] "), "stanford": ("[unused0]", "[unused1]")}


class Paper:
    """ColBERT as in its paper, in plain transformers code: one text at a time, no padding, no batches."""

    def __init__(self, folder: Path, query_marker: str, document_marker: str) -> None:
        self.tokenizer, self.bert = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
        weights = folder / "1_Dense" / "model.safetensors"
        self.projection = load_file(weights if weights.exists() else folder / "model.safetensors")["linear.weight"]
        vocabulary = self.tokenizer.get_vocab()
        self.markers = {"query": vocabulary[query_marker], "document": vocabulary[document_marker]}
        self.punctuation = {vocabulary[symbol] for symbol in string.punctuation}

    def _ids(self, role: str, text: str, limit: int) -> list[int]:
        pieces = self.tokenizer(text, add_special_tokens=False)["input_ids"][: limit - 3]
        return [self.tokenizer.cls_token_id, self.markers[role], *pieces, self.tokenizer.sep_token_id]

    def _vectors(self, ids: list[int], attended: int) -> np.ndarray:
        mask = torch.tensor([[1] * attended + [0] * (len(ids) - attended)])
        with torch.inference_mode():
            hidden = self.bert(input_ids=torch.tensor([ids]), attention_mask=mask).last_hidden_state[0]
            return torch.nn.functional.normalize(hidden @ self.projection.T, dim=-1).numpy()

    def query(self, text: str, limit: int = 24) -> np.ndarray:
        ids = self._ids("query", text, limit)
        return self._vectors(ids + [self.tokenizer.mask_token_id] * (limit - len(ids)), len(ids))

    def document(self, text: str, limit: int = 48) -> np.ndarray:
        ids = self._ids("document", text, limit)
        return self._vectors(ids, len(ids))[[token not in self.punctuation for token in ids]]


def _encoder(folder: Path, **changes: int | str) -> Any:
    return opened("late-interaction", folder, {**SPEC, **changes})


@pytest.mark.slow
@pytest.mark.parametrize("layout", quick_first(MARKERS))
def test_token_vectors_and_scores_equal_the_papers(tiny_models, layout):
    paper, encoder = Paper(tiny_models[layout], *MARKERS[layout]), _encoder(tiny_models[layout])
    documents, queries = [*_texts(40), "", "ab " * 60, ",.-"], [*_texts(8, seed=1), "", "b " * 100]
    expected = [paper.document(text) for text in documents]
    found = encoder.encode_documents(documents)
    assert found.counts.tolist() == [len(vectors) for vectors in expected]
    np.testing.assert_allclose(found.vectors, np.concatenate(expected), atol=1e-4)
    asked = encoder.encode_queries(queries)
    assert set(asked.counts) == {24}
    np.testing.assert_allclose(asked.vectors, np.concatenate([paper.query(text) for text in queries]), atol=1e-4)

    scores = [[(paper.query(query) @ vectors.T).max(1).sum() for vectors in expected] for query in queries]
    ours = maxsim.maxsim(asked, found.vectors, np.cumsum(found.counts) - found.counts)
    np.testing.assert_allclose(ours, scores, atol=1e-4)


def test_lengths_are_the_checkpoints_unless_the_entry_says_more(tiny_models):
    encoder = opened("late-interaction", tiny_models["late-interaction"], {})
    assert encoder.encode_queries(["a", "b " * 100]).counts.tolist() == [32, 32]
    assert encoder.encode_documents(["b " * 200]).counts.tolist() == [100]
    longer = _encoder(tiny_models["late-interaction"], max_length=120, query_length=40)
    assert longer.encode_queries(["a"]).counts.tolist() == [40]
    assert longer.encode_documents(["b " * 200]).counts.tolist() == [120]
    with pytest.raises(DataError, match="query_length is 300, but the model has only 128 positions"):
        _encoder(tiny_models["late-interaction"], query_length=300)


@pytest.mark.parametrize("kind", ["dense", "bert"])
def test_a_checkpoint_without_projection_is_refused(tiny_models, kind):
    with pytest.raises(DataError, match="not a late-interaction model: it has no token projection"):
        _encoder(tiny_models[kind])


def test_a_checkpoint_whose_vectors_keep_their_lengths_is_refused(tiny_models, tmp_path):
    *modules, normalize = MultiVectorEncoder(str(tiny_models["late-interaction"]), device="cpu")
    assert type(normalize).__name__ == "Normalize"
    MultiVectorEncoder(modules=modules, device="cpu").save_pretrained(str(tmp_path / "model"))
    with pytest.raises(DataError, match="its last module is no Normalize"):
        _encoder(tmp_path / "model")
    MultiVectorEncoder(modules=[*modules, normalize], device="cpu").save_pretrained(str(tmp_path / "model"))
    assert _encoder(tmp_path / "model").dimension > 0


def test_vectors_without_a_projection_are_those_of_the_last_layer(tiny_models):
    folder, texts = tiny_models["dense"], [*_texts(20), "ab " * 60]
    expected = [normalised(tokens) for tokens in states(folder, texts, 48)]
    vectors = _encoder(folder, head="none", query_length=48)
    for encoded in (vectors.encode_documents(texts), vectors.encode_queries(texts)):
        assert encoded.counts.tolist() == [len(one) for one in expected]
        np.testing.assert_allclose(encoded.vectors, np.concatenate(expected), atol=1e-5)


# Search of invented vectors


@pytest.mark.parametrize("layout", MARKERS)
def test_a_late_interaction_model_reranks_by_the_sum_of_best_products(tiny_models, layout):
    """Compared with sentence-transformers on both texts of a pair; a document of several pairs is encoded once."""
    folder = tiny_models[layout]
    queries, documents = _texts(4, longest=8), [*_texts(300, seed=1), ""]
    pairs = [(query, document) for query in queries for document in [*documents[:3], *documents[-2:]]]
    pairs += [(queries[0], document) for document in documents]
    asked, read = map(list, zip(*pairs, strict=True))
    library = MultiVectorEncoder(str(folder), device="cpu")
    expected = library.similarity_pairwise(library.encode_query(asked), library.encode_document(read))
    progress = Progress("score", len(pairs), "pairs")
    scores = opened("late-interaction", folder, {}).score(asked, read, progress=progress)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert progress.done == len(pairs)


def _collection(documents: int, seed: int = 0, dimension: int = 16, longest: int = 30) -> TokenVectors:
    """Build token vectors like those of encoders: each word has a direction, which its document shifts a little."""
    rng = np.random.default_rng(seed)
    words = np.random.default_rng(99).standard_normal((2000, dimension))
    counts = rng.integers(0, longest, documents)
    pick = np.minimum(rng.zipf(1.3, counts.sum()), len(words)) - 1  # few words are most of a text
    context = np.repeat(rng.standard_normal((documents, dimension)), counts, axis=0)
    vectors = words[pick] + 0.5 * context + 0.4 * rng.standard_normal((len(pick), dimension))
    return TokenVectors((vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32), counts)


def _queries(found: TokenVectors, number: int, tokens: int, seed: int = 5) -> TokenVectors:
    """Build queries from noisy tokens of one document each."""
    rng = np.random.default_rng(seed)
    ends = np.cumsum(found.counts)
    long = rng.choice(np.flatnonzero(found.counts >= 5), number)
    rows = np.concatenate([rng.integers(ends[d] - found.counts[d], ends[d], tokens) for d in long])
    vectors = found.vectors[rows] + 0.6 * rng.standard_normal((len(rows), found.vectors.shape[1])) / 4
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    return TokenVectors(vectors.astype(np.float32), np.full(number, tokens))


def _store(folder: Path, found: TokenVectors, shards: int, block: int = 7) -> tuple[list[Path], list[Path]]:
    """Write token vectors into this many shards, in blocks, with their indexes."""
    folders = [folder / f"{number}" for number in range(shards)]
    indexes = [path.with_suffix(".faiss") for path in folders]
    for path, index, rows in zip(folders, indexes, np.array_split(np.arange(len(found.counts)), shards), strict=True):
        path.mkdir(parents=True)
        maxsim.write_vectors(path, map(found.texts, parts(rows, block)), len(rows), found.vectors.shape[1])
        maxsim.index_vectors(path, index)
    return folders, indexes


def _brute_force(found: TokenVectors, queries: TokenVectors) -> list[np.ndarray]:
    """Return the MaxSim of each query with each document in float64; -inf for one without tokens."""
    documents = TokenVectors(found.vectors.astype(np.float16).astype(np.float64), found.counts).by_text()
    asked = TokenVectors(queries.vectors.astype(np.float64), queries.counts).by_text()
    return [np.array([(q @ d.T).max(1).sum() if len(d) else -np.inf for d in documents]) for q in asked]


def _whole(found: TokenVectors) -> tuple[np.ndarray, np.ndarray]:
    """Return all token vectors, and the first row of each document that has tokens."""
    return found.vectors, (np.cumsum(found.counts) - found.counts)[found.counts > 0]


@pytest.fixture
def small_blocks(monkeypatch):
    """Make blocks so small that a few documents fill one."""
    for name, value in (("BLOCK", 100), ("QUERY_TOKENS", 18), ("EXHAUSTIVE_TOKENS", 24)):
        monkeypatch.setattr(maxsim, name, value)


@pytest.mark.parametrize("shards", quick_first([3, 1, 4]))
def test_an_exhaustive_search_is_brute_force(tmp_path, small_blocks, shards):
    found = _collection(120)
    assert (found.counts == 0).any()
    queries = TokenVectors(_queries(found, 9, 6).vectors[:50], np.array([6] * 7 + [5, 3]))
    tokens, _ = _store(tmp_path, found, shards)
    scores, rows = maxsim.search_exhaustively(tokens, queries, 20)
    for number, expected in enumerate(_brute_force(found, queries)):
        assert rows[number].tolist() == np.argsort(-expected)[:20].tolist()
        np.testing.assert_allclose(scores[number], np.sort(expected)[::-1][:20], atol=1e-4)
    scores, rows = maxsim.search_exhaustively(tokens, queries, 1000)
    assert {len(row) for row in rows} == {(found.counts > 0).sum()}  # what has no tokens has no score


@pytest.mark.parametrize("candidates", [5, 100_000])
def test_candidates_are_the_documents_of_the_nearest_tokens_of_all_shards(tmp_path, small_blocks, candidates):
    found = _collection(120)
    queries = _queries(found, 8, 6)
    owner = np.repeat(np.arange(120), found.counts)
    expected = _brute_force(found, queries)
    answers = []
    stored = found.vectors.astype(np.float16).astype(np.float32)
    for shards in (1, 3):
        tokens, indexes = _store(tmp_path / str(shards), found, shards)
        scores, rows = maxsim.search(tokens, indexes, queries, candidates)
        for number, query in enumerate(np.split(queries.vectors, 8)):
            nearest = np.argsort(-(query @ stored.T), axis=1)[:, :candidates]
            assert rows[number].tolist() == sorted(set(owner[nearest].ravel()))
            np.testing.assert_allclose(scores[number], expected[number][rows[number]], atol=1e-4)
        answers.append([row.tolist() for row in rows])
    assert answers[0] == answers[1]


def test_documents_alike_have_equal_scores_in_every_shard(tmp_path, small_blocks):
    half = _collection(40)
    twice = TokenVectors(np.concatenate([half.vectors] * 2), np.concatenate([half.counts] * 2))
    queries = _queries(half, 5, 8)
    tokens, indexes = _store(tmp_path, twice, 2)
    for number, (scores, rows) in enumerate(zip(*maxsim.search(tokens, indexes, queries, 2000), strict=True)):
        scored = dict(zip(rows.tolist(), scores.tolist(), strict=True))
        assert all(scored[row] == pytest.approx(scored[row + 40], abs=1e-5) for row in rows if row < 40)
        ranking = runs.canonical("q", map(str, rows), scores)
        best = _brute_force(twice, queries)[number].argmax() % 40
        assert set(ranking.ids[:2]) == {str(best), str(best + 40)}


def test_a_corpus_of_empty_documents_has_no_candidates(tmp_path):
    nothing = TokenVectors(np.zeros((0, 8), np.float32), np.zeros(4, np.int64))
    tokens, indexes = _store(tmp_path, nothing, 2)
    queries = TokenVectors(np.eye(8, dtype=np.float32), np.array([4, 4]))
    assert [len(row) for row in maxsim.search(tokens, indexes, queries, 5)[1]] == [0, 0]
    assert [len(row) for row in maxsim.search_exhaustively(tokens, queries, 5)[1]] == [0, 0]


@pytest.mark.parametrize("counts", [[2, 0, 2], [2, 2, 0], [0, 2, 2], [0, 0, 4], [0, 0, 0]])
def test_a_query_without_tokens_finds_nothing_and_changes_no_other_query(tmp_path, small_blocks, counts):
    found = _collection(40)
    queries = TokenVectors(_queries(found, 1, 4).vectors[: sum(counts)], np.array(counts))
    tokens, indexes = _store(tmp_path, found, 2)
    expected, full = _brute_force(found, queries), np.flatnonzero(found.counts)
    scores = maxsim.maxsim(queries, *_whole(found))
    np.testing.assert_allclose(scores, [of_query[full] for of_query in expected], atol=1e-2)  # 0 of the empty query
    for scores, rows in (
        maxsim.search(tokens, indexes, queries, 100_000),
        maxsim.search_exhaustively(tokens, queries, 100),
    ):
        for number, count in enumerate(counts):
            assert sorted(rows[number]) == (full.tolist() if count else [])
            np.testing.assert_allclose(scores[number], expected[number][rows[number]], atol=1e-4)


def test_a_shard_that_is_cut_off_is_told(tmp_path):
    found = _collection(40)
    (shard,), indexes = _store(tmp_path, found, 1)
    with (shard / "vectors.npy").open("r+b") as stream:
        stream.truncate(stream.seek(0, 2) - 1)
    for search in (
        lambda: maxsim.search([shard], indexes, _queries(found, 2, 4), 1000),
        lambda: maxsim.search_exhaustively([shard], _queries(found, 2, 4), 10),
    ):
        with pytest.raises(DataError, match=r"is damaged .*mmap length is greater than file size"):
            search()


def test_rounding_to_float16_costs_two_thousandths_at_most(tmp_path):
    found = _collection(300, dimension=128)
    queries = _queries(found, 20, 32)
    tokens, _ = _store(tmp_path, found, 1)
    every = np.flatnonzero(found.counts)
    (_, stored, first), *_ = TokenShard(tokens[0]).blocks(every)
    worst = np.abs(maxsim.maxsim(queries, found.vectors, first) - maxsim.maxsim(queries, stored, first)).max()
    print(f"largest difference of a score of 32 tokens: {worst:.6f}")
    assert 0 < worst < 2e-3


@pytest.mark.slow
def test_the_compressed_index_finds_what_an_exact_search_finds(tmp_path, monkeypatch):
    """Shards of half the size from which they get this index: 60,000 tokens. The limit of candidates causes the other
    losses.
    """
    found = _collection(2500, dimension=32, longest=50)
    queries = _queries(found, 40, 16)
    every = _store(tmp_path / "flat", found, 1, block=2000)
    monkeypatch.setattr(maxsim, "FLAT_TOKENS", 2**14)
    assert maxsim.index_name(len(found.vectors), 32) == "IVF512,PQ8x8np"
    tokens, compressed = _store(tmp_path / "compressed", found, 1, block=2000)
    _, exact = maxsim.search_exhaustively(tokens, queries, 100)
    for name, indexes, bounds in (("flat", every[1], (0.97, 0.85)), ("compressed", compressed, (0.93, 0.8))):
        _, rows = maxsim.search(tokens, indexes, queries, 100)
        for depth, bound in zip((10, 100), bounds, strict=True):
            recall = np.mean([np.isin(best[:depth], row).mean() for best, row in zip(exact, rows, strict=True)])
            print(f"{name}: the candidates hold {recall:.3f} of the exact top {depth}")
            assert recall >= bound


def test_tokens_are_read_bit_by_bit_into_the_room_of_those_before(tmp_path):
    """Every finite number of float16, in one block after the other."""
    stored = np.arange(2**16, dtype=np.uint16).view(np.float16)
    stored = stored[np.isfinite(stored)].reshape(-1, 8)
    folder = tmp_path / "0"
    folder.mkdir()
    block = TokenVectors(stored.astype(np.float32), np.full(len(stored) // 8, 8))
    maxsim.write_vectors(folder, [block], len(block.counts), 8)
    shard = TokenShard(folder)
    every = np.arange(len(stored))
    rows = [every[::3], every[5:2000], every]
    for tokens in rows:
        assert shard.read(tokens).tobytes() == stored[tokens].astype(np.float32).tobytes()
    assert np.shares_memory(*map(shard.read, rows[:2]))


@pytest.mark.parametrize(
    ("documents", "keys", "candidates"),
    [
        (2000, {}, None),
        (2001, {}, 100),
        (None, {}, 100),
        (2000, {"candidates": 100}, 100),
        (9000, {"exhaustive": True}, None),
    ],
)
def test_a_small_corpus_is_searched_without_an_index(documents, keys, candidates):
    raw = tracked_configuration()
    raw["corpora"]["demo"] = {key: value for key, value in raw["corpora"]["demo"].items() if key != "documents"}
    raw["corpora"]["demo"] |= {"documents": documents} if documents else {}
    raw["systems"]["late"] = {"retriever": "colbertv2", **keys}
    raw["grid"] = {"systems": ["late"], "datasets": ["demo"]}
    grid = Grid(config.load(raw))
    cell = {"system": "late", "dataset": "demo"}
    assert settings(grid, "retrieve_late_interaction", **cell).get("candidates") == candidates
    indexes = ["results/indexes/colbertv2/demo/0.faiss"] if candidates else []
    assert inputs(grid, "retrieve_late_interaction", **cell)["indexes"] == indexes
    assert ("results/indexes/colbertv2/demo/0.json" in records(grid, "late", "demo")) == bool(candidates)


def test_the_index_follows_from_the_number_of_tokens():
    assert maxsim.index_name(0, 128) == maxsim.index_name(2**17 - 1, 128) == "Flat"
    assert maxsim.index_name(2**17, 128) == "IVF1024,PQ32x8np"
    assert maxsim.index_name(50_000_000, 128) == "IVF16384,PQ32x8np"
    assert maxsim.index_name(1_000_000, 96) == "IVF2048,PQ24x8np"


# The commands


def test_a_changed_checkpoint_is_refused_in_one_message(tiny_models, tmp_path, capsys):
    queries, tokens = tmp_path / "queries.parquet", tmp_path / "0.tokens"
    pq.write_table(pa.table([["q"], ["ab cd"]], schema=collection.QUERIES_SCHEMA), queries)
    assert encode_texts(tokens, tiny_models["late-interaction"], _texts(20), SPEC) == 0
    made = ["--record", tmp_path / "made.json"]
    assert main(["index", "late-interaction", "--vectors", tokens, "--output", tmp_path / "0.faiss", *made]) == 0
    retrieve = ["retrieve", "late-interaction", "--system", "x", "--model", json.dumps(SPEC), "--tokens", tokens]
    retrieve += ["--corpus", tmp_path / "corpus.parquet", "--queries", queries, "--device", "cpu"]
    retrieve += ["--output", tmp_path / "x.run.gz", *made]
    wider = save_pylate(tmp_path / "wider", dimension=24)
    found = []
    for search in (["--indexes", tmp_path / "0.faiss", "--candidates", 100], []):
        assert main([*retrieve, *search, "--checkpoint", tiny_models["late-interaction"]]) == 0
        found.append(runs.read(tmp_path / "x.run.gz")["q"])
        capsys.readouterr()
        assert main([*retrieve, *search, "--checkpoint", wider]) == 1
        message = capsys.readouterr().err
        assert f"{tokens} and {wider} do not belong together: each has another checkpoint behind it" in message
        assert "Traceback" not in message
    assert found[0].ids == found[1].ids
    assert len(found[0].ids) == 20
