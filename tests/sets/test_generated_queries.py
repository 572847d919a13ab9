"""Synthetic queries of a served or local model: kept if they lead back to their passage, and always marked."""

from __future__ import annotations

import itertools
import json
import re
import shutil
from pathlib import Path

import pytest
from checkpoints import save_fixed_answer
from endpoint_server import Served, serving
from helpers import set_step

from beirgrid.core import files
from beirgrid.core.errors import BeirgridError, DataError
from beirgrid.search import lucene
from beirgrid.sets import documents, models
from beirgrid.sets.evaluation_set import EvaluationSet
from beirgrid.sets.store import Grading

FILLER = "the passage goes on with words that stand in every other one of these passages as well and say no more"


@pytest.fixture(scope="module")
def indexes(tmp_path_factory) -> Path:
    """A folder of indexes, by the content of their documents."""
    return tmp_path_factory.mktemp("indexes")


@pytest.fixture(autouse=True)
def _index_of_the_same_documents_is_built_once(indexes, monkeypatch):
    build = lucene.build_index

    def build_once(folder: Path, index: Path, **options) -> None:
        built = indexes / files.sha256(folder / "corpus.jsonl")
        if not built.exists():
            build(folder, built, **options)
        shutil.copytree(built, index)

    monkeypatch.setattr(lucene, "build_index", build_once)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A set of 40 documents with a word of their own each, and one that is too short to ask about."""
    monkeypatch.chdir(tmp_path)
    texts = [documents.Document(f"d{n}", f"Topic {n}", f"Here is thing{n}. {FILLER}") for n in range(40)]
    return EvaluationSet.create(tmp_path / "notes", [*texts, documents.Document("short", "", "Short.")], "here")


@pytest.fixture
def served(tmp_path, endpoint_key):
    with serving(Served()) as found:
        entry = f"endpoint: {{model: writer, url: '{found.url}', key: TESTED_KEY, concurrency: 2}}\n"
        (tmp_path / "writer.yaml").write_text(entry)
        yield found


def things(messages: list[dict[str, str]]) -> int:
    return int(re.search(r"thing(\d+)", messages[0]["content"])[1])


def rows(made: EvaluationSet) -> list[dict]:
    return [json.loads(line) for line in (made.folder / "queries.jsonl").read_text().splitlines()]


@pytest.mark.slow
def test_queries_that_lead_back_to_their_passage_are_kept_and_marked(made, served, capsys, tmp_path):
    def write(messages):
        number = things(messages)
        if number % 4 == 1:
            return f"thing{(number + 1) % 40} alone"  # leads to another passage
        if number % 4 == 2:
            return "\n \n"
        return f'Sure:\n"what is thing{number} about"'

    served.chat = write
    set_step("queries", "notes", "--generate", 12, "--with", "writer.yaml", "--seed", 3)
    found = rows(made)
    assert len(found) == 12
    for row in found:
        number = row["metadata"]["source"].removeprefix("d")
        assert row["text"] == f"what is thing{number} about"
        assert row["metadata"]["synthetic"] is True
        assert int(number) % 4 in (0, 3)
    assert "short" not in {row["metadata"]["source"] for row in found}
    facts = EvaluationSet(made.folder).description.queries
    assert facts["endpoint"] == {"model": "writer"}
    assert facts["prompt"] == models.QUERY_PROMPT
    assert facts["passages"] == 12 + sum(facts["left_out"].values()) == len(served.asked)
    assert facts["left_out"]["round_trip"] > 0 < facts["left_out"]["empty"]
    assert (made.folder / "spent.tsv").is_file()

    set_step("check", "notes")
    assert "12 of 12 queries are synthetic" in capsys.readouterr().out
    query, document = found[0]["_id"], found[0]["metadata"]["source"]
    made.store.add_pool([(query, document)])
    made.store.judge(Grading("ann", query, document, 3))
    set_step("accept", "notes")
    set_step("check", "notes")
    assert "1 of 1 queries are synthetic\nversion 1" in capsys.readouterr().out
    set_step("export", "notes", "--output", "out")
    exported = (tmp_path / "out/queries.jsonl").read_text().splitlines()
    assert all(json.loads(line)["metadata"] == {"synthetic": True} for line in exported)
    assert "A model wrote the queries: they are synthetic." in (tmp_path / "out/README.md").read_text()


def test_near_duplicates_go_and_the_sample_follows_the_seed(made, served):
    served.chat = lambda messages: f"the words that stand in passages about thing{things(messages) // 4 * 4}"
    set_step("queries", "notes", "--generate", 40, "--with", "writer.yaml")
    facts = EvaluationSet(made.folder).description.queries
    assert facts["left_out"]["near_duplicates"] > 0
    texts = [row["text"] for row in rows(made)]
    assert len(texts) == len(set(texts)) < 11
    served.chat = lambda messages: f"thing{things(messages)}"
    sources = []
    for seed in (1, 1, 2):
        set_step("queries", "notes", "--generate", 5, "--with", "writer.yaml", "--seed", seed)
        sources.append([row["metadata"]["source"] for row in rows(made)])
    assert sources[0] == sources[1] != sources[2]


def test_a_failed_server_leaves_the_queries_as_they_were_and_asks_nothing_twice(made, served):
    served.chat = lambda messages: f"thing{things(messages)}"
    set_step("queries", "notes", "--generate", 5, "--with", "writer.yaml")
    before = (made.folder / "queries.jsonl").read_bytes()
    served.asked.clear()
    served.faults.extend([None] * 6 + [400])
    with pytest.raises(DataError, match="no usable answer"):
        set_step("queries", "notes", "--generate", 20, "--with", "writer.yaml", "--seed", 9)
    assert (made.folder / "queries.jsonl").read_bytes() == before
    served.faults.clear()
    set_step("queries", "notes", "--generate", 20, "--with", "writer.yaml", "--seed", 9)
    assert len(rows(made)) == 20
    assert len(served.asked) == 21


def test_personal_data_in_generated_queries_is_flagged(made, served, capsys):
    served.chat = lambda messages: f"who is ann@thing{things(messages)}.org of thing{things(messages)}"
    with pytest.raises(BeirgridError, match=r"writer\.yaml: no query is left"):
        set_step("queries", "notes", "--generate", 3, "--with", "writer.yaml")
    assert "3 queries seem to hold an e-mail address: q1, q2, q3" in capsys.readouterr().err


@pytest.mark.slow
def test_a_local_generator_writes_queries(made, tiny_models, tmp_path):
    """The tiny generator writes words of its own alphabet at random, so all documents have its tokens."""
    words = " ".join(a + b + c for a, b, c in itertools.product("abcdefghij", repeat=3))
    texts = [documents.Document(f"d{n}", "", f"{words} {n} " * 2) for n in range(6)]
    small = EvaluationSet.create(tmp_path / "small", texts, "here")
    checkpoint = tiny_models["query-generator"]
    set_step("queries", "small", "--generate", 3, "--with", checkpoint)
    facts = EvaluationSet(small.folder).description.queries
    assert list(facts["sha256"]) == ["model.safetensors"]
    assert facts["checkpoint"] == "query-generator"
    first = rows(small)
    assert all(row["metadata"]["synthetic"] for row in first)
    set_step("queries", "small", "--generate", 3, "--with", checkpoint)
    assert rows(small) == first


@pytest.mark.slow
def test_a_decoder_writes_queries(tmp_path):
    """The decoder writes the same words for each passage, so one query is left."""
    texts = [documents.Document(f"d{n}", "", "How to bake rustic bread, again and again. " * 4) for n in range(4)]
    small = EvaluationSet.create(tmp_path / "small", texts, "here")
    set_step("queries", small.folder, "--generate", 2, "--with", save_fixed_answer(tmp_path / "writer", "rustic"))
    assert [row["text"] for row in rows(small)] == ["rustic"]
    facts = EvaluationSet(small.folder).description.queries
    assert (facts["checkpoint"], facts["prompt"]) == ("writer", models.QUERY_PROMPT)
    assert facts["left_out"]["near_duplicates"] == 3


def test_wrong_arguments_are_explained(made, served):
    for arguments in (
        [],
        ["--generate", 3],
        ["--with", "writer.yaml"],
        ["--from", "x.csv", "--with", "writer.yaml"],
        ["--generate", 3, "--with", "writer.yaml", "--sample", 2],
    ):
        with pytest.raises(BeirgridError, match="say where the queries come from"):
            set_step("queries", "notes", *arguments)
    EvaluationSet.create(made.folder / "few", [documents.Document("short", "", "Short.")], "here")
    with pytest.raises(BeirgridError, match="few has no document of 20 words"):
        set_step("queries", "notes/few", "--generate", 2, "--with", "writer.yaml")
    assert not served.asked
    served.chat = lambda messages: "?"
    with pytest.raises(BeirgridError, match=r"none of 10 passages gave a query .* \(10 empty, 0 lost\)"):
        set_step("queries", "notes", "--generate", 2, "--with", "writer.yaml")
