"""Resources of jobs grow with the work, stay within a node, and follow the shard where the stage does."""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
from pathlib import Path
from typing import Any

import pytest
from helpers import rules, tracked_configuration
from jobs import CORPUS_JOBS, JOBS, PROGRAM, PUBLISHED, REWRITTEN, SLICES
from snakemake.iocontainers import Wildcards

from beirgrid import config
from beirgrid.graph.dag import Job, stages
from beirgrid.graph.grid import Grid
from beirgrid.graph.resources import RATES, Need, Resources

# Rules whose jobs run a model for a short time, of small corpora.
SHORT = ("encode_", "retrieve_", "feedback")
MODEL_RULES = {rule for rule, stage in stages().items() if stage.runs_models}


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Return a function that builds the needs of a grid, with changed documents of corpora and settings."""
    monkeypatch.chdir(tmp_path)  # where nothing was fetched
    merged = tracked_configuration("grids/paper")
    merged["systems"] |= {"published": PUBLISHED, "program": PROGRAM, "rewritten": REWRITTEN}
    merged["datasets"]["scifact"]["slices"] = SLICES

    def needs(documents: dict[str, int | None] | None = None, **settings: Any) -> Resources:
        raw = copy.deepcopy(merged) | settings
        for corpus, number in (documents or {}).items():
            raw["corpora"][corpus]["documents"] = number
            if number is None:
                del raw["corpora"][corpus]["documents"]
        return Resources(Grid(config.load(raw)))

    return needs


@pytest.fixture
def registered() -> dict[str, Any]:
    """The registry's models."""
    return tracked_configuration()["models"]


@pytest.fixture(scope="module")
def tracked() -> Resources:
    """The needs of the tracked configuration, which Snakemake's rules are made from here."""
    return Resources(Grid(config.load(tracked_configuration())))


def need_of(needs: Resources, rule: str, **wildcards: str) -> Need:
    """Return the need of a job, by default of the usual one of its rule."""
    return needs.need(Job.of(rule, wildcards or CORPUS_JOBS[rule]))


def test_every_rule_asks_for_memory_time_and_disk_by_its_own_name(tracked):
    for rule, job in JOBS.items():
        # No system of that grid reranks, has a published expansion or rewritten queries, or is a program.
        if rule in ("score", "fetch_expansion", "rewrite", "index_program", "retrieve_program"):
            continue
        asked = rules()[rule].expand_resources(Wildcards(fromdict=job), [], 2)
        assert asked.mem_mb == tracked.mem_mb(Job.of(rule, job), 2), rule
        assert asked.runtime == tracked.runtime(Job.of(rule, job), 2), rule
        assert asked.disk_mb == tracked.disk_mb(Job.of(rule, job)), rule


NODES = {
    "cpu": {"mem_mb": 32_000, "runtime": 600, "partition": "short"},
    "gpu": {"mem_mb": 90_000, "runtime": 900, "partition": "accelerated", "gpu_model": "h200"},
}


@pytest.mark.parametrize("device", ["auto", "cuda", "cpu"])
def test_partitions_and_the_type_of_gpu_come_from_the_configuration(make, device):
    """Jobs that run models ask for the nodes with GPUs, all others for the nodes without."""
    needs = make(nodes=NODES, device=device)
    on_gpu = {"slurm_partition": "accelerated", "gpu": 1, "gpu_model": "h200"}
    for rule, job in JOBS.items():
        directives = needs.directives(stages()[rule])
        asked = {name: directives[name] for name in on_gpu if name in directives}
        asked |= {name: value(Wildcards(fromdict=job)) for name, value in asked.items() if callable(value)}
        runs_model = rule in MODEL_RULES and device != "cpu"
        expected = on_gpu if runs_model else {"slurm_partition": "short"}
        assert {name: value for name, value in asked.items() if value} == expected, rule
    assert not {"slurm_partition", "gpu_model"} & set(make(nodes={}).directives(stages()["encode_dense"]))


def test_more_documents_take_longer(make):
    grids = [make({"scifact": documents}) for documents in (5_000, 50_000)]
    for rule in CORPUS_JOBS:
        small, large = (need_of(needs, rule) for needs in grids)
        assert large.seconds > small.seconds, rule
        assert large.memory >= small.memory, rule
        assert large.kept + large.temporary >= small.kept + small.temporary, rule


