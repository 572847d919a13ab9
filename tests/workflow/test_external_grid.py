"""A grid with the run of other software: it is evaluated, fused and reranked, and a replaced file is noticed."""

from __future__ import annotations

import json
import os

import pytest
from small import finish, job_counts, run, table

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
    configfile = small_grid(tmp_path, systems=SYSTEMS)
    file = tmp_path / "small.trec"
    file.write_text("".join(LINES))
    said = finish(configfile, tmp_path)
    found = {system: runs.read(tmp_path / f"results/runs/{system}/small.run.gz") for system in SYSTEMS}
    assert found["mine"].keys() == {"q0", "q1", "d3"}
    assert found["mine"]["d3"].ids == ["d0", "d1", "d2", "d4", "d5", "d6", "d7", "d8", "d9"]
    assert {query: set(ranking.ids) for query, ranking in found["mine+ce"].items()} == {
        query: set(ranking.ids) for query, ranking in found["mine"].items()
    }
    assert set(found["mine"]["q0"].ids) < set(found["fused"]["q0"].ids)
    assert json.loads((tmp_path / "results/metrics/mine/small.json").read_text())["scores"]["queries"] == 11
    lacking, unanswered = "small.trec lacks 8 of 11 judged queries", "1 of 11 queries has no documents and counts 0"
    details = {row["system"]: row["detail"] for row in table(tmp_path)}
    assert details == {
        "flat": unanswered,
        "mine": f"{lacking}; 8 of 11 queries have no documents and count 0",
        "fused": f"{lacking}; {unanswered}",
        "mine+ce": f"{lacking}; 8 of 11 queries have no documents and count 0",
    }
    assert f"§ flat on small: {unanswered}. More such notes in the tables: 2." in said

    file.write_text("".join(LINES).replace("Q0", "0Q"))  # as long as before
    os.utime(file, (1e9, 1e9))
    planned = job_counts(run(configfile, tmp_path, "--dry-run"))
    again = {"fetch_run": 1, "score": 1, "rerank": 1, "fuse": 1, "evaluate": 3}
    assert again.items() <= planned.items()
    assert not {"fetch_corpus", "fetch_dataset", "fetch_model", "retrieve_lexical"} & planned.keys()
