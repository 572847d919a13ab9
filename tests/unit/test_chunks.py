"""Documents in chunks: vectors, scores and runs against transformers and sentence-transformers, and what is refused."""

from __future__ import annotations

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from checkpoints import byte_tokenizer, encode_texts, save_changed, save_static
from graph import inputs
from helpers import fetch_collection, run_work, tracked_configuration
from pydantic import TypeAdapter
from sentence_transformers import CrossEncoder, SentenceTransformer
from torch.nn import Identity
from transformers import AutoTokenizer

from beirgrid import config
from beirgrid.collections import collection
from beirgrid.config.models import Model, Reranker
from beirgrid.config.systems import Int8
from beirgrid.core import files
from beirgrid.core.compute import Compute, Runtime
from beirgrid.core.errors import DataError
from beirgrid.encoders import cutting, open_encoder, open_model
from beirgrid.graph.dag import Job
from beirgrid.graph.grid import Grid
from beirgrid.graph.resources import Resources
from beirgrid.runs import runs
from beirgrid.search import flat
from beirgrid.stages.encode import work as encode
from beirgrid.stages.index.work import index_approximate, index_vectors
from beirgrid.stages.retrieve import work as retrieve

DENSE = {"family": "dense", "similarity": "cosine", "max_length": 40, "prompts": {"document": "d7: ", "query": ""}}
RERANKER = {"family": "cross-encoder", "max_length": 60}
AGGREGATES = ("max", "mean", "first")
# Shorter and longer than a chunk, of exactly one chunk, of one chunk and one stride, empty, and without a letter.
TEXTS = ["", "ab cd", "a" * 20, "abc defg " * 15, "  \t ", "q1 w2, e3. " * 9, "b" * 27, "é" * 41, "zz"]
QUERIES = ["defg", "what is q1", "bb"]


def _chunks(aggregate: str, tokens: int = 20, stride: int = 7) -> dict[str, Any]:
    return {"chunks": {"tokens": tokens, "stride": stride, "aggregate": aggregate}}


