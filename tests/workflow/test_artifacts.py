"""Damaged artifacts, replaced inputs, and folders without Snakemake's metadata."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml
from helpers import run_job
from small import collection, finish, job_counts, run


def _flipped(content: bytes) -> bytes:
    """Return the content with changed bits in its middle, and the same size."""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "cut": lambda content: content[: len(content) // 2],
    "cut_by_one": lambda content: content[:-1],
    "flipped": _flipped,
}

# Records of jobs, under results/.
CORPUS = "corpora/small/corpus.json"
DATASET = "datasets/small/dataset.json"
LUCENE = "indexes/bm25-flat/small/lucene.json"
ENCODED = "embeddings/tiny-dense/small/0.json"
TOKENS = "indexes/tiny-colbert/small/1.json"
BM25, DENSE, SPARSE, LATE, RERANKED, FUSED = (
    f"runs/{system}/small.json" for system in ("bm25-flat", "tiny", "sparse", "tiny-late", "bm25+ce", "fused")
)
PAIRS = "pairs/tiny-ce/small/bm25-flat.json"
TRAINED = "models/tiny-trained/model.json"
SCORES = "metrics/tiny/small.json"
TABLES, REPORT = "grids/grid/tables/tables.json", "grids/grid/report/report.json"
# What is damaged, and the records of the jobs that read it.
READ = {
    "corpora/small/corpus.parquet": [DATASET, LUCENE, ENCODED, DENSE, PAIRS, TRAINED],
    "datasets/small/queries.parquet": [BM25, DENSE, SPARSE, LATE, PAIRS],
    "datasets/small/qrels.tsv": [SCORES],
    "models/tiny-dense/checkpoint/model.safetensors": [ENCODED, DENSE, TRAINED],
    "models/tiny-dense/checkpoint/config.json": [ENCODED],
    "models/tiny-ce/checkpoint/model.safetensors": [PAIRS],
    "embeddings/tiny-colbert/small/1.tokens/vectors.npy": [TOKENS, LATE],
    "embeddings/tiny-colbert/small/1.tokens/offsets.npy": [TOKENS, LATE],
    "indexes/tiny-colbert/small/2.faiss": [LATE],
    "indexes/tiny-dense/small/1.faiss": [DENSE],
    "indexes/tiny-splade/small/1.impact/impacts.npy": [SPARSE],
    "indexes/tiny-splade/small/1.impact/starts.npy": [SPARSE],
    "indexes/tiny-splade/small/1.impact/shape.npy": [SPARSE],
    "indexes/bm25-flat/small/lucene/segments_1": [BM25, TRAINED],
    "runs/bm25-flat/small.run.gz": [PAIRS, RERANKED, FUSED, "metrics/bm25-flat/small.json"],
    "metrics/tiny/small.per-query.parquet": [TABLES],
    "grids/grid/tables/scores.csv": [REPORT],
    "grids/grid/tables/verdicts.csv": [REPORT],
    "grids/grid/tables/costs.csv": [REPORT],
}
CASES = [(path, reader) for path, readers in READ.items() for reader in readers]
# Records, of which nothing else has bytes or hash.
READ_RECORDS = [(SCORES, TABLES), (DENSE, TABLES), (DATASET, TABLES), (CORPUS, TABLES), (PAIRS, RERANKED)]


@pytest.fixture(scope="module")
def copied(finished: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a finished grid, whose files tests damage and restore."""
    return shutil.copytree(finished, tmp_path_factory.mktemp("copied") / "grid")


@pytest.fixture
def refused(copied, monkeypatch, capsys):
    """Return a function that changes a file, reruns a job that reads it, and returns the job's one line of message."""
    monkeypatch.chdir(copied)

    def call(path: str, reader: str, change: Callable[[Path, bytes], object]) -> str:
        file, made = Path("results", path), Path("results", reader)
        job, content = json.loads(made.read_text())["job"], file.read_bytes()
        try:
            change(file, content)
            before = {each: each.stat().st_mtime_ns for each in made.parent.rglob("*")}
            capsys.readouterr()
            assert run_job(job) == 1
            assert {each: each.stat().st_mtime_ns for each in made.parent.rglob("*")} == before
        finally:
            file.write_bytes(content)
        (message,) = re.findall(r"^beirgrid stage \w+: error: .*\n(?!.)", capsys.readouterr().err, re.MULTILINE)
        return message

    return call


@pytest.mark.parametrize(("path", "reader"), CASES)
@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_artifact_is_named_and_not_used(refused, path, reader, damage):
    message = refused(path, reader, lambda file, content: file.write_bytes(DAMAGES[damage](content)))
    assert f"results/{path} is damaged" in message
    assert "delete it and run the grid again" in message


@pytest.mark.parametrize("content", [b"", b'{"stage": "encode", "set', b"[]", b'{"stage": "fetch"}', b"\xff\xfe"])
@pytest.mark.parametrize(("path", "reader"), READ_RECORDS)
def test_a_damaged_record_is_named(refused, path, reader, content):
    assert f"results/{path}" in refused(path, reader, lambda file, _: file.write_bytes(content))


@pytest.mark.parametrize(
    ("path", "reader"),
    [
        ("indexes/tiny-splade/small/1.impact/impacts.npy", SPARSE),
        ("embeddings/tiny-colbert/small/1.tokens/offsets.npy", LATE),
        ("models/tiny-dense/checkpoint/tokenizer.json", DENSE),
        ("runs/tiny/small.run.gz", SCORES),
    ],
)
def test_a_missing_part_is_named(refused, path, reader):
    assert f"results/{path} is missing" in refused(path, reader, lambda file, _: file.unlink())


