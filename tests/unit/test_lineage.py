"""Artifacts that do not belong together: each input of each stage, replaced by one of another corpus, model or run."""

from __future__ import annotations

import contextlib
import json
import random
import shutil
from itertools import pairwise
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from helpers import fetch_corpus, made_once, main, write_collection
from safetensors.torch import load_file, save_file

from beirgrid.core import provenance
from beirgrid.core.errors import DataError

pytestmark = pytest.mark.slow
DENSE = {"family": "dense", "similarity": "cosine"}
MODELS = {
    "dense": DENSE,
    "other": DENSE,
    "splade": {"family": "sparse"},
    "late-interaction": {"family": "late-interaction", "max_length": 60, "query_length": 16},
    "cross-encoder": {"family": "cross-encoder", "max_length": 64},
    "query-generator": {"family": "query-generator", "queries_per_document": 1},
}
SUFFIXES = {"dense": ".npy", "other": ".npy", "splade": ".npz", "late-interaction": ".tokens"}
INDEXES = {"dense": ".faiss", "other": ".faiss", "splade": ".impact", "late-interaction": ".faiss"}
# Two corpora of as many documents with the same ids, searched in shards, and datasets over each.
CORPORA, SHARDS, SIZE = ("one", "two"), range(3), 8
DATASETS = {"one": "one", "again": "one", "two": "two"}
INT8 = {"kind": "int8"}
GENERATED = {"documents": 20, "queries_per_document": 2, "derive": ["sentences"], "seed": 1}
MINED = {"negative_depth": 4, "dense": [DENSE]}
LABELLED = {"steps": 4, "batch": 4, "seed": 1, "teacher": MODELS["cross-encoder"]}
TRAINED = {"base": "dense", "corpus": "one", "dataset": "one", "queries": 4, "negative_depth": 4}
TRAINED |= {"hard_negatives": 1, "random_negatives": 1, "epochs": 1, "batch": 4, "learning_rate": 1e-4, "seed": 1}


CPU = {"device": "cpu", "precision": "float32"}


def _shards(model: str, corpus: str, suffix: str, folder: str = "indexes") -> list[str]:
    return [f"results/{folder}/{model}/{corpus}/{shard}{suffix}" for shard in SHARDS]


def _checkpoint(model: str) -> str:
    return f"results/models/{model}/checkpoint"


def _corpus(corpus: str) -> str:
    return f"results/corpora/{corpus}/corpus.parquet"


def _queries(dataset: str) -> str:
    return f"results/datasets/{dataset}/queries.parquet"


def _qrels(dataset: str) -> str:
    return f"results/datasets/{dataset}/qrels.tsv"


def _run(system: str, dataset: str) -> str:
    return f"results/runs/{system}/{dataset}.run.gz"


def _index(name: str, corpus: str) -> str:
    return f"results/indexes/bm25-{name}/{corpus}/lucene"


def _training(corpus: str, name: str) -> str:
    return f"results/training/gpl@{corpus}/{name}.parquet"


def _job(stage: str, made: str = "", /, **options: object) -> list[str]:
    """Return the words of a stage. What it makes has its record beside it; an option that is no text is JSON."""
    if made:
        options |= {"output": made, "record": str(Path(made.removesuffix(".run.gz")).with_suffix(".json"))}
    words = stage.split()
    for name, value in options.items():
        texts = value if isinstance(value, list) else [value if isinstance(value, str) else json.dumps(value)]
        words += [f"--{name.replace('_', '-')}", *texts]
    return words


def _fetch_model(model: str, source: str) -> list[str]:
    entry = {"path": str(Path("models", source).absolute())}
    record = f"results/models/{model}/model.json"
    return _job("fetch model", name=model, entry=entry, output=_checkpoint(model), record=record)


