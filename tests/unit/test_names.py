"""Models that a configuration names by their id on the hub."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from graph import settings
from helpers import ROOT, tracked_configuration
from pydantic import TypeAdapter

from beirgrid import config
from beirgrid.config import entries, lock, names, registry
from beirgrid.core import files
from beirgrid.core.errors import ConfigError
from beirgrid.graph.grid import Grid
from beirgrid.results import published

OWN_M3 = {"family": "dense", "checkpoint": "BAAI/bge-m3", "revision": "a" * 40, "similarity": "dot", "max_length": 99}
QWEN, M3, MINILM = "Qwen/Qwen3-Embedding-4B", "BAAI/bge-m3", "cross-encoder/ms-marco-MiniLM-L12-v2"


@pytest.fixture(autouse=True)
def _here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def raw(columns, datasets=("scifact", "nfcorpus"), **more) -> dict:
    """Return the registered configuration with a grid of these systems, and entries more."""
    found = tracked_configuration()
    found["grid"] = {"systems": list(columns), "datasets": list(datasets)}
    return found | {key: {**found[key], **value} for key, value in more.items()}


def load(*systems, datasets=("scifact", "nfcorpus"), **more):
    """Return what a run loads, which keeps what it looks up."""
    found = config.load(raw(systems, datasets, **more))
    lock.write()
    return found


# ---- mteb's models


def test_every_model_of_mteb_has_an_engine_and_a_reason():
    found = registry.models()
    assert len(found) == 969
    engines = ("beirgrid", "mteb", "with code", "endpoint", "refused")
    assert all(model["engine"] in engines and model["reason"] for model in found)
    assert all(model["family"] for model in found if model["engine"] == "beirgrid")
    assert not any(model["family"] for model in found if model["engine"] in engines[2:])
    new = [model for model in found if str(registry._meta(model["name"]).release_date) >= "2026"]
    assert len([model for model in new if model["engine"] == "refused"]) < 0.15 * len(new)
    known = {model["name"] for model in found}
    assert {*registry._LEFT_TO_MTEB} <= known


def test_no_argument_within_an_argument_of_a_loader_changes_a_number():
    """Those of models that our engine opens in place of the loader; another one needs a key, or a correction."""
    harmless = {
        "model_kwargs": {"dtype", "torch_dtype", "attn_implementation", "device_map", "trust_remote_code"},
        "config_kwargs": {"use_cache"},
        "tokenizer_kwargs": {"pad_token", "padding_side", "add_bos_token"},
        "processor_kwargs": {"model_max_length"},
    }
    for model in registry.models():
        arguments = registry._meta(model["name"]).loader_kwargs if model["engine"] == "beirgrid" else {}
        assert all({*(arguments.get(name) or ())} <= known for name, known in harmless.items()), model


def test_every_model_that_a_job_runs_has_a_valid_entry():
    kind, name = TypeAdapter(entries.Model), TypeAdapter(entries.Name)
    usable = [model for model in registry.models() if model["family"]]
    for model in usable:
        facts = registry.model_facts(model["name"])
        entry = kind.validate_python(facts["entry"])
        assert entry.family == model["family"]
        assert entry.revision is not None
        name.validate_python(names.local_name(model["name"]))
    assert len({names.local_name(model["name"]).lower() for model in usable}) == len(usable)


@pytest.mark.parametrize(
    ("model", "engine", "why"),
    [
        (QWEN, "beirgrid", "without code"),
        ("openai/text-embedding-3-large", "endpoint", "serves it"),
        ("jinaai/jina-embeddings-v2-base-en", "with code", "trust_remote_code"),
        ("facebook/dinov2-base", "refused", "no public weights of it that read text"),
        ("McGill-NLP/LLM2Vec-Meta-Llama-3-8B-Instruct-mntp-supervised", "refused", "an adapter, to a second"),
        ("Alibaba-NLP/gte-Qwen2-1.5B-instruct", "beirgrid", "without code"),
        ("BeastyZ/e5-R-mistral-7b", "mteb", "mteb opens it by InstructSentenceTransformerModel"),
        ("Qwen/Qwen3-Reranker-0.6B", "mteb", "mteb opens it by Qwen3RerankerWrapper"),
        ("castorini/monot5-3b-msmarco-10k", "beirgrid", "without code"),
        ("mixedbread-ai/mxbai-rerank-base-v2", "mteb", "mteb opens it by CrossEncoderWrapper"),
        ("opensearch-project/opensearch-neural-sparse-encoding-doc-v3-distill", "beirgrid", "without code"),
        ("samaya-ai/promptriever-llama3.1-8b-v1", "refused", "an adapter, to a second"),
        ("stephantulkens/NIFE-mxbai-embed-large-v1_as_router", "refused", "not of router"),
        ("perplexity-ai/pplx-embed-v2-late-0.6b", "mteb", "mteb opens it by MultiVectorWrapper"),
        ("naver/v-splade-quality", "with code", "it brings code of its own"),
        ("mteb/baseline-bm25s", "refused", "makes no vectors"),
        ("nvidia/llama-embed-nemotron-8b", "refused", "needs transformers ==4.51.0 (an extra of mteb), and "),
        (
            "nvidia/Nemotron-3.5-Embed-1B-BF16",
            "refused",
            "needs transformers <5.17.0,>=5.12.1 (an extra of mteb), and ",
        ),
        ("nvidia/Nemotron-3-Embed-1B-BF16", "beirgrid", "without code"),
    ],
)
def test_the_engine_of_a_model(model, engine, why):
    found, _, reason = registry.engine(model)
    assert found == engine
    assert why in reason


REGISTERED = tracked_configuration()["models"]
CHECKPOINTS = {
    e["checkpoint"]: name for name, e in reversed(REGISTERED.items()) if e.keys() >= {"family", "checkpoint"}
}
# A system of a model, by its family; others retrieve.
SYSTEMS = {
    "cross-encoder": {"first_stage": "bm25-flat", "reranker": ...},
    "seq2seq-reranker": {"first_stage": "bm25-flat", "reranker": ...},
    "query-generator": {"retriever": "bm25", "fields": "multifield", "expansion": ...},
    "term-weights": {"retriever": "bm25", "fields": "flat", "expansion": ...},
}


@pytest.mark.parametrize("checkpoint", sorted(CHECKPOINTS))
def test_the_id_of_a_registered_checkpoint_is_its_entry(checkpoint, monkeypatch):
    """Its system is the registered one in keys, model and published values; no one asks mteb, or writes a file."""
    monkeypatch.setitem(sys.modules, "mteb", None)
    name = CHECKPOINTS[checkpoint]
    entry = SYSTEMS.get(REGISTERED[name]["family"], {"retriever": ...})
    named = {"by-id": checkpoint, "by-name": name}
    systems = {
        system: {key: model if value is ... else value for key, value in entry.items()}
        for system, model in named.items()
    }
    found = load(*systems, systems=systems)
    assert found.systems["by-id"] == found.systems["by-name"]
    assert names.local_name(checkpoint) not in found.models
    values = {system: {*published.names_of(found, system)} for system in systems}
    assert values["by-id"] == values["by-name"]
    assert not [*Path().iterdir()]
    if "retriever" in entry and entry["retriever"] is ...:
        assert load(checkpoint).systems[names.local_name(checkpoint)] == found.systems["by-name"]


def test_there_are_31_registered_checkpoints():
    assert len(CHECKPOINTS) == 31


def test_the_id_of_a_registered_checkpoint_takes_further_keys():
    name = "facebook/contriever"
    found = load(name, models={name: {"max_length": 99}})
    assert found.models["facebook__contriever"].model_dump() == found.models["contriever"].model_dump() | {
        "max_length": 99
    }
    entry = {"family": "dense", "revision": "resolve", "similarity": "cosine"}
    found = load(name, models={"contriever": {**entry, "checkpoint": name}})
    assert found.models[found.systems["facebook__contriever"].retriever].similarity == "cosine"
    with pytest.raises(ConfigError, match="lists no model"):
        load(name, models={"contriever": {**entry, "checkpoint": "a/b"}})


def test_an_entry_of_ones_own_does_not_stand_for_its_checkpoint():
    """It may differ from what mteb states, with which it is compared."""
    found = load(M3, "mine", models={"mine": OWN_M3}, systems={"mine": {"retriever": "mine"}})
    assert found.models["mine"].max_length == 99
    assert found.models["BAAI__bge-m3"].max_length != 99


def test_mteb_states_the_texts_of_a_registered_checkpoint_before_queries_of_its_other_collections():
    """The entry knows those of the registered datasets."""
    small = "Qwen/Qwen3-Embedding-0.6B"
    found = load(small, datasets=["scifact", "NanoSciFactRetrieval"])
    prompts = found.models[names.local_name(small)].prompts.datasets
    assert prompts["NanoSciFactRetrieval"] == prompts["scifact"]
    assert small in lock.names()["models"]
    assert load(small) == load(small)


def test_a_lock_file_keeps_its_facts_of_a_registered_checkpoint():
    """Finished grids have models with these facts."""
    small = "Qwen/Qwen3-Embedding-0.6B"
    files.write_json(lock.LOCK, files.read_json(ROOT / lock.LOCK))
    assert load(small).models[names.local_name(small)].pooling == "own"


@pytest.mark.parametrize(
    "model", ["NovaSearch/stella_en_1.5B_v5", "Alibaba-NLP/gte-multilingual-base", "Salesforce/SFR-Embedding-2_R"]
)
def test_a_model_with_code_of_its_own_says_the_key_that_opens_it(model):
    with pytest.raises(ConfigError, match="let it run: models: ") as refused:
        load(model)
    key = yaml.safe_load(str(refused.value).partition("let it run: ")[2])
    assert names.local_name(model) in load(model, **key).models


@pytest.mark.parametrize("model", ["nvidia/NV-Embed-v2", "nvidia/Nemotron-3.5-Rerank-8B-BF16"])
def test_a_model_for_another_transformers_says_the_entry_by_which_a_server_runs_it(model):
    with pytest.raises(ConfigError, match="Serve it from an environment with such a version, and name the") as refused:
        load(model)
    entry = yaml.safe_load(str(refused.value).partition("the server: models: ")[2])
    system = {"retriever": model} if entry[model]["family"] == "dense" else {"first_stage": "bm25", "reranker": model}
    found = load("served", models=entry, systems={"served": system})
    assert found.models[names.local_name(model)].endpoint.model == model
    assert not Path(lock.LOCK).exists()


def test_no_key_is_named_where_it_would_not_help():
    told = [model for model in registry.models() if "let it run" in model["reason"]]
    assert len(told) > 100
    assert all(registry.engine(model["name"], trusted=True)[1] for model in told)


def test_an_entry_that_trusts_the_code_of_a_checkpoint_makes_a_model_usable():
    model = "jinaai/jina-embeddings-v2-base-en"
    with pytest.raises(ConfigError, match="it brings code of its own"):
        load(model)
    found = load(model, models={model: {"trust_remote_code": True}})
    assert found.models[names.local_name(model)].trust_remote_code


@pytest.mark.parametrize("older", [False, True], ids=["", "lock file without the fact"])
def test_code_that_one_configuration_trusts_is_refused_in_another_one_beside_the_same_lock_file(older):
    model = "NovaSearch/stella_en_1.5B_v5"
    assert load(model, models={model: {"trust_remote_code": True}}).models[names.local_name(model)].trust_remote_code
    known = lock.names()
    if older:
        del known["models"][model]["code"]
        files.write_json(lock.LOCK, {"names": known})
    before = Path(lock.LOCK).read_bytes()
    for own in ({}, {model: {"trust_remote_code": False}}):
        with pytest.raises(ConfigError, match=f"{model} cannot be used by its name: it brings code of its own"):
            load(model, models=own)
    assert Path(lock.LOCK).read_bytes() == before


def test_models_of_mtebs_sparse_and_late_interaction_loaders_join_a_grid(monkeypatch, capsys):
    """With the packages named that their loaders need and that are not installed."""
    late = "perplexity-ai/pplx-embed-v2-late-0.6b"
    sparse = "naver/v-splade-quality"
    monkeypatch.setattr(registry, "_is_installed", lambda need: need.name != "torchvision")
    found = load(late, sparse, models={sparse: {"trust_remote_code": True}})
    told = capsys.readouterr().err
    for name, family in ((late, "late-interaction"), (sparse, "sparse")):
        entry = found.models[names.local_name(name)]
        assert (entry.family, entry.engine, entry.tasks["scifact"]) == (family, "mteb", "SciFact")
        assert f"mteb's loader of {name} needs packages that are not installed here: torchvision>0.2.1" in told


def test_a_model_whose_publisher_excludes_the_installed_transformers_is_refused_before_a_job():
    """Also beside a lock file that another version of transformers wrote."""
    model = "nvidia/llama-embed-nemotron-8b"
    with pytest.raises(ConfigError, match=f"{model} cannot be used by its name: its publisher needs transformers ==4"):
        load(model)
    load(QWEN)
    known = lock.names()
    known["models"][QWEN]["transformers"] = "<5"
    files.write_json(lock.LOCK, {"names": known})
    with pytest.raises(ConfigError, match=f"{QWEN} cannot be used by its name: .* transformers <5 .* is installed"):
        load(QWEN)


def test_decontaminated_sets_are_no_training_data():
    """mteb derives them from the sets that a model was trained on."""
    rows = ("scifact", "quora", "SciFactDecontaminated", "QuoraRetrievalDecontaminated")
    trained = load("lightonai/LateOn", datasets=rows).models["lightonai__LateOn"].trained_on
    assert {"scifact", "quora"} <= {*trained.names}
    assert not {*trained.names} & {*rows[2:]}


def test_an_older_lock_file_keeps_its_facts_when_it_learns_of_code():
    load(QWEN)
    known = lock.names()
    facts = known["models"][QWEN]
    assert facts.pop("code") is False
    facts["entry"]["revision"] = "a" * 40
    files.write_json(lock.LOCK, {"names": known})
    assert load(QWEN).models[names.local_name(QWEN)].revision == "a" * 40
    assert lock.names()["models"][QWEN] == facts | {"code": False}


# ---- names in a configuration


def test_names_become_systems_and_models_with_mtebs_facts():
    found = load("bm25", QWEN, M3)
    assert found.grid.systems == ("bm25", "Qwen__Qwen3-Embedding-4B", "BAAI__bge-m3")
    qwen = found.models["Qwen__Qwen3-Embedding-4B"]
    assert (qwen.checkpoint, qwen.revision) == (QWEN, "636cd9bf47d976946cdbb2b0c3ca0cb2f8eea5ff")
    assert (qwen.pooling, qwen.similarity, qwen.licence) == ("own", "cosine", "apache-2.0")
    scifact = "Instruct: Given a scientific claim, retrieve documents that support or refute the claim\nQuery:"
    assert qwen.prompts.datasets["scifact"].query == scifact
    assert qwen.prompts.document == ""
    assert {"msmarco", "nq", "hotpotqa", "fever"} <= set(qwen.trained_on.names)
    assert "scifact" not in qwen.trained_on.names
    m3 = found.models["BAAI__bge-m3"]
    assert m3.pickled
    assert m3.prompts.own
    assert m3.source == f"mteb {registry.mteb_version()}"
    assert m3.trust_remote_code is False  # mteb's loader runs no code of it
    assert "trust_remote_code" not in settings(Grid(found), "fetch_model", model="BAAI__bge-m3")["entry"]


def test_mteb_does_not_decide_on_code_that_published_scores_were_measured_with():
    model = "HIT-TMG/KaLM-embedding-multilingual-mini-instruct-v2"
    assert load(model).models[names.local_name(model)].trust_remote_code is None
    found = load(model, models={model: {"trust_remote_code": True}})
    assert found.models[names.local_name(model)].trust_remote_code


def test_a_models_own_prompts_and_rerankers_of_mteb_get_the_task():
    reranker = "mixedbread-ai/mxbai-rerank-base-v2"
    datasets = ("scifact", "AskUbuntuDupQuestions", "cqadupstack-gis")
    reranked = {"reranked": {"first_stage": "bm25", "reranker": reranker}}
    grid, model = Grid(load("reranked", M3, datasets=datasets, systems=reranked)), "BAAI__bge-m3"
    expected = [
        {"task": "SciFact"},
        {"task": "AskUbuntuDupQuestions", "task_type": "Reranking"},
        {"task": "CQADupstackGisRetrieval"},
    ]
    for dataset, task in zip(datasets, expected, strict=True):
        jobs = (
            settings(grid, "retrieve_dense", system=model, dataset=dataset),
            settings(grid, "encode_dense", model=model, corpus=grid.corpus(dataset), shard="0"),
            settings(grid, "score", reranker=names.local_name(reranker), dataset=dataset, first="bm25"),
        )
        for entry in (job["model"] for job in jobs):
            assert {key: entry[key] for key in ("task", "task_type") if key in entry} == task


def test_a_registered_entry_and_mteb_give_one_model_the_same_prompts():
    """The entry of qwen3-embedding was typed in from mteb's tasks."""
    models = load(QWEN, "qwen3-embedding").models
    typed, facts = (models[name].prompts.datasets for name in ("qwen3-embedding", names.local_name(QWEN)))
    assert {"cqadupstack": typed["cqadupstack"], **facts}.items() >= typed.items()


