"""Fusions that are tuned or trained: the choice, the folds, what is refused, and a whole job with its record."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path
from typing import Any

import ir_measures
import numpy as np
import pytest
from helpers import tracked_configuration

from beirgrid import config
from beirgrid.config.fusions import METHODS
from beirgrid.core.errors import ConfigError, DataError
from beirgrid.graph.dag import Job
from beirgrid.graph.grid import Grid
from beirgrid.graph.summaries import Summary
from beirgrid.results.summary import GridSummary
from beirgrid.runs import runs, tuning
from beirgrid.runs.fusion import Fuser, Fusion
from beirgrid.stages.fuse.work import fuse


def scored(count: int, queries: int = 12, seed: int = 0) -> tuple[list[runs.Run], dict[str, dict[str, int]]]:
    """Return runs of random scores, and qrels of the same queries."""
    rng = random.Random(seed)
    names = [f"q{number}" for number in range(queries)]
    documents = [f"d{number}" for number in range(30)]
    parts = [
        {query: runs.canonical(query, documents, [rng.gauss(0, 1) for _ in documents]) for query in names}
        for _ in range(count)
    ]
    return parts, {query: {document: rng.choice((0, 1, 2)) for document in rng.sample(documents, 8)} for query in names}


def ndcg(run: runs.Run, grades: dict[str, dict[str, int]]) -> float:
    scores = {query: dict(zip(ranking.ids, ranking.scores.tolist(), strict=True)) for query, ranking in run.items()}
    [value] = ir_measures.calc_aggregate([ir_measures.nDCG @ 10], grades, scores).values()
    return value


@pytest.mark.parametrize("count", [2, 3])
def test_tuned_weights_are_the_best_of_the_whole_simplex(count: int) -> None:
    parts, grades = scored(count)
    every = [weights for weights in itertools.product(range(11), repeat=count) if sum(weights) == 10]
    values = {}
    for tenths in every:
        weights = tuple(share / 10 for share in tenths)
        values[weights] = ndcg(Fuser(parts, Fusion("wsum", weights=weights)).fuse(1000, weights=weights), grades)
    arguments, told = tuning.tuned(parts, Fusion("wsum", metric="ndcg@10"), grades)
    assert values[arguments["weights"]] == pytest.approx(max(values.values()), abs=1e-9)
    assert {tuple(one["weights"]): one["value"] for one in told["curve"]} == pytest.approx(values, abs=1e-9)
    assert (len(every), told["weights"], told["queries"]) == (11 if count == 2 else 66, arguments["weights"], 12)


def test_of_equal_weights_the_most_even_ones_are_taken_and_holes_are_minimised() -> None:
    parts, grades = scored(2)
    same, _ = tuning.tuned([parts[0], parts[0]], Fusion("wsum", metric="ndcg@10"), grades)
    assert same["weights"] == (0.5, 0.5)
    _, told = tuning.tuned(parts, Fusion("wsum", metric="hole@10"), grades)
    assert told["value"] == min(one["value"] for one in told["curve"])


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.parameter or method.trained])
def test_no_query_is_fused_by_what_its_own_judgements_decided(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The ranking of a query stays the same when its judgements are turned round."""
    few = METHODS[method]._replace(values=METHODS[method].values[::25])
    monkeypatch.setitem(METHODS, method, few)
    parts, grades = scored(2)
    how = Fusion(method, 1000, metric="ndcg@10")
    before, told = tuning.fused_by_folds(parts, how, grades)
    assert list(before) == list(grades)
    assert [one["fused"] + one["queries"] for one in told] == [12] * 5
    query = "q5"
    turned = grades | {query: {document: 2 - grade for document, grade in grades[query].items()}}
    after, again = tuning.fused_by_folds(parts, how, turned)
    assert after[query].ids == before[query].ids
    assert np.array_equal(after[query].scores, before[query].scores)
    assert again != told  # the other folds did see it


def test_too_few_queries_for_folds_are_refused() -> None:
    with pytest.raises(DataError, match="4 judged queries are too few for 5 folds"):
        tuning.fused_by_folds(*reversed_arguments(4))


