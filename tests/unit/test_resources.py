"""What jobs ask for: it grows with the work, stays within a node, and follows the shard where the stage does."""

from __future__ import annotations

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import rules

from beirgrid import config
from beirgrid.core.errors import ConfigError
from beirgrid.graph.grid import Grid
from beirgrid.graph.resources import RATES, SHARED, Needs


@pytest.fixture
def make(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that gives the needs of a grid, with some corpora's documents and settings changed."""
    monkeypatch.chdir(tmp_path)  # where nothing was calibrated or fetched
    merged: dict[str, Any] = {}
    for name in ("datasets", "systems", "config", "grids/paper"):
        merged.update(yaml.safe_load((root / "config" / f"{name}.yaml").read_text()))

    def needs(documents: dict[str, int | None] | None = None, **settings: Any) -> Needs:
        raw = copy.deepcopy(merged) | settings
        for corpus, number in (documents or {}).items():
            raw["corpora"][corpus]["documents"] = number
            if number is None:
                del raw["corpora"][corpus]["documents"]
        return Grid(config.load(raw), raw).needs

    return needs


@pytest.fixture
def registered(root: Path) -> dict[str, Any]:
    """The registry's models."""
    return yaml.safe_load((root / "config/systems.yaml").read_text())["models"]


CORPUS_JOBS = {
    "fetch_corpus": {"corpus": "scifact"},
    "index_lucene": {"fields": "flat", "expansion": "", "corpus": "scifact"},
    "encode": {"model": "tas-b", "corpus": "scifact", "shard": "0"},
    "encode_sparse": {"model": "sparta", "corpus": "scifact", "shard": "0"},
    "encode_late": {"model": "colbert", "corpus": "scifact", "shard": "0"},
    "expand": {"model": "doct5query", "corpus": "scifact", "shard": "0"},
    "index_faiss": {"model": "tas-b", "corpus": "scifact", "shard": "0"},
    "index_impact": {"model": "sparta", "corpus": "scifact", "shard": "0"},
    "index_late": {"model": "colbert", "corpus": "scifact", "shard": "0"},
    "retrieve_lucene": {"system": "bm25", "dataset": "scifact"},
    "retrieve_faiss": {"system": "tas-b", "dataset": "scifact"},
    "retrieve_impact": {"system": "sparta", "dataset": "scifact"},
    "generate": {"model": "genq@scifact"},
    "adapt": {"model": "genq@scifact"},
}


def test_every_rule_asks_for_memory_time_and_disk_by_its_own_name():
    assert len(rules()) > 20
    for name, body in rules().items():
        assert f'mem_mb=lambda w, attempt: grid.needs.mem_mb("{name}", w, attempt)' in body, name
        assert f'runtime=lambda w, attempt: grid.needs.runtime("{name}", w, attempt)' in body, name
        assert f'disk_mb=lambda w: grid.needs.disk_mb("{name}", w)' in body, name
        assert hasattr(Needs, f"_of_{name}"), name


@pytest.mark.parametrize("rule", CORPUS_JOBS)
def test_more_documents_take_longer(make, rule):
    small, large = (make({"scifact": documents}).of(rule, **CORPUS_JOBS[rule]) for documents in (5_000, 50_000))
    assert large.seconds > small.seconds
    assert large.memory >= small.memory
    assert large.kept + large.temporary >= small.kept + small.temporary


@pytest.mark.parametrize("rule", ["encode", "encode_sparse", "index_faiss", "index_impact", "index_late"])
def test_memory_follows_the_shard_and_not_the_corpus(make, rule):
    one, many = (make({"scifact": documents}).of(rule, **CORPUS_JOBS[rule]) for documents in (500_000, 5_000_000))
    assert one == many


def test_the_memory_of_a_search_follows_the_shard(make):
    for rule in ("retrieve_faiss", "retrieve_impact"):
        one, many = (make({"scifact": n}).of(rule, **CORPUS_JOBS[rule]) for n in (500_000, 10_500_000))
        assert many.memory == one.memory
        assert many.seconds > one.seconds


def test_the_last_shard_is_as_small_as_it_is(make):
    needs = make()
    shards = needs.grid.shards("msmarco")
    assert len(shards) == 18
    assert sum(needs.documents("msmarco", shard) for shard in shards) == 8_841_823
    assert needs.documents("msmarco", 17) == 341_823


def test_attempts_ask_for_more_until_the_node_ends(make):
    needs = make(nodes={"gpu": {"mem_mb": 20_000, "runtime": 100}})
    job = {**CORPUS_JOBS["encode"], "corpus": "trec-covid"}
    memory = [needs.mem_mb("encode", job, attempt) for attempt in (1, 2, 3)]
    assert memory[1] == pytest.approx(2 * memory[0], abs=100)
    assert memory[2] == 20_000
    times = [needs.runtime("encode", job, attempt) for attempt in (1, 2, 9)]
    assert times[0] < times[1] < times[2] == 100
    assert needs.mem_mb("index_lucene", CORPUS_JOBS["index_lucene"], 9) == 64_000
    assert make(nodes={"gpu": {"mem_mb": 20_000}}, device="cpu").mem_mb("encode", job, 9) == 64_000


@pytest.mark.parametrize(("gpu", "cpu"), [(80, 40), (80, 1440)])
def test_the_times_of_a_shared_job_stay_under_a_nodes_together(make, gpu, cpu):
    needs = make(nodes={"gpu": {"runtime": gpu}, "cpu": {"runtime": cpu}})
    job, cell = {"model": "tas-b", "corpus": "scifact", "shard": "0"}, {"system": "tas-b", "dataset": "scifact"}
    encoded = [needs.runtime(rule, job, 9) for rule in ("encode", "index_faiss")]
    retrieved = [needs.runtime(rule, cell, 9) for rule in ("retrieve_faiss", "evaluate")]
    assert encoded == retrieved == [gpu // 8, gpu // 8]
    assert needs.runtime("evaluate", {**cell, "system": "bm25"}, 9) == cpu // 8
    assert needs.runtime("encode", {**job, "corpus": "trec-covid"}, 9) == gpu
    assert make(small_corpus=0).runtime("encode", job, 1) > 20


def test_shared_jobs_are_those_of_the_rules():
    grouped = {rule: found[1] for rule, body in rules().items() if (found := re.search(r"group:\n +grid\.(\w+)", body))}
    assert {rule: kind for kind, found in SHARED.items() for rule in found} == grouped


def test_jobs_that_run_no_model_are_held_to_plain_nodes(make, registered):
    """Queries that are derived, negatives of BM25 alone."""
    gpl = {"recipe": "gpl", "base": "tas-b", "corpus": "scifact", "teacher": "ms-marco-minilm"}
    trained = {
        "plain": {**gpl, "derive": ["titles"], "retrievers": ["bm25"]},
        "neural": {**gpl, "generator": "doct5query", "retrievers": ["bm25", "tas-b"]},
    }
    models = {name: {"family": "dense", "similarity": "dot", "train": train} for name, train in trained.items()}
    needs = make(models=registered | models)
    for rule in ("generate", "mine"):
        assert needs.node(rule, {"model": "plain"}) == "cpu"
        assert needs.node(rule, {"model": "neural"}) == "gpu"


def test_a_rate_of_models_holds_for_the_device_that_it_was_measured_on(make, tmp_path):
    (tmp_path / "results").mkdir()
    rates = {"model_flops": 3e14, "search_flops": 7e11}
    (tmp_path / "results/calibration.json").write_text(json.dumps({"rates": rates, "device": "cuda"}))
    assert (make().rate("model_flops"), make().rate("search_flops")) == (3e14, 7e11)
    on_cpu = make(device="cpu")
    assert (on_cpu.rate("model_flops"), on_cpu.rate("search_flops")) == (RATES["model_flops"]["cpu"], 7e11)


def test_training_a_reranker_counts_all_pairs_and_holds_the_corpus(make, registered):
    def need(**changes):
        train = {"base": "minilm", "corpus": "fiqa", "derive": ["sentences"], **changes}
        return make(models=registered | {"x": {"family": "cross-encoder", "train": train}}).of("train", model="x")

    few, every = need(queries=1000), need()
    assert (every.seconds - 8) / (few.seconds - 8) == pytest.approx(57.638, rel=0.01)
    large = need(queries=1000, corpus="msmarco").memory - few.memory
    assert large > make().text_mb("msmarco") + 8_841_823 * 300 / 1e6


def test_a_larger_model_takes_longer_and_more_memory(make):
    needs = make()
    small, base, large = (
        needs.of("encode", model=model, corpus="scifact", shard="0")
        for model in ("minilm", "contriever", "qwen3-embedding")
    )
    assert small.seconds < base.seconds < large.seconds
    assert small.memory < base.memory < large.memory
    assert small.temporary == 5183 * 384 * 4 / 1e6


def test_converting_pickled_weights_takes_memory_and_disk(make, registered):
    models = {**registered, "plain": {**registered["ance"], "pickled": False}}
    needs = make(models=models)
    pickled, plain = (needs.of("fetch_model", model=name) for name in ("ance", "plain"))
    weights = registered["ance"]["size"]["parameters"] * 4
    assert pickled.memory - plain.memory >= 2 * weights
    assert pickled.kept + pickled.temporary == 2 * (plain.kept + plain.temporary) == 2 * weights
    assert pickled.download == plain.download


def test_kept_embeddings_count_as_kept(make):
    job = CORPUS_JOBS["encode"]
    dropped, kept = make().of("encode", **job), make(encode={"keep": True}).of("encode", **job)
    assert (dropped.kept, kept.temporary) == (0, 0)
    assert dropped.temporary == kept.kept > 0


def test_disk_is_what_a_job_writes(make):
    needs = make()
    vectors, postings = (500_000 * size / 1e6 for size in (384 * 4, 300 * 8))
    for rule, model, written in (("encode", "minilm", vectors), ("index_impact", "splade-pp-ed", postings)):
        asked = needs.disk_mb(rule, {"model": model, "corpus": "msmarco", "shard": "3"})
        assert 1.4 * written < asked < 1.7 * written
    assert needs.disk_mb("aggregate", {}) == 200


def test_the_forums_of_cqadupstack_are_one_download(make):
    needs = make()
    forums = [name for name in needs.config.corpora if name.startswith("cqadupstack-")]
    assert len(forums) == 12
    assert sum(needs.of("fetch_corpus", corpus=forum).download for forum in forums) == pytest.approx(5343.728)
    assert needs.of("fetch_corpus", corpus="scifact").download == pytest.approx(2.816, abs=0.001)
    assert needs.of("fetch_corpus", corpus="webis-touche2020").download == pytest.approx(227.1, abs=0.1)
    assert needs.of("fetch_corpus", corpus="bioasq").download == 0


def test_a_model_of_ones_own_is_as_large_as_its_files(make, root, tiny_models):
    raw = yaml.safe_load((root / "config/systems.yaml").read_text())["models"]
    tiny = {"family": "dense", "path": str(tiny_models["dense"]), "similarity": "cosine"}
    needs = make(models={**raw, "tiny": tiny})
    size = needs.size("tiny")
    assert size["dimensions"] == 32
    assert 0 < size["embeddings"] < size["parameters"] < 0.1
    assert needs.size("genq@scifact") == needs.size("tas-b")


def test_a_models_size_does_not_depend_on_the_type_of_its_weights(make, registered, tiny_models, tmp_path):
    from safetensors.torch import load_file, save_file

    shutil.copytree(tiny_models["dense"], tmp_path / "half")
    for weights in (tmp_path / "half").rglob("*.safetensors"):
        save_file({name: tensor.half() for name, tensor in load_file(weights).items()}, weights)
    folders = {"single": tiny_models["dense"], "half": tmp_path / "half"}
    models = {name: {"family": "dense", "path": str(path), "similarity": "dot"} for name, path in folders.items()}
    needs = make(models=registered | models)
    assert needs.size("half") == needs.size("single")
    assert 0 < needs.size("half")["embeddings"] < needs.size("half")["parameters"]


def test_a_corpus_of_unknown_size_is_guessed_until_it_is_fetched(make, root, tmp_path):
    unknown = {"demo": None}
    size = (root / "workflow/resources/demo/corpus.jsonl").stat().st_size
    assert make(unknown).documents("demo") == int(size / 900)  # 150 words of 6 bytes each
    made = tmp_path / "results/corpora/demo/corpus.json"
    made.parent.mkdir(parents=True)
    made.write_text(json.dumps({"facts": {"documents": 77}}))
    assert make(unknown).documents("demo") == 77
    assert make().documents("demo") == 336


def test_a_language_models_logits_are_in_the_memory_of_its_training_on_a_cpu(make, registered):
    grid = {"systems": ["contriever-mlm"], "datasets": ["scifact"]}

    def memory(batch, device="cpu"):
        models = registered | {"contriever-mlm": copy.deepcopy(registered["contriever-mlm"])}
        models["contriever-mlm"]["train"]["batch"] = batch
        return make(models=models, grid=grid, device=device).of("adapt", model="contriever-mlm@scifact").memory

    pieces, vocabulary = 213.63 * 1.35 + 2, 23.8e6 / 768
    assert memory(64) - memory(32) > 3 * 4 * 32 * pieces * vocabulary / 1e6
    assert memory(64, "cuda") == memory(32, "cuda")


def test_a_calibration_sets_rates_and_device(make, tmp_path):
    job = CORPUS_JOBS["encode"]
    assert make().device == "cuda"
    assert make(device="cpu").device == "cpu"
    (tmp_path / "results").mkdir()
    (tmp_path / "results/calibration.json").write_text(json.dumps({"rates": {"model_flops": 1e9}, "device": "cpu"}))
    slow = make()
    assert slow.device == "cpu"
    assert slow.of("encode", **job).seconds == pytest.approx(8 + 5183 * 2e6 * 43.0 * (213.63 * 1.35 + 2) / 1e9)


@pytest.mark.parametrize("text", ["{", "[]", '{"rates": {"flops": 1}}', '{"rates": {"model_flops": 0}}'])
def test_a_broken_calibration_is_refused(make, tmp_path, text):
    (tmp_path / "results").mkdir()
    (tmp_path / "results/calibration.json").write_text(text)
    with pytest.raises(ConfigError, match="calibrate again"):
        _ = make().device