def test_a_reranker_and_a_first_stage_may_be_ids():
    systems = {"reranked": {"first_stage": M3, "reranker": MINILM}, "fused": {"fusion": "rrf", "of": ["bm25", M3]}}
    found = load("reranked", "fused", systems=systems)
    assert found.systems["reranked"].first_stage == "BAAI__bge-m3"
    assert found.models[found.systems["reranked"].reranker].family == "cross-encoder"
    assert found.systems["fused"].of == ("bm25", "BAAI__bge-m3")


LONG = "x" * 78


@pytest.mark.parametrize(
    ("one", "other"), [("a/b__c", "a__b/c"), ("a/b", "a__b"), (f"a1/{LONG}", f"a2/{LONG}"), ("c__d", "c/d")]
)
def test_two_models_of_one_local_name_are_refused(one, other):
    entry = {"family": "cross-encoder", "checkpoint": "x/y", "revision": "a" * 40}
    systems = {f"s{at}": {"first_stage": "bm25", "reranker": name} for at, name in enumerate((one, other))}
    with pytest.raises(ConfigError, match=f"models: {one} and {other} have the same name in files"):
        load(*systems, systems=systems, models={one: entry, other: entry})


def test_a_system_of_ones_own_with_the_local_name_of_a_model_is_refused_unless_it_is_the_same():
    name = names.local_name(M3)
    with pytest.raises(ConfigError, match=f"systems.{name} is another system than that of {M3}"):
        load(M3, systems={name: {"first_stage": "bm25", "reranker": MINILM}})
    assert load(M3, systems={name: {"retriever": M3}}).grid.systems == (name,)