def reversed_arguments(queries: int) -> tuple[Any, ...]:
    parts, grades = scored(2, queries)
    return parts, Fusion("wsum", metric="ndcg@10"), grades


def test_queries_to_fuse_that_the_dev_qrels_judge_are_refused(tmp_path: Path) -> None:
    parts, _ = scored(2, 3)
    paths = [tmp_path / f"{number}.run.gz" for number in range(2)]
    for path, part in zip(paths, parts, strict=True):
        runs.write(path, part, "x")
    (tmp_path / "dev.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t1\nother\td1\t1\n")
    how = {"fusion": Fusion("wsum", metric="ndcg@10"), "dev_qrels": tmp_path / "dev.tsv", "dev_runs": paths}
    with pytest.raises(DataError, match=r"dev.tsv judges 1 of the queries to fuse, 'q1' first: tune on other queries"):
        fuse(system="x", runs=paths, output=tmp_path / "out.run.gz", **how)


# Configuration

OF = {"of": ["bm25", "minilm"]}
REFUSED = {
    "method": ({"fusion": "mzn"}, "systems.x.fusion: there is no method 'mzn'; did you mean 'mnz'? (known: rrf,"),
    "norm": ({"fusion": "mnz", "norm": "minmax"}, "systems.x.norm: there is no norm 'minmax'; did you mean 'min-max'?"),
    "norm of ranks": ({"fusion": "isr", "norm": "max"}, "systems.x: norm: isr reads the ranks of documents alone"),
    "norm that reorders": (
        {"fusion": "segfuse", "norm": "borda"},
        "systems.x: norm: segfuse reads the ranks of documents, which this norm does not keep",
    ),
    "weights": ({"fusion": "wmnz", "weights": [1, 2, 3]}, "systems.x: weights: 3 weights for 2 systems"),
    "zeros": ({"fusion": "wsum", "weights": [0, 0]}, "systems.x: weights: all are 0, so all scores would be"),
    "parameter of another": ({"fusion": "rrf", "gamma": 1.0}, "systems.x: gamma: rrf takes k"),
    "parameter of none": ({"fusion": "mnz", "weights": [1, 2]}, "systems.x: weights: mnz takes no parameter"),
    "no value": ({"fusion": "rbc"}, "systems.x: phi: rbc needs a number here, or tuned"),
    "range": ({"fusion": "rbc", "phi": 1.5}, "systems.x.phi: Input should be less than or equal to 1 (here 1.5)"),
    "text": ({"fusion": "wsum", "weights": "tunde"}, "systems.x.weights: Input should be 'tuned' (here 'tunde')"),
    "not tuned": (
        {"fusion": "wsum", "metric": "ndcg@10"},
        "systems.x: metric: wsum is not tuned: write weights: tuned",
    ),
    "no dev": (
        {"fusion": "wsum", "weights": "tuned"},
        "systems.x: no dev queries of 'scifact' are known, on which to tune it: name their dataset in "
        "datasets.scifact.dev, or write tuned: folds",
    ),
    "trained without dev": ({"fusion": "posfuse"}, "systems.x: no dev queries of 'scifact' are known"),
    "deep metric": (
        {"fusion": "wsum", "weights": "tuned", "tuned": "folds", "metric": "ndcg@5000"},
        "metrics: ndcg@5000 looks deeper than the runs are (retrieve.depth is 1000)",
    ),
    "tuned twice": (
        {"fusion": "wsum", "weights": "tuned", "tuned": "folds", "of": ["bm25", "y"]},
        "systems.x.of: 'y' is tuned itself, and the same queries cannot choose twice",
    ),
}


def loaded(**changes: Any) -> config.Config:
    raw = tracked_configuration()
    raw["grid"] = {"systems": ["x"], "datasets": ["scifact"]}
    for registry, entries in changes.items():
        raw[registry] |= entries
    return config.load(raw)


@pytest.mark.parametrize("case", REFUSED)
def test_a_fusion_that_cannot_be_is_refused_in_one_sentence(case: str) -> None:
    entry, said = REFUSED[case]
    tuned = {"fusion": "wsum", "weights": "tuned", "tuned": "folds", **OF}
    with pytest.raises(ConfigError) as refused:
        loaded(systems={"x": {**OF, **entry}, "y": tuned})
    lines = str(refused.value).splitlines()[1:]
    assert any(said in line for line in lines), lines
    assert len(lines) == 1


