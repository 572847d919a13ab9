"""The engine: work ahead, too little memory, failing workers, tokenization once."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from checkpoints import FAMILIES, opened, results
from helpers import main

from beirgrid.collections import collection
from beirgrid.encoders import query_generator
from beirgrid.encoders.engine import ahead
from beirgrid.encoders.protocol import WINDOW
from beirgrid.search import flat
from beirgrid.stages.encode import work as encode


@pytest.fixture
def encoder(tiny_models) -> Any:
    return opened("dense", tiny_models["dense"], {"similarity": "dot"})


@pytest.mark.parametrize("kind", ["dense", "cross-encoder", "term-weights", "query-generator"])
def test_every_family_goes_on_with_half_of_a_batch(tiny_models, monkeypatch, capsys, kind):
    """PyTorch has no memory for more than three texts at a time, as may happen on a GPU."""
    family, entry = FAMILIES[kind]
    texts = ["ab " * (1 + row % 5) + f"c{row}" for row in range(30)]
    monkeypatch.setattr(query_generator, "QUERY_LENGTH", 4)
    model = opened(family, tiny_models[kind], entry, "float32", 600)

    def computed() -> list[Any]:
        return model.generate(texts, per_text=2, seed=0) if kind == "query-generator" else results(model, texts)

    expected, largest, compute = computed(), [], model.results

    def limited(inputs: dict[str, Any]) -> Any:
        largest.append(len(inputs["attention_mask"]))
        if largest[-1] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return compute(inputs)

    capsys.readouterr()
    model.results = limited
    if kind == "query-generator":
        assert computed() == expected
    else:
        np.testing.assert_allclose(np.concatenate(computed()), np.concatenate(expected), atol=1e-5, rtol=1e-4)
    assert max(largest) > 3
    assert model.engine.budget < 600
    assert capsys.readouterr().err.count("not enough memory for a batch of") == 1


def test_the_next_window_is_computed_while_the_caller_handles_one(encoder):
    """A GPU does not wait for the writer between two windows."""
    computed, results = [], encoder.results

    def counted(features: dict[str, Any]) -> Any:
        computed.append(len(features["attention_mask"]))
        return results(features)

    encoder.results = counted
    windows = encoder.vectors(iter([["ab cd"] * 7, ["ef"] * 5, ["ab"] * 3]), "document")
    assert len(next(windows)) == 7
    ends = time.monotonic() + 60
    while sum(computed) <= 7 and time.monotonic() < ends:
        time.sleep(0.01)
    assert sum(computed) > 7
    assert [len(window) for window in windows] == [5, 3]
    assert sum(computed) == 15


def test_a_slow_disk_holds_the_encoding_back(tiny_models, tmp_path, monkeypatch):
    """Few of a shard's 40 blocks are in memory while a block is written. All are read before, to find equal texts."""
    ids, schema = [str(row) for row in range(200)], collection.CORPUS_SCHEMA
    table = pa.table([ids, [""] * 200, [f"ab {row}" for row in ids]], schema)
    pq.write_table(table, tmp_path / "corpus.parquet", row_group_size=5)
    monkeypatch.setattr(encode, "WINDOW", 5)
    write, read, ahead, read_documents = flat.write_vectors, [], [], collection.read_documents

    def counted(*given: Any) -> Any:
        for block in read_documents(*given):
            read.append(len(block))
            yield block

    def slow(path: Path, blocks: Any, documents: int, dimension: int) -> dict[str, int]:
        def each() -> Any:
            for number, block in enumerate(blocks, start=1):
                time.sleep(0.02)
                ahead.append(len(read) - 40 - number)
                yield block

        return write(path, each(), documents, dimension)

    monkeypatch.setattr(collection, "read_documents", counted)
    monkeypatch.setattr(flat, "write_vectors", slow)
    arguments = ["encode", "--model", '{"family": "dense", "similarity": "dot"}', "--shard-size", "200", "--last"]
    arguments += ["--checkpoint", str(tiny_models["dense"]), "--corpus", str(tmp_path / "corpus.parquet")]
    arguments += ["--device", "cpu", "--output", str(tmp_path / "v.npy"), "--record", str(tmp_path / "v.json")]
    assert main(arguments) == 0
    assert (len(read), len(ahead)) == (80, 40)
    assert max(ahead) <= 6


