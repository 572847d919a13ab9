"""Texts in place of queries: what a file may hold, what a search reads, and which keys go together."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
from small import collection

from beirgrid import config
from beirgrid.collections import rewriting
from beirgrid.config.query_changes import Rewriting
from beirgrid.core.errors import ConfigError, DataError
from beirgrid.graph.dag import Job
from beirgrid.graph.grid import Grid
from beirgrid.graph.resources import Resources
from beirgrid.graph.sizes import ANSWER_SECONDS, QUERY_WORDS, WORD_PIECES
from beirgrid.graph.sizes import QUERIES as QUERIES_OF_A_DATASET

QUERIES = {"q1": "one", "q2": "two"}
TEXTS = {"q1": ["a text", "another"], "q2": []}
PRICE = {"input": 1.0, "output": 2.0, "request": 0.5}
SERVED = {"model": "m", "url": "http://localhost:1/v1", "price": PRICE, "body": {"max_tokens": 50}}
LINES = ['{"id": "q1", "text": "a text"}', '{"qid": 2, "reformulated": "b"}', '{"_id": "q2", "text": "c"}']


@pytest.mark.parametrize(
    ("method", "words", "vectors"),
    [
        ("query2doc", "one one one one one a text another", "one [SEP] a text [SEP] another"),
        ("keywords", "one one one one one a text another", "one [SEP] a text [SEP] another"),
        ("hyde", "one a text another", "one"),
        ("own", "a text another", "a text another"),
    ],
)
def test_a_method_joins_query_and_texts_as_its_paper_says(method, words, vectors):
    assert rewriting.for_words(method, QUERIES, TEXTS) == {"q1": words, "q2": "two"}
    assert rewriting.for_vectors(method, QUERIES, TEXTS) == {"q1": vectors, "q2": "two"}


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (LINES[:1], r"rewrites\.jsonl has no text of 1 of the 2 queries \('q2', say\)"),
        ([*LINES[:1], '{"id": "q2", "text": " "}'], r"rewrites\.jsonl has no text of 1 of the 2 queries"),
        ([*LINES, '{"id": "q1"}'], r"rewrites\.jsonl:4: 'text' should be text"),
        ([*LINES, '{"text": "a"}'], r"rewrites\.jsonl:4: no _id"),
        ([*LINES, "text"], r"rewrites\.jsonl:4: not JSON"),
    ],
    ids=["lacks a query", "blank text", "no text", "no id", "no JSON"],
)
def test_a_file_that_does_not_fit_is_refused_in_one_sentence(tmp_path, lines, message):
    path = tmp_path / "rewrites.jsonl"
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=message):
        rewriting.read_lines(path, QUERIES)


def test_texts_of_other_queries_are_left_out_with_a_warning(tmp_path, caplog):
    path = tmp_path / "rewrites.jsonl"
    path.write_text("\n".join([*LINES, '{"id": "q2", "text": "d"}']))
    assert rewriting.read_lines(path, QUERIES) == {"q1": ["a text"], "q2": ["c", "d"]}
    assert "the dataset lacks 1 other query ('2', say), whose texts are left out" in caplog.text


def _grid(folder: Path, systems: dict[str, Any]) -> Grid:
    (folder / "model").mkdir(exist_ok=True)
    model = {"path": str(folder / "model")}
    dense = {"family": "dense", "similarity": "cosine", **model}
    raw = {
        "corpora": {"one": {"source": "local", "path": str(collection(folder / "data", 9)), "documents": 9}},
        "datasets": {"one": {"corpus": "one"}},
        "models": {
            "writer": {"family": "query-generator", **model},
            "tiny": dense,
            "towers": {**dense, "query_model": "tiny"},
            "served": {"family": "chat", "endpoint": SERVED},
        },
        "systems": {name: {"retriever": name} for name in ("bm25", "tiny", "towers")} | systems,
        "grid": {"systems": ["bm25", *systems], "datasets": ["one"]},
        "metrics": ["ndcg@10"],
    }
    return Grid(config.load(copy.deepcopy(raw)))


HYDE = {"method": "hyde", "generator": "writer"}


@pytest.mark.parametrize(
    ("system", "message"),
    [
        ({"query": {"method": "own"}}, "needs a generator or a file"),
        ({"query": {**HYDE, "file": "a"}}, "needs a generator or a file"),
        ({"query": {"method": "own", "generator": "writer"}}, r"prompt: needs \{query\}"),
        ({"query": {"method": "own", "file": "a", "seed": 3}}, "seed: a file has its texts already"),
        ({"query": {"method": "hyde", "generator": "tiny"}}, "'tiny' is a dense model"),
        ({"query": {"method": "hyde", "generator": "absent"}}, "no model is named 'absent'"),
        ({"query": HYDE, "first_stage": "towers"}, "query_model does not go with hyde"),
        ({"query": HYDE, "first_stage": "fused"}, "'fused' is a fusion system"),
    ],
)
def test_keys_that_contradict_each_other_are_refused(tmp_path, system, message):
    fused = {"fused": {"fusion": "rrf", "of": ["bm25", "tiny"]}}
    with pytest.raises(ConfigError, match=message):
        _grid(tmp_path, {**fused, "wrong": {"first_stage": "bm25", **system}})


def test_systems_and_retrievers_share_texts_whatever_the_rest_of_the_grid(tmp_path):
    systems = {first: {"first_stage": first, "query": HYDE} for first in ("bm25", "tiny")}
    both = _grid(tmp_path, {f"{first}+hyde": system for first, system in systems.items()})
    alone = _grid(tmp_path, {"other": systems["tiny"]})
    assert [*both.rewritings] == [*alone.rewritings]
    others = ({"seed": 1}, {"texts": 2}, {"prompt": "{query}"}, {"method": "query2doc"})
    names = {Rewriting.model_validate({**HYDE, **keys}).name for keys in (*others, {})}
    assert len(names) == 5


def test_the_price_of_texts_is_planned_as_if_each_were_as_long_as_it_may_be(tmp_path):
    query = {"method": "own", "prompt": "Say in other words: {query}", "generator": "served", "texts": 3}
    grid = _grid(tmp_path, {"anew": {"first_stage": "bm25", "query": query}})
    [name] = grid.rewritings
    work = Resources(grid).work(Job.of("rewrite", {"rewriting": name, "dataset": "one"}))
    requests = 3 * QUERIES_OF_A_DATASET
    read = (5 + QUERY_WORDS) * WORD_PIECES
    assert work["price"] == pytest.approx(requests * (1.0 * read / 1e6 + 2.0 * 50 / 1e6 + 0.5 / 1e3))
    assert work["served_seconds"] == requests * ANSWER_SECONDS / 4
