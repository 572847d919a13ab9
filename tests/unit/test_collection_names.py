"""Collections that a configuration names without an entry: tasks and benchmarks of mteb."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import datasets
import numpy as np
import pandas as pd
import pytest
import yaml
from helpers import COMMANDS, ROOT, fetch_corpus, fetch_dataset, hub, tracked_configuration
from model_hub import serve
from pydantic import TypeAdapter
from stage_words import stage_job

from beirgrid import config
from beirgrid.collections import collection
from beirgrid.collections.sources import open_source
from beirgrid.config import lock, mteb_collections, registry
from beirgrid.config.entries import TOLERANCES, Dataset, HubCorpus, MtebCorpus, Name
from beirgrid.config.names import local_name
from beirgrid.core import files
from beirgrid.core.errors import ConfigError, DataError
from beirgrid.results import published
from beirgrid.results.cells import CellState
from beirgrid.results.summary import DatasetSummary, GridSummary
from beirgrid.runs.metrics import evaluate_run
from beirgrid.stages.aggregate.work import collect_scores
from beirgrid.tools.reproduce import _datasets

QWEN = "Qwen/Qwen3-Embedding-4B"
BRIGHT, COMMIT = "BrightBiologyRetrieval", "c26703e6600d97c579ee2985f16cf307db13ed85"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def load(*datasets, systems=("bm25",), **more):
    found = tracked_configuration()
    found["grid"] = {"systems": list(systems), "datasets": list(datasets)}
    loaded = config.load(found | {key: {**found[key], **value} for key, value in more.items()})
    lock.write()
    return loaded


def test_a_benchmark_is_the_datasets_of_its_tasks():
    found = load("NanoBEIR")
    assert len(found.grid.datasets) == 13
    corpus = found.corpora["NanoSciFactRetrieval"]
    assert isinstance(corpus, HubCorpus)
    assert (corpus.id, corpus.documents) == ("mteb/NanoSciFactRetrieval", 2919)
    assert corpus.revision == "8c5f7bbe90bb865f46c67710221afa7d9096251b"
    assert found.datasets["NanoSciFactRetrieval"].split == "train"
    before = Path(lock.LOCK).read_bytes()
    assert load("NanoBEIR") == found
    assert Path(lock.LOCK).read_bytes() == before


def test_tasks_of_registered_datasets_are_these():
    beir = load("BEIR").grid.datasets
    assert beir[:3] == ("trec-covid", "nfcorpus", "nq")
    assert "cqadupstack" in beir
    assert load("SciFact", "scifact").grid.datasets == ("scifact",)


def test_subsets_and_splits_are_datasets_of_their_own():
    found = load("MIRACLRetrieval", systems=["minilm"])
    assert len(found.grid.datasets) == 18
    swahili = found.corpora["MIRACLRetrieval-sw"]
    assert (swahili.subset, swahili.split, swahili.language) == ("sw", "dev", "sw")
    parts = ("MIRACLRetrieval-sw", "LEMBNeedleRetrieval-test_256")
    assert load(*parts).grid.datasets == parts


def test_a_task_that_loads_its_data_itself_is_fetched_by_its_own_code():
    corpus = load(BRIGHT).corpora[BRIGHT]
    assert isinstance(corpus, MtebCorpus)
    assert (corpus.task, corpus.revision, corpus.split) == (BRIGHT, COMMIT, "standard")


def test_every_benchmark_and_task_expands_or_says_why_not():
    """Among 581 tasks, those without a commit or with other input than text are refused."""
    refused = []
    for name in mteb_collections.collection_names():
        try:
            found = mteb_collections.collection(name)
        except ConfigError as error:
            refused.append(str(error))
            continue
        assert found["rows"]
        for row, facts in found["datasets"].items():
            assert "mean_of" in facts["dataset"] or facts["corpus"]["revision"], row
            TypeAdapter(Name).validate_python(row)
    reasons = ("not of texts", "pins no commit", "has no task that ranks texts")
    assert all(any(reason in error for reason in reasons) for error in refused)
    assert len(mteb_collections.collection_names()) > 500


def test_prompts_follow_the_task_of_a_collection():
    def model(*datasets):
        return load(*datasets, systems=[QWEN]).models["Qwen__Qwen3-Embedding-4B"]

    model("scifact")
    assert "NanoNQRetrieval" not in lock.names()["models"][QWEN]["tasks"]
    found = model("NanoBEIR", "scifact")
    claim = "Instruct: Given a scientific claim, retrieve documents that support or refute the claim\nQuery:"
    assert found.prompts.datasets["NanoSciFactRetrieval"].query == found.prompts.datasets["scifact"].query == claim
    assert {"NanoNQRetrieval", "NanoFEVERRetrieval"} <= set(found.trained_on.names)
    known = lock.names()
    known["models"][QWEN]["entry"]["revision"] = "a" * 40
    files.write_json(lock.LOCK, {"names": known})
    found = model("NanoBEIR", BRIGHT)
    assert found.revision == "a" * 40
    assert BRIGHT in found.prompts.datasets


def test_an_entry_of_the_corpus_wins_key_by_key():
    corpora = {"NanoSciFactRetrieval": {"allow": ["duplicate-documents"]}}
    found = load("NanoSciFactRetrieval", corpora=corpora).corpora["NanoSciFactRetrieval"]
    assert found.allow == ("duplicate-documents",)
    assert found.documents == 2919


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("NanoBEER", "nor mteb lists 'NanoBEER'; did you mean 'NanoBEIR'"),
        ("scifat", "no dataset is named 'scifat'; did you mean 'scifact'"),
        ("qqqqqqqqqqqqq", "no dataset is named 'qqqqqqqqqqqqq'"),
        ("Encodechka", "Encodechka has no task that ranks texts for queries, only Classification"),
    ],
)
def test_what_is_no_collection_is_refused_with_what_is_near(name, message):
    with pytest.raises(ConfigError, match=message):
        load(name)
    assert not Path(lock.LOCK).exists()


def test_the_mean_over_a_benchmark_is_that_of_mteb():
    """Two tasks of LongEmbed have eight splits each; mteb's mean counts each task once."""
    import mteb
    from mteb.results import TaskResult

    found = load("LongEmbed")
    assert len(found.grid.datasets) == 6
    scores, expected = {}, []
    for task in mteb.get_benchmark("LongEmbed").tasks:
        splits = task.metadata.eval_splits
        values = {split: (len(scores) + place) ** 2 / 1000 for place, split in enumerate(splits)}
        for split, value in values.items():
            scores["-".join([task.metadata.name, *[split] * (len(splits) > 1)])] = value
        content = {split: {"default": {"main_score": value}} for split, value in values.items()}
        expected.append(TaskResult.from_task_results(task, content, evaluation_time=0).get_score())
    cells = {
        ("bm25", name): CellState("done", "", pd.DataFrame({"ndcg@10": [value]})) for name, value in scores.items()
    }
    described = {row: DatasetSummary(mean_of=found.datasets[row].mean_of) for row in found.grid.datasets}
    parts = {name: DatasetSummary() for name in scores if name not in described}
    rows = found.grid.datasets
    summary = GridSummary(systems=("bm25",), rows=rows, datasets={**described, **parts}, metrics=("ndcg@10",))
    intervals = pd.DataFrame(columns=["system", "dataset", "metric", "low", "high"])
    table = collect_scores(summary, cells, intervals).set_index("dataset")["value"]
    assert table[list(summary.counted_once)].mean() == pytest.approx(np.mean(expected), abs=1e-12)
    assert np.mean(list(scores.values())) != pytest.approx(np.mean(expected), abs=0.001)