def test_an_error_of_a_batch_ends_the_encoding(encoder, monkeypatch):
    broken = mock.Mock(side_effect=ValueError("a broken layer"))
    monkeypatch.setattr(encoder.transformer.encoder.layer[1], "forward", broken)
    with pytest.raises(ValueError, match="a broken layer"):
        encoder.encode_documents(["ab cd"] * 200)


def test_an_error_of_the_reader_ends_the_encoding(encoder):
    def blocks() -> Any:
        yield ["ab", "cd"]
        raise OSError("a bad sector")

    with pytest.raises(OSError, match="a bad sector"):
        list(encoder.vectors(blocks(), "document"))
    assert not _threads()


def test_blocks_are_encoded_as_all_texts_at_once(encoder):
    texts = ["abc " * (row % 9) + str(row) for row in range(50)]
    blocks = list(encoder.vectors(iter([texts[:7], texts[7:8], texts[8:]]), "document"))
    assert [len(block) for block in blocks] == [7, 1, 42]
    np.testing.assert_allclose(np.concatenate(blocks), encoder.encode_documents(texts), atol=1e-5, rtol=1e-4)


def test_each_text_is_tokenized_once(tiny_models, monkeypatch):
    """The tokenizer of a pair gets both texts; whole texts are cut, so no other step needs their tokens."""
    scorer = opened("cross-encoder", tiny_models["cross-encoder"], {"max_length": 64})
    queries, documents = [f"ab {row}" for row in range(70)], [f"cd {row} ef" for row in range(70)]
    seen: list[str] = []
    tokenizer = scorer.model.tokenizer
    batch = type(tokenizer)._encode_plus

    def counted(self: Any, text: Any, *arguments: Any, **options: Any) -> Any:
        seen.extend(map(str, text if isinstance(text, list) else [text]))
        return batch(self, text, *arguments, **options)

    monkeypatch.setattr(type(tokenizer), "_encode_plus", counted)
    scorer.score(queries, documents)
    assert sum("cd" in text for text in seen) == 70


def test_the_memory_of_pairs_does_not_grow_with_their_number(tiny_models):
    scorer = opened("cross-encoder", tiny_models["cross-encoder"], {"max_length": 64}, "float32", 3000)
    taken, tokenized = [], scorer.tokenized

    def counted(pairs: Any) -> Any:
        taken.append(len(pairs))
        return tokenized(pairs)

    scorer.tokenized = counted
    given = ["ab cd"] * (WINDOW + 5)
    assert len(scorer.score(given, given)) == len(given)
    assert taken == [WINDOW, 5]


def counted(stop: int, taken: list[int]) -> Iterator[int]:
    """Yield numbers from 0, and note those that were taken so far."""
    for number in range(stop):
        taken.append(number)
        yield number


def _threads() -> list[str]:
    return [thread.name for thread in threading.enumerate() if thread.name.startswith("ahead")]


def test_items_come_in_order_and_only_so_far_ahead():
    taken, found = [], []
    for item in ahead(counted(1000, taken)):
        found.append(item)
        if item == 10:
            time.sleep(0.05)
            assert len(taken) <= item + 2
    assert found == list(range(1000))
    assert not _threads()


def test_whoever_stops_asking_ends_the_thread_ahead():
    taken = []
    generator = ahead(counted(10**9, taken))
    assert [next(generator), next(generator)] == [0, 1]
    generator.close()
    before = len(taken)
    time.sleep(0.05)
    assert len(taken) == before <= 3
    assert not _threads()
