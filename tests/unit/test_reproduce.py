"""``beirgrid reproduce``: sets with published values, and the differences of a score that deviates."""

from __future__ import annotations

import pandas as pd
import pytest
from helpers import ROOT

from beirgrid.__main__ import main
from beirgrid.config.entries import TOLERANCES
from beirgrid.config.names import local_name
from beirgrid.graph.summaries import PUBLISHED
from beirgrid.page.answer import Answer
from beirgrid.results import published
from beirgrid.results.answers import Answers
from beirgrid.stages.aggregate.work import judge
from beirgrid.tools.reproduce import _datasets, report

VALUES = list(published.read(PUBLISHED, TOLERANCES))


def judged(system: str, dataset: str, value: float, checkpoints: str, precision: str = "bfloat16") -> pd.DataFrame:
    cell = {"system": system, "dataset": dataset, "metric": "ndcg@10", "value": value, "queries": 300}
    scores = pd.DataFrame([{**cell, "precision": precision, "checkpoints": checkpoints, "status": "done"}])
    return judge(scores, VALUES, TOLERANCES)


def test_a_model_named_by_its_id_meets_the_values_of_its_id():
    found = judged("MongoDB__mdbr-leaf-ir", "scifact", 0.5, "MongoDB/mdbr-leaf-ir@" + "a" * 40)
    assert found["published"].notna().all()
    text = "\n".join(report(found))
    assert "another commit from embeddings-benchmark/results" in text
    (value,) = {one.measured_on for one in VALUES if one.system == "MongoDB/mdbr-leaf-ir" and one.dataset == "scifact"}
    assert f"another commit: {value}\n  precision: bfloat16\n" in text
    for told in ("checkpoints: MongoDB/mdbr-leaf-ir@aaa", "commit: ", "mteb: ", "dataset_revision: "):
        assert f"\n  {told}" in text
    assert text.endswith("1 another commit")


@pytest.mark.parametrize(
    ("model", "dataset", "reason", "tolerance"),
    [
        ("lightonai/mLateOn", "scifact", "searched with PLAID", 0.005),
        ("BAAI/bge-m3", "BrightProBiologyRetrieval", "degraded XLM-R models under flash attention", 0.0125),
    ],
)
def test_how_a_value_was_made_is_among_the_reasons(model, dataset, reason, tolerance):
    """Also of a value of our commit, which is held to no more than its making allows."""
    (value,) = [one for one in VALUES if (one.system, one.dataset, one.metric) == (model, dataset, "ndcg@10")]
    commit = f"{model}@{value.revision.ljust(40, '0')}"
    for apart, verdict in ((0.9, "reproduced"), (1.5, "close"), (2.5, "deviates")):
        found = judged(local_name(model), dataset, value.value + apart * tolerance, commit, "float32")
        assert list(found["verdict"]) == [verdict]
        assert (reason in "\n".join(report(found))) == (verdict != "reproduced")


def test_a_score_within_the_tolerance_needs_no_explanation():
    value = next(one for one in VALUES if (one.system, one.dataset, one.metric) == ("bm25-flat", "scifact", "ndcg@10"))
    text = "\n".join(report(judged("bm25-flat", "scifact", value.value + 0.0004, "")))
    assert "1 reproduced" in text
    assert "precision" not in text


def test_the_sets_are_those_with_values_and_of_the_benchmark():
    everywhere = _datasets("minilm", "", "ndcg@10", {})
    assert {"cqadupstack", "demo", "scifact"} <= {*everywhere}
    assert not [row for row in everywhere if row.startswith("cqadupstack-")], "they are in the mean, which has a value"
    assert {*_datasets("minilm", "BEIR", "ndcg@10", {})} < {*everywhere}
    flat = _datasets("bm25-flat", "BEIR", "ndcg@10", {})
    assert "cqadupstack-android" in flat, "the mean has no value"
    assert _datasets("bm25-flat", "scifact", "ndcg@10", {}) == ["scifact"]
    mine = {"mine": {"first_stage": "bm25", "reranker": "ms-marco-minilm", "depth": 100}}
    assert "fiqa" in _datasets("mine", "BEIR", "ndcg@10", {"systems": mine}), "those of bm25+ce"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["minilm", "demo", "--metric", "map@7"], "has no AP@7 of minilm on demo"),
        (["nobody/none"], "config/published has no values of 'nobody/none'"),
        (["bm25-flatt"], "did you mean 'bm25-flat'"),
    ],
)
def test_what_cannot_be_compared_is_refused(words, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *words]) == 1
    assert message in capsys.readouterr().err


def test_the_page_of_results_has_each_score_beside_its_value(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "bench")
    import results

    verdicts = judged("bm25-flat", "scifact", 0.6788, "")
    scores = verdicts[["system", "dataset", "metric"]].drop_duplicates().assign(low=0.6, high=0.7)
    empty = {name: pd.DataFrame() for name in Answers._fields}
    record = {"packages": {"beirgrid": "1.2", "torch": "9"}, "finished": "2026-01-02T03:04:05", "cpus": 3}
    again = pd.DataFrame({"system": ["bm25-flat"], "dataset": "scifact", "metric": "ndcg@10", "independent": 0.6788})
    answers = Answers(**empty | {"scores": scores, "verdicts": verdicts})
    answered = Answer(["a is better."], [], [])
    gained = [["", "moved minus minilm"], ["scifact", "+0.0100 open"]]
    text = "\n".join(results.page(answers, answered, gained, [record], again))
    values = "0.6788 | 0.6000 to 0.7000 | 0.6788 | 0.6789 | -0.0001"
    assert f"| scifact | `bm25-flat` | nDCG@10 | {values} | reproduced | pyserini" in text
    assert "2026-01-02, 3 cores of" in text
    assert "\na is better.\n" in text
    assert "\n\n|  | moved minus minilm |\n|---|---|\n| scifact | +0.0100 open |\n" in text
    assert "beirgrid 1.2, torch 9." in text
    assert "| 24 of 24 published values, 90 of 90 independent values on six more collections |" in text
