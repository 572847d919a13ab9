"""An interrupted expansion continues where it stopped, and gives the same file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from helpers import main

from beirgrid.collections import collection
from beirgrid.encoders import query_generator
from beirgrid.encoders.query_generator import GeneratorModel
from beirgrid.stages.expand import work as expand

DOCUMENTS = 11


@pytest.fixture
def corpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A corpus of four blocks of documents, the last of them short."""
    texts = [" ".join("abcdefghij"[(row + step) % 10] * 3 for step in range(3)) for row in range(DOCUMENTS)]
    ids = [f"d{row}" for row in range(DOCUMENTS)]
    pq.write_table(pa.table([ids, [""] * DOCUMENTS, texts], collection.CORPUS_SCHEMA), tmp_path / "corpus.parquet")
    monkeypatch.setattr(expand, "BLOCK", 3)
    monkeypatch.setattr(query_generator, "QUERY_LENGTH", 8)
    return tmp_path / "corpus.parquet"


class Blocks(list[int]):
    """The sizes of the expanded blocks; the block after the first ``limit`` ends the process."""

    limit = 99


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> Blocks:
    """The blocks that models expand."""
    found, generate = Blocks(), GeneratorModel.generate

    def count(self, texts, **options):
        if len(found) == found.limit:
            raise KeyboardInterrupt
        found.append(len(texts))
        return generate(self, texts, **options)

    monkeypatch.setattr(GeneratorModel, "generate", count)
    return found


def _expand(
    corpus: Path, checkpoint: Path, name: str = "one", seed: int = 0, shard: int = 0, size: int = DOCUMENTS
) -> Path:
    """Expand a shard, which has all documents unless its size is given; return the output."""
    entry = json.dumps({"family": "query-generator", "queries_per_document": 2, "seed": seed})
    output = corpus.with_name(f"{name}.parquet")
    arguments = ["expand", "--model", entry, "--checkpoint", checkpoint, "--corpus", corpus, "--output", output]
    arguments += ["--shard", shard, "--shard-size", size, "--device", "cpu", "--precision", "float32"]
    assert main([*arguments, "--record", output.with_suffix(".json")]) == 0
    return output


@pytest.fixture
def state(corpus: Path, tiny_models: dict[str, Path], blocks: Blocks) -> Path:
    """The files of a job that was killed after two blocks."""
    blocks.limit = 2
    with pytest.raises(KeyboardInterrupt):
        _expand(corpus, tiny_models["query-generator"])
    assert not corpus.with_name("one.parquet").exists()
    [folder] = corpus.parent.glob(".one.parquet-state-*")
    blocks.clear()
    blocks.limit = 99
    return folder


def test_an_interrupted_shard_goes_on_and_ends_with_the_same_file(corpus, tiny_models, blocks, state):
    output = _expand(corpus, tiny_models["query-generator"])
    assert blocks == [3, 2]
    record = json.loads(output.with_suffix(".json").read_text())
    assert record["facts"]["documents_expanded"] == 5
    own = {"family": "query-generator", "queries_per_document": 2, "seed": 0}
    assert record["job"]["settings"]["model"] == own
    assert record["facts"]["rows"] == [0, DOCUMENTS]
    assert not state.exists()
    whole = _expand(corpus, tiny_models["query-generator"], "whole")
    assert output.read_bytes() == whole.read_bytes()
    assert pq.read_metadata(output).num_row_groups == 4


def test_a_shard_that_begins_within_a_row_group_is_expanded(corpus, tiny_models, blocks):
    """Row groups of long documents are short, and blocks and shards end within one."""
    whole = pq.read_table(_expand(corpus, tiny_models["query-generator"], "whole"))
    blocks.clear()
    pq.write_table(pq.read_table(corpus), corpus, row_group_size=4)
    shards = [_expand(corpus, tiny_models["query-generator"], str(shard), 0, shard, 6) for shard in range(2)]
    assert blocks == [3, 3, 3, 2]
    assert pa.concat_tables(map(pq.read_table, shards)).equals(whole)


def test_a_damaged_part_is_expanded_anew(corpus, tiny_models, blocks, state, capfd):
    part = state / "3.parquet"
    part.write_bytes(part.read_bytes()[:-10])
    output = _expand(corpus, tiny_models["query-generator"])
    assert blocks == [3, 3, 2]
    assert "3.parquet is damaged" in capfd.readouterr().err
    assert output.read_bytes() == _expand(corpus, tiny_models["query-generator"], "whole").read_bytes()


def test_what_is_kept_belongs_to_the_settings(corpus, tiny_models, blocks, state):
    output = _expand(corpus, tiny_models["query-generator"], seed=1)
    assert blocks == [3, 3, 3, 2]
    assert not state.exists()
    assert output.read_bytes() == _expand(corpus, tiny_models["query-generator"], "whole", seed=1).read_bytes()