def _of_corpus(corpus: str) -> dict[str, list[str]]:
    """Return the commands of a corpus and its datasets: fetched, indexed and encoded."""
    source = {"source": "local", "path": str(Path("data", corpus).absolute())}
    commands = {f"fetch corpus {corpus}": fetch_corpus(source, Path("results/corpora", corpus), corpus)}
    for dataset in [name for name, of in DATASETS.items() if of == corpus]:
        entry = {"corpus": corpus, "split": "dev" if dataset == "again" else "test"}
        places = {"queries": _queries(dataset), "qrels": _qrels(dataset)}
        places |= {"corpus": _corpus(corpus), "record": f"results/datasets/{dataset}/dataset.json"}
        commands[f"fetch dataset {dataset}"] = _job(
            "fetch dataset", name=dataset, corpus_entry=source, entry=entry, **places
        )
    commands[f"index flat {corpus}"] = _job(
        "index lexical", _index("flat", corpus), corpus=_corpus(corpus), fields="flat"
    )
    for model, suffix in SUFFIXES.items():
        family, indexes = MODELS[model]["family"], _shards(model, corpus, INDEXES[model])
        for shard, vectors in enumerate(_shards(model, corpus, suffix, "embeddings")):
            commands[f"encode {model} {corpus} {shard}"] = _of_shard("encode", model, corpus, shard, vectors)
            commands[f"index {model} {corpus} {shard}"] = _job(f"index {family}", indexes[shard], vectors=vectors)
    for shard, exact in enumerate(_shards("dense", corpus, ".faiss")):
        made = _shards("dense", f"{corpus}/int8", ".faiss")[shard]
        commands[f"approximate {corpus} {shard}"] = _job(
            "index approximate", made, exact=exact, index=INT8, similarity="cosine"
        )
    expansions = _shards("query-generator", corpus, ".parquet", "expansions")
    for shard, expansion in enumerate(expansions):
        commands[f"expand {corpus} {shard}"] = _of_shard("expand", "query-generator", corpus, shard, expansion)
    if corpus == "one":  # no other index of the corpus "two" takes the place of one
        options = {"corpus": _corpus(corpus), "expansions": expansions, "fields": "flat"}
        commands["index expanded one"] = _job("index lexical", _index("flat@query-generator", corpus), **options)
    return commands


def _of_shard(stage: str, model: str, corpus: str, shard: int, output: str) -> list[str]:
    options = {"model": MODELS[model], "checkpoint": _checkpoint(model), "corpus": _corpus(corpus), **CPU}
    return _job(stage, output, shard=shard, shard_size=SIZE, **options)


def _of_dataset(dataset: str) -> dict[str, list[str]]:
    """Return the commands that search a dataset, and those that read its runs."""
    corpus, bm25, pairs = DATASETS[dataset], _run("bm25", dataset), f"results/pairs/ce/{dataset}"
    scores, metrics = f"{pairs}/bm25.json", f"results/metrics/bm25/{dataset}.json"
    asked = {"queries": _queries(dataset), "depth": 20}
    places = {"queries": _queries(dataset), "corpus": _corpus(corpus)}
    scoring = {"run": bm25, "depth": 5, "model": MODELS["cross-encoder"], "checkpoint": _checkpoint("cross-encoder")}

    def neural(system: str, model: str, **options: object) -> list[str]:
        read = {"model": MODELS[model], "checkpoint": _checkpoint(model), "corpus": _corpus(corpus)}
        stage = f"retrieve {MODELS[model]['family']}"
        return _job(stage, _run(system, dataset), system=system, **read, **options, **asked, **CPU)

    late = {
        "tokens": _shards("late-interaction", corpus, ".tokens", "embeddings"),
        "candidates": 4,
        "indexes": _shards("late-interaction", corpus, ".faiss"),
    }
    return {
        f"bm25 {dataset}": _job(
            "retrieve lexical", bm25, system="bm25", index=_index("flat", corpus), fields="flat", **asked
        ),
        f"dense {dataset}": neural("dense", "dense", indexes=_shards("dense", corpus, ".faiss")),
        f"splade {dataset}": neural("splade", "splade", indexes=_shards("splade", corpus, ".impact")),
        f"late {dataset}": neural("late", "late-interaction", **late),
        f"int8 {dataset}": neural("int8", "dense", indexes=_shards("dense", f"{corpus}/int8", ".faiss"), index=INT8),
        f"score {dataset}": _job("score", pairs=pairs, record=scores, **scoring, **places, **CPU),
        f"rerank {dataset}": _job(
            "rerank", _run("reranked", dataset), system="reranked", first_stage=bm25, scores=scores, depth=5
        ),
        f"fuse {dataset}": _job(
            "fuse", _run("fused", dataset), system="fused", runs=[bm25, _run("dense", dataset)], method="rrf"
        ),
        f"evaluate {dataset}": _job("evaluate", run=bm25, qrels=_qrels(dataset), metrics="ndcg@10", output=metrics),
        f"fetch run {dataset}": _job(
            "fetch run", _run("theirs", dataset), system="theirs", run=f"data/{dataset}.run", **places
        ),
    }


