"""What the configuration may say, and what each mistake is told."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from helpers import write_collection

from beirgrid import config, metrics
from beirgrid.errors import BeirgridError, ConfigError


@pytest.fixture
def raw(root: Path) -> dict[str, Any]:
    """The tracked configuration, merged as Snakemake merges it."""
    merged: dict[str, Any] = {}
    for name in ("datasets", "systems", "config"):
        merged.update(yaml.safe_load((root / "config" / f"{name}.yaml").read_text()))
    return merged


def _set(raw: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split("/")
    for parent in parents:
        raw = raw.setdefault(parent, {})
    raw[last] = value


MISTAKES = {
    "unknown top-level key": ({"metric": ["ndcg@10"]}, "unknown key 'metric'; did you mean 'metrics'?"),
    "unknown key": (
        {"models/minilm/max_lenght": 5},
        "models.minilm: unknown key 'max_lenght'; did you mean 'max_length'?",
    ),
    "wrong type": ({"retrieve/depth": "deep"}, "retrieve.depth: 'deep' should be of type integer, not str"),
    "wrong choice": ({"device": "gpu"}, "device: 'gpu' is not one of auto, cpu, cuda"),
    "unknown system": ({"grid/systems": ["bm52"]}, "no system is named 'bm52'; did you mean 'bm25'?"),
    "unknown dataset": ({"grid/datasets": ["sci-fact"]}, "no dataset is named 'sci-fact'; did you mean 'scifact'?"),
    "unknown corpus": ({"datasets/x": {"corpus": "scifct"}}, "no corpus is named 'scifct'; did you mean 'scifact'?"),
    "unknown model": ({"systems/x": {"retriever": "miniml"}}, "no model is named 'miniml'; did you mean 'minilm'?"),
    "fusion of one": ({"systems/x": {"fusion": "rrf", "of": ["bm25"]}}, "at least two different systems, not 1"),
    "fusion of one, twice": ({"systems/x": {"fusion": "rrf", "of": ["bm25", "bm25"]}}, "two different systems, not 1"),
    "weights": ({"systems/x": {"fusion": "wsum", "of": ["bm25", "minilm"], "weights": [1]}}, "1 weights for 2 systems"),
    "weights of rrf": ({"systems/x": {"fusion": "rrf", "of": ["bm25", "minilm"], "weights": [1, 1]}}, "go with wsum"),
    "no first stage": ({"systems/x": {"reranker": "ms-marco-minilm"}}, "systems.x: a reranker needs a first_stage"),
    "no reranker": ({"systems/x": {"first_stage": "bm25"}}, "systems.x: first_stage needs a reranker"),
    "reranker of the wrong family": (
        {"systems/x": {"first_stage": "bm25", "reranker": "minilm"}},
        "'minilm' is a dense model; a cross-encoder model is needed here",
    ),
    "too deep": (
        {
            "systems/x": {"first_stage": "bm25", "reranker": "ms-marco-minilm", "depth": 2000},
            "grid/systems": ["x"],
        },
        "2000 is deeper than the runs are (retrieve.depth is 1000)",
    ),
    "key of another kind": ({"systems/x": {"retriever": "minilm", "k1": 1.2}}, "'k1' does not go with a dense system"),
    "nothing": ({"systems/x": {}}, "needs one of the keys retriever, reranker, fusion"),
    "metric without k": ({"metrics": ["ndcg"]}, "'ndcg' is not a metric of the form name@k"),
    "unknown metric": ({"metrics": ["ndgc@10"]}, "there is no metric 'ndgc'; did you mean 'ndcg'?"),
    "no revision": (
        {"models/x": {"family": "dense", "checkpoint": "a/b", "similarity": "dot"}},
        "models.x: needs a revision",
    ),
    "revision is a branch": (
        {"models/x": {"family": "dense", "checkpoint": "a/b", "similarity": "dot", "revision": "main"}},
        "models.x.revision: 'main' does not match",
    ),
    "no similarity": ({"models/x": {"family": "dense", "path": "/x"}}, "models.x: a dense model needs its similarity"),
    "similarity of a cross-encoder": (
        {"models/x": {"family": "cross-encoder", "path": "/x", "similarity": "dot"}},
        "models.x: a cross-encoder has no similarity",
    ),
    "unknown expansion": (
        {"systems/x": {"retriever": "bm25", "expansion": "doct5qery"}},
        "systems.x.expansion: no model is named 'doct5qery'; did you mean 'doct5query'?",
    ),
    "expansion by another family": (
        {"systems/x": {"retriever": "bm25", "expansion": "minilm"}},
        "'minilm' is a dense model; a query-generator or term-weights model is needed here",
    ),
    "expansion of a dense system": (
        {"systems/x": {"retriever": "minilm", "expansion": "doct5query"}},
        "systems.x: the key 'expansion' does not go with a dense system",
    ),
    "retrieving with a query generator": (
        {"systems/x": {"retriever": "doct5query"}},
        "systems.x.retriever: 'doct5query' is a query-generator model; a retriever is needed here",
    ),
    "no queries": ({"models/doct5query/queries_per_document": 0}, "models.doct5query.queries_per_document: 0 is less"),
    "an impossible nucleus": ({"models/doct5query/top_p": 0}, "models.doct5query.top_p: 0 is less than or equal to"),
    "a key of another family": (
        {"models/deepct/top_k": 5},
        "models.deepct: the key 'top_k' goes with query-generator models, not with a term-weights model",
    ),
    "similarity of an expansion": (
        {"models/deepct/similarity": "dot"},
        "models.deepct: a term-weights model has no similarity",
    ),
    "package without hash": (
        {"models/x": {"family": "cross-encoder", "package": "p"}},
        "weights from a package need their SHA-256",
    ),
    "no id": ({"corpora/x": {"source": "ir_datasets"}}, "corpora.x: source ir_datasets needs the key 'id'"),
    "no path": ({"corpora/x": {"source": "local"}}, "corpora.x: source local needs the key 'path'"),
    "a name that is no file name": ({"systems/a b": {"retriever": "bm25"}}, "'a b' does not match"),
    "evaluated on what it is trained on": (
        {"grid/datasets": ["demo-train"], "grid/systems": ["bm25+demo-ce"]},
        "'demo-train' is what 'demo-reranker' is trained on",
    ),
    "the same under another name": (
        {
            "datasets/x": {"corpus": "demo", "split": "train"},
            "datasets/y": {"mean_of": ["demo", "x"]},
            "grid/datasets": ["y"],
            "grid/systems": ["bm25+demo-ce"],
        },
        "'x' is what 'demo-reranker' is trained on",
    ),
    "a metric deeper than the runs": (
        {"retrieve/depth": 200},
        "recall@1000 looks deeper than the runs are (retrieve.depth is 200)",
    ),
    "a model's folder": (
        {
            "models/x": {"family": "dense", "path": "/nowhere", "similarity": "dot"},
            "systems/x": {"retriever": "x"},
            "grid/systems": ["x"],
        },
        "models.x.path: there is no folder /nowhere",
    ),
    "a number as a name": (
        {"datasets/x": {"corpus": 2019}},
        "2019 should be of type string, not int (put it in quotes)",
    ),
    "keys that are no text": ({"retrieve": {1: 2, "depht": 3}}, "unknown key 'depht'; did you mean 'depth'?"),
    "weights that are no numbers": (
        {"systems/x": {"fusion": "wsum", "of": ["bm25", "minilm"], "weights": [1, float("nan")]}},
        "are not all numbers",
    ),
    "trained and fetched": (
        {"models/demo-reranker/path": "/x"},
        "models.demo-reranker: a model is either trained or has path",
    ),
    "trained on a mean": (
        {"models/demo-reranker/train/dataset": "cqadupstack"},
        "models.demo-reranker.train.dataset: 'cqadupstack' is a mean of datasets",
    ),
}

_GPL = {"recipe": "gpl", "base": "minilm", "derive": ["titles"], "teacher": "ms-marco-minilm"}
_ADAPTED = {"family": "dense", "similarity": "cosine"}
ADAPTATION_MISTAKES = {
    "no recipe": ({"train": {"base": "minilm"}}, "models.x.train: a dense model needs its recipe (genq, gpl, tsdae)"),
    "a key of another recipe": (
        {"train": {"recipe": "tsdae", "base": "minilm", "teacher": "ms-marco-minilm"}},
        "models.x.train: the key 'teacher' does not go with tsdae",
    ),
    "no queries": ({"train": {"recipe": "genq", "base": "minilm"}}, "needs queries from a generator or from derive"),
    "test queries": ({"train": {**_GPL, "dataset": "demo"}}, "the key 'dataset' does not go with gpl"),
    "a generator of another family": (
        {"train": {"recipe": "genq", "base": "minilm", "generator": "minilm"}},
        "'minilm' is a dense model; a query-generator model is needed here",
    ),
    "no teacher": (
        {"train": {key: value for key, value in _GPL.items() if key != "teacher"}},
        "models.x.train: gpl needs a teacher",
    ),
    "a dense teacher": (
        {"train": {**_GPL, "teacher": "minilm"}},
        "'minilm' is a dense model; a cross-encoder model is needed here",
    ),
    "an unknown retriever": (
        {"train": {**_GPL, "retrievers": ["bm25", "miniml"]}},
        "models.x.train.retrievers: no model is named 'miniml'; did you mean 'minilm'?",
    ),
    "another similarity": (
        {"train": _GPL, "similarity": "dot"},
        "models.x.similarity: its base 'minilm' has cosine, which training keeps",
    ),
    "adapted twice": ({"train": {**_GPL, "base": "minilm-genq"}}, "only genq and gpl go on from a tsdae model"),
    "a base of another corpus": (
        {"train": {**_GPL, "base": "y"}},
        "models.x.train.base: 'y' is trained on corpus 'demo' alone",
    ),
}


@pytest.mark.parametrize(("changes", "message"), ADAPTATION_MISTAKES.values(), ids=ADAPTATION_MISTAKES)
def test_each_mistake_in_an_adaptation_is_named(raw, changes, message):
    raw["models"]["y"] = {**_ADAPTED, "train": {"recipe": "tsdae", "base": "minilm", "corpus": "demo"}}
    raw["models"]["x"] = {**_ADAPTED, **changes}
    with pytest.raises(ConfigError) as caught:
        config.load(raw)
    assert message in str(caught.value)


def test_a_model_per_corpus_stands_for_one_of_each_corpus_of_the_grid(raw):
    raw["models"]["x"] = {**_ADAPTED, "train": _GPL}
    raw["models"]["y"] = {**_ADAPTED, "train": {**_GPL, "corpus": "demo"}}
    raw["grid"]["datasets"] = ["scifact", "cqadupstack"]
    loaded = config.load(raw)
    adapted = {name for name in loaded.models if name.startswith("x@")}
    assert {"x@scifact", "x@cqadupstack-tex", "x@demo"} <= adapted
    assert "x@fiqa" not in adapted
    assert loaded.models["x@scifact"].train["corpus"] == "scifact"
    assert not any(name.startswith("y@") for name in loaded.models)
    raw["models"]["x@fiqa"] = raw["models"]["minilm"]
    with pytest.raises(ConfigError, match=r"models\.x@fiqa: names of this form are those of models\.x"):
        config.load(raw)


def test_what_a_teacher_is_trained_on_is_not_evaluated(raw):
    raw["models"]["x"] = {**_ADAPTED, "train": {**_GPL, "teacher": "demo-reranker"}}
    raw["systems"]["x"] = {"retriever": "x"}
    raw["grid"] = {"systems": ["x"], "datasets": ["demo"]}
    config.load(raw)
    raw["grid"]["datasets"] = ["demo-train"]
    with pytest.raises(ConfigError, match="'demo-train' is what 'demo-reranker' is trained on"):
        config.load(raw)


def test_the_tracked_configuration_is_valid(raw):
    loaded = config.load(raw)
    assert loaded.systems["bm25+minilm"].parts == ("bm25", "minilm")
    assert loaded.datasets["cqadupstack"].mean_of[0] == "cqadupstack-android"


@pytest.mark.parametrize(("changes", "message"), MISTAKES.values(), ids=MISTAKES)
def test_each_mistake_is_named(raw, changes, message):
    raw = copy.deepcopy(raw)
    for path, value in changes.items():
        _set(raw, path, value)
    with pytest.raises(ConfigError) as caught:
        config.load(raw)
    assert message in str(caught.value)


def test_all_mistakes_come_in_one_message(raw):
    raw["grid"] = {"systems": ["nope", "bm25"], "datasets": ["nada"]}
    with pytest.raises(ConfigError) as caught:
        config.load(raw)
    assert str(caught.value).count("\n  - ") == 2


def test_systems_made_from_each_other_are_refused(raw):
    raw["systems"]["x"] = {"fusion": "rrf", "of": ["bm25", "y"]}
    raw["systems"]["y"] = {"fusion": "rrf", "of": ["bm25", "x"]}
    with pytest.raises(ConfigError, match="systems x → y → x are made from each other"):
        config.load(raw)


@pytest.mark.parametrize(
    ("split", "message"),
    [("dev", r"no qrels: .*qrels/dev.tsv does not exist \(splits there: test\)"), ("test", None)],
)
def test_a_dataset_without_qrels_is_refused(raw, tmp_path, split, message):
    write_collection(
        tmp_path / "c", [{"_id": "1", "text": "a"}], [{"_id": "q", "text": "a"}], {"test": [("q", "1", 1)]}
    )
    raw["corpora"]["mine"] = {"source": "local", "path": str(tmp_path / "c")}
    raw["datasets"]["mine"] = {"corpus": "mine", "split": split}
    raw["grid"] = {"systems": ["bm25"], "datasets": ["mine"]}
    if message is None:
        assert config.load(raw).datasets["mine"].corpus == "mine"
    else:
        with pytest.raises(ConfigError, match=message):
            config.load(raw)


def test_a_missing_folder_is_named_only_if_the_grid_needs_it(raw):
    raw["corpora"]["mine"] = {"source": "local", "path": "/nowhere"}
    raw["datasets"]["mine"] = {"corpus": "mine"}
    config.load(raw)
    raw["grid"]["datasets"] = ["mine"]
    with pytest.raises(ConfigError, match="there is no folder /nowhere"):
        config.load(raw)


def test_metrics_are_read():
    assert metrics.parse_metric("recall_cap@100") == ("recall_cap", 100)
    for wrong in ("ndcg@0", "ndcg@", "NDCG@10", "ndcg@ten", "@10"):
        with pytest.raises(BeirgridError):
            metrics.parse_metric(wrong)


def test_every_object_of_the_schema_says_what_else_it_may_hold():
    schema = yaml.safe_load(config.SCHEMA.read_text())
    assert json.dumps(schema)  # plain data

    def walk(node: dict[str, Any], path: str) -> list[str]:
        missing = []
        for key, value in node.get("properties", {}).items():
            missing += walk(value, f"{path}.{key}")
        return missing + ([path] if node.get("type") == "object" and node.get("additionalProperties") is None else [])

    assert walk(schema, "top") == []  # every object says what else it may hold
