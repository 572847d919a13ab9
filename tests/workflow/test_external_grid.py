"""A grid with the run of other software: it is evaluated, fused and reranked, and a replaced file is noticed."""

from __future__ import annotations

import json
import os
import re

import pytest
from small import run

from beirgrid.runs import runs

SYSTEMS = {
    "flat": {"retriever": "bm25", "fields": "flat"},
    "mine": {"run": "{dataset}.trec", "allow": ["missing-queries"]},
    "fused": {"fusion": "rrf", "of": ["flat", "mine"]},
    "mine+ce": {"first_stage": "mine", "reranker": "tiny-ce", "depth": 3},
}
# The query d3 is a document of the collection; nobody judged the query "other".
LINES = [f"{query} Q0 d{i} 0 {20 - i} t\n" for query in ("q0", "q1", "d3", "other") for i in range(10)]


@pytest.mark.slow
def test_an_external_run_joins_the_grid(small_grid, tmp_path):
    configfile = small_grid(tmp_path, systems=SYSTEMS, grid={"systems": list(SYSTEMS), "datasets": ["small"]})
    file = tmp_path / "small.trec"
    file.write_text("".join(LINES))
    done = run(configfile, tmp_path)
    assert done.returncode == 0, done.stdout
    found = {system: runs.read(tmp_path / f"results/runs/{system}/small.run.gz") for system in SYSTEMS}
    assert found["mine"].keys() == {"q0", "q1", "d3"}
    assert found["mine"]["d3"].ids == ["d0", "d1", "d2", "d4", "d5", "d6", "d7", "d8", "d9"]
    assert {query: set(ranking.ids) for query, ranking in found["mine+ce"].items()} == {
        query: set(ranking.ids) for query, ranking in found["mine"].items()
    }
    assert set(found["mine"]["q0"].ids) < set(found["fused"]["q0"].ids)
    assert json.loads((tmp_path / "results/metrics/mine/small.json").read_text())["scores"]["queries"] == 11
    (scores,) = (tmp_path / "results").rglob("scores.csv")
    rows = scores.read_text().splitlines()[1:]
    assert {line.split(",")[0] for line in rows} == set(SYSTEMS)
    said = "small.trec lacks 8 of 11 judged queries"
    assert {line.split(",")[0] for line in rows if f"{said}; 8 of 11 queries have" in line} == {"mine", "mine+ce"}
    unanswered = "1 of 11 queries has no documents and counts 0"
    assert {line.split(",")[0] for line in rows if line.endswith(f"{said}; {unanswered}")} == {"fused"}
    assert {line.split(",")[0] for line in rows if line.endswith(unanswered)} == {"flat", "fused"}
    assert f"§ flat on small: {unanswered}. More such notes in the tables: 2." in done.stdout

    file.write_text("".join(LINES).replace("Q0", "0Q"))  # as long as before
    os.utime(file, (1e9, 1e9))
    planned = run(configfile, tmp_path, "--dry-run")
    stats = dict(re.findall(r"^(\w+) +(\d+)$", planned.stdout.split("Job stats:")[1], re.MULTILINE))
    again = {"fetch_run": "1", "score": "1", "rerank": "1", "fuse": "1", "evaluate": "3"}
    assert again.items() <= stats.items()
    assert not {"fetch_corpus", "fetch_dataset", "fetch_model", "retrieve_lexical"} & stats.keys()