def _trained(corpus: str) -> dict[str, list[str]]:
    places = {"corpus": _corpus(corpus), **CPU}
    queries, negatives = (_training(corpus, name) for name in ("queries", "negatives"))
    dense = {"checkpoints": _checkpoint("dense"), "indexes": _shards("dense", corpus, ".faiss")}
    teacher = {"teacher": _checkpoint("cross-encoder"), **places}
    base = {"base": _checkpoint("dense"), **places}
    judged = {"queries": _queries(corpus), "qrels": _qrels(corpus)}
    model = f"trained@{corpus}"
    trained = {"output": _checkpoint(model), "record": f"results/models/{model}/model.json"}
    return {
        f"generate {corpus}": _job("generate", queries, recipe=GENERATED, **places),
        f"mine {corpus}": _job(
            "mine", negatives, recipe=MINED, queries=queries, index=_index("flat", corpus), **dense, **places
        ),
        f"label {corpus}": _job(
            "label", _training(corpus, "margins"), recipe=LABELLED, queries=queries, negatives=negatives, **teacher
        ),
        f"train {corpus}": _job("train", recipe=TRAINED, index=_index("flat", corpus), **base, **judged, **trained),
    }


def _commands() -> dict[str, list[str]]:
    commands = {f"fetch model {model}": _fetch_model(model, model) for model in MODELS}
    for corpus in CORPORA:
        commands |= _of_corpus(corpus)
    for dataset in DATASETS:
        commands |= _of_dataset(dataset)
    for corpus in CORPORA:
        commands |= _trained(corpus)
    return commands


def _sources(tiny_models: dict[str, Path]) -> None:
    """Write the collections, the runs of other software, and the checkpoints."""
    words = ["amber", "basalt", "cedar", "delta", "ember", "fjord", "granite", "harbor"]
    for seed, corpus in enumerate(CORPORA):
        choose = random.Random(seed)
        documents = [
            {"_id": f"d{i}", "title": "", "text": ". ".join(" ".join(choose.choices(words, k=4)) for _ in range(3))}
            for i in range(SIZE * len(SHARDS) - 2)
        ]
        queries = [{"_id": f"q{i}", "text": " ".join(choose.choices(words, k=3))} for i in range(6)]
        qrels = [(f"q{i}", f"d{i}", 1) for i in range(6)]
        write_collection(Path("data", corpus), documents, queries, {"test": qrels, "dev": qrels[:4]})
    for dataset in DATASETS:
        lines = [f"q{i} Q0 d{i} 1 1.0 theirs\n" for i in range(4 if dataset == "again" else 6)]
        Path(f"data/{dataset}.run").write_text("".join(lines))
    for model in MODELS:
        shutil.copytree(tiny_models["dense" if model == "other" else model], Path("models", model))
    weights = Path("models/other/model.safetensors")
    save_file({name: tensor * 1.5 for name, tensor in load_file(weights).items()}, weights, {"format": "pt"})


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, tiny_models: dict[str, Path]) -> Path:
    """A folder in which every command has run for both corpora. Tests must not change it."""

    def make(folder: Path) -> None:
        with contextlib.chdir(folder):
            _sources(tiny_models)
            for name, words in _commands().items():
                assert main(words) == 0, name

    return made_once(tmp_path_factory, "lineage", make)