def test_a_reranked_system_is_a_first_stage_at_several_depths():
    fast = {"first_stage": "bm25", "reranker": MINILM, "depth": 100}
    slow = {f"slow@{depth}": {"first_stage": "fast", "reranker": "monot5", "depth": depth} for depth in (5, 20)}
    grid = Grid(load("fast", *slow, systems={"fast": fast, **slow}))
    assert [grid.layers[name] for name in ("bm25", "fast", "slow@5")] == [0, 1, 2]
    assert [grid.depth(grid.config.systems[name]) for name in ("fast", *slow)] == [100, 5, 20]


def test_a_reranker_alone_is_no_column():
    with pytest.raises(ConfigError, match="is a cross-encoder model; a dense or sparse or"):
        load(MINILM)


def test_an_entry_wins_over_mteb_key_by_key():
    own = {"max_length": 512, "prompts": {"datasets": {"nfcorpus": {"query": "x: "}}}, "size": {"dimensions": 64}}
    model = load(QWEN, models={QWEN: own}).models["Qwen__Qwen3-Embedding-4B"]
    assert model.max_length == 512
    assert model.prompts.datasets["nfcorpus"].query == "x: "
    assert model.prompts.datasets["scifact"].query.startswith("Instruct: Given a scientific claim")
    assert (model.size.dimensions, model.size.parameters) == (64, 4021.8)
    assert model.source.endswith("; from the configuration: max_length, prompts, size")


