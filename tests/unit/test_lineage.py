"""Artifacts that do not belong together: each input of each stage, replaced by one of another corpus, model or run."""

from __future__ import annotations

import contextlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from helpers import made_once, main, run_job
from safetensors.torch import load_file, save_file
from small import collection

from beirgrid import config
from beirgrid.collections import collection as corpus_files
from beirgrid.core import lineage, paths
from beirgrid.core.errors import DataError
from beirgrid.graph import artifacts
from beirgrid.graph.dag import jobs_behind, output
from beirgrid.graph.grid import Grid
from beirgrid.graph.rules import Rules

pytestmark = pytest.mark.slow
MODELS: dict[str, dict[str, Any]] = {
    "dense": {"family": "dense", "similarity": "cosine"},
    "other": {"family": "dense", "similarity": "cosine"},
    "splade": {"family": "sparse"},
    "late-interaction": {"family": "late-interaction", "max_length": 60, "query_length": 16},
    "cross-encoder": {"family": "cross-encoder", "max_length": 64},
    "query-generator": {"family": "query-generator", "queries_per_document": 1},
}
LEARNING = {"base": "dense", "negative_depth": 4, "batch": 4, "seed": 1}
GPL = {"recipe": "gpl", "teacher": "cross-encoder", "derive": ["sentences"], "retrievers": ["bm25", "dense"]}
GPL |= {"documents": 20, "queries_per_document": 2, "steps": 4, "warmup": 0}
TRAINED = {"corpus": "one", "dataset": "one", "queries": 4, "hard_negatives": 1, "random_negatives": 1}
SYSTEMS = {
    "bm25": {"retriever": "bm25", "fields": "flat"},
    "multifield": {"retriever": "bm25", "fields": "multifield"},
    "expanded": {"retriever": "bm25", "fields": "flat", "expansion": "query-generator"},
    "dense": {"retriever": "dense"},
    "other": {"retriever": "other"},
    "int8": {"retriever": "dense", "index": {"kind": "int8"}},
    "splade": {"retriever": "splade"},
    "late": {"retriever": "late-interaction", "candidates": 4},
    "reranked": {"first_stage": "bm25", "reranker": "cross-encoder", "depth": 5},
    "fused": {"fusion": "rrf", "of": ["bm25", "dense"]},
    "weighted": {"fusion": "wsum", "of": ["bm25", "dense"], "weights": [0.1, 0.9]},
    "theirs": {"run": "data/{dataset}.run", "allow": ["missing-queries"]},
}
# Two corpora of as many documents with the same ids, searched in shards, and datasets over each.
CORPORA, SHARDS, SIZE = ("one", "two"), 3, 8
DATASETS = {"one": "one", "again": "one", "two": "two"}


def _write_sources(tiny_models: dict[str, Path]) -> None:
    """Write the collections, the runs of other software, and the checkpoints, one of them with other weights."""
    for seed, corpus in enumerate(CORPORA):
        folder = collection(Path("data", corpus), SIZE * SHARDS, seed)
        judged = (folder / "qrels/test.tsv").read_text().splitlines(keepends=True)
        (folder / "qrels/dev.tsv").write_text("".join(judged[:10]))
    for dataset in DATASETS:
        Path(f"data/{dataset}.run").write_text("q0 Q0 d1 1 1.0 theirs\n")
    for model in MODELS:
        shutil.copytree(tiny_models["dense" if model == "other" else model], Path("models", model))
    weights = Path("models/other/model.safetensors")
    save_file({name: tensor * 1.5 for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})


def _grid() -> Grid:
    models = {name: {**entry, "path": f"models/{name}"} for name, entry in MODELS.items()}
    models["gpl"] = {**MODELS["dense"], "train": {**LEARNING, **GPL}}
    models["trained"] = {**MODELS["cross-encoder"], "train": {**LEARNING, **TRAINED}}
    raw = {
        "corpora": {name: {"source": "local", "path": f"data/{name}", "documents": SIZE * SHARDS} for name in CORPORA},
        "datasets": {
            name: {"corpus": corpus, "split": "dev" if name == "again" else "test"} for name, corpus in DATASETS.items()
        },
        "models": models,
        "systems": SYSTEMS,
        "grid": {"systems": list(SYSTEMS), "datasets": list(DATASETS)},
        "encode": {"shard": SIZE, "precision": "float32"},
        "retrieve": {"depth": 20},
        "metrics": ["ndcg@10"],
        "device": "cpu",
    }
    return Grid(config.load(raw))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Path:
    """A folder in which the jobs of a grid and of training have run, in this process. Tests must not change it."""

    def make(folder: Path) -> None:
        with contextlib.chdir(folder):
            _write_sources(tiny_models)
            rules = Rules(grid := _grid(), own_python=True)
            ends = [artifacts.scores(grid, *cell) for cell in grid.runs]
            ends += [output(paths.MARGINS, model=f"gpl@{corpus}") for corpus in CORPORA]
            for job in jobs_behind(grid, *ends, artifacts.checkpoint(grid, "trained", "one")):
                rules.run(job)

    return made_once(tmp_path_factory, "lineage", make)