ONE, TWO, DENSE_ONE = _corpus("one"), _corpus("two"), _shards("dense", "one", ".faiss")
LATE = _shards("late-interaction", "one", ".tokens", "embeddings")
# Commands, what each is given in the place of what, and which other artifact the message names.
SWAPS = [
    ("fetch run one", ONE, TWO, _queries("one")),
    ("fetch run one", _queries("one"), _queries("two"), ONE),
    ("index expanded one", ONE, TWO, "expansions/query-generator/one/0.parquet"),
    *(
        ("index expanded one", path, path.replace("/one/", "/two/"), ONE)
        for path in _shards("query-generator", "one", ".parquet", "expansions")
    ),
    ("bm25 one", _index("flat", "one"), _index("flat", "two"), _queries("one")),
    ("bm25 one", _queries("one"), _queries("two"), _index("flat", "one")),
    *(
        (f"{system} one", given, swapped, named)
        for system, model in (("dense", "dense"), ("splade", "splade"), ("late", "late-interaction"))
        for given, swapped, named in (
            (ONE, TWO, _queries("one")),
            (_queries("one"), _queries("two"), ONE),
            (_shards(model, "one", INDEXES[model])[1], _shards(model, "two", INDEXES[model])[1], ONE),
        )
    ),
    ("late one", LATE[1], LATE[1].replace("/one/", "/two/"), ONE),
    ("score one", ONE, TWO, _queries("one")),
    ("score one", _queries("one"), _queries("two"), ONE),
    ("score one", _queries("one"), _queries("again"), _run("bm25", "one")),
    ("score one", _run("bm25", "one"), _run("bm25", "two"), ONE),
    ("rerank one", _run("bm25", "one"), _run("bm25", "two"), "results/pairs/ce/one/bm25.json"),
    ("rerank one", "results/pairs/ce/one/bm25.json", "results/pairs/ce/again/bm25.json", _run("bm25", "one")),
    ("fuse one", _run("dense", "one"), _run("dense", "two"), _run("bm25", "one")),
    ("fuse one", _run("dense", "one"), _run("dense", "again"), _run("bm25", "one")),
    ("evaluate one", _run("bm25", "one"), _run("bm25", "two"), _qrels("one")),
    ("evaluate one", _qrels("one"), _qrels("two"), _run("bm25", "one")),
    ("evaluate again", _run("bm25", "again"), _run("bm25", "one"), _qrels("again")),
    ("mine one", ONE, TWO, _training("one", "queries")),
    ("mine one", _training("one", "queries"), _training("two", "queries"), ONE),
    ("mine one", _index("flat", "one"), _index("flat", "two"), ONE),
    ("mine one", DENSE_ONE[1], _shards("dense", "two", ".faiss")[1], ONE),
    ("label one", ONE, TWO, _training("one", "queries")),
    ("label one", _training("one", "queries"), _training("two", "queries"), ONE),
    ("label one", _training("one", "negatives"), _training("two", "negatives"), ONE),
    ("train one", ONE, TWO, _index("flat", "one")),
    ("train one", _index("flat", "one"), _index("flat", "two"), ONE),
    ("train one", _queries("one"), _queries("two"), ONE),
    ("train one", _qrels("one"), _qrels("again"), _queries("one")),
]


