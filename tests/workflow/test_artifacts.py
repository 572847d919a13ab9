"""Damaged artifacts, replaced inputs, and folders without Snakemake's metadata."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import yaml
from helpers import write_collection
from small import job_counts, run

from beirgrid.__main__ import main


def _empty(content: bytes) -> bytes:
    return b""


def _cut(content: bytes) -> bytes:
    return content[: len(content) // 2]


def _cut_by_one(content: bytes) -> bytes:
    return content[:-1]


def _flipped(content: bytes) -> bytes:
    """Return the content with changed bits in its middle, and the same size."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


DAMAGES = [_empty, _cut, _cut_by_one, _flipped]

# What is damaged, under results/, and the records of the jobs that read it.
READ = {
    "corpora/small/corpus.parquet": [
        "datasets/small/dataset.json",
        "indexes/bm25-flat/small/lucene.json",
        "embeddings/tiny-dense/small/0.json",
        "runs/tiny/small.json",
        "pairs/tiny-ce/small/bm25-flat.json",
        "models/tiny-trained/model.json",
    ],
    "datasets/small/queries.parquet": [
        "runs/bm25-flat/small.json",
        "runs/tiny/small.json",
        "runs/sparse/small.json",
        "runs/tiny-late/small.json",
        "pairs/tiny-ce/small/bm25-flat.json",
    ],
    "datasets/small/qrels.tsv": ["metrics/tiny/small.json"],
    "models/tiny-dense/checkpoint/model.safetensors": [
        "embeddings/tiny-dense/small/0.json",
        "runs/tiny/small.json",
        "models/tiny-trained/model.json",
    ],
    "models/tiny-dense/checkpoint/config.json": ["embeddings/tiny-dense/small/0.json"],
    "models/tiny-ce/checkpoint/model.safetensors": ["pairs/tiny-ce/small/bm25-flat.json"],
    "embeddings/tiny-colbert/small/1.tokens/vectors.npy": [
        "indexes/tiny-colbert/small/1.json",
        "runs/tiny-late/small.json",
    ],
    "embeddings/tiny-colbert/small/1.tokens/offsets.npy": [
        "indexes/tiny-colbert/small/1.json",
        "runs/tiny-late/small.json",
    ],
    "indexes/tiny-colbert/small/2.faiss": ["runs/tiny-late/small.json"],
    "indexes/tiny-dense/small/1.faiss": ["runs/tiny/small.json"],
    "indexes/tiny-splade/small/1.impact/impacts.npy": ["runs/sparse/small.json"],
    "indexes/tiny-splade/small/1.impact/starts.npy": ["runs/sparse/small.json"],
    "indexes/tiny-splade/small/1.impact/shape.npy": ["runs/sparse/small.json"],
    "indexes/bm25-flat/small/lucene/segments_1": ["runs/bm25-flat/small.json", "models/tiny-trained/model.json"],
    "runs/bm25-flat/small.run.gz": [
        "pairs/tiny-ce/small/bm25-flat.json",
        "runs/bm25+ce/small.json",
        "runs/fused/small.json",
        "metrics/bm25-flat/small.json",
    ],
    "metrics/tiny/small.per-query.parquet": ["grids/grid/tables/tables.json"],
    "grids/grid/tables/scores.csv": ["grids/grid/report/report.json"],
    "grids/grid/tables/verdicts.csv": ["grids/grid/report/report.json"],
    "grids/grid/tables/costs.csv": ["grids/grid/report/report.json"],
}
CASES = [(path, reader, damage) for path, readers in READ.items() for reader in readers for damage in DAMAGES]
# Records, of which nothing else has bytes or hash.
READ_RECORDS = {
    "metrics/tiny/small.json": ["grids/grid/tables/tables.json"],
    "runs/tiny/small.json": ["grids/grid/tables/tables.json"],
    "datasets/small/dataset.json": ["grids/grid/tables/tables.json"],
    "corpora/small/corpus.json": ["grids/grid/tables/tables.json"],
    "pairs/tiny-ce/small/bm25-flat.json": ["runs/bm25+ce/small.json"],
}
RECORD_CASES = [
    (path, reader, damage)
    for path, readers in READ_RECORDS.items()
    for reader in readers
    for damage in [_empty, _cut, lambda _: b"[]", lambda _: b'{"stage": "fetch"}', lambda _: b"\xff\xfe"]
]


