"""Pairs that are scored already, or by another job meanwhile, are not scored again."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from checkpoints import enlarge_all, save_changed
from helpers import fetch_collection, main

from beirgrid.encoders.guards import check_scores_differ
from beirgrid.runs import pairs, runs
from beirgrid.stages.score import work as score

QUERIES, DOCUMENTS = 12, 40


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a collection and the runs of two first stages that share half of their documents."""
    texts = [" ".join(f"{chr(97 + (row + step) % 10)}{step}" for step in range(6)) for row in range(DOCUMENTS)]
    alike = ["a b " * 40 + end for end in ("c", "d")]  # the model reads 32 tokens
    documents = [{"_id": f"d{row}", "title": "", "text": text} for row, text in enumerate([*texts, *alike])]
    queries = [{"_id": f"q{row}", "text": text} for row, text in enumerate(texts[:QUERIES])]
    fetch_collection(tmp_path, documents, queries, [(query["_id"], "d0", 1) for query in queries])
    for name, start in (("one", 0), ("two", 10)):
        ranking = runs.Ranking([f"d{row}" for row in range(start, start + 20)], np.arange(20, 0, -1).astype(np.float32))
        runs.write(tmp_path / f"{name}.run.gz", {query["_id"]: ranking for query in queries}, name)
    monkeypatch.setattr(score, "PART", 50)
    return tmp_path


def _words(site: Path, checkpoint: Path, name: str, precision: str = "float32") -> list[str]:
    arguments = ["score", "--model", json.dumps({"family": "cross-encoder", "max_length": 32}), "--device", "cpu"]
    arguments += ["--corpus", site / "corpus.parquet", "--queries", site / "queries.parquet", "--depth", "20"]
    arguments += ["--checkpoint", checkpoint, "--run", site / f"{name}.run.gz", "--precision", precision]
    return [*map(str, arguments), "--pairs", str(site / "pairs"), "--record", str(site / f"{name}.json")]


def _score(site: Path, checkpoint: Path, name: str, precision: str = "float32") -> dict:
    assert main(_words(site, checkpoint, name, precision)) == 0
    return json.loads((site / f"{name}.json").read_text())["facts"]


def test_a_job_leaves_out_what_another_one_scores_meanwhile(site, tiny_models, monkeypatch):
    checkpoint = tiny_models["cross-encoder"]
    write, second = score.write_part, []

    def write_and_let_the_other_run(*arguments):
        write(*arguments)
        if not second:
            second.append(None)
            second[0] = _score(site, checkpoint, "two")

    monkeypatch.setattr(score, "write_part", write_and_let_the_other_run)
    first = _score(site, checkpoint, "one")
    assert first["pairs"] == second[0]["pairs"] == QUERIES * 20
    assert first["pairs_scored"] + second[0]["pairs_scored"] == QUERIES * 30
    store = site / "pairs" / first["store"]
    assert sum(pq.read_metadata(part).num_rows for part in store.glob("*.parquet")) == QUERIES * 30
    assert _score(site, checkpoint, "one")["pairs_scored"] == 0


def _collapse(weights: dict) -> None:
    weights["classifier.weight"].zero_()


def test_a_reranker_that_gives_one_score_to_all_pairs_is_refused(site, tiny_models, tmp_path, capsys):
    words = _words(site, save_changed(tmp_path / "zero", tiny_models["cross-encoder"], _collapse), "one")
    assert main(words) == 1
    said = capsys.readouterr().err
    assert re.search(r"the model gives the score \S+ to all 60 pairs of query and document, though the documents", said)
    assert "its weights are broken, or were not loaded as they were trained (computed in float32)" in said
    assert not [*site.glob("pairs/*/*.parquet"), *site.glob("one.json")]


LEGITIMATE = {
    "one pair": ([1.0], [("q", "a")]),
    "one document for each query": ([0.0, 0.0], [("q", "a"), ("r", "b")]),
    "equal documents": ([1.0, 1.0], [("q", "a b"), ("q", "A  b")]),
    "another score before these": ([2.0, 1.0, 1.0], [("q", "a"), ("q", "b")]),
}


@pytest.mark.parametrize(("scores", "texts"), LEGITIMATE.values(), ids=LEGITIMATE)
def test_equal_scores_that_a_whole_model_may_give_are_taken(scores, texts):
    check_scores_differ(np.array(scores, np.float32), texts, "float32")


def test_new_pairs_with_one_score_are_compared_with_the_stored_ones(site, tiny_models):
    _score(site, tiny_models["cross-encoder"], "one")
    ranking = runs.Ranking(["d0", f"d{DOCUMENTS}", f"d{DOCUMENTS + 1}"], np.array([3, 2, 1], np.float32))
    runs.write(site / "alike.run.gz", {"q0": ranking}, "alike")
    facts = _score(site, tiny_models["cross-encoder"], "alike")
    assert facts["pairs_scored"] == 2
    scores = pairs.read_parts([*(site / "pairs" / facts["store"]).iterdir()], {("q0", "d40"), ("q0", "d41")})
    assert len({*scores.values()}) == 1


def test_scores_are_stored_by_the_precision_that_the_model_fits_into(site, tiny_models, as_on_a_gpu, tmp_path):
    as_on_a_gpu(bfloat16=True)
    large = save_changed(tmp_path / "large", tiny_models["cross-encoder"], enlarge_all)
    automatic, asked = (_score(site, large, "one", precision) for precision in ("auto", "bfloat16"))
    assert automatic["precision"] == "bfloat16"
    assert (asked["store"], asked["pairs_scored"]) == (automatic["store"], 0)
    small = tiny_models["cross-encoder"]
    automatic, asked = (_score(site, small, "one", precision) for precision in ("auto", "float16"))
    assert automatic["precision"] == "float16"
    assert (asked["store"], asked["pairs_scored"]) == (automatic["store"], 0)


def test_only_wanted_scores_are_read(site, tiny_models):
    facts = _score(site, tiny_models["cross-encoder"], "one")
    store, wanted = site / "pairs" / facts["store"], {("q3", "d4"), ("q1", "d39")}
    assert set(pairs.read_parts(list(store.iterdir()), wanted)) == {("q3", "d4")}


def test_first_stages_begin_with_different_parts():
    found = [(str(number), "d") for number in range(10 * score.PART)]
    orders = {tuple(part[0] for part in score._parts(found, f"{name}.run.gz")) for name in ("bm25", "e5", "bge", "gte")}
    assert len(orders) > 1
    assert all(
        sorted(order) == sorted((str(start), "d") for start in range(0, len(found), score.PART)) for order in orders
    )