def test_a_benchmark_counts_the_subsets_that_are_its_own():
    """RTEB in English has one of CUREv1's three languages, and MTEB in German one of XMarket's three."""
    assert "XMarket-de" in load("MTEB(deu, v1)", systems=["minilm"]).grid.datasets
    found = load("RTEB(eng, beta)", systems=["minilm"])
    assert len(found.datasets["CUREv1@RTEB-eng-beta"].mean_of) == 11  # splits
    assert "CUREv1" not in found.datasets
    assert len(load("CUREv1", systems=["minilm"]).grid.datasets) == 33


def test_a_benchmark_with_other_tasks_stands_for_its_retrieval_tasks():
    import mteb

    retrieval = [task for task in mteb.get_benchmark("MTEB(eng, v2)") if task.metadata.type == "Retrieval"]
    assert len(load("MTEB(eng, v2)").grid.datasets) == len(retrieval) == 10


def test_the_main_metric_of_a_task_is_the_default():
    assert load("NanoSciFactRetrieval").metrics[:2] == ("ndcg@10", "recall@100")
    assert load("LEMBPasskeyRetrieval").metrics[:3] == ("ndcg@1", "ndcg@10", "recall@100")
    both = load("LongEmbed")
    assert both.metrics[:3] == ("main", "ndcg@10", "recall@100")
    assert both.datasets["LEMBPasskeyRetrieval-test_256"].metric == "ndcg@1"
    assert load("FollowIR").metrics[0] == "p_mrr@1000"
    assert load("AskUbuntuDupQuestions").metrics[0] == "map@1000"
    assert load("scifact").metrics[0] == "ndcg@10"
    entries = tracked_configuration()["datasets"]
    with pytest.raises(ConfigError, match=r"datasets\.scifact\.metric: there is no metric 'ndgc'; did you mean 'ndcg'"):
        load("scifact", datasets={"scifact": {**entries["scifact"], "metric": "ndgc@10"}})


