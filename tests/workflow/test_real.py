"""Real collections, where they are at hand: the published numbers, through the whole workflow."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest
import yaml
from small import run

# nDCG@10, Recall@100, Recall@1000. BM25 as pyserini's reproductions have it; minilm as the beir package
# measures it in float32.
EXPECTED = {
    "bm25-flat": ((0.6789, 0.9253, 0.9767), 0.0005),
    "bm25": ((0.6647, 0.9076, 0.9800), 0.0005),
    "minilm": ((0.6451, 0.9250, 0.9933), 0.0005),
}
pytestmark = pytest.mark.slow
METRICS = ("ndcg@10", "recall@100", "recall@1000")
# The two kinds of holes of BM25 multifield: not judged for the query, judged for no query.
HOLES = {"cranfield": (0.697, 0.196), "scifact": (0.912, 0.863)}
SYSTEMS = {"cranfield": ["bm25"], "scifact": [*EXPECTED, "bm25+minilm"]}


@pytest.fixture(scope="module")
def tables(real: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the tables of two grids: every system on SciFact, and BM25 on Cranfield."""
    folder = tmp_path_factory.mktemp("real")
    for dataset, systems in SYSTEMS.items():
        settings = {
            "corpora": {dataset: {"source": "local", "path": str(real / dataset)}},
            "datasets": {dataset: {"corpus": dataset}},
            "grid": {"name": dataset, "systems": systems, "datasets": [dataset]},
            "metrics": [*METRICS, "hole@10", "hole_corpus@10"],
        }
        (folder / f"{dataset}.yaml").write_text(yaml.safe_dump(settings))
        done = run(folder / f"{dataset}.yaml", folder, timeout=3600)  # a busy machine encodes ten documents per second
        assert done.returncode == 0, done.stdout
    return folder / "results/grids"


def _rows(tables: Path, dataset: str, name: str) -> list[dict[str, str]]:
    with (tables / dataset / "tables" / f"{name}.csv").open() as stream:
        return list(csv.DictReader(stream))


def _scores(tables: Path, dataset: str, system: str) -> dict[str, float]:
    rows = _rows(tables, dataset, "scores")
    return {row["metric"]: float(row["value"]) for row in rows if row["system"] == system}


@pytest.mark.parametrize("dataset", HOLES)
def test_holes_of_queries_are_not_those_of_the_corpus(tables, dataset):
    scores = _scores(tables, dataset, "bm25")
    assert (scores["hole@10"], scores["hole_corpus@10"]) == pytest.approx(HOLES[dataset], abs=0.0005)


@pytest.mark.parametrize("system", EXPECTED)
def test_scifact_has_the_published_numbers(tables, system):
    scores, (expected, tolerance) = _scores(tables, "scifact", system), EXPECTED[system]
    assert [scores[metric] for metric in METRICS] == pytest.approx(expected, abs=tolerance)


def test_nothing_deviates_and_cranfield_has_no_reference(tables):
    assert {row["verdict"] for row in _rows(tables, "cranfield", "verdicts")} == {"no reference"}
    judged = [row["verdict"] for row in _rows(tables, "scifact", "verdicts") if row["verdict"] != "no reference"]
    assert len(judged) >= 10
    assert set(judged) == {"reproduced"}