def _windows(folder: Path, text: str, tokens: int = 20, stride: int = 7) -> list[str]:
    """Cut a text as the documentation says, with the tokenizer of transformers."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    spans = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)["offset_mapping"]
    found, begin = [], 0
    while len(spans) > tokens:
        part = spans[begin : begin + tokens]
        while len(tokenizer(text[part[0][0] : part[-1][1]], add_special_tokens=False)["input_ids"]) > tokens:
            part = part[:-1]
        found.append(text[part[0][0] : part[-1][1]])
        if part[-1] == spans[-1]:
            return found
        begin += min(stride, len(part))
    return [text]


def _expected(folder: Path, aggregate: str) -> list[np.ndarray]:
    """Encode the chunks of all texts with sentence-transformers, text by text: [vectors, dimension] of each."""
    model = SentenceTransformer(str(folder), device="cpu")
    model.max_seq_length = DENSE["max_length"]
    found = [model.encode(["d7: " + part for part in _windows(folder, text)]) for text in TEXTS]
    found = [part / np.linalg.norm(part, axis=1, keepdims=True) for part in found]
    if aggregate == "first":
        return [part[:1] for part in found]
    if aggregate == "mean":
        means = [part.mean(0, keepdims=True) for part in found]
        return [mean / np.linalg.norm(mean) for mean in means]
    return found


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_vectors_are_those_of_sentence_transformers(tiny_models, aggregate):
    folder = tiny_models["dense"]
    encoder = open_encoder(folder, DENSE | _chunks(aggregate))
    found, expected = encoder.encode_documents(TEXTS), _expected(folder, aggregate)
    if aggregate == "max":
        assert found.counts.tolist() == [len(part) for part in expected]
        assert max(found.counts) > 10
        found = found.vectors
    assert np.abs(found - np.concatenate(expected)).max() < 1e-5
    of_whole = open_encoder(folder, DENSE)
    assert np.abs(encoder.encode_queries(QUERIES) - of_whole.encode_queries(QUERIES)).max() < 1e-6
    assert encoder.facts()["chunks"] == (
        len(TEXTS) if aggregate == "first" else sum(map(len, _expected(folder, "max")))
    )


@pytest.mark.parametrize("blocks", [[9], [1, 8], [4, 4, 1]])
def test_vectors_do_not_depend_on_blocks(tiny_models, blocks):
    encoder = open_encoder(tiny_models["dense"], DENSE | _chunks("max"))
    ends = np.cumsum(blocks)
    found = list(encoder.vectors(TEXTS[end - size : end] for size, end in zip(blocks, ends, strict=True)))
    assert [len(block.counts) for block in found] == blocks
    expected = np.concatenate(_expected(tiny_models["dense"], "max"))
    assert np.abs(np.concatenate([block.vectors for block in found]) - expected).max() < 1e-5


def _scorer(folder: Path, entry: dict[str, Any]) -> Any:
    return open_model(folder, TypeAdapter(Reranker).validate_python(entry), Runtime("cpu", "float32", 300))


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_scores_of_pairs_are_those_of_sentence_transformers(tiny_models, aggregate):
    folder = tiny_models["cross-encoder"]
    scorer = _scorer(folder, RERANKER | _chunks(aggregate))
    pairs = [(query, text) for query in QUERIES for text in TEXTS]
    found = scorer.score([query for query, _ in pairs], [text for _, text in pairs])
    model = CrossEncoder(str(folder), device="cpu", max_length=60)
    join = {"max": np.max, "mean": np.mean, "first": lambda scores: scores[0]}[aggregate]
    expected = [
        join(model.predict([(query, part) for part in _windows(folder, text)], activation_fn=Identity()))
        for query, text in pairs
    ]
    assert np.abs(found - expected).max() < 1e-5
    if aggregate == "max":
        assert scorer.spent() == {"chunk_pairs": 3 * sum(len(_windows(folder, text)) for text in TEXTS)}


def test_a_static_table_reads_no_chunks(tmp_path):
    with pytest.raises(DataError, match="averages whole texts: leave chunks out"):
        open_encoder(save_static(tmp_path / "static"), {**DENSE, "max_length": None} | _chunks("max"))


def test_a_t5_scores_chunks(tiny_models):
    folder, entry = tiny_models["seq2seq"], {"family": "seq2seq-reranker", "max_length": 80}
    whole, chunked = (_scorer(folder, entry | more) for more in ({}, _chunks("max")))
    parts = _windows(folder, TEXTS[3])
    found = chunked.score([QUERIES[0]], [TEXTS[3]])
    assert len(parts) > 3
    assert abs(found[0] - whole.score(QUERIES[:1] * len(parts), parts).max()) < 1e-5


@pytest.mark.parametrize("stride", [5, 8])
@pytest.mark.parametrize("kind", ["bytes", "pieces"])
def test_chunks_of_texts_without_white_space_fit_and_leave_nothing_out(tiny_models, kind, stride):
    """A part of a letter, or of a word, is read as more tokens than it has within the text."""
    special = {"eos_token": "<|e|>", "pad_token": "<|e|>", "unk_token": "<|e|>"}
    tokenizer = byte_tokenizer("Qwen2Tokenizer", **special) if kind == "bytes" else None
    tokenizer = tokenizer or AutoTokenizer.from_pretrained(tiny_models["seq2seq"])
    for first, last in (("A", "z"), ("à", "ż"), ("一", "亀"), ("🌀", "🎿")):
        text = "".join(map(chr, range(ord(first), ord(last))))  # each letter once
        found, covered = cutting.windows(tokenizer, text, 8, stride), 0
        for part in found:
            assert len(found) == 1 or len(tokenizer(part, add_special_tokens=False)["input_ids"]) <= 8
            assert text.index(part) <= covered < text.index(part) + len(part)
            covered = text.index(part) + len(part)
        assert covered == len(text)


def test_chunks_need_room_beside_prompt_and_special_tokens(tiny_models):
    # "d7: " and the two special tokens around a text are five tokens.
    open_encoder(tiny_models["dense"], DENSE | _chunks("mean", tokens=35))
    with pytest.raises(DataError, match=r"room for 35 tokens: set chunks.tokens to 35 or less"):
        open_encoder(tiny_models["dense"], DENSE | _chunks("mean", tokens=36))
    _scorer(tiny_models["cross-encoder"], RERANKER | _chunks("max", tokens=56))
    with pytest.raises(DataError, match="room for 56 tokens"):
        _scorer(tiny_models["cross-encoder"], RERANKER | _chunks("max", tokens=57))


# Search


def _best(vectors: list[np.ndarray], queries: np.ndarray, depth: int) -> tuple[np.ndarray, np.ndarray]:
    """Find the best documents by their best vectors, in float64."""
    scores = np.stack([(queries.astype(float) @ part.astype(float).T).max(1) for part in vectors], 1)
    rows = np.argsort(-scores, axis=1, kind="stable")[:, :depth]
    return np.take_along_axis(scores, rows, 1), rows


@pytest.mark.parametrize("depth", [1, 10, 250, 2000])
def test_the_best_documents_are_those_of_brute_force(tmp_path, depth, monkeypatch):
    """Two shards, blocks of 4,096 vectors; a document fills all first ranks, so that more vectors must be found."""
    monkeypatch.setattr(flat, "_FOUND", 30_000)
    rng = np.random.default_rng(1)
    counts = rng.integers(1, 8, 1500)
    counts[700], counts[3:5] = 3000, 2
    vectors = [rng.standard_normal((count, 16), np.float32) for count in counts]
    vectors[700] += 4
    vectors[3] = vectors[4] = np.ones((2, 16), np.float32)  # equal documents are in the order of the corpus
    queries = np.abs(rng.standard_normal((6, 16), np.float32))
    shards = []
    for number, (start, stop) in enumerate([(0, 701), (701, 1500)]):
        blocks = [
            (np.concatenate(vectors[at : at + 100][: stop - at]), counts[at : min(at + 100, stop)])
            for at in range(start, stop, 100)
        ]
        path = tmp_path / f"{number}.npy"
        flat.write_vectors(path, blocks, stop - start, 16)
        shards.append(path.with_suffix(".faiss"))
        _, facts = flat.index_vectors(path, shards[-1])
        assert facts == {"documents": stop - start, "chunks": counts[start:stop].sum(), "dimension": 16}
    scores, rows = flat.search_shards(shards, queries, depth)
    expected, best = _best(vectors, queries, depth)
    assert rows.tolist() == best.tolist()
    assert np.abs(scores - expected).max() < 1e-5


def test_shards_that_do_not_belong_together_and_damaged_ones_are_refused(tmp_path):
    vectors, counts = np.eye(6, dtype=np.float32), np.array([1, 3, 2])
    flat.write_index(vectors, tmp_path / "several.faiss", counts)
    flat.write_index(vectors, tmp_path / "single.faiss")
    with pytest.raises(DataError, match=r"single.faiss has one vector of each document, and other shards have several"):
        flat.search_shards([tmp_path / "several.faiss", tmp_path / "single.faiss"], vectors, 2)
    built = {"output": tmp_path / "int8.faiss"}
    with pytest.raises(DataError, match="searched exactly only"):
        index_approximate(exact=tmp_path / "several.faiss", index=Int8(kind="int8"), similarity="dot", **built)
    flat.write_vectors(tmp_path / "wrong.npy", [(vectors, np.array([1, 3, 1]))], 3, 6)
    with pytest.raises(DataError, match=r"wrong.npy is damaged"):
        flat.index_vectors(tmp_path / "wrong.npy", tmp_path / "wrong.faiss")


# Stages


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fetched collection of twelve documents, long and short, with titles, one of them empty."""
    folder, choose = tmp_path_factory.mktemp("chunked"), random.Random(3)
    words = ["".join(choose.choices("abcdefgh", k=3)) for _ in range(30)]
    rows = [{"_id": f"d{n}", "title": f"t{n}", "text": " ".join(choose.choices(words, k=5 * n))} for n in range(11)]
    rows.append({"_id": "none", "title": "", "text": ""})
    queries = [{"_id": f"q{n}", "text": " ".join(choose.choices(words, k=3))} for n in range(4)]
    return fetch_collection(folder, rows, queries, [("q0", "d1", 1)])