def test_published_values_of_tasks_are_main_metrics_of_datasets_that_mteb_names():
    tables = [ROOT / f"config/published/mteb_{name}.csv" for name in ("tasks", "miracl")]
    values = list(published.read(tables, TOLERANCES))
    asked = {(value.dataset, value.metric) for value in values}
    for name in {name for name, _ in asked}.difference(tracked_configuration()["datasets"]):
        main = mteb_collections.collection(name)["datasets"][name]["dataset"].get("metric", "ndcg@10")
        assert {metric for row, metric in asked if row == name} == {main}
    assert {"NanoSciFactRetrieval", "MIRACLRetrievalHardNegatives-sw", "BrightRetrieval-aops"} <= {*dict(asked)}
    assert all(0 <= value.value <= 1 and len(value.dataset_revision) in (0, 7, 12) for value in values)
    assert {value.tolerance_class for value in values} == {"checkpoint", "card", "plaid", "flash"}
    assert all((value.note == "copied from the model card") == (value.tolerance_class == "card") for value in values)
    assert {*_datasets("codefuse-ai/F2LLM-v2-0.6B", "NanoBEIR", "ndcg@10", {})} == {*load("NanoBEIR").grid.datasets}


def test_published_values_of_other_metrics_are_of_datasets_that_mteb_names():
    """Recall beside mteb's main metrics, and what others than mteb published for its tasks."""
    names = ("mteb_recall", "bge_m3", "pyserini_bright_miracl", "rerankers")
    values = list(published.read([ROOT / f"config/published/{name}.csv" for name in names], TOLERANCES))
    for name in {value.dataset for value in values}.difference(tracked_configuration()["datasets"]):
        assert mteb_collections.collection(name)["rows"] == [name]
    assert {value.metric for value in values} == {"ndcg@10", "recall@100", "recall@1000"}
    mains = published.read(sorted((ROOT / "config/published").glob("mteb*.csv")), TOLERANCES)
    recalls = {(value.system, value.dataset) for value in values if value.source.startswith("embeddings-benchmark")}
    assert recalls <= {(value.system, value.dataset) for value in mains if value.metric != "recall@100"}


