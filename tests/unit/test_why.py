"""The job of a file, its inputs, and reasons to make the file again, local files among them."""

from __future__ import annotations

import json
import os
from pathlib import Path

import finished
import pytest
from helpers import main

from beirgrid.core import files, lineage, provenance
from beirgrid.graph import rules
from beirgrid.results.summary import GridSummary

RUN, SCORES = "results/runs/dense/one.run.gz", "results/metrics/dense/one.json"
QRELS, PER_QUERY = "results/datasets/one/qrels.tsv", "results/metrics/dense/one.per-query.parquet"


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
    assert "made again by the next run: no: the files show no reason. A dry run" in said
    assert _why(capsys, PER_QUERY) == said
    monkeypatch.chdir(tmp_path)
    assert "stage: evaluate" in _why(capsys, SCORES, "--directory", "site")


@pytest.mark.parametrize(
    ("damaged", "file", "said"),
    [("results/own.txt", "results/own.txt", "no record names results/own.txt"), (SCORES, PER_QUERY, f"{SCORES} ")],
)
def test_a_file_without_a_record_and_a_damaged_record_are_named(site, capsys, damaged, file, said):
    Path(damaged).write_text("{")
    assert main(["why", file]) == 1
    assert said in capsys.readouterr().err


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


@pytest.mark.parametrize(
    ("change", "path", "reason"),
    [
        (_newer, QRELS, f"qrels {QRELS} is newer"),
        (_cut, PER_QUERY, f"{PER_QUERY} is damaged"),
        (_searched_again, RUN, f"{RUN} is another one than {SCORES} was made from"),
        (_raise_version, SCORES, "stage version 1 → "),
    ],
)
def test_each_reason_is_named(site, capsys, change, path, reason):
    change(path)
    said = _why(capsys, SCORES)
    assert "made again by the next run: yes\n" in said
    assert reason in said


def test_results_of_an_earlier_version_say_so_where_they_are_shown(site, capsys):
    assert main(["show", "dense", "one"]) == 0
    assert "Made by" not in capsys.readouterr().err
    _raise_version(SCORES)
    assert main(["show", "dense", "one"]) == 0
    version = json.loads(Path(SCORES).read_text())["packages"]["beirgrid"]
    said = f"Made by version {version}; 1 cell will be made again, because evaluate: stage version 1 → "
    assert said in capsys.readouterr().err


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
    assert list(provenance.changes(before, now)) == said


VECTORS = "results/embeddings/{}/demo/0.json"


def _params(**model: object) -> dict[str, object]:
    return {"version": 5, "settings": json.dumps({"model": {"max_length": 256, **model}, "shard_size": 10})}


def _write_record(model: str, params: dict[str, object], **keys: object) -> str:
    path = Path(VECTORS.format(model))
    path.parent.mkdir(parents=True, exist_ok=True)
    record = finished.record("encode", **{"stage_version": 5, "settings_key": provenance.digest(params), **keys})
    path.write_text(json.dumps(record))
    return str(path)


def _notices(asked: dict[str, dict[str, object]], others: tuple[GridSummary, ...] = ()) -> list[str]:
    known = lineage.Ancestry()
    reasons = {
        path: rules.reason(Path(path), lambda params=params: params, [], known) for path, params in asked.items()
    }
    digests = {path: provenance.digest(params) for path, params in asked.items()}
    replaced = {other.name: {*other.replaced_by(digests)} for other in others}
    return list(rules.notices({path: reason for path, reason in reasons.items() if reason}, replaced))


ASKED = json.loads(str(_params()["settings"]))


@pytest.mark.parametrize("keys", [{"job": {"settings": ASKED}}, {"asked": ASKED}])
def test_a_person_is_told_what_an_edited_entry_replaces(tmp_path, monkeypatch, keys):
    """Records of 0.2.0 have ``asked``."""
    monkeypatch.chdir(tmp_path)
    mine, other, kept = (_write_record(model, _params(), **keys) for model in ("mine", "other", "kept"))
    asked = {mine: _params(max_length=128), other: _params(max_length=128), kept: _params()}
    assert _notices({**asked, VECTORS.format("new"): _params()}) == [
        f"To be made again, replacing what is there: {mine} and 1 more (model.max_length 256 → 128)"
    ]