@pytest.fixture(scope="module")
def copied(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a finished grid, whose files tests damage and restore."""
    folder = tmp_path_factory.mktemp("copied") / "grid"
    shutil.copytree(finished, folder)
    return folder


def _refused(folder: Path, reader: str, capsys: pytest.CaptureFixture[str]) -> str:
    """Rerun a job from its record, which must fail without writing; return its one line of message."""
    made = folder / "results" / reader
    before = {path: path.stat().st_mtime_ns for path in made.parent.rglob("*")}
    job = json.loads(made.read_text())["job"]
    capsys.readouterr()
    with mock.patch("sys.stdin", io.TextIOWrapper(io.BytesIO(json.dumps(job).encode()))):
        assert main(["stage", job["stage"]]) == 1
    assert {path: path.stat().st_mtime_ns for path in made.parent.rglob("*")} == before
    (message,) = re.findall(r"^beirgrid stage \w+: error: .*\n(?!.)", capsys.readouterr().err, re.MULTILINE)
    return message


def _refused_when_damaged(
    folder: Path, path: str, reader: str, damage: Callable[[bytes], bytes], capsys: pytest.CaptureFixture[str]
) -> str:
    """Return the message of a job that reads a damaged file, and restore the file."""
    file = folder / "results" / path
    content = file.read_bytes()
    try:
        file.write_bytes(damage(content))
        return _refused(folder, reader, capsys)
    finally:
        file.write_bytes(content)


@pytest.mark.parametrize(
    ("path", "reader", "damage"),
    CASES,
    ids=[f"{path}-{reader}-{damage.__name__[1:]}" for path, reader, damage in CASES],
)
def test_a_damaged_artifact_is_named_and_not_used(copied, monkeypatch, capsys, path, reader, damage):
    monkeypatch.chdir(copied)
    message = _refused_when_damaged(copied, path, reader, damage, capsys)
    assert f"results/{path} is damaged" in message
    assert "delete it and run the grid again" in message


@pytest.mark.parametrize(("path", "reader", "damage"), RECORD_CASES)
def test_a_damaged_record_is_named(copied, monkeypatch, capsys, path, reader, damage):
    monkeypatch.chdir(copied)
    assert f"results/{path}" in _refused_when_damaged(copied, path, reader, damage, capsys)


@pytest.mark.parametrize(
    ("path", "reader"),
    [
        ("indexes/tiny-splade/small/1.impact/impacts.npy", "runs/sparse/small.json"),
        ("embeddings/tiny-colbert/small/1.tokens/offsets.npy", "runs/tiny-late/small.json"),
        ("models/tiny-dense/checkpoint/tokenizer.json", "runs/tiny/small.json"),
        ("runs/tiny/small.run.gz", "metrics/tiny/small.json"),
    ],
)
def test_a_missing_part_is_named(copied, monkeypatch, capsys, path, reader):
    monkeypatch.chdir(copied)
    part = Path("results") / path
    content = part.read_bytes()
    try:
        part.unlink()
        message = _refused(copied, reader, capsys)
    finally:
        part.write_bytes(content)
    assert f"results/{path} is missing" in message


def test_aggregate_refuses_a_record_of_other_settings(copied, monkeypatch, capsys):
    monkeypatch.chdir(copied)
    record = Path("results/runs/tiny/small.json")
    content = record.read_text()
    try:
        record.write_text(json.dumps(json.loads(content) | {"settings_key": "0" * 16}))
        message = _refused(copied, "grids/grid/tables/tables.json", capsys)
    finally:
        record.write_text(content)
    assert f"{record} was made with other settings than the grid has now" in message


MODEL = "results/models/m/model.json"


@pytest.fixture(scope="module")
def lexical(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Path:
    """A finished grid of BM25 and a fusion, and a fetched model; data and model are links to folders beside them."""
    folder = tmp_path_factory.mktemp("lexical")
    for name in ("model", "other-model"):
        shutil.copytree(tiny_models["dense"], folder / f"{name}-folder")
    (folder / "other-model-folder/config.json").write_text((folder / "model-folder/config.json").read_text() + "\n")
    (folder / "model").symlink_to("model-folder")
    documents = [{"_id": f"d{i}", "title": "", "text": f"word{i} common number{i % 3}"} for i in range(12)]
    queries = [{"_id": "q1", "text": "word1 common"}, {"_id": "q2", "text": "number2"}]
    for name in ("data-folder", "other-data-folder"):
        write_collection(folder / name, documents, queries, {"test": [("q1", "d1", 1), ("q2", "d2", 1)]})
    corpus = folder / "other-data-folder/corpus.jsonl"
    corpus.write_text(corpus.read_text().replace("common", "shared"))
    (folder / "data").symlink_to("data-folder")
    settings = {
        "corpora": {"c": {"source": "local", "path": str(folder / "data")}},
        "datasets": {"c": {"corpus": "c"}},
        "models": {"m": {"family": "dense", "path": str(folder / "model"), "similarity": "cosine"}},
        "systems": {
            "flat": {"retriever": "bm25", "fields": "flat"},
            "multi": {"retriever": "bm25", "fields": "multifield"},
            "fused": {"fusion": "rrf", "of": ["flat", "multi"]},
        },
        "grid": {"systems": ["flat", "fused"], "datasets": ["c"]},
        "metrics": ["ndcg@10"],
        "retrieve": {"depth": 20},
    }
    (folder / "grid.yaml").write_text(yaml.safe_dump(settings))
    done = run(folder / "grid.yaml", folder, "all", MODEL)
    assert done.returncode == 0, done.stdout
    return folder


@pytest.fixture
def grid(lexical: Path, tmp_path: Path) -> Path:
    """A copy of the finished grid, all times kept; its data and model stay where they were."""
    shutil.copytree(lexical, tmp_path / "grid", symlinks=True)
    return tmp_path / "grid"


def _planned(folder: Path, *targets: str) -> dict[str, int]:
    """Return the number of jobs of each rule in a dry run."""
    return job_counts(run(folder / "grid.yaml", folder, "-n", *targets))


def _all_but_end(planned: dict[str, int]) -> set[str]:
    """Return the rules without those that every change ends in."""
    return set(planned) - {"evaluate", "aggregate", "report"}


@contextmanager
def _replaced(path: Path, by: Path) -> Iterator[None]:
    """Put another file or link in the place of one, with the other's times (``cp -a``), and put the first back."""
    kept = path.parent.parent / f"{path.name}.kept"  # in the folder of a model, fetch would copy it
    path.rename(kept)
    by = kept if by == path else by
    try:
        if by.is_symlink():
            path.symlink_to(by.readlink())
        else:
            shutil.copy2(by, path)
        yield
    finally:
        path.unlink()
        kept.rename(path)


def _older(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    os.utime(path, (1e9, 1e9))
    return path


@pytest.mark.slow
def test_nothing_is_made_again_of_what_is_unchanged(lexical):
    assert _planned(lexical, "all", MODEL) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "rules"),
    [
        ("corpus.jsonl", {"fetch_corpus", "fetch_dataset", "index_lexical", "retrieve_lexical", "fuse"}),
        ("queries.jsonl", {"fetch_dataset", "retrieve_lexical", "fuse"}),
        ("qrels/test.tsv", {"fetch_dataset", "retrieve_lexical", "fuse"}),
    ],
)
def test_an_older_file_in_the_place_of_an_input_is_noticed(lexical, tmp_path, name, rules):
    path = lexical / "data-folder" / name
    with _replaced(path, _older(tmp_path / "older", path.read_bytes().replace(b"1", b"2"))):
        assert _all_but_end(_planned(lexical)) == rules
    assert _planned(lexical) == {}