def test_every_main_metric_has_our_name():
    import mteb

    tasks = mteb.get_tasks(task_types=list(mteb_collections.KINDS))
    assert all(mteb_collections.main_metric(task.metadata.main_score) for task in tasks)
    for name, metric in (
        ("InstructIR", "robustness@10"),
        ("NevIR", "paired_accuracy@1"),
        ("MindSmallReranking", "map_subqueries@1000"),
    ):
        assert mteb_collections.collection(name)["datasets"][name]["dataset"]["metric"] == metric


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("nano", (13, 6)),
        ("today", (15, 41)),
        ("today-small", (9, 18)),
        ("multilingual", (16, 10)),
        ("reasoning", (12, 9)),
        ("long", (6, 7)),
    ],
)
def test_the_ready_made_grids_read_the_lock_file_of_the_checkout(monkeypatch, name, sizes):
    """Without mteb: their names are all in the lock file that is committed."""
    monkeypatch.chdir(ROOT)
    for module in (registry, mteb_collections):
        monkeypatch.setattr(module, "mteb", None)
    loaded = config.load(config.with_defaults(yaml.safe_load((ROOT / f"config/grids/{name}.yaml").read_text())))
    assert (len(loaded.grid.datasets), len(loaded.grid.systems)) == sizes
    if name == "today-small":
        assert len(loaded.gate.grid.datasets) == 13


def test_the_gate_of_a_grid_names_collections_as_the_grid_does():
    """It is a grid with the same systems."""
    loaded = load("scifact", grid={"gate": ["NanoBEIR"]})
    assert (loaded.gate.grid.name, loaded.gate.grid.systems) == ("grid-gate", loaded.grid.systems)
    assert (len(loaded.gate.grid.datasets), loaded.grid.datasets) == (13, ("scifact",))
    assert loaded.gate.gate is load("scifact").gate is None
    for name, message in (
        ("scifcat", "grid.gate: no dataset is named 'scifcat'; did you mean 'scifact'?"),
        ("NanoBIER", "grid.gate: neither the configuration nor mteb lists 'NanoBIER'; did you mean 'NanoBEIR'?"),
    ):
        with pytest.raises(ConfigError) as caught:
            load("demo", grid={"gate": [name]})
        assert message in str(caught.value)


@pytest.mark.parametrize("name", ["today", "today-small"])
def test_the_models_of_today_have_their_commits_in_the_grid(monkeypatch, name):
    """A newer mteb, whose commits may be others, measures the same models."""
    content = yaml.safe_load((ROOT / f"config/grids/{name}.yaml").read_text())
    rerankers = {system["reranker"] for system in content["systems"].values()}
    assert {*content["models"]} == {one for one in content["grid"]["systems"] if "/" in one} | rerankers
    monkeypatch.chdir(ROOT)
    models = config.load(config.with_defaults(content)).models
    for model, entry in content["models"].items():
        assert models[local_name(model)].revision == entry["revision"]
        assert models[local_name(model)].size.parameters  # hours follow from it
        assert re.fullmatch("[0-9a-f]{40}", entry["revision"])


def test_the_size_of_vectors_that_can_be_cut_is_their_whole_length():
    """The disk of a plan follows from it."""
    for name, dimension in (("erikkaum/lattice-retrieval", 1024), ("hotchpotch/bekko-embedding-v1-a25m", 384)):
        assert registry.model_facts(name)["entry"]["size"]["dimensions"] == dimension
        assert files.read_json(ROOT / lock.LOCK)["names"]["models"][name]["entry"]["size"]["dimensions"] == dimension


def test_every_collection_of_the_ready_made_grids_has_a_number_of_documents():
    """The hours and the disk of a plan follow from it."""
    datasets = files.read_json(ROOT / lock.LOCK)["names"]["datasets"].values()
    corpora = [facts["corpus"] for facts in datasets if "mean_of" not in facts["dataset"]]
    assert all(corpus["documents"] > 0 for corpus in corpora)
    found = load(BRIGHT, "LEMBNeedleRetrieval-test_256").corpora
    assert (found[BRIGHT].documents, found["LEMBNeedleRetrieval-test_256"].documents) == (57359, 100)


# ---- fetched from a hub


