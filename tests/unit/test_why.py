"""``beirgrid why``: the job of a file, its inputs, and whether the next run makes the file again."""

from __future__ import annotations

import json
import os
from pathlib import Path

import finished
import pytest
from helpers import main

from beirgrid.core import provenance, reasons
from beirgrid.pipeline import reruns

RUN, SCORES = "results/runs/dense/one.run.gz", "results/metrics/dense/one.json"
QRELS = "results/datasets/one/qrels.tsv"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A collection, a run and its scores, with times in the order in which they were made."""
    (tmp_path / "site").mkdir()
    monkeypatch.chdir(tmp_path / "site")
    finished.collection(tmp_path, "one")
    finished.searched("dense", "one", finished.rankings(1), "float32", depth=10)
    return tmp_path / "site"


def _why(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(["why", *arguments]) == 0
    return capsys.readouterr().out


def test_what_made_a_file_and_from_what(site, capsys, monkeypatch, tmp_path):
    said = _why(capsys, SCORES)
    assert "stage: evaluate, version" in said
    assert f"run: {RUN} (" in said
    assert f"qrels: {QRELS} (" in said
    assert 'metrics: ["ndcg@10", "recall@5"]' in said
    assert "made again by the next run: files and the last run of each grid show no reason. A dry run" in said
    assert _why(capsys, SCORES.replace(".json", ".per-query.parquet")) == said
    monkeypatch.chdir(tmp_path)
    assert "stage: evaluate" in _why(capsys, SCORES, "--directory", "site")


def test_a_file_without_a_record_is_named(site, capsys):
    Path("results/own.txt").touch()
    assert main(["why", "results/own.txt"]) == 1
    assert "no record names results/own.txt" in capsys.readouterr().err


def test_a_damaged_summary_of_a_grid_is_named_and_left_out(site, capsys):
    summary = Path("results/grids/other/grid.json")
    summary.parent.mkdir(parents=True)
    summary.write_text("{")
    assert main(["why", SCORES]) == 0
    said = capsys.readouterr()
    assert "made again by the next run: files and" in said.out
    assert f"warning: the grid other is left out: {summary} is damaged" in said.err


def test_a_damaged_record_is_named(site, capsys):
    Path(SCORES).write_text("{")
    assert main(["why", SCORES.replace(".json", ".per-query.parquet")]) == 1
    assert f"{SCORES} " in capsys.readouterr().err


def _newer(path: str) -> None:
    time = Path(SCORES).stat().st_mtime_ns + 10**9
    os.utime(path, ns=(time, time))


def _cut(path: str) -> None:
    Path(path).write_bytes(Path(path).read_bytes()[:-1])


def _searched_again(path: str) -> None:
    finished.searched("other", "one", finished.rankings(2), "float32", depth=10)
    for suffix in (".run.gz", ".json"):
        Path(f"results/runs/other/one{suffix}").replace(f"results/runs/dense/one{suffix}")


def _raise_version(path: str) -> None:
    record = json.loads(Path(path).read_text())
    Path(path).write_text(json.dumps(record | {"stage_version": 1}))


def _ask_for_others(path: str, **keys: object) -> None:
    Path("results/grids/demo").mkdir(parents=True)
    Path("results/grids/demo/grid.json").write_text(json.dumps({"settings": {path: "0" * 16}, **keys}))


def _ask_for_other_metrics(path: str) -> None:
    record = json.loads(Path(path).read_text())
    Path(path).write_text(json.dumps(record | {"asked": {"metrics": ["ndcg@10"]}}))
    params = {"version": record["stage_version"], "settings": json.dumps({"metrics": ["map@10"]})}
    _ask_for_others(path, asked={"0" * 16: params})


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        (_newer, QRELS, f"qrels {QRELS} is newer"),
        (_cut, SCORES.replace(".json", ".per-query.parquet"), "per-query.parquet is damaged"),
        (_searched_again, RUN, f"run {RUN} has another content ("),
        (_raise_version, SCORES, "stage version 1 → "),
        (_ask_for_others, SCORES, "the grid demo asks for another result: other settings"),
        (_ask_for_other_metrics, SCORES, 'the grid demo asks for another result: metrics ["ndcg@10"] → ["map@10"]'),
    ],
)
def test_each_reason_is_named(site, capsys, change, path, reason):
    change(path)
    said = _why(capsys, SCORES)
    assert "made again by the next run: yes\n" in said
    assert reason in said


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        ({"max_length": 256}, {"max_length": 128}, ["max_length 256 → 128"]),
        ({"prompts": {"query": "q: "}}, {"prompts": {"query": "s: "}}, ['prompts.query "q: " → "s: "']),
        ({"a": 1, "b": [1]}, {"a": 1, "b": [1]}, []),
        ({"a": 1}, {"b": 2}, ["a 1 → (none)", "b (none) → 2"]),
    ],
)
def test_changes_name_keys_and_values(before, now, said):
    assert list(reasons.changes(before, now)) == said


def _kept(path: str, params: dict[str, object], asked: dict[str, object] | None, **keys: object) -> None:
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    record = {"stage": "encode", "stage_version": 5, "settings_key": provenance.digest(params), **keys}
    Path(path).write_text(json.dumps(record | ({} if asked is None else {"asked": asked})))


def _params(**model: object) -> dict[str, object]:
    return {"version": 5, "settings": json.dumps({"model": {"max_length": 256, **model}, "shard_size": 10})}


VECTORS = "results/embeddings/{}/demo/0.json"


def test_a_person_is_told_what_an_edited_entry_replaces(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for model in ("mine", "other", "kept"):
        _kept(VECTORS.format(model), _params(), json.loads(str(_params()["settings"])))
    asked = {VECTORS.format(model): _params(max_length=128) for model in ("mine", "other")}
    asked |= {VECTORS.format("kept"): _params(), VECTORS.format("new"): _params()}
    assert list(reruns.replaced(asked)) == [
        "replaces the results of mine, other (max_length 256 → 128); give the entry a new name to keep both"
    ]


def test_a_person_is_told_what_an_earlier_release_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for model in ("one", "two"):
        _kept(VECTORS.format(model), {"version": 4}, None, packages={"beirgrid": "0.1.0"})
    (said,) = reruns.replaced({VECTORS.format(model): _params() for model in ("one", "two")})
    assert said.startswith("beirgrid 0.1.0 made 2 steps in this folder, without settings in their records to compare")


@pytest.mark.parametrize("content", ["", "[]", "{", '{"stage": 3}', '{"settings_key": "x", "asked": []}'])
def test_a_damaged_record_says_nothing_and_stops_nothing(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    _kept(VECTORS.format("one"), _params(), None)
    Path(VECTORS.format("one")).write_text(content)
    assert list(reruns.replaced({VECTORS.format("one"): _params()})) == []


def test_local_files_count_by_content_and_not_by_place():
    def params(path: str, files: str) -> dict[str, object]:
        return {"version": 1, "settings": json.dumps({"entry": {"path": path, "id": "a"}}), "files": files}

    assert provenance.digest(params("/here/data", "abc")) == provenance.digest(params("/there/data", "abc"))
    assert provenance.digest(params("/here/data", "abc")) != provenance.digest(params("/here/data", "abd"))
    # Of files that Snakemake cannot take as inputs, no content is known.
    assert provenance.digest(params("/here/data", "")) != provenance.digest(params("/there/data", ""))
