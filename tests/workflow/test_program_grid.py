"""A grid with the programs of docs/programs.md: bm25s itself, and a script that asks a stand-in for a search engine."""

from __future__ import annotations

import json
import re
from pathlib import Path

import bm25s
import numpy as np
import pytest
import yaml
from helpers import ROOT, beirgrid
from search_engine import KEY, Engine, serving
from small import collection, finish, job_counts, run, table

from beirgrid.runs import runs

PAGE = (ROOT / "docs/programs.md").read_text(encoding="utf-8")


def _blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)


def _in_bm25s(folder: Path) -> dict[str, dict[str, float]]:
    """Return the scores that bm25s gives by another way than the script: all scores of each query, sorted here."""
    documents, queries = (
        [json.loads(line) for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        for name in ("corpus", "queries")
    )
    retriever = bm25s.BM25(method="lucene", k1=0.9, b=0.4)
    retriever.index(bm25s.tokenize([row["text"] for row in documents], show_progress=False), show_progress=False)
    found = {}
    for query in queries:
        (words,) = bm25s.tokenize([query["text"]], return_ids=False, show_progress=False)
        scores = retriever.get_scores(words)
        best = [row for row in np.argsort(-scores) if scores[row] > 0]
        found[query["_id"]] = {documents[row]["_id"]: float(scores[row]) for row in best}
    return found


@pytest.mark.slow
def test_programs_are_systems_of_a_grid(small_grid, tmp_path, monkeypatch):
    for name, script in zip(("bm25s_system.py", "engine.py"), _blocks("python"), strict=True):
        (tmp_path / name).write_text(script)
    systems = {"flat": {"retriever": "bm25", "fields": "flat"}}
    for block in _blocks("yaml"):
        systems |= yaml.safe_load(block)["systems"]
    del systems["bm25s+ce"]  # tests of external systems rerank such runs
    systems["both"] = {"fusion": "rrf", "of": ["bm25s", "elastic"]}
    configfile = small_grid(tmp_path, systems=systems)
    results = tmp_path / "results"
    with serving(Engine()) as engine:
        monkeypatch.setenv("ENGINE_URL", engine.url)
        monkeypatch.setenv("ENGINE_KEY", "another")
        refused = run(configfile, tmp_path, "--keep-going")
        assert refused.returncode != 0
        assert "the command ended with exit status 1. Its output is above" in refused.stdout
        assert "HTTP Error 401" in refused.stdout
        assert engine.refused == 1
        assert not (results / "indexes/elastic/small/program").exists()

        monkeypatch.setenv("ENGINE_KEY", KEY)
        finish(configfile, tmp_path)
        (index,) = engine.indexes.values()
    assert len(index) == 60

    found = {name: runs.read(results / f"runs/{name}/small.run.gz") for name in systems}
    expected = _in_bm25s(collection(tmp_path / "again"))
    assert set(expected) - set(found["bm25s"]) == {"nohit"}
    for query, ranking in found["bm25s"].items():
        scores = {document: score for document, score in expected[query].items() if document != query}
        assert set(ranking.ids) == set(scores)
        np.testing.assert_allclose(ranking.scores, [scores[document] for document in ranking.ids], rtol=1e-6)
    made = results / "indexes/bm25s/small"
    facts = json.loads((made / "program.json").read_text())["facts"]
    assert facts["bytes"] == sum(path.stat().st_size for path in (made / "program").iterdir())
    assert {row["system"] for row in table(tmp_path)} == set(systems)
    readable = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert not [path for path in readable if KEY.encode() in path.read_bytes()]

    asked = ("--dataset", "small", "--queries", "2", "--warm-up", "0", "--systems", "flat,bm25s")
    assert "bm25s is not measured: 'bm25s' cannot be" in beirgrid("latency", *asked, cwd=tmp_path).stdout
    timed = beirgrid("latency", *asked, "--trust-remote-code", cwd=tmp_path)
    assert re.search(r"^bm25s +start, retrieve +1000 ", timed.stdout, re.MULTILINE), timed.stdout + timed.stderr

    # A script that changes is run again, and no other command.
    script = tmp_path / "bm25s_system.py"
    script.write_text(script.read_text() + "# changed\n")
    again = {"index_program": 1, "retrieve_program": 1, "fuse": 1, "evaluate": 2, "aggregate": 1, "report": 1}
    assert job_counts(run(configfile, tmp_path, "--dry-run")) == again