def fetched(tmp_path: Path, name: str, repository: str, layout: dict) -> Path:
    """Fetch a collection by its name from a hub that serves its data; return the folder of corpus and dataset."""
    entry = load(name).corpora[name].own_keys("source", "task", "id", "revision", "split", "subset")
    data, out = tmp_path / "data", tmp_path / "out"
    data.mkdir()
    hub(data, layout)
    commands = [fetch_corpus(entry, out), fetch_dataset(entry, out, split=entry["split"])]
    with serve() as loopback:
        loopback.commits[f"datasets/{repository}", entry["revision"]] = {
            str(path.relative_to(data)): path.read_bytes() for path in data.rglob("*") if path.is_file()
        }
        done = subprocess.run(
            [sys.executable, "-c", COMMANDS],
            env={**loopback.environment(tmp_path / "home"), "PYTHONPATH": str(ROOT / "workflow")},
            input=json.dumps([stage_job(*words) for words in commands]),
            capture_output=True,
            text=True,
            check=False,
            timeout=300,
        )
    assert done.returncode == 0, done.stderr
    return out


@pytest.mark.slow
def test_a_task_with_excluded_documents_is_fetched_by_mtebs_code(tmp_path):
    examples = [
        {"id": "q1", "query": "one", "gold_ids": ["d1"], "gold_ids_long": ["N/A"], "excluded_ids": ["d3"]},
        {"id": "q2", "query": "two", "gold_ids": ["d2"], "gold_ids_long": ["N/A"], "excluded_ids": ["N/A"]},
    ]
    documents = [{"id": f"d{number}", "content": f"text {number}"} for number in (1, 2, 3)]
    layout = {"documents": {"biology": documents}, "examples": {"biology": examples}}
    out = fetched(tmp_path, BRIGHT, "mteb/BRIGHT", layout)
    assert pd.read_parquet(out / "corpus.parquet")["text"].tolist() == ["text 1", "text 2", "text 3"]
    queries = pd.read_parquet(out / "queries.parquet").set_index("_id")
    assert {query: list(row) for query, row in queries["excluded"].items()} == {"q1": ["d3"], "q2": []}
    assert (out / "qrels.tsv").read_text().splitlines()[1:] == ["q1\td1\t1", "q2\td2\t1"]


@pytest.mark.slow
def test_an_instruction_follows_its_query_and_candidates_alone_are_ranked(tmp_path):
    """FollowIR: mteb's code reads queries with their instructions and candidates, and the list of changes."""
    name = "Core17InstructionRetrieval"
    queries = ["1-og", "1-changed"]
    layout = {
        "corpus": {"corpus": [{"_id": f"d{n}", "title": "", "text": f"stone {n}"} for n in range(9)]},
        "queries": {"queries": [{"_id": query, "text": "stone"} for query in queries]},
        "instruction": {"instruction": [{"query-id": query, "instruction": f"as {query}"} for query in queries]},
        "default": {
            "test": [
                {"query-id": query, "corpus-id": document, "score": grade}
                for query, document, grade in (("1-og", "d1", 2), ("1-og", "d2", 1), ("1-changed", "d1", 1))
            ]
        },
        "qrel_diff": {"qrel_diff": [{"query-id": "1", "corpus-ids": ["d1"]}]},
        "top_ranked": {"top_ranked": [{"query-id": query, "corpus-ids": ["d1", "d2", "d7"]} for query in queries]},
    }
    out = fetched(tmp_path, name, f"mteb/{name}", layout)
    found = pd.read_parquet(out / "queries.parquet").set_index("_id")
    assert found["text"].to_dict() == {query: f"stone as {query}" for query in queries}
    assert collection.read_restrictions(out / "queries.parquet")[1] == {query: {"d1", "d2", "d7"} for query in queries}
    facts = files.read_json(out / "dataset.json")["facts"]
    assert (facts["candidates"], facts["changed"]) == (6, 2)
    run = tmp_path / "a.run"
    run.write_text("1-og Q0 d7 1 2 a\n1-og Q0 d1 2 1 a\n1-changed Q0 d1 1 2 a\n1-changed Q0 d7 2 1 a\n")
    assert evaluate_run(run, out / "qrels.tsv", ["p_mrr@1000"]) == {"p_mrr@1000": -0.5}, "d1 rises from 2 to 1"


def _of_hub(folder: Path, layout: dict) -> HubCorpus:
    """Return a corpus of the hub whose dataset is a folder with these configurations."""
    hub(folder, layout)
    return HubCorpus(source="huggingface", id=str(folder), revision="a" * 40)