@pytest.mark.slow
def test_runs_are_of_documents(site, tiny_models, tmp_path):
    """The corpus is encoded in two shards."""
    checkpoint, entry = tiny_models["dense"], {**DENSE, "prompts": {"document": "d7: "}}
    model = TypeAdapter(Model).validate_python(entry | _chunks("max"))
    search = {"model": model, "checkpoint": checkpoint, "corpus": site / "corpus.parquet"}
    search["compute"] = Compute(device="cpu", precision="float32")
    indexes, facts = [], []
    for shard in (0, 1):
        vectors, record = tmp_path / f"{shard}.npy", tmp_path / f"{shard}.json"
        run_work(encode.encode, record, **search, shard=shard, shard_size=6, output=vectors)
        indexes.append(tmp_path / f"{shard}.faiss")
        index_vectors(family="dense", vectors=vectors, output=indexes[-1])
        facts.append(files.read_json(record)["facts"])
    written = {"output": tmp_path / "max.run.gz"}
    retrieve.retrieve_vectors(
        **search, system="s", queries=site / "queries.parquet", indexes=indexes, depth=9, **written
    )
    texts = [document.full_text for block in collection.read_documents(site / "corpus.parquet") for document in block]
    whole = open_encoder(checkpoint, entry)
    queries = whole.encode_queries(list(collection.read_queries(site / "queries.parquet").values()))
    parts = [whole.encode_documents(_windows(checkpoint, text)) for text in texts]
    scores, rows = _best(parts, queries, 9)
    ids = [f"d{n}" for n in range(11)] + ["none"]
    found = runs.read(written["output"])
    for number, ranking in enumerate(found.values()):
        assert list(ranking.ids) == [ids[row] for row in rows[number]]
        assert np.abs(ranking.scores - scores[number]).max() < 1e-5
    assert [fact["documents"] for fact in facts] == [6, 6]
    assert sum(fact["chunks"] for fact in facts) == sum(map(len, parts)) > 40