def test_memory_follows_the_shard_and_not_the_corpus(make):
    one, many = (make({"scifact": documents}) for documents in (500_000, 10_500_000))
    for rule in ("encode_dense", "encode_sparse", "index_dense", "index_sparse", "index_late_interaction"):
        assert need_of(one, rule) == need_of(many, rule), rule
    for rule in ("retrieve_dense", "retrieve_sparse"):
        assert need_of(one, rule).memory == need_of(many, rule).memory, rule
        assert need_of(one, rule).seconds < need_of(many, rule).seconds, rule


def test_the_last_shard_is_as_small_as_it_is(make):
    needs = make()
    shards = needs.grid.shards("msmarco")
    assert len(shards) == 18
    assert sum(needs.sizes.documents("msmarco", shard) for shard in shards) == 8_841_823
    assert needs.sizes.documents("msmarco", 17) == 341_823


def test_attempts_ask_for_more_until_the_node_ends(make):
    needs = make(nodes={"gpu": {"mem_mb": 20_000, "runtime": 100}})
    job = {**CORPUS_JOBS["encode_dense"], "corpus": "trec-covid"}
    memory = [needs.mem_mb(Job.of("encode_dense", job), attempt) for attempt in (1, 2, 3)]
    assert memory[1] == pytest.approx(2 * memory[0], abs=100)
    assert memory[2] == 20_000
    times = [needs.runtime(Job.of("encode_dense", job), attempt) for attempt in (1, 2, 9)]
    assert times[0] < times[1] < times[2] == 100
    assert needs.mem_mb(Job.of("index_lexical", CORPUS_JOBS["index_lexical"]), 9) == 64_000
    assert make(nodes={"gpu": {"mem_mb": 20_000}}, device="cpu").mem_mb(Job.of("encode_dense", job), 9) == 64_000