def test_aggregate_refuses_a_record_of_other_settings(refused):
    def change(record: Path, content: bytes) -> None:
        record.write_text(json.dumps(json.loads(content) | {"settings_key": "0" * 16}))

    assert f"results/{DENSE} was made with other settings than the grid has now" in refused(DENSE, TABLES, change)


MODEL = "results/models/m/model.json"
# What a change of queries or qrels makes again.
SEARCHED = {"fetch_dataset", "retrieve_lexical", "fuse"}


@pytest.fixture(scope="module")
def lexical(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Path:
    """A finished grid of BM25 and a fusion, and a fetched model; data and model are links to folders beside them."""
    folder = tmp_path_factory.mktemp("lexical")
    for name in ("model", "other-model"):
        shutil.copytree(tiny_models["dense"], folder / f"{name}-folder")
    (folder / "other-model-folder/config.json").write_text((folder / "model-folder/config.json").read_text() + "\n")
    (folder / "model").symlink_to("model-folder")
    for seed, name in ((1, "data-folder"), (3, "other-data-folder")):
        collection(folder / name, documents=12, seed=seed)
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
    finish(folder / "grid.yaml", folder, "all", MODEL)
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


@contextlib.contextmanager
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


@pytest.mark.slow
def test_nothing_is_made_again_of_what_is_unchanged(lexical):
    assert _planned(lexical, "all", MODEL) == {}


def _older(path: Path, place: Path) -> Path:
    """Write another content of the same size with an older time."""
    place.write_bytes(_flipped(path.read_bytes()))
    os.utime(place, (1e9, 1e9))
    return place


def _of_another_bit(path: Path, place: Path) -> Path:
    """Write another content of the same size and time (``tar --mtime``, ``touch -r``, ``git restore-mtime``)."""
    place.write_bytes(_flipped(path.read_bytes()))
    shutil.copystat(path, place)
    return place


@pytest.mark.slow
@pytest.mark.parametrize("other", [_older, _of_another_bit])
@pytest.mark.parametrize(
    ("name", "target", "rules"),
    [
        ("data-folder/corpus.jsonl", "all", {"fetch_corpus", "index_lexical", *SEARCHED}),
        ("data-folder/queries.jsonl", "all", SEARCHED),
        ("data-folder/qrels/test.tsv", "all", SEARCHED),
        ("model-folder/model.safetensors", MODEL, {"fetch_model"}),
    ],
)
def test_another_file_in_the_place_of_an_input_is_noticed(lexical, tmp_path, name, target, rules, other):
    path = lexical / name
    with _replaced(path, other(path, tmp_path / "other")):
        assert _all_but_end(_planned(lexical, target)) == rules
    assert _planned(lexical, target) == {}


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


def _change(folder: Path, *keys: str, value: object) -> None:
    """Set the value under nested keys of the grid's configfile."""
    settings = yaml.safe_load((folder / "grid.yaml").read_text())
    *outer, last = keys
    functools.reduce(dict.__getitem__, outer, settings)[last] = value
    (folder / "grid.yaml").write_text(yaml.safe_dump(settings))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("keys", "value", "rules"),
    [
        (["metrics"], ["ndcg@10"], {}),  # as it was
        (["systems", "flat", "k1"], 1.2, {"retrieve_lexical": 1, "evaluate": 2, "fuse": 1}),
        (["retrieve", "depth"], 30, {"retrieve_lexical": 2, "evaluate": 2, "fuse": 1}),
        (["systems", "fused", "k"], 10, {"evaluate": 1, "fuse": 1}),
        (["corpora", "c", "language"], "de", {"index_lexical": 2, "retrieve_lexical": 2, "evaluate": 2, "fuse": 1}),
        (["datasets", "c", "domain"], "words", {}),
    ],
)
def test_without_metadata_records_tell_what_other_settings_made(grid, keys, value, rules):
    shutil.rmtree(grid / ".snakemake")
    _change(grid, *keys, value=value)
    before = {path: path.stat().st_mtime_ns for path in (grid / "results").rglob("*")}
    planned = _planned(grid)
    assert {rule: jobs for rule, jobs in planned.items() if rule not in ("aggregate", "report")} == rules
    assert {path: path.stat().st_mtime_ns for path in (grid / "results").rglob("*")} == before


@pytest.mark.slow
def test_a_dry_run_says_what_an_edited_entry_replaces(grid):
    _change(grid, "systems", "flat", "k1", value=1.2)
    said = finish(grid / "grid.yaml", grid, "-n")
    assert "To be made again, replacing what is there: results/runs/flat/c.json (k1 0.9 → 1.2)" in said
    assert said.count("To be made again") == 1


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
    shutil.rmtree(grid / ".snakemake")
    _change(grid, "systems", "flat", "k1", value=1.2)
    damaged = grid / "results/runs/multi/c.run.gz"
    damaged.write_bytes(b"")
    finish(grid / "grid.yaml", grid)
    assert damaged.read_bytes() == (lexical / "results/runs/multi/c.run.gz").read_bytes()
    assert json.loads((grid / "results/runs/flat/c.json").read_text())["job"]["settings"]["k1"] == 1.2
    assert _planned(grid) == {}