@pytest.fixture
def copied(site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of that folder as the working directory, which a test may change."""
    shutil.copytree(site, tmp_path / "site")
    monkeypatch.chdir(tmp_path / "site")


CHECKPOINT = "results/models/{}/checkpoint"
# Artifacts of the corpus or the dataset "one".
CORPUS, QUERIES = "results/corpora/one/corpus.parquet", "results/datasets/one/queries.parquet"
QRELS, DENSE = "results/datasets/one/qrels.tsv", "results/runs/dense/one.run.gz"
PAIRS = "results/pairs/cross-encoder/one/bm25.json"
# Their jobs, by the records.
EXPANDED, SCORED = "indexes/bm25-flat@query-generator/one/lucene", "pairs/cross-encoder/one/bm25"
MARGINS, TRAINED_MODEL = "training/gpl@one/margins", "models/trained/model"
OF_ONE = [
    *(f"runs/{system}/one" for system in ("theirs", "bm25", "dense", "splade", "late", "reranked", "fused")),
    *(EXPANDED, SCORED, "metrics/bm25/one", "training/gpl@one/negatives", MARGINS, TRAINED_MODEL),
]


def _job(record: str) -> dict[str, Any]:
    """Return the job of a record."""
    return json.loads(Path(f"results/{record}.json").read_text())["job"]


def _inputs(job: dict[str, Any]) -> list[str]:
    """Return the paths of all inputs of a job."""
    return [path for given in job["inputs"].values() for path in (given if isinstance(given, list) else [given])]


def _replaced(job: dict[str, Any], others: Mapping[str, str]) -> dict[str, Any]:
    """Return a job with other inputs in the place of some."""

    def other(given: Any) -> Any:
        return [*map(other, given)] if isinstance(given, list) else others.get(given, given)

    assert others.keys() & {*_inputs(job)}
    return {**job, "inputs": {name: other(given) for name, given in job["inputs"].items()}}


def _refused(job: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a job, which must fail and write nothing, and return its one line of message."""
    before = {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")}
    capsys.readouterr()
    assert run_job(job) == 1, job
    assert {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")} == before
    (message,) = capsys.readouterr().err.splitlines()
    return message


def _refuse(record: str, given: str, swapped: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Run a job with another input, which must fail, and name the input and one that differs."""
    job = _job(record)
    message = _refused(_replaced(job, {given: swapped}), capsys)
    assert f"{swapped} " in message
    assert "do not belong together" in message
    assert any(other in message for other in _inputs(job) if other != given), message


@pytest.mark.parametrize("record", OF_ONE)
def test_no_input_of_another_corpus_is_used(site, monkeypatch, capsys, record):
    monkeypatch.chdir(site)
    paths = [path for path in _inputs(_job(record)) if "/models/" not in path]
    assert len(paths) >= 2
    for path in paths:
        _refuse(record, path, path.replace("one", "two"), capsys)


@pytest.mark.parametrize(
    ("record", "given", "swapped"),
    [
        (SCORED, QUERIES, "results/datasets/again/queries.parquet"),
        ("runs/reranked/one", PAIRS, "results/pairs/cross-encoder/again/bm25.json"),
        ("runs/fused/one", DENSE, "results/runs/dense/again.run.gz"),
        ("metrics/bm25/again", "results/runs/bm25/again.run.gz", "results/runs/bm25/one.run.gz"),
        (TRAINED_MODEL, QRELS, "results/datasets/again/qrels.tsv"),
    ],
)
def test_no_input_of_other_queries_of_the_corpus_is_used(site, monkeypatch, capsys, record, given, swapped):
    monkeypatch.chdir(site)
    _refuse(record, given, swapped, capsys)


INDEX, TOKENS = "results/indexes/{}/one/{}.{}", "results/embeddings/late-interaction/one/{}.tokens"
LUCENE = "results/indexes/bm25-{}/one/lucene"


@pytest.mark.parametrize(
    ("record", "given", "swapped", "said"),
    [
        ("runs/dense/one", CHECKPOINT.format("dense"), CHECKPOINT.format("other"), "another checkpoint behind it"),
        ("runs/dense/one", INDEX.format("dense", 2, "faiss"), INDEX.format("other", 2, "faiss"), "another checkpoint"),
        ("runs/int8/one", CHECKPOINT.format("dense"), CHECKPOINT.format("other"), "another checkpoint behind it"),
        ("training/gpl@one/negatives", CHECKPOINT.format("dense"), CHECKPOINT.format("other"), "another checkpoint"),
        ("runs/reranked/one", "results/runs/bm25/one.run.gz", "results/runs/dense/one.run.gz", "another run behind it"),
        ("runs/bm25/one", LUCENE.format("flat"), LUCENE.format("multifield"), "fields 'multifield'"),
        ("runs/bm25/one", LUCENE.format("flat"), LUCENE.format("flat@query-generator"), "expanded True"),
        ("runs/expanded/one", LUCENE.format("flat@query-generator"), LUCENE.format("flat"), "expanded False"),
        (TRAINED_MODEL, LUCENE.format("flat"), LUCENE.format("multifield"), "fields 'multifield'"),
        (TRAINED_MODEL, LUCENE.format("flat"), LUCENE.format("flat@query-generator"), "expanded True"),
        ("training/gpl@one/negatives", LUCENE.format("flat"), LUCENE.format("flat@query-generator"), "expanded True"),
    ],
)
def test_an_input_of_another_model_or_with_other_settings_is_refused(
    site, monkeypatch, capsys, record, given, swapped, said
):
    monkeypatch.chdir(site)
    message = _refused(_replaced(_job(record), {given: swapped}), capsys)
    assert swapped in message
    assert said in message


@pytest.mark.parametrize(("setting", "value", "said"), [("fields", "multifield", "'flat'"), ("language", "de", "'en'")])
def test_an_index_of_other_settings_is_refused(site, monkeypatch, capsys, setting, value, said):
    monkeypatch.chdir(site)
    job = _job("runs/bm25/one")
    message = _refused({**job, "settings": {**job["settings"], setting: value}}, capsys)
    assert f"{LUCENE.format('flat')} was made with {setting} {said}, but the job asks for '{value}'" in message


def test_a_query_tower_is_another_model(site, monkeypatch, tmp_path):
    monkeypatch.chdir(site)
    job = _replaced(_job("runs/dense/one"), {CHECKPOINT.format("dense"): CHECKPOINT.format("other")})
    job["settings"]["two_towers"] = True
    job["inputs"]["query_tower"] = job["inputs"].pop("checkpoint")
    assert run_job(_elsewhere(job, tmp_path)) == 0


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize(
    ("source", "target", "named"),
    [
        ("indexes/bm25-flat@query-generator/one", "indexes/bm25-flat/one", "expansions/query-generator/one/0.parquet"),
        ("indexes/other/one", "indexes/dense/one", "embeddings/dense/one/0.npy"),
        ("runs/other", "runs/dense", "models/dense/checkpoint"),
    ],
)
def test_a_grid_makes_again_what_was_copied_from_elsewhere(source, target, named):
    shutil.copytree(Path("results", source), Path("results", target), dirs_exist_ok=True)
    rules = Rules(_grid(), own_python=True)
    reasons = {job.record: rules.reason_of(job) for job in rules.jobs}
    copied = {record: reason for record, reason in reasons.items() if target in record and "/two" not in record}
    assert f"made from another results/{named}" in copied.values()


@pytest.mark.usefixtures("copied")
def test_a_weighted_sum_is_made_again_when_its_runs_exchange_their_weights(monkeypatch):
    rules = Rules(grid := _grid(), own_python=True)
    run = artifacts.run(grid, "weighted", "one").job
    assert rules.reason_of(run) == ""
    monkeypatch.setitem(SYSTEMS, "weighted", {**SYSTEMS["weighted"], "of": ["dense", "bm25"]})
    assert Rules(_grid(), own_python=True).reason_of(run) == "made from another results/runs/dense/one.run.gz"


ORDERS = {
    "in another order": (lambda shards: [shards[1], shards[0], shards[2]], "begins with document 9 of the corpus"),
    "twice": (lambda shards: [shards[0], shards[1], shards[1]], "but document 17 comes next"),
    "the last one missing": (lambda shards: shards[:2], "ends with document 16, but"),
    "the first one missing": (lambda shards: shards[1:], "begins with document 9 of the corpus"),
    "one missing": (lambda shards: [shards[0], shards[2]], "but document 9 comes next"),
    "one more": (lambda shards: [*shards, shards[0]], "begins with document 1 of the corpus"),
}
# Jobs that read all shards of a corpus, and the options that name these.
LISTS = [
    ("runs/dense/one", "indexes"),
    ("runs/int8/one", "indexes"),
    ("runs/splade/one", "indexes"),
    ("runs/late/one", "indexes"),
    ("runs/late/one", "tokens"),
    (EXPANDED, "expansions"),
    ("training/gpl@one/negatives", "dense_indexes"),
]


@pytest.mark.parametrize("change", ORDERS)
@pytest.mark.parametrize(("record", "option"), LISTS)
def test_shards_that_are_not_the_corpus_in_order_are_refused(site, monkeypatch, capsys, record, option, change):
    monkeypatch.chdir(site)
    job, (reordered, said) = _job(record), ORDERS[change]
    assert said in _refused({**job, "inputs": {**job["inputs"], option: reordered(job["inputs"][option])}}, capsys)


def _fetch_other_model(name: str, other: str) -> None:
    job = _job(f"models/{name}/model")
    job["settings"]["entry"]["path"] = f"models/{other}"
    shutil.rmtree(job["outputs"]["output"])
    assert run_job(job) == 0


def _fetch_again(kind: str, file: str) -> None:
    """Fetch a corpus or a dataset whose lines stand in another order, or whose grades are others."""
    lines = Path("data/one", file).read_text().splitlines()
    first, *others = lines if kind == "dataset" else ["", *lines]
    others = [line.replace("\t1", "\t2") for line in others] if kind == "dataset" else others[::-1]
    Path("data/one", file).write_text("\n".join([*filter(None, [first]), *others, ""]))
    assert run_job(_job("datasets/one/dataset" if kind == "dataset" else "corpora/one/corpus")) == 0


# What a run that stopped early made again, the record that is older, and what the message names.
MADE_AGAIN = [
    (lambda: _fetch_other_model("dense", "other"), "runs/dense/one.json", CHECKPOINT.format("dense")),
    (lambda: _fetch_other_model("dense", "other"), "indexes/dense/one/1.json", CHECKPOINT.format("dense")),
    (lambda: _fetch_other_model("cross-encoder", "dense"), f"{SCORED}.json", CHECKPOINT.format("cross-encoder")),
    (lambda: _fetch_again("corpus", "corpus.jsonl"), "runs/bm25/one.json", CORPUS),
    (lambda: _fetch_again("corpus", "corpus.jsonl"), "runs/late/one.json", CORPUS),
    (lambda: _fetch_again("dataset", "qrels/test.tsv"), "metrics/bm25/one.json", QRELS),
]


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize(("change", "record", "named"), MADE_AGAIN)
def test_what_was_made_of_something_that_was_made_again_since_is_refused(change, record, named):
    for path in Path("results").rglob("*.json"):
        lineage.check({"record": path})
    change()
    with pytest.raises(DataError, match=f"{named} is another one than results/.* was made from"):
        lineage.check({"record": Path("results", record)})


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("deleted", ["no file", "vectors", "vectors and their records"])
def test_an_index_is_compared_with_vectors_that_were_made_again_and_deleted(capsys, deleted):
    """A model was trained again, and a run stopped after its vectors: they may be gone, the index is older."""
    _fetch_other_model("dense", "other")
    for number in range(SHARDS):
        assert run_job(_job(f"embeddings/dense/one/{number}")) == 0
    for path in Path("results/embeddings/dense/one").iterdir():
        if deleted != "no file" and (path.suffix == ".npy" or "records" in deleted):
            path.unlink()
    message = _refused(_job("runs/dense/one"), capsys)
    assert ("is another one than" if "records" not in deleted else "another checkpoint behind it") in message
    rules = Rules(grid := _grid(), own_python=True)
    index = artifacts.indexes(grid, "dense", "one")[0].job
    made_again = CHECKPOINT.format("dense") if "records" in deleted else "results/embeddings/dense/one/0.npy"
    assert rules.reason_of(index) == f"made from another {made_again}"


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("exchanged", ["indexes/dense/one/{}.faiss", "indexes/dense/one/{}.json"])
def test_a_record_of_another_artifact_is_named(capsys, exchanged):
    first, second = (Path("results", exchanged.format(number)) for number in (0, 1))
    first.rename("kept")
    second.rename(first)
    Path("kept").rename(second)
    others = [Path(str(path).replace(".faiss", ".json")) for path in (first, second)]
    if others != [first, second]:
        others[0].rename("kept")
        others[1].rename(others[0])
        Path("kept").rename(others[1])
    message = _refused(_job("runs/dense/one"), capsys)
    assert (
        "results/indexes/dense/one/0.json is the record of 1.faiss, not of results/indexes/dense/one/0.faiss" in message
    )


@pytest.mark.usefixtures("copied")
@pytest.mark.parametrize("system", ["dense", "bm25", "fused", "reranked", "late", "int8"])
def test_a_system_is_not_searched_after_its_corpus_was_made_again(capsys, system):
    """The search would return other documents than the index contains."""
    words = ["search", system, "one", "amber cedar", "--device", "cpu"]
    assert main(words) == 0
    _fetch_again("corpus", "corpus.jsonl")
    capsys.readouterr()
    assert main(words) == 1
    assert f"{CORPUS} is another one than results/" in capsys.readouterr().err


def _own(job: dict[str, Any], folder: Path) -> dict[str, str]:
    """Return copies of the files among the inputs of a job, without records, by the path of each.

    A manifest of pair scores is a record, which names other files.
    """
    files = [path for path in _inputs(job) if Path(path).is_file() and path != PAIRS]
    copies = {path: str(folder / path.replace("/", "-")) for path in files}
    for path, copy in copies.items():
        shutil.copy(path, copy)
    return copies


def _elsewhere(job: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Return a job with its outputs in another folder."""
    moved = {name: str(folder / path) for name, path in job["outputs"].items()}
    options = job["options"] | ({"pairs": str(folder / "pairs")} if "pairs" in job["options"] else {})
    return {**job, "outputs": moved, "options": options}


OF_FILES = ["runs/dense/one", SCORED, "runs/reranked/one", "runs/fused/one", "metrics/bm25/one", MARGINS]


@pytest.mark.parametrize("record", OF_FILES)
def test_artifacts_of_ones_own_need_no_record(site, monkeypatch, tmp_path, record):
    """Runs of other software, qrels of one's own, and copies of artifacts without their records."""
    monkeypatch.chdir(site)
    job = _job(record)
    assert run_job(_elsewhere(_replaced(job, _own(job, tmp_path)), tmp_path)) == 0


def _last_two(path: str) -> None:
    table = pq.read_table(path)
    pq.write_table(table.slice(len(table) - 2), path)


@pytest.mark.parametrize(
    ("record", "cut", "said"),
    [
        ("runs/dense/one", CORPUS, "has 2 documents, but the search found document"),
        (SCORED, CORPUS, "has no document 'd"),
        (SCORED, QUERIES, "has no query 'q0'"),
        (MARGINS, CORPUS, "has no document 'd"),
        (TRAINED_MODEL, QUERIES, "has no query 'q0'"),
    ],
)
def test_without_records_the_message_names_what_an_input_lacks(site, monkeypatch, capsys, tmp_path, record, cut, said):
    monkeypatch.chdir(site)
    job = _job(record)
    own = _own(job, tmp_path)
    _last_two(own[cut])
    assert run_job(_elsewhere(_replaced(job, own), tmp_path)) == 1
    assert said in capsys.readouterr().err


def test_a_bit_of_a_corpus_is_seen_without_its_record(site, tmp_path):
    """Each page has a checksum, which is compared when it is read."""
    content = bytearray((site / CORPUS).read_bytes())
    content[pq.read_metadata(site / CORPUS).row_group(0).column(2).dictionary_page_offset + 40] ^= 1
    (tmp_path / "c.parquet").write_bytes(content)
    with pytest.raises(DataError, match=r"c\.parquet is damaged \(.*CRC checksum"):
        list(corpus_files.read_documents(tmp_path / "c.parquet"))


def test_a_copy_of_a_corpus_is_the_corpus(site, monkeypatch, tmp_path):
    """Whether artifacts belong together follows from content, not from names."""
    monkeypatch.chdir(site)
    shutil.copy(CORPUS, tmp_path / "c.parquet")
    job = _replaced(_job("runs/dense/one"), {CORPUS: str(tmp_path / "c.parquet")})
    assert run_job(_elsewhere(job, tmp_path)) == 0


@pytest.mark.usefixtures("copied")
def test_records_that_name_no_inputs_refuse_nothing():
    for path in Path("results").rglob("*.json"):
        record = json.loads(path.read_text())
        if "stage" in record:
            path.write_text(json.dumps({key: value for key, value in record.items() if key != "inputs"}))
    for record in ("runs/dense/one", "runs/bm25/one", "runs/fused/one", "metrics/bm25/one", EXPANDED):
        assert run_job(_job(record)) == 0
