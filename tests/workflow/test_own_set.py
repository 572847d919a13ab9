"""From a folder of documents to a verdict: a set runs without qrels, is pooled and judged, and then has scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from endpoint_server import KEY, Served, serving
from helpers import beirgrid
from small import finish, table

from beirgrid.core.errors import DataError
from beirgrid.results.efficiency import read_latency
from beirgrid.sets.evaluation_set import EvaluationSet
from beirgrid.sets.store import Grading

pytestmark = pytest.mark.slow  # whole workflows

TOPICS = ("rye bread", "cold frames", "bicycle brakes", "sourdough starter", "apple trees")


@pytest.fixture
def work(tmp_path, monkeypatch) -> Path:
    """The working directory, with a folder of Markdown files and a file of queries."""
    monkeypatch.chdir(tmp_path)
    for number, topic in enumerate(TOPICS):
        for part in range(3):
            text = f"# {topic.title()} {part}\n\nAll about {topic}, part {part}. " + "Some more words follow. " * part
            path = tmp_path / f"docs/{number}/{part}.md"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    (tmp_path / "queries.txt").write_text("".join(f"{topic}\n" for topic in TOPICS) + "who is ann@example.org\n")
    return tmp_path


def scores(work: Path) -> dict[str, dict[str, str]]:
    return {row["system"]: row for row in table(work, "scores", "notes") if row["metric"] == "ndcg@10"}


def test_a_set_without_qrels_runs_and_is_evaluated_once_it_is_judged(work, told, monkeypatch):
    assert "15 documents" in told("init", "notes", "--documents", "docs")
    said = told("queries", "notes", "--from", "queries.txt")
    assert "query seems to hold an e-mail address: q6" in said
    assert "notes: 5 queries" in said
    path = work / "notes/queries.jsonl"
    path.write_text(path.read_text().replace('"stratum": ""', '"synthetic": true', 1))
    with pytest.raises(DataError, match="has no runs of notes"):
        told("pool", "notes")

    grid = yaml.safe_load((work / "notes/grid.yaml").read_text())
    assert grid["datasets"] == {"notes": {"corpus": "notes", "queries_are_documents": False}}
    grid["grid"]["systems"] = ["bm25", "bm25-flat"]
    (work / "notes/grid.yaml").write_text(yaml.safe_dump(grid))
    assert "Not judged, so without scores: notes" in finish(work / "notes/grid.yaml", work)
    states = {(row["status"], row["detail"]) for row in scores(work).values()}
    assert states == {("not judged", "synthetic: 1 of 5 queries")}
    costs = {(row["system"], row["stage"]) for row in table(work, "costs", "notes")}
    assert {(system, stage) for system in ("bm25", "bm25-flat") for stage in ("index", "retrieve")} <= costs
    wanted = ("--grid", "notes", "--dataset", "notes", "--queries", "2", "--warm-up", "1")
    measured = beirgrid("latency", *wanted, "--output", "latency.csv", cwd=work)
    assert measured.returncode == 0, measured.stderr
    assert set(read_latency(work / "latency.csv")["system"]) == {"bm25", "bm25-flat"}
    page = (work / "results/grids/notes/report/index.html").read_text()
    assert "synthetic: 1 of 5 queries" in page
    whole, pair = table(work, "agreement", "notes")
    assert (whole["system"], pair["system"], pair["other"], pair["queries"]) == ("all", "bm25", "bm25-flat", "5")
    assert 0 < float(pair["overlap@10"]) <= 1
    assert whole["pool@5"] == pair["pool@5"] == "15"
    assert "Agreement of systems on datasets without judgements" in page
    assert "pool to depth 5" in page
    assert "2 cells not judged" in " ".join(page.split())
    assert "then beirgrid set pool notes" in told("status", "notes")
    assert "left out of the top 3" in told("pool", "notes", "--depth", "3", "--judgements", "12")
    assert "Next: beirgrid set judge notes" in told("status", "notes")
    made = EvaluationSet(work / "notes")
    while pair := made.store.next("ann"):
        query, document = pair
        number = int(query.removeprefix("q")) - 1
        made.store.judge(Grading("ann", query, document, 3 if document.startswith(f"{number}/") else 0))
    assert "version 1 has 12 judgements" in told("accept", "notes")

    monkeypatch.setenv("TESTED_KEY", KEY)
    with serving(Served(chat=lambda messages: f"##final score: {len(messages[0]['content']) % 4}")) as served:
        entry = {"endpoint": {"model": "org/judge-1", "url": served.url, "key": "TESTED_KEY"}}
        (work / "judge.yaml").write_text(yaml.safe_dump(entry))
        assert "12 new judgements by a model" in told("judge", "notes", "--with", "judge.yaml")
    said = told("status", "notes")
    assert "Cohen's kappa of model:org/judge-1, people" in said
    assert "5 queries that model:org/judge-1 judged, and people judged all of them: nothing is corrected:" in said
    assert "version 2 has 12 judgements" in told("accept", "notes", "--model", "org/judge-1", "--force", "--yes")
    assert "Kendall's tau" in told("compare", "notes", "1", "2")
    assert "the pairs without one:\nbm25 − bm25-flat: " in told("status", "notes")

    finish(work / "notes/grid.yaml", work)
    assert table(work, "agreement", "notes") == []
    found = scores(work)
    mark = "synthetic: 1 of 5 queries; version 2 of its qrels, judged by a model (org/judge-1)"
    assert {(row["status"], row["detail"]) for row in found.values()} == {("done", mark)}
    assert all(0 < float(row["value"]) <= 1 for row in found.values())
    record = json.loads((work / "results/datasets/notes/dataset.json").read_text())
    assert record["facts"]["judgements"] == 12
    for place in ("report/index.html", "tables/ndcg@10.md"):
        assert mark in (work / "results/grids/notes" / place).read_text()