@pytest.mark.parametrize(
    ("dev", "said"),
    [
        ("scifact-dve", "datasets.scifact.dev: no dataset is named 'scifact-dve'; did you mean 'scifact-dev'?"),
        ("nfcorpus", "datasets.scifact.dev: 'nfcorpus' has another corpus than 'scifact'"),
        ("again", "datasets.scifact.dev: 'again' has the same qrels; tuning needs other queries"),
    ],
)
def test_dev_queries_that_cannot_tune_are_refused(dev: str, said: str) -> None:
    datasets = tracked_configuration()["datasets"]
    scifact = {**datasets["scifact"], "dev": dev}
    others = {"scifact-dev": {"corpus": "scifact", "id": "beir/scifact/train"}, "again": datasets["scifact"]}
    with pytest.raises(ConfigError) as refused:
        loaded(systems={"x": {"fusion": "wsum", "weights": "tuned", **OF}}, datasets={**others, "scifact": scifact})
    assert said in str(refused.value)


def test_nothing_is_tuned_above_a_model_that_was_trained_on_the_dev_queries() -> None:
    datasets = tracked_configuration()["datasets"]
    train = {"base": "minilm", "corpus": "scifact", "dataset": "scifact-dev", "negative_depth": 20}
    changes = {
        "datasets": {
            "scifact": {**datasets["scifact"], "dev": "scifact-dev"},
            "scifact-dev": {"corpus": "scifact", "id": "beir/scifact/train"},
        },
        "models": {"ce": {"family": "cross-encoder", "train": train}},
        "systems": {
            "reranked": {"first_stage": "bm25", "reranker": "ce"},
            "x": {"fusion": "wsum", "weights": "tuned", "of": ["bm25", "reranked"]},
        },
    }
    with pytest.raises(ConfigError) as refused:
        loaded(**changes)
    assert "systems.x: 'ce' is trained on 'scifact-dev', so nothing above it can be tuned on these" in str(
        refused.value
    )
    changes["systems"]["x"]["tuned"] = "folds"
    assert loaded(**changes)


@pytest.mark.parametrize("dataset", ["nfcorpus", "fiqa", "hotpotqa", "dbpedia-entity", "fever", "quora"])
def test_datasets_of_beir_with_dev_queries_name_them_and_a_tuned_fusion_counts_as_trained(dataset: str) -> None:
    raw = tracked_configuration()
    raw["systems"]["x"] = {"fusion": "wsum", "weights": "tuned", **OF}
    raw["grid"] = {"systems": ["x", "bm25"], "datasets": [dataset]}
    grid = Grid(config.load(raw))
    job = Job.of("fuse", {"system": "x", "dataset": dataset})
    inputs = job.inputs(grid)
    assert [one.path for one in inputs["dev_runs"]] == [
        f"results/runs/{system}/{dataset}-dev.run.gz" for system in ("bm25", "minilm")
    ]
    assert inputs["dev_qrels"].path == f"results/datasets/{dataset}-dev/qrels.tsv"
    assert job.stage.settings(grid, **job.values)["metric"] == "ndcg@10"
    summary = GridSummary.model_validate_json(Summary(grid).as_json({}))
    assert summary.trained_on["x"] == (dataset,)
    assert "bm25" not in summary.trained_on


def test_dev_queries_have_the_prompt_of_their_dataset() -> None:
    raw = tracked_configuration()
    raw["models"]["prompted"] = raw["models"]["minilm"] | {"prompts": {"datasets": {"nfcorpus": {"query": "facts: "}}}}
    raw["systems"]["prompted"] = {"retriever": "prompted"}
    raw["grid"] = {"systems": ["prompted"], "datasets": ["nfcorpus", "nfcorpus-dev"]}
    grid = Grid(config.load(raw))
    of = [Job.of("retrieve_dense", {"system": "prompted", "dataset": name}) for name in grid.datasets]
    models = [job.stage.settings(grid, **job.values)["model"] for job in of]
    assert models[0] == models[1]
    assert "facts: " in json.dumps(models[1])