def _of_another_bit(path: Path, place: Path) -> Path:
    """Write another content of the same size and time (``tar --mtime``, ``touch -r``, ``git restore-mtime``)."""
    place.write_bytes(_flipped(path.read_bytes()))
    shutil.copystat(path, place)
    return place


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "target", "rule"),
    [
        ("data-folder/corpus.jsonl", "all", "fetch_corpus"),
        ("data-folder/queries.jsonl", "all", "fetch_dataset"),
        ("data-folder/qrels/test.tsv", "all", "fetch_dataset"),
        ("model-folder/model.safetensors", MODEL, "fetch_model"),
    ],
)
def test_another_file_of_the_same_size_and_time_is_noticed(lexical, tmp_path, name, target, rule):
    path = lexical / name
    with _replaced(path, _of_another_bit(path, tmp_path / "other")):
        assert rule in _planned(lexical, target)
    assert _planned(lexical, target) == {}


@pytest.mark.slow
def test_an_older_file_of_a_model_is_noticed(lexical, tmp_path):
    weights = lexical / "model-folder/model.safetensors"
    with _replaced(weights, _older(tmp_path / "older", _flipped(weights.read_bytes()))):
        assert set(_planned(lexical, MODEL)) == {"fetch_model"}


@pytest.mark.slow
def test_a_copy_of_a_file_makes_nothing_again(lexical, tmp_path):
    """Another inode and time of change, as on another machine, do not change the content."""
    for path in (lexical / "data-folder/corpus.jsonl", lexical / "model-folder/model.safetensors"):
        with _replaced(path, path):
            assert _planned(lexical, "all", MODEL) == {}


