"""A grid over a server that runs a tiny checkpoint: embeddings, rerank and chat, faults, a kill, a budget."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from checkpoints import opened
from endpoint_server import KEY, Served, serving
from small import finish, run

from beirgrid.runs import runs

ENCODED = "results/embeddings/served/small/0.npy"
ENDPOINT = {"model": "served", "key": "TESTED_KEY", "batch": 4, "price": {"input": 1.0}}


def _order(messages: list[dict[str, str]]) -> str:
    """Answer a listwise prompt: passages with more letters a first; one in three answers is no order."""
    texts = {m["content"].split("]")[0]: m["content"] for m in messages if re.match(r"\[\d+\]", m["content"])}
    if not texts or sum(map(len, texts.values())) % 3 == 0:
        return "I cannot say."
    return " > ".join(f"{name}]" for name in sorted(texts, key=lambda name: -texts[name].count("a")))


def _grid(small_grid: Any, folder: Path, served: Served, dense: Path, **changes: Any) -> Path:
    endpoint = {**ENDPOINT, "url": served.url, **changes}
    chat = {key: value for key, value in endpoint.items() if key != "batch"}  # a request has one window
    models: dict[str, Any] = {
        "tiny-dense": {"family": "dense", "path": str(dense), "similarity": "cosine"},
        "served": {"family": "dense", "similarity": "cosine", "endpoint": endpoint},
        "served-ce": {"family": "cross-encoder", "endpoint": endpoint},
        "served-chat": {"family": "listwise-reranker", "window": 4, "step": 2, "endpoint": chat},
    }
    systems = {
        "flat": {"retriever": "bm25", "fields": "flat"},
        "served": {"retriever": "served"},
        "tiny": {"retriever": "tiny-dense"},
        "flat+served": {"first_stage": "flat", "reranker": "served-ce", "depth": 10},
        "flat+chat": {"first_stage": "flat", "reranker": "served-chat", "depth": 7},
    }
    return small_grid(folder, systems=systems, models=models)


@pytest.mark.slow
def test_a_grid_over_endpoints(small_grid, tiny_models, tmp_path, monkeypatch):
    monkeypatch.setenv("TESTED_KEY", KEY)
    dense = tiny_models["dense"]
    local = opened("dense", dense, {"similarity": "cosine"})
    with serving(Served(embed=local.encode_documents, chat=_order)) as served:
        # One request of probing, then faults while documents are encoded, which spends the budget.
        served.faults += [429, 500, "cut"]
        stopped = run(_grid(small_grid, tmp_path, served, dense, budget=0.002), tmp_path, ENCODED)
        assert stopped.returncode != 0
        assert "of the budget of 0.002 are spent" in stopped.stdout
        kept = list(tmp_path.rglob("*.answers/*.json.gz"))
        assert kept
        asked = len(served.asked)
        finish(_grid(small_grid, tmp_path, served, dense), tmp_path)
        assert not list(tmp_path.rglob("*.answers"))
        before, again = (
            {json.dumps(body) for _, body in part if "input" in body}
            for part in (served.asked[:asked], served.asked[asked:])
        )
        assert before - again  # what was answered before the budget is not asked again

        results = tmp_path / "results"
        found = {name: runs.read(results / f"runs/{name}/small.run.gz") for name in ("served", "tiny", "flat+chat")}
        for query, ranking in found["tiny"].items():
            assert found["served"][query].ids[:20] == ranking.ids[:20]
            np.testing.assert_allclose(found["served"][query].scores, ranking.scores, atol=1e-5)
        chat = json.loads((results / "pairs/served-chat/small/flat.json").read_text())["facts"]
        assert chat["windows"] > chat["windows_without_an_order"] > 0
        record = json.loads((results / "runs/served/small.json").read_text())["facts"]
        assert record["price"] == pytest.approx(record["tokens"] / 1e6)
        assert record["device"] == "endpoint"
        costs = pd.read_csv(next(results.rglob("costs.csv"))).set_index(["system", "stage"])
        assert costs.loc[("served", "retrieve"), "price"].item() == pytest.approx(record["price"])
        expected = 1000 * record["price"] / record["queries"]
        assert costs.loc[("served", "retrieve"), "price_per_1000_queries"].item() == pytest.approx(expected)
        assert costs.loc[("flat+served", "score"), "price_per_1000_queries"].item() > 0
        assert costs.loc[["flat", "tiny"], ["tokens", "price", "price_per_1000_queries"]].isna().all(axis=None)
        page = next(results.rglob("index.html")).read_text()
        assert "price per 1000 queries</th>" in page
        assert f"<td>{expected:.4g}</td>" in page
        readable = [path for path in tmp_path.rglob("*") if path.is_file()]
        assert not [path for path in readable if KEY.encode() in path.read_bytes()]

        # Another address reruns nothing; another model behind the same name is noticed.
        with serving(Served(embed=local.encode_documents, chat=_order)) as moved:
            planned = finish(_grid(small_grid, tmp_path, moved, dense), tmp_path, "--dry-run")
            assert "Nothing to be done" in planned
        served.embed = lambda texts: local.encode_documents(texts)[:, ::-1]
        other = run(_grid(small_grid, tmp_path, served, dense), tmp_path, "--forcerun", "retrieve_dense")
        assert other.returncode != 0
        assert "the server's model 'served' has changed" in other.stdout
