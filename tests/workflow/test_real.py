"""Reproduce published numbers on real collections through the whole workflow, where the collections are present."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest
import yaml
from helpers import ROOT
from small import finish

from beirgrid.results import answer_files

# nDCG@10, Recall@100, Recall@1000. BM25 on SciFact as in pyserini's reproductions. MiniLM in float32: on SciFact as the
# beir package measures it, on Cranfield as sentence-transformers and pytrec_eval do.
BM25 = {"bm25-flat": (0.6789, 0.9253, 0.9767), "bm25": (0.6647, 0.9076, 0.9800)}
MINILM = {"scifact": (0.6451, 0.9250, 0.9933), "cranfield": (0.4001, 0.7724, 0.9892)}
TOLERANCE = 0.0005
REAL = ROOT.parent / "shared/data/beir"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (REAL / "scifact").is_dir(), reason=f"there are no real collections under {REAL}"),
]
METRICS = ("ndcg@10", "recall@100", "recall@1000")
# The two kinds of holes of BM25 multifield: not judged for the query, judged for no query.
HOLES = {"cranfield": (0.697, 0.196), "scifact": (0.912, 0.863)}
SYSTEMS = {"cranfield": ["bm25"], "scifact": ["bm25", "bm25-flat"]}


def _tables(collection: Path, systems: list[str], folder: Path) -> Path:
    """Run systems on a collection; return the folder of the grid's tables."""
    name = collection.name
    settings = {
        "corpora": {name: {"source": "local", "path": str(collection)}},
        "datasets": {name: {"corpus": name}},
        "grid": {"name": name, "systems": systems, "datasets": [name]},
        "metrics": [*METRICS, "hole@10", "hole_corpus@10"],
    }
    (folder / f"{name}.yaml").write_text(yaml.safe_dump(settings))
    finish(folder / f"{name}.yaml", folder)
    return folder / f"results/grids/{name}/tables"


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The folders of the tables of a grid per collection."""
    folder = tmp_path_factory.mktemp("real")
    return {name: _tables(REAL / name, systems, folder) for name, systems in SYSTEMS.items()}


def _scores(tables: Path, system: str) -> pd.Series:
    scores = answer_files.from_csv("scores", tables / "scores.csv")
    return scores[scores["system"] == system].set_index("metric")["value"]


def _verdicts(tables: Path) -> list[str]:
    """Return the verdicts of all values that have a reference."""
    verdicts = list(answer_files.from_csv("verdicts", tables / "verdicts.csv")["verdict"])
    assert verdicts
    return [verdict for verdict in verdicts if verdict != "no reference"]


@pytest.mark.parametrize("dataset", HOLES)
def test_holes_of_queries_are_not_those_of_the_corpus(tables, dataset):
    scores = _scores(tables[dataset], "bm25")
    assert (scores["hole@10"], scores["hole_corpus@10"]) == pytest.approx(HOLES[dataset], abs=0.0005)


@pytest.mark.parametrize("system", BM25)
def test_the_scores_on_scifact_are_those_of_others(tables, system):
    scores = _scores(tables["scifact"], system)
    assert list(scores[list(METRICS)]) == pytest.approx(BM25[system], abs=TOLERANCE)


def test_nothing_deviates_and_cranfield_has_no_reference(tables):
    assert _verdicts(tables["cranfield"]) == []
    assert _verdicts(tables["scifact"]) == ["reproduced"] * 8


@pytest.mark.full
def test_dense_retrieval_of_scifact_has_the_published_numbers(tmp_path):
    tables = _tables(REAL / "scifact", ["bm25-flat", "bm25", "minilm", "bm25+minilm"], tmp_path)
    assert list(_scores(tables, "minilm")[list(METRICS)]) == pytest.approx(MINILM["scifact"], abs=TOLERANCE)
    judged = _verdicts(tables)
    assert len(judged) >= 10
    assert set(judged) == {"reproduced"}


@pytest.mark.full
def test_dense_retrieval_of_cranfield_has_the_scores_of_others(tmp_path):
    tables = _tables(REAL / "cranfield", ["bm25", "minilm"], tmp_path)
    assert list(_scores(tables, "minilm")[list(METRICS)]) == pytest.approx(MINILM["cranfield"], abs=TOLERANCE)
    assert _verdicts(tables) == []