def test_an_id_that_mteb_does_not_list_may_have_a_whole_entry():
    entry = {"family": "dense", "revision": "0" * 40, "similarity": "dot", "pooling": "mean"}
    found = load("someone/model", models={"someone/model": entry})
    assert found.models["someone__model"].checkpoint == "someone/model"
    assert not Path(lock.LOCK).exists()


def test_an_unknown_id_is_refused_with_the_nearest():
    with pytest.raises(ConfigError) as error:
        load("Qwen/Qwen3-Embeding-4B")
    assert "lists no model 'Qwen/Qwen3-Embeding-4B'; did you mean 'Qwen/Qwen3-Embedding-4B'?" in str(error.value)
    assert not Path(lock.LOCK).exists()


def test_a_model_whose_documents_get_another_text_in_a_task_needs_an_entry():
    load("cl-nagoya/ruri-v3-30m")
    with pytest.raises(ConfigError, match=r"texts before documents of \w+ and Core17InstructionRetrieval"):
        load("cl-nagoya/ruri-v3-30m", datasets=["Core17InstructionRetrieval"])


def test_a_lock_file_with_several_texts_before_documents_is_looked_up_again():
    name = "McGill-NLP/AfriE5-Large-instruct"
    load(name)
    facts = lock.names()["models"][name]
    old = facts | {"entry": facts["entry"] | {"engine": None}, "documents": {"SciFact": "Claim: "}}
    files.write_json(lock.LOCK, {"names": {**lock.names(), "models": {name: old}}})
    assert load(name).models[names.local_name(name)].engine == "mteb"
    assert lock.names()["models"][name] == facts