@pytest.mark.parametrize(("gpu", "cpu"), [(80, 40), (80, 1440)])
def test_the_times_of_a_shared_job_stay_under_a_nodes_together(make, gpu, cpu):
    needs = make(nodes={"gpu": {"runtime": gpu}, "cpu": {"runtime": cpu}})
    job, cell = {"model": "tas-b", "corpus": "scifact", "shard": "0"}, {"system": "tas-b", "dataset": "scifact"}
    assert [needs.runtime(Job.of(rule, job), 99) for rule in ("encode_dense", "index_dense")] == [gpu, cpu]  # alone
    assert [needs.runtime(Job.of(rule, cell), 99) for rule in ("retrieve_dense", "evaluate")] == [gpu, cpu // 8]
    assert needs.runtime(Job.of("evaluate", {**cell, "system": "bm25"}), 9) == cpu // 8
    assert make(small_corpus=0, nodes={"cpu": {"runtime": cpu}}).runtime(Job.of("evaluate", cell), 99) == cpu
    on_cpu = make(device="cpu", nodes={"gpu": {"runtime": gpu}, "cpu": {"runtime": cpu}})
    encoded = [on_cpu.runtime(Job.of(rule, job), 9) for rule in ("encode_dense", "index_dense")]
    retrieved = [on_cpu.runtime(Job.of(rule, cell), 9) for rule in ("retrieve_dense", "evaluate")]
    assert encoded == retrieved == [cpu // 8, cpu // 8]
    assert on_cpu.runtime(Job.of("encode_dense", {**job, "corpus": "trec-covid"}), 9) == cpu
    assert make(small_corpus=0).runtime(Job.of("encode_dense", job), 1) > 20


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_shared_jobs_are_those_of_the_rules(make, tracked, device):
    """A rule without the directive has no group, and one with it has the group that Resources names."""
    nodes = make(device=device)
    for rule, job in JOBS.items():
        if (function := rules()[rule]._group) is None:
            assert nodes.group(Job.of(rule, job)) is None, rule
        else:
            assert function(Wildcards(fromdict=job)) == tracked.group(Job.of(rule, job)), rule
    grouped = {rule for rule, job in JOBS.items() if nodes.group(Job.of(rule, job))}
    alone = set() if device == "cpu" else {rule for rule in JOBS if rule.startswith(("encode_", "index_"))}
    alone |= MODEL_RULES - {name for name in JOBS if name.startswith(SHORT) and device == "cpu"}
    assert grouped.isdisjoint(alone)
    assert {"retrieve_lexical", "evaluate", "rerank", "fuse"} <= grouped


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
        assert [needs.kind(Job.of(rule, {"model": name})) for name in trained] == ["cpu", "gpu"], rule


def test_training_a_reranker_counts_all_pairs_and_holds_the_corpus(make, registered):
    def need(**changes):
        train = {"base": "minilm", "corpus": "fiqa", "derive": ["sentences"], **changes}
        models = registered | {"x": {"family": "cross-encoder", "train": train}}
        return need_of(make(models=models), "train", model="x")

    few, every = need(queries=1000), need()
    assert (every.seconds - 8) / (few.seconds - 8) == pytest.approx(57.638, rel=0.01)
    large = need(queries=1000, corpus="msmarco").memory - few.memory
    assert large > make().sizes.text_mb("msmarco") + 8_841_823 * 300 / 1e6


def test_a_larger_model_takes_longer_and_more_memory(make):
    needs = make()
    small, base, large = (
        need_of(needs, "encode_dense", model=model, corpus="scifact", shard="0")
        for model in ("minilm", "contriever", "qwen3-embedding")
    )
    assert small.seconds < base.seconds < large.seconds
    assert small.memory < base.memory < large.memory
    assert small.temporary == 5183 * 384 * 4 / 1e6


def test_converting_pickled_weights_takes_memory_and_disk(make, registered):
    models = {**registered, "plain": {**registered["ance"], "pickled": False}}
    needs = make(models=models)
    pickled, plain = (need_of(needs, "fetch_model", model=name) for name in ("ance", "plain"))
    weights = registered["ance"]["size"]["parameters"] * 4
    assert pickled.memory - plain.memory >= 2 * weights
    assert pickled.kept + pickled.temporary == 2 * (plain.kept + plain.temporary) == 2 * weights
    assert pickled.download == plain.download


def test_kept_embeddings_count_as_kept(make):
    dropped, kept = (need_of(make(encode={"keep": keep}), "encode_dense") for keep in (False, True))
    assert (dropped.kept, kept.temporary) == (0, 0)
    assert dropped.temporary == kept.kept > 0


def test_disk_is_what_a_job_writes(make):
    needs = make()
    vectors, postings = (500_000 * size / 1e6 for size in (384 * 4, 300 * 8))
    for rule, model, written in (("encode_dense", "minilm", vectors), ("index_sparse", "splade-pp-ed", postings)):
        asked = needs.disk_mb(Job.of(rule, {"model": model, "corpus": "msmarco", "shard": "3"}))
        assert 1.4 * written < asked < 1.7 * written
    assert needs.disk_mb(Job.of("aggregate", {})) == 200


def test_the_forums_of_cqadupstack_are_one_download(make):
    needs = make()
    forums = [name for name in needs.config.corpora if name.startswith("cqadupstack-")]
    assert len(forums) == 12
    corpora = ("scifact", "webis-touche2020", "bioasq", *forums)
    small, large, licensed, *shares = (need_of(needs, "fetch_corpus", corpus=corpus).download for corpus in corpora)
    assert sum(shares) == pytest.approx(5343.728)
    assert small == pytest.approx(2.816, abs=0.001)
    assert large == pytest.approx(227.1, abs=0.1)
    assert licensed == 0


def test_a_model_of_ones_own_is_as_large_as_its_files(make, registered, tiny_models):
    tiny = {"family": "dense", "path": str(tiny_models["dense"]), "similarity": "cosine"}
    sizes = make(models={**registered, "tiny": tiny}).sizes
    assert 0 < sizes.model("tiny")["parameters"] < 0.1
    assert sizes.model("genq@scifact") == sizes.model("tas-b")


def test_a_corpus_of_unknown_size_is_guessed(make):
    assert 336 / 3 < make({"demo": None}).sizes.documents("demo") < 336 * 3
    assert make().sizes.documents("demo") == 336


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_a_local_collection_is_as_large_as_its_file(make, tmp_path, ending):
    raw = tracked_configuration()
    words = random.Random(0).choices([f"{number:x}" * 3 for number in range(4096)], k=160_000)
    lines = [json.dumps({"_id": f"d{n}", "text": " ".join(words[n * 80 : n * 80 + 80])}) + "\n" for n in range(2000)]
    text = "".join(lines).encode()
    (tmp_path / f"corpus.jsonl{ending}").write_bytes(gzip.compress(text) if ending else text)
    corpora = raw["corpora"] | {"own": {"source": "local", "path": str(tmp_path)}}
    sizes = make(corpora=corpora, datasets=raw["datasets"] | {"own": {"corpus": "own"}}).sizes
    assert sizes.text_mb("own") == pytest.approx(len(text) / 1e6, rel=0.5 if ending else 0.001)
    assert (sizes.queries("own"), sizes.query_words["own"]) == (1000, 12)


def test_the_work_of_encoding_is_that_of_all_layers_and_of_attention(make):
    needs, pieces = make(device="cpu"), 213.63 * 1.35 + 2
    assert (make().device, needs.device) == ("cuda", "cpu")
    flops = 5183 * 2e6 * 43.0 * pieces * (1 + pieces / (6 * 768))
    seconds = need_of(needs, "encode_dense").seconds
    assert seconds == pytest.approx(8 + flops / RATES["model_flops"]["cpu"])


def test_models_on_a_cpu_are_faster_with_more_cores(make):
    grid = make(device="cpu").grid
    few, many = (Resources(grid, cores=cores).rates for cores in (2, 8))
    assert many["model_flops"] == 4 * few["model_flops"]


def test_a_constraint_matches_exactly_its_names(tracked):
    names = {"bm25", "a.b", "bm25+ce@20", "x@c", "gpl@a", "gpl@b", "genq@a", "genq@b"}
    near = {"a-b", *(f"{name}@a" for name in names), "x", "x@a", "gpl@c", "gpl", ""}
    constraint = re.compile(f"(?P<model>{tracked.grid.one_of(names)})/0")
    assert {name for name in names | near if constraint.fullmatch(f"{name}/0")} == names
    assert not re.fullmatch(tracked.grid.one_of([]), "")


ENDPOINT = {"model": "m", "url": "https://example.org/v1", "batch": 10, "concurrency": 4}


def test_served_models_take_the_time_of_their_requests(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def served(family: str) -> Resources:
        raw = tracked_configuration()
        batched = family != "listwise-reranker"  # it gets a window in each request
        endpoint = {key: value for key, value in ENDPOINT.items() if batched or key != "batch"}
        entry = {"family": family, "endpoint": endpoint, "size": {"parameters": 100_000.0}}
        raw["models"]["served"] = entry | ({"similarity": "dot"} if family == "dense" else {})
        reranked = {"first_stage": "bm25", "reranker": "served", "depth": 100}
        raw["systems"]["served"] = {"retriever": "served"} if family == "dense" else reranked
        raw["grid"] |= {"systems": ["served"], "datasets": ["scifact"]}
        return Resources(Grid(config.load(raw | {"device": "cuda"})))

    encoding = {"model": "served", "corpus": "scifact", "shard": "0"}
    dense = served("dense")
    plain = need_of(dense, "encode_dense", **encoding)
    assert plain.seconds == pytest.approx(5183 / 10 / 4, rel=0.05)
    assert plain.memory < 1000  # whatever the size of the model
    asked = dense.directives(stages()["encode_dense"])["gpu"]
    assert [asked(Wildcards(fromdict=encoding | {"model": model})) for model in ("served", "minilm")] == [0, 1]
    assert need_of(dense, "fetch_model", model="served").download == 0

    scoring = {"reranker": "served", "dataset": "scifact", "first": "bm25"}
    pairs = need_of(served("cross-encoder"), "score", **scoring)
    assert pairs.seconds == pytest.approx(300 * 100 / 10 / 4, rel=0.1)
    # Windows of 20 documents, every 10: an answer of 5 s for each 10 documents.
    listwise = need_of(served("listwise-reranker"), "score", **scoring)
    assert listwise.seconds == pytest.approx(300 * 100 / 10 * 5 / 4, rel=0.1)