@pytest.mark.parametrize(
    ("shown", "is_named"),
    [
        ({"max_length": 256}, True),  # as it is on the disk
        ({"max_length": 512}, False),  # replaced before
        ({"max_length": 128}, False),  # the same change
    ],
)
def test_a_person_is_told_which_other_grid_shows_what_is_replaced(tmp_path, monkeypatch, shown, is_named):
    monkeypatch.chdir(tmp_path)
    path = _write_record("mine", _params(), job={"settings": ASKED})
    missing = VECTORS.format("other")
    settings = dict.fromkeys([path, missing], provenance.digest(_params(**shown)))
    other = GridSummary(name="thesis", systems=(), rows=(), datasets={}, metrics=(), settings=settings)
    first, *more = _notices({path: _params(max_length=128), missing: _params()}, (other,))
    assert first.endswith(f"{path} (model.max_length 256 → 128)")
    assert [line for line in more if line.startswith("Scores of the grid thesis were made from this")] == more
    assert len(more) == is_named


def test_a_person_is_told_what_an_earlier_release_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    one, two = (_write_record(model, {"version": 4}, stage_version=4, asked=ASKED) for model in ("one", "two"))
    assert _notices({one: _params(), two: _params()}) == [
        f"To be made again, replacing what is there: {one} and 1 more (stage version 4 → 5)"
    ]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"stage": 3}', '{"settings_key": "x", "asked": []}'])
def test_the_artifacts_of_a_damaged_record_are_made_again(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    path = _write_record("one", _params())
    Path(path).write_text(content)
    (said,) = _notices({path: _params()})
    assert said.startswith(f"To be made again, replacing what is there: {path} ({path} is ")


def test_artifacts_of_other_sizes_are_made_again_and_missing_ones_are_not_named(tmp_path, monkeypatch):
    """A missing artifact may be temporary, and Snakemake looks for those that are not."""
    monkeypatch.chdir(tmp_path)
    path = _write_record("one", _params(), outputs={"0.npy": {"bytes": 4}, "0.tokens/a": {"bytes": 1}})
    artifact = Path(path).with_suffix(".npy")
    assert _notices({path: _params()}) == []
    artifact.write_bytes(b"cut")
    assert f"{artifact} is damaged: it has 3 bytes, {path} says 4)" in _notices({path: _params()})[0]
    artifact.write_bytes(b"four")
    Path(path).with_name("0.tokens").mkdir()
    assert "0.tokens/a is missing" in _notices({path: _params()})[0]


def test_local_files_count_by_content_and_not_by_place():
    def params(path: str, files: str) -> dict[str, object]:
        return {"version": 1, "settings": json.dumps({"entry": {"path": path, "id": "a"}}), "files": files}

    assert provenance.digest(params("/here/data", "abc")) == provenance.digest(params("/there/data", "abc"))
    assert provenance.digest(params("/here/data", "abc")) != provenance.digest(params("/here/data", "abd"))
    # Of files that Snakemake cannot take as inputs, no content is known.
    assert provenance.digest(params("/here/data", "")) != provenance.digest(params("/there/data", ""))


def test_a_pipe_is_not_read_and_a_file_once(tmp_path, monkeypatch):
    os.mkfifo(tmp_path / "pipe")
    assert rules.state([str(tmp_path / "pipe")])
    (tmp_path / "a").write_text("a")
    first = rules.state([str(tmp_path / "a")])
    monkeypatch.setattr(files, "sha256", None)
    assert rules.state([str(tmp_path / "a")]) == first


def test_the_state_of_files_follows_from_content_and_names(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for folder, names in {"a": "xy", "b": "xy", "c": "xz"}.items():
        Path(folder).mkdir()
        for name in names:
            Path(folder, name).write_text(name.replace("z", "y"))
    first, copied, renamed = (rules.state(map(str, Path(folder).iterdir())) for folder in "abc")
    assert first == copied != renamed
    assert rules.state([]) == rules.state(["a/gone"]) == ""
    assert rules.state(["a/x"]) not in (first, rules.state(["a/y"]))