@pytest.mark.slow
@pytest.mark.parametrize(("link", "target", "rule"), [("data", "all", "fetch_corpus"), ("model", MODEL, "fetch_model")])
def test_a_link_that_points_elsewhere_is_noticed(lexical, tmp_path, link, target, rule):
    for path in (lexical / f"other-{link}-folder").rglob("*"):
        os.utime(path, (1e9, 1e9))
    (tmp_path / "link").symlink_to(f"other-{link}-folder")
    with _replaced(lexical / link, tmp_path / "link"):
        assert rule in _planned(lexical, target)


@pytest.mark.slow
def test_what_fetch_does_not_copy_is_no_input_of_a_model(lexical):
    folder = lexical / "model-folder"
    (folder / ".git").mkdir()
    added = [folder / name for name in ("README.md", ".gitattributes", ".git/HEAD", "pytorch_model.bin")]
    for path in added:
        path.write_text("new")
    try:
        assert _planned(lexical, MODEL) == {}
    finally:
        for path in added:
            path.unlink()
        (folder / ".git").rmdir()
    assert not list((lexical / "results/models/m/checkpoint").glob("README*"))


def _without_metadata(grid: Path) -> None:
    shutil.rmtree(grid / ".snakemake")


def _set_k1(settings: dict[str, Any]) -> None:
    settings["systems"]["flat"]["k1"] = 1.2


def _set_depth(settings: dict[str, Any]) -> None:
    settings["retrieve"]["depth"] = 30


def _set_constant(settings: dict[str, Any]) -> None:
    settings["systems"]["fused"]["k"] = 10


def _set_language(settings: dict[str, Any]) -> None:
    settings["corpora"]["c"]["language"] = "de"


def _set_note(settings: dict[str, Any]) -> None:
    settings["datasets"]["c"]["domain"] = "words"


def _change(folder: Path, change: Callable[[dict[str, Any]], None]) -> None:
    settings = yaml.safe_load((folder / "grid.yaml").read_text())
    change(settings)
    (folder / "grid.yaml").write_text(yaml.safe_dump(settings))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "rules"),
    [
        (lambda settings: None, {}),
        (_set_k1, {"retrieve_lexical": 1, "evaluate": 2, "fuse": 1}),
        (_set_depth, {"retrieve_lexical": 2, "evaluate": 2, "fuse": 1}),
        (_set_constant, {"evaluate": 1, "fuse": 1}),
        (_set_language, {"index_lexical": 2, "retrieve_lexical": 2, "evaluate": 2, "fuse": 1}),
        (_set_note, {}),
    ],
)
def test_without_metadata_records_tell_what_other_settings_made(grid, change, rules):
    _without_metadata(grid)
    _change(grid, change)
    before = {path: path.stat().st_mtime_ns for path in (grid / "results").rglob("*")}
    planned = _planned(grid)
    assert {rule: jobs for rule, jobs in planned.items() if rule not in ("aggregate", "report")} == rules
    assert {path: path.stat().st_mtime_ns for path in (grid / "results").rglob("*")} == before


@pytest.mark.slow
def test_a_dry_run_says_what_an_edited_entry_replaces(grid):
    _change(grid, _set_k1)
    done = run(grid / "grid.yaml", grid, "-n")
    assert "To be made again, replacing what is there: results/runs/flat/c.json (k1 0.9 → 1.2)" in done.stdout
    assert done.stdout.count("To be made again") == 1


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "rule"),
    [
        ("corpora/c/corpus.parquet", "fetch_corpus"),
        ("datasets/c/qrels.tsv", "fetch_dataset"),
        ("indexes/bm25-flat/c/lucene/segments_1", "index_lexical"),
        ("runs/flat/c.run.gz", "retrieve_lexical"),
        ("runs/flat/c.json", "retrieve_lexical"),
        ("metrics/fused/c.json", "evaluate"),
        ("metrics/fused/c.per-query.parquet", "evaluate"),
        ("grids/grid/tables/costs.csv", "aggregate"),
    ],
)
def test_a_rerun_makes_a_cut_artifact_again(grid, path, rule):
    artifact = grid / "results" / path
    status = artifact.stat()
    artifact.write_bytes(artifact.read_bytes()[:-7])
    os.utime(artifact, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert rule in _planned(grid)


@pytest.mark.slow
def test_a_grid_recovers_from_damage_and_from_settings_that_only_records_know(grid, lexical):
    _without_metadata(grid)
    _change(grid, _set_k1)
    damaged = grid / "results/runs/multi/c.run.gz"
    damaged.write_bytes(b"")
    done = run(grid / "grid.yaml", grid)
    assert done.returncode == 0, done.stdout
    assert damaged.read_bytes() == (lexical / "results/runs/multi/c.run.gz").read_bytes()
    assert json.loads((grid / "results/runs/flat/c.json").read_text())["settings"]["k1"] == 1.2
    assert _planned(grid) == {}