def _refused(words: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """Run a command, which must fail and write nothing, and return its one line of message."""
    before = {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")}
    capsys.readouterr()
    assert main(words) == 1
    assert {path: path.stat().st_mtime_ns for path in Path("results").rglob("*")} == before
    (message,) = capsys.readouterr().err.splitlines()
    return message


@pytest.mark.parametrize(("command", "given", "swapped", "named"), SWAPS)
def test_an_input_of_another_origin_is_refused(site, monkeypatch, capsys, command, given, swapped, named):
    monkeypatch.chdir(site)
    words = _commands()[command]
    assert given in words
    message = _refused([swapped if word == given else word for word in words], capsys)
    assert named in message
    assert swapped in message


def _fetch_other_model(name: str, other: str) -> None:
    shutil.rmtree(_checkpoint(name))
    assert main(_fetch_model(name, other)) == 0


def _fetch_again(kind: str, file: str) -> None:
    """Fetch a corpus or a dataset whose lines stand in another order, or whose grades are others."""
    lines = Path("data/one", file).read_text().splitlines()
    first, *others = lines if kind == "dataset" else ["", *lines]
    others = [line.replace("\t1", "\t2") for line in others] if kind == "dataset" else others[::-1]
    Path("data/one", file).write_text("\n".join([*filter(None, [first]), *others, ""]))
    assert main(_commands()[f"fetch {kind} one"]) == 0


# What a run that stopped early made again, the record that is older, and what the message names.
MADE_AGAIN = [
    (lambda: _fetch_other_model("dense", "other"), "runs/dense/one.json", _checkpoint("dense")),
    (lambda: _fetch_other_model("dense", "other"), "indexes/dense/one/1.json", _checkpoint("dense")),
    (lambda: _fetch_other_model("cross-encoder", "dense"), "pairs/ce/one/bm25.json", _checkpoint("cross-encoder")),
    (lambda: _fetch_again("corpus", "corpus.jsonl"), "runs/bm25/one.json", ONE),
    (lambda: _fetch_again("corpus", "corpus.jsonl"), "runs/late/one.json", ONE),
    (lambda: _fetch_again("dataset", "qrels/test.tsv"), "metrics/bm25/one.json", _qrels("one")),
]


@pytest.mark.parametrize(("change", "record", "named"), MADE_AGAIN)
def test_what_was_made_of_something_that_was_made_again_since_is_refused(
    site, monkeypatch, tmp_path, change, record, named
):
    shutil.copytree(site, tmp_path / "site")
    monkeypatch.chdir(tmp_path / "site")
    for path in Path("results").rglob("*.json"):
        provenance.check({"record": path})
    change()
    with pytest.raises(DataError, match=f"{named} is another one than results/.* was made from"):
        provenance.check({"record": Path("results", record)})


@pytest.mark.parametrize("system", ["dense", "bm25", "fused", "reranked", "late", "int8"])
def test_a_system_is_not_searched_after_its_corpus_was_made_again(site, monkeypatch, capsys, tmp_path, system):
    """The search would return other documents than the index contains."""
    shutil.copytree(site, tmp_path / "site")
    monkeypatch.chdir(tmp_path / "site")
    words = ["search", system, "one", "amber cedar", "--device", "cpu"]
    assert main(words) == 0
    _fetch_again("corpus", "corpus.jsonl")
    capsys.readouterr()
    assert main(words) == 1
    assert f"{ONE} is another one than results/" in capsys.readouterr().err


def _own(folder: Path, *paths: str) -> dict[str, str]:
    """Return copies of artifacts, without records, by the path of each."""
    copies = {path: str(folder / path.replace("/", "-")) for path in paths}
    for path, copy in copies.items():
        shutil.copy(path, copy)
    return copies


def _elsewhere(words: list[str], folder: Path) -> list[str]:
    """Return the words of a command with its outputs in another folder."""
    outputs = ("--output", "--record", "--pairs")
    return [str(folder / word) if before in outputs else word for before, word in pairwise(["", *words])]


@pytest.mark.parametrize("command", ["dense one", "score one", "rerank one", "fuse one", "evaluate one", "label one"])
def test_artifacts_of_ones_own_need_no_record(site, monkeypatch, tmp_path, command):
    """Runs of other software, qrels of one's own, and copies of artifacts without their records."""
    monkeypatch.chdir(site)
    training = [_training("one", name) for name in ("queries", "negatives")]
    own = _own(tmp_path, ONE, _queries("one"), *DENSE_ONE, _run("bm25", "one"), _qrels("one"), *training)
    words = [own.get(word, word) for word in _commands()[command]]
    assert words != _commands()[command]
    assert main(_elsewhere(words, tmp_path)) == 0


def _last_two(path: str) -> None:
    table = pq.read_table(path)
    pq.write_table(table.slice(len(table) - 2), path)


@pytest.mark.parametrize(
    ("command", "cut", "said"),
    [
        ("dense one", ONE, "has 2 documents, but the search found document"),
        ("score one", ONE, "has no document 'd"),
        ("score one", _queries("one"), "has no query 'q0'"),
        ("label one", ONE, "has no document 'd"),
        ("train one", _queries("one"), "has no query 'q0'"),
    ],
)
def test_without_records_the_message_names_what_an_input_lacks(site, monkeypatch, capsys, tmp_path, command, cut, said):
    monkeypatch.chdir(site)
    words = _commands()[command]
    own = _own(tmp_path, *{word for word in words if word.startswith("results/") and Path(word).is_file()})
    _last_two(own[cut])
    assert main(_elsewhere([own.get(word, word) for word in words], tmp_path)) == 1
    assert said in capsys.readouterr().err


def test_a_copy_of_a_corpus_is_the_corpus(site, monkeypatch, tmp_path):
    """Whether artifacts belong together follows from content, not from names."""
    monkeypatch.chdir(site)
    shutil.copy(ONE, tmp_path / "c.parquet")
    words = [str(tmp_path / "c.parquet") if word == ONE else word for word in _commands()["dense one"]]
    assert main(_elsewhere(words, tmp_path)) == 0


def test_records_that_name_no_inputs_refuse_nothing(site, monkeypatch, tmp_path):
    shutil.copytree(site, tmp_path / "site")
    monkeypatch.chdir(tmp_path / "site")
    for path in Path("results").rglob("*.json"):
        record = json.loads(path.read_text())
        if "stage" in record:
            path.write_text(json.dumps({key: value for key, value in record.items() if key != "inputs"}))
    for command in ("dense one", "bm25 one", "fuse one", "evaluate one", "index expanded one"):
        assert main(_commands()[command]) == 0