# ---- the lock file


def test_the_lock_file_is_written_once_and_read_without_mteb(capsys):
    """By a run alone, not by what only reads a configuration."""
    looked_up = config.load(raw(["bm25", QWEN, M3]))
    assert not [*Path().iterdir()]
    assert capsys.readouterr().err == ""
    assert load("bm25", QWEN, M3) == looked_up
    said = f"{Path(lock.LOCK).absolute()} now has what mteb states of {M3}, {QWEN}. Commit it, so that your group gets"
    assert said in capsys.readouterr().err
    before = Path(lock.LOCK).read_bytes()
    code = (
        "import sys; sys.modules['mteb'] = None\n"
        "from beirgrid import config\nimport json\n"
        "found = config.load(json.load(sys.stdin))\n"
        "print(found.models['BAAI__bge-m3'].revision, 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        input=json.dumps(raw(["bm25", QWEN, M3])),
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "workflow"), "PATH": ""},
    )
    assert done.stdout.split() == ["5617a9f61b028005a4858fdac845db406aefb181", "False"], done.stderr
    assert done.stderr == ""
    assert Path(lock.LOCK).read_bytes() == before


def test_a_further_name_leaves_what_is_locked():
    files.write_json(lock.LOCK, {"some/model": {"commit": "f" * 40, "files": {}}})
    load(QWEN)
    known = lock.names()
    known["models"][QWEN]["entry"]["revision"] = "a" * 40
    files.write_json(lock.LOCK, lock.read() | {"names": known})
    assert load(QWEN, M3).models["Qwen__Qwen3-Embedding-4B"].revision == "a" * 40
    assert set(lock.names()["models"]) == {QWEN, M3}
    assert lock.read()["some/model"] == {"commit": "f" * 40, "files": {}}


def test_a_changed_fact_reruns_what_depends_on_it():
    """The prompt of a task changes the queries of its dataset, and nothing else."""

    def params() -> dict[str, Any]:
        grid, name = Grid(load(QWEN)), names.local_name(QWEN)
        return {
            "queries of scifact": settings(grid, "retrieve_dense", system=name, dataset="scifact"),
            "queries of nfcorpus": settings(grid, "retrieve_dense", system=name, dataset="nfcorpus"),
            "documents": settings(grid, "encode_dense", model=name, corpus="scifact", shard="0"),
            "checkpoint": settings(grid, "fetch_model", model=name),
        }

    before = params()
    known = lock.names()
    known["models"][QWEN]["queries"]["SciFact"] = "another: "
    known["models"][QWEN]["mteb"] = "2.27.0"
    files.write_json(lock.LOCK, {"names": known})
    after = params()
    assert {key for key in before if before[key] != after[key]} == {"queries of scifact"}
