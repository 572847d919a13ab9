"""``beirgrid list``: registered entries, and local files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from helpers import run_work, tracked_configuration

from beirgrid.__main__ import main
from beirgrid.config import mteb_collections
from beirgrid.core import files
from beirgrid.core.errors import ConfigError
from beirgrid.stages.evaluate.work import evaluate


def listed(capsys, *words: str) -> list[dict]:
    assert main(["list", *words, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.fixture
def folder(tmp_path, monkeypatch) -> Path:
    """The working directory, in which a run of bm25 on the demo is evaluated, and MiniLM is fetched."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run").write_text("q Q0 d 1 1.0 x\n")
    (tmp_path / "qrels").write_text("q 0 d 1\n")
    output = tmp_path / "results/metrics/bm25/demo.json"
    output.parent.mkdir(parents=True)
    of_cell = {"system": "bm25", "dataset": "demo", "per_query": output.with_suffix(".per-query.parquet")}
    run_work(evaluate, output, run=Path("run"), qrels=Path("qrels"), metrics=["mrr@10"], **of_cell)
    files.write_json(tmp_path / "results/models/minilm/model.json", {})
    return tmp_path


def test_models_say_what_they_need_and_whether_they_are_here(folder, capsys):
    rows = {row["model"]: row for row in listed(capsys, "models")}
    assert rows["minilm"]["here"]
    assert rows["minilm"]["download MB"] == 0  # a package has it
    stated = {"family": "dense", "from": "facebook/dpr-ctx_encoder-multiset-base", "pickled": True}
    assert rows["dpr"].items() >= stated.items()
    assert 400 < rows["dpr"]["download MB"] < 500
    assert not rows["dpr"]["here"]
    assert [row["model"] for row in listed(capsys, "models", "--here")] == ["minilm", "minilm~last-layer"]


def test_models_of_mteb_name_who_runs_them_and_why(folder, capsys):
    rows = [row for row in listed(capsys, "models") if row["from"] == "mteb"]
    assert len(rows) == 969
    assert all(row["reason"] for row in rows)
    assert {row["engine"] for row in rows} == {"beirgrid", "mteb", "with code", "endpoint", "refused"}
    cohere = next(row for row in listed(capsys, "models", "ENDPOINT", "cohere") if row["model"].endswith("v3.0"))
    assert cohere["reason"].startswith("its publisher serves it")
    refused = [row for row in rows if row["engine"] == "refused"]
    assert refused
    m3 = "results/models/BAAI__bge-m3/model.json"
    files.write_json(folder / m3, {})
    assert [row["model"] for row in listed(capsys, "models", "mteb", "--here")] == ["BAAI/bge-m3"]


def test_systems_name_their_models_and_the_datasets_that_they_ran_on(folder, capsys):
    rows = {row["system"]: row for row in listed(capsys, "systems")}
    assert rows["bm25"]["here"] == ["demo"]
    assert rows["bm25+minilm"] == {"system": "bm25+minilm", "kind": "fusion", "models": ["minilm"], "here": []}
    assert rows["bm25+ce"]["kind"] == "cross-encoder"
    assert [row["system"] for row in listed(capsys, "systems", "late", "v2")] == ["colbertv2"]


def test_datasets_name_licences_and_what_their_user_supplies(folder, capsys):
    rows = {row["dataset"]: row for row in listed(capsys, "datasets")}
    assert rows["scifact"]["documents"] == 5183
    assert rows["scifact"]["licence"]
    assert not rows["scifact"]["supply"]
    assert rows["bioasq"]["supply"].endswith("bioasq")  # the folder to fill
    assert rows["cqadupstack"]["corpus"] == "mean of 12"


def test_tasks_and_benchmarks_of_mteb_are_listed_with_the_reason_where_one_is_refused(folder, capsys):
    files.write_json(folder / "results/datasets/MIRACLRetrieval-sw/dataset.json", {})
    rows = [row for row in listed(capsys, "datasets") if row.get("from") == "mteb"]
    benchmarks = [row for row in rows if row["task"] == "benchmark"]
    assert (len(rows) - len(benchmarks), len(benchmarks)) == (581, 78)
    named = {row["dataset"]: row for row in rows}
    assert named["MIRACLRetrieval"]["corpus"] == "18 datasets"
    assert named["SciFact"]["corpus"] == "scifact"
    assert [row["dataset"] for row in rows if row["here"]] == ["MIRACLRetrieval"]
    for row in [*rows[::9], *benchmarks, *(row for row in rows if row["reason"])]:
        reason = ""
        try:
            mteb_collections.collection(row["dataset"])
        except ConfigError as error:
            reason = str(error).removeprefix(row["dataset"]).lstrip(": ")
        assert row["reason"] == reason, row


def test_every_key_of_the_configuration_is_listed(capsys):
    rows = listed(capsys, "keys")
    found = {row["key"] for row in rows}
    assert all(row["value"] and row["meaning"] for row in rows)
    used = {key for key in keys_of(tracked_configuration()) if not key.startswith(("models", "systems", "corpora"))}
    assert len(used) > 35
    assert {key for key in used if key.removesuffix(".{name}") not in found} == set()
    precision = listed(capsys, "keys", "encode.precision")[0]
    assert precision["default"] == '"auto"'
    assert precision["value"].startswith("auto, ")


def keys_of(content: Any, path: str = "") -> Iterator[str]:
    for key, value in content.items() if isinstance(content, dict) else ():
        place = f"{path}.{key}".strip(".") if path not in ("datasets", "tolerances") else f"{path}.{{name}}"
        yield place
        yield from keys_of(value, place)


def test_grids_and_runs_of_a_folder(folder, capsys):
    names = {row["grid"]: row for row in listed(capsys, "grids")}
    assert {"paper", "demo"} <= set(names)
    assert not names["paper"]["here"]
    assert listed(capsys, "runs") == [{"system": "bm25", "dataset": "demo", "queries": 1, "mrr@10": 1.0}]
    assert "ndcg@k" in {row["metric"] for row in listed(capsys, "metrics")}


def test_a_damaged_grid_is_named_and_the_others_are_listed(folder, capsys):
    for name, content in (("damaged", "{"), ("whole", '{"cells": [{"system": "bm25", "dataset": "demo"}]}')):
        files.write_text(folder / f"results/grids/{name}/grid.json", content)
    assert main(["list", "grids", "--json"]) == 0
    said = capsys.readouterr()
    (whole,) = [row for row in json.loads(said.out) if row["here"]]
    assert (whole["grid"], whole["cells"], whole["finished"]) == ("whole", 1, 1)
    assert "warning: the grid damaged is left out: " in said.err


def test_a_table_is_for_people(folder, capsys):
    assert main(["list", "datasets", "scifact"]) == 0
    head, _, *rows = capsys.readouterr().out.splitlines()
    assert head.split()[:3] == ["dataset", "corpus", "task"]
    assert "scifact" in {row.split()[0] for row in rows}
    assert all("scifact" in row.lower() for row in rows)
    assert main(["list", "datasets", "no-such-word"]) == 0
    assert capsys.readouterr().out == "no datasets with no-such-word\n"