ONE_QUERY = {
    "corpus": {"corpus": [{"_id": "d1", "text": "one"}]},
    "queries": {"queries": [{"_id": "q1", "text": "one"}]},
    "default": {"test": [{"query-id": "q1", "corpus-id": "d1", "score": 2}]},
}


def test_candidates_that_the_hub_has_are_not_overlooked(tmp_path):
    candidates = {"top_ranked": {"top_ranked": [{"query-id": "q1", "corpus-ids": ["d1"]}]}}
    source = open_source(_of_hub(tmp_path, ONE_QUERY | candidates))
    with pytest.raises(DataError, match="has top_ranked of its queries, which source: huggingface does not read"):
        next(source.documents())


def test_of_several_configurations_those_are_read_that_mteb_reads(tmp_path):
    from mteb.abstasks.retrieval_dataset_loaders import RetrievalDatasetLoader

    others = {
        "query": {"test": [{"_id": "q1", "text": "two"}]},
        "qrels": {"test": [{"query-id": "q1", "corpus-id": "d1", "score": 1}]},
    }
    corpus, dataset = _of_hub(tmp_path, ONE_QUERY | others), Dataset(corpus="x")
    source, theirs = open_source(corpus), RetrievalDatasetLoader(corpus.id, "a" * 40).load()
    assert [(query.id, query.text) for query in source.queries(dataset)] == [("q1", theirs["queries"][0]["text"])]
    found = [(judgement.query, judgement.document, judgement.grade) for judgement in source.judgements(dataset)]
    assert found == [("q1", "d1", theirs["relevant_docs"]["q1"]["d1"])] == [("q1", "d1", 2)]


def test_a_subset_is_fetched_from_its_own_configurations(tmp_path):
    layout = {}
    for language in ("te", "sw"):
        layout |= {
            f"{language}-corpus": {"dev": [{"_id": "d1", "title": "t", "text": f"document {language}"}]},
            f"{language}-queries": {"dev": [{"_id": "q1", "text": f"query {language}"}]},
            f"{language}-qrels": {"dev": [{"query-id": "q1", "corpus-id": "d1", "score": 1}]},
        }
    out = fetched(tmp_path, "MIRACLRetrieval-sw", "mteb/MIRACLRetrieval", layout)
    assert pd.read_parquet(out / "corpus.parquet")["text"].tolist() == ["document sw"]
    assert pd.read_parquet(out / "queries.parquet")["text"].tolist() == ["query sw"]


def test_a_dataset_has_the_split_of_a_task_that_it_names():
    """The task is mteb's, with data in place of those that it downloads."""
    revision = registry.mteb().get_task("SciFact").metadata.dataset["revision"]
    source = open_source(MtebCorpus(source="mteb", task="SciFact", revision=revision))
    documents = {"test": "one", "dev": "one", "other": "two"}
    loaded = {
        split: {
            "corpus": datasets.Dataset.from_list([{"id": "d1", "text": text}]),
            "queries": datasets.Dataset.from_list([{"id": f"of {split}", "text": "x"}]),
            "relevant_docs": {f"of {split}": {"d1": 1}},
        }
        for split, text in documents.items()
    }
    source._task.dataset = {"default": loaded}
    source._task.data_loaded = True
    for split, keys in (("test", {}), ("dev", {"split": "dev"})):
        dataset = Dataset(corpus="x", **keys)
        assert [query.id for query in source.queries(dataset)] == [f"of {split}"]
        assert [judgement.query for judgement in source.judgements(dataset)] == [f"of {split}"]
    assert [document.text for document in source.documents()] == ["one"]
    for split in ("other", "train"):
        with pytest.raises(DataError, match=rf"no split '{split}' over .* of 'test' \(its splits are test, dev, other"):
            next(source.judgements(Dataset(corpus="x", split=split)))


def test_an_environment_without_mteb_says_so(monkeypatch):
    corpus = load(BRIGHT).corpora[BRIGHT]
    monkeypatch.setitem(sys.modules, "mteb", None)
    with pytest.raises(DataError, match=f"{BRIGHT} cannot be read .* loaded by mteb, which environments of conda lack"):
        next(open_source(corpus).documents())