@pytest.mark.parametrize("aggregate", ["max", "mean"])
def test_a_model_that_gives_nan_is_refused(tiny_models, tmp_path, capsys, aggregate):
    def enlarge(weights: dict[str, Any]) -> None:
        weights["encoder.layer.0.output.LayerNorm.weight"] *= 1e38

    broken = save_changed(tmp_path / "broken", tiny_models["dense"], enlarge)
    assert encode_texts(tmp_path / "0.npy", broken, TEXTS, DENSE | _chunks(aggregate)) == 1
    assert re.search("the model gives NaN or infinite values for .* texts, first document", capsys.readouterr().err)


@pytest.mark.parametrize("aggregate", AGGREGATES)
def test_equal_documents_have_the_vectors_of_one(tiny_models, tmp_path, monkeypatch, aggregate):
    """Within a block, in a later one, and where a block has no new text."""
    monkeypatch.setattr(encode, "WINDOW", 3)
    texts = [TEXTS[number] for number in (3, 5, 3, 1, 5, 1, 3, 5, 5, 2)]
    (tmp_path / "once").mkdir()
    for folder, read in ((tmp_path, texts), (tmp_path / "once", [*dict.fromkeys(texts)])):
        assert encode_texts(folder / "0.npy", tiny_models["dense"], read, DENSE | _chunks(aggregate)) == 0
    stored = []
    for path in (tmp_path / "0.npy", tmp_path / "once/0.npy"):
        with path.open("rb") as stream:
            vectors = np.load(stream)
            counts = np.load(stream) if aggregate == "max" else np.ones(len(vectors), np.int64)
        stored.append(np.split(vectors, np.cumsum(counts)[:-1]))
    once = dict(zip(dict.fromkeys(texts), stored[1], strict=True))
    for text, vectors in zip(texts, stored[0], strict=True):
        np.testing.assert_allclose(vectors, once[text], atol=1e-5)
        np.testing.assert_array_equal(vectors, stored[0][texts.index(text)])


# Configuration


@pytest.fixture
def raw() -> dict[str, Any]:
    merged = tracked_configuration()
    merged["systems"]["long"] = {"retriever": "minilm", **_chunks("max", 200, 100)}
    merged["systems"]["long+ce"] = {"first_stage": "bm25", "reranker": "ms-marco-minilm", **_chunks("mean", 300, 300)}
    merged["grid"] = {"systems": ["minilm", "long", "long+ce"], "datasets": ["scifact"]}
    return merged


def test_a_system_with_chunks_shares_the_checkpoint_of_its_model(raw):
    grid = Grid(config.load(raw))
    reranker, own = "ms-marco-minilm~300-300-mean", ["results/models/minilm/checkpoint"]
    search = inputs(grid, "retrieve_dense", system="long", dataset="scifact")
    assert search["indexes"] == ["results/indexes/minilm~200-100-max/scifact/0.faiss"]
    assert search["checkpoint"] == own
    assert inputs(grid, "encode_dense", model="minilm~200-100-max", corpus="scifact", shard="0")["checkpoint"] == own
    scored = inputs(grid, "score", reranker=reranker, dataset="scifact", first="bm25")
    assert scored["checkpoint"] == ["results/models/ms-marco-minilm/checkpoint"]
    reranked = inputs(grid, "rerank", system="long+ce", dataset="scifact")
    assert reranked["scores"] == [f"results/pairs/{reranker}/scifact/bm25.json"]


def test_the_plan_counts_chunks(raw):
    raw["datasets"]["scifact"]["statistics"]["document_words"] = 1000.0  # 1,350 tokens: 13 chunks of 200
    resources = Resources(Grid(config.load(raw)))

    def work(rule, **wildcards):
        return resources.work(Job.of(rule, wildcards))

    names = ("minilm", "minilm~200-100-max")
    whole, chunked = (work("encode_dense", model=name, corpus="scifact", shard="0") for name in names)
    assert chunked["vectors_mb"] == 13 * whole["vectors_mb"]
    assert chunked["model_flops"] > 8 * whole["model_flops"]
    searches = [work("retrieve_dense", system=name, dataset="scifact")["search_flops"] for name in ("minilm", "long")]
    assert searches[1] == 13 * searches[0]
    pairs = work("score", reranker="ms-marco-minilm~300-300-mean", dataset="scifact", first="bm25")["pairs"]
    assert pairs == 300 * 100 * 5
