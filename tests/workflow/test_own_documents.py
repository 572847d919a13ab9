"""Queries 1 to 10 over documents 1 to 20: equal numbers are chance, unless the dataset says otherwise."""

from __future__ import annotations

import json

import pytest
import yaml
from helpers import write_collection
from small import finish, run, table


@pytest.mark.slow
def test_what_a_dataset_says_of_its_queries_decides_what_is_ranked(tmp_path):
    """Query i finds document i, then i + 10; each is the only relevant document of one split."""
    words = [f"word{'abcdefghij'[i]}" for i in range(10)]
    documents = [{"_id": i, "text": f"{word} {word} stone"} for i, word in enumerate(words, start=1)]
    documents += [{"_id": i, "text": f"{word} stone stone"} for i, word in enumerate(words, start=11)]
    queries = [{"_id": i, "text": word} for i, word in enumerate(words, start=1)]
    qrels = {"same": [(i, i, 1) for i in range(1, 11)], "other": [(i, i + 10, 1) for i in range(1, 11)]}
    data = write_collection(tmp_path / "data", documents, queries, qrels)
    settings = {
        "corpora": {"numbered": {"source": "local", "path": str(data), "documents": 20}},
        "datasets": {
            "chance": {"corpus": "numbered", "split": "same"},
            "documents": {"corpus": "numbered", "split": "other", "queries_are_documents": True},
            "no-documents": {"corpus": "numbered", "split": "other", "queries_are_documents": False},
        },
        "systems": {"numbered-bm25": {"retriever": "bm25", "fields": "flat"}},
        "grid": {"systems": ["numbered-bm25"], "datasets": ["chance", "documents", "no-documents"]},
        "metrics": ["mrr@10"],
    }
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(settings))
    finish(tmp_path / "grid.yaml", tmp_path)
    scores = {row["dataset"]: float(row["value"]) for row in table(tmp_path)}
    assert scores == {"chance": 1.0, "documents": 1.0, "no-documents": 0.5}
    page = (tmp_path / "results/grids/grid/report/index.html").read_text(encoding="utf-8")
    assert "10 queries that are documents and do not retrieve themselves" in page
    assert "10 queries with the id of another document" in page
    made = json.loads((tmp_path / "results/datasets/chance/dataset.json").read_text())
    assert "queries_are_documents" not in made["job"]["settings"]["entry"]

    settings["datasets"]["chance"]["queries_are_documents"] = True
    (tmp_path / "grid.yaml").write_text(yaml.safe_dump(settings))
    done = run(tmp_path / "grid.yaml", tmp_path, "--show-failed-logs")
    assert done.returncode != 0
    assert "set datasets.chance.queries_are_documents: false" in done.stdout
