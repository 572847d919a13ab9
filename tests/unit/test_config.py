"""Valid configurations, and the message for each mistake."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from typing import Any

import ir_measures
import pytest
import yaml
from graph import everything, inputs, settings
from helpers import tracked_configuration, write_collection
from pydantic import TypeAdapter

from beirgrid import config
from beirgrid.collections.sources import open_source
from beirgrid.config import checks, values
from beirgrid.config.datasets import Corpus, Dataset
from beirgrid.core.checkout import CHECKOUT, resolve_path
from beirgrid.core.errors import BeirgridError, ConfigError
from beirgrid.graph.dag import Job, stages
from beirgrid.graph.grid import Grid
from beirgrid.graph.resources import Resources
from beirgrid.graph.sizes import Sizes
from beirgrid.graph.summaries import Summary
from beirgrid.measures import MEASURES, parse_metric, written
from beirgrid.results.summary import GridSummary
from beirgrid.search import lucene


@pytest.fixture
def raw() -> dict[str, Any]:
    """The tracked configuration, merged as Snakemake merges it."""
    return tracked_configuration()


def _planned(raw: dict[str, Any], systems: str, datasets: str = "demo", **more: str) -> Grid:
    """Return the grid of systems and datasets, whose names white space separates."""
    raw["grid"] = {"systems": systems.split(), "datasets": datasets.split(), **more}
    return Grid(config.load(raw))


def _summary(grid: Grid) -> GridSummary:
    return GridSummary.model_validate_json(Summary(grid).as_json({}))


_GPL = {"recipe": "gpl", "base": "minilm", "derive": ["titles"], "teacher": "ms-marco-minilm"}
_ADAPTED = {"family": "dense", "similarity": "cosine"}


def test_a_model_per_corpus_stands_for_one_of_each_corpus_of_the_grid(raw):
    raw["models"]["x"] = {**_ADAPTED, "train": _GPL}
    raw["models"]["y"] = {**_ADAPTED, "train": {**_GPL, "corpus": "demo"}}
    raw["grid"]["datasets"] = ["scifact", "cqadupstack"]
    loaded = config.load(raw)
    adapted = {name for name in loaded.models if name.startswith("x@")}
    assert {"x@scifact", "x@cqadupstack-tex", "x@demo"} <= adapted
    assert "x@fiqa" not in adapted
    assert loaded.models["x@scifact"].training.corpus == "scifact"
    assert not any(name.startswith("y@") for name in loaded.models)
    raw["models"]["x@scifact"] = raw["models"]["minilm"]
    assert config.load(raw).models["x@scifact"].training is None


@pytest.mark.parametrize("preset", sorted((CHECKOUT / "config" / "grids").glob("*.yaml")), ids=lambda p: p.stem)
def test_presets_are_valid(preset):
    assert config.load(config.with_defaults(yaml.safe_load(preset.read_text()))).grid.systems


def test_what_the_how_to_page_adds_is_valid(raw, root, tmp_path):
    write_collection(tmp_path, [{"_id": "1", "text": "a"}], [{"_id": "q", "text": "a"}], {"test": [("q", "1", 1)]})
    page = (root / "docs" / "datasets.md").read_text().replace("/data/mine", str(tmp_path))
    examples = [yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL)]
    grids = [example for example in examples if "grid" in example]
    assert [set(example.get("datasets", ())) for example in grids] == [
        set(),  # only names, which are in the lock file of the checkout
        *({name} for name in ("mine", "miracl-sw", "nano-scifact")),
    ]
    for example in grids:
        # registered entries with further keys
        for name in {"miracl-sw", "nano-scifact"} & set(example.get("corpora", ())):
            assert example["corpora"][name].items() <= raw["corpora"][name].items()
            assert example["datasets"][name].items() <= raw["datasets"][name].items()
        assert config.load(config.with_defaults(example)).grid.datasets


FAMILIES = ["dense", "sparse", "late-interaction", "cross-encoder", "seq2seq-reranker"]
FAMILIES += ["query-generator", "term-weights"]
# Keys with a value, and the families that read the key.
KEYS: dict[str, tuple[Any, list[str]]] = {
    "similarity": ("dot", ["dense", "sparse"]),
    "pooling": ("cls", ["dense", "sparse"]),
    "separator": (" / ", ["dense"]),
    "brackets": ({"query": ["[", "]"], "document": ["{", "}"]}, ["dense"]),
    "query_model": ("x", ["dense", "sparse", "late-interaction"]),
    "prompts": ({"document": "d: "}, ["dense", "sparse", "query-generator"]),
    "query_length": (32, ["late-interaction"]),
    "query_lengths": ({"scifact": 48}, ["late-interaction"]),
    "queries_per_document": (3, ["query-generator"]),
    "seed": (1, ["query-generator"]),
    "top_k": (5, ["query-generator"]),
    "top_p": (0.9, ["query-generator"]),
    "smoothing": ("sqrt", ["term-weights"]),
    "keep_terms": (True, ["term-weights"]),
    "train": ({"base": "minilm"}, ["dense", "cross-encoder"]),
    "max_length": (64, FAMILIES),
    "precision": ("float32", FAMILIES),
    "trust_remote_code": (True, FAMILIES),
    "note": ("…", FAMILIES),
}


@pytest.mark.parametrize("family", FAMILIES)
def test_a_key_that_a_family_does_not_read_is_refused(raw, family):
    """Each key is refused by its name in exactly those families that do not read it."""
    for key, (value, read_by) in KEYS.items():
        raw["models"]["x"] = {"family": family, "path": "/x", key: value}
        try:
            config.load(raw)
            said = ""
        except ConfigError as error:
            said = str(error)
        assert (f".{key}: Extra inputs" in said) == (family not in read_by), (key, said)


def test_a_query_length_for_a_dataset_reruns_its_retrieval_alone(raw):
    def entries(lengths: dict[str, int]) -> list[dict[str, Any]]:
        raw["models"]["colbertv2"]["query_lengths"] = lengths
        grid = Grid(config.load(raw))
        documents = settings(grid, "encode_late_interaction", model="colbertv2", corpus="scifact", shard="0")
        names = ("arguana", "scifact", "cqadupstack-gis")
        searches = [settings(grid, "retrieve_late_interaction", system="colbertv2", dataset=name) for name in names]
        return [job["model"] for job in (documents, *searches)]

    before = entries({})
    after = entries({"arguana": 300, "cqadupstack": 48})
    assert (before[0], before[2]) == (after[0], after[2])
    assert [entry.get("query_length") for entry in after] == [None, 300, 32, 48]


def test_all_mistakes_come_in_one_message(raw):
    raw |= {"grid": {"systems": ["nope", "bm25"], "datasets": ["demo"]}, "metrics": ["ndcg"]}
    with pytest.raises(ConfigError) as caught:
        config.load(raw)
    assert str(caught.value).count("\n  - ") == 2


def test_a_missing_folder_is_named_only_if_the_grid_needs_it(raw):
    raw["corpora"]["mine"] = {"source": "local", "path": "/nowhere"}
    raw["datasets"]["mine"] = {"corpus": "mine"}
    config.load(raw)
    raw["grid"]["datasets"] = ["mine"]
    with pytest.raises(ConfigError, match="there is no folder /nowhere"):
        config.load(raw)


@pytest.mark.parametrize(
    ("dataset", "folder_of", "wanted"),
    [("fiqa-dev", "fiqa", "dev"), ("fiqa", "fiqa", "test"), ("nq", "nq", "test"), ("miracl-sw", "miracl-sw", "dev")],
)
def test_a_folder_that_replaces_a_collection_has_the_split_of_the_dataset(raw, tmp_path, dataset, folder_of, wanted):
    """FEVER has as many queries in dev as in test, so that their number tells no difference."""
    judged = {split: [("q", "1", 1)] for split in ("dev", "test")}
    write_collection(tmp_path, [{"_id": "1", "text": "a"}], [{"_id": "q", "text": "a"}], judged)
    raw["corpora"][folder_of] |= {"source": "local", "path": str(tmp_path)}
    grid = _planned(raw, "bm25", dataset)
    asked = settings(grid, "fetch_dataset", dataset=dataset)
    (read,) = [name for name in stages()["fetch_dataset"].files(grid, dataset=dataset) if "qrels" in name]
    corpus = TypeAdapter(Corpus).validate_python(asked["corpus_entry"])
    entry = Dataset.model_validate(asked["entry"])
    (judgement,) = open_source(corpus).judgements(entry)
    assert read == str(tmp_path / f"qrels/{wanted}.tsv")
    assert judgement.place.startswith(f"{read}:")


def test_a_language_that_bm25_lacks_does_for_other_systems(raw):
    raw["corpora"]["x"] = {"source": "ir_datasets", "id": "miracl/yo", "language": "yo"}
    raw["datasets"]["x"] = {"corpus": "x", "id": "miracl/yo/dev"}
    assert _planned(raw, "minilm", "x").config.corpora["x"].language == "yo"


def test_the_languages_of_bm25_are_those_of_anserinis_jar():
    """The constants of its map from language to analyzer are the codes."""
    with zipfile.ZipFile(lucene.jar()) as jar:
        constants = jar.read("io/anserini/analysis/AnalyzerMap$1.class")
    codes = {code.decode() for code in re.findall(rb"\x01\x00\x02([a-z]{2})(?=[\x01-\x14])", constants)}
    assert set(values.BM25_LANGUAGES.split()) - {"en", "sw"} == codes - {"th"}


def test_the_papers_grid_is_left_to_nobody_but_for_licensed_collections(raw, root):
    """Each of its models is trained here, or fetched from a pinned or resolved commit."""
    raw.update(yaml.safe_load((root / "config/grids/paper.yaml").read_text()))
    for dataset in ("bioasq", "signal1m", "trec-news", "robust04"):
        raw["corpora"][raw["datasets"][dataset]["corpus"]]["path"] = "/nowhere"
    loaded = config.load(raw)
    plan = Grid(loaded)
    models = checks.models_behind(loaded, plan.systems)
    assert {"ance", "dpr", "dpr-question", "sparta", "tas-b", "genq-queries"} <= set(models)
    for name in models:
        entry = loaded.models[name]
        assert entry.training or {"checkpoint", "revision"} <= entry.model_fields_set, name
        assert entry.path is None, name
    assert set(plan.not_supplied) == {"bioasq", "signal1m", "trec-news", "robust04"}
    assert Summary(plan).notice().count("\n  ") == 4


def test_a_folder_to_fill_is_in_the_working_directory_and_one_of_the_checkout_is_found_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert resolve_path("data/robust04") == tmp_path / "data/robust04"
    assert resolve_path("workflow/resources/demo") == CHECKOUT / "workflow/resources/demo"
    (tmp_path / "workflow/resources/demo").mkdir(parents=True)
    assert resolve_path("workflow/resources/demo") == tmp_path / "workflow/resources/demo"


def test_what_a_user_must_supply_may_be_absent(raw, tmp_path):
    raw["corpora"]["bioasq"]["path"] = str(tmp_path / "bioasq")
    plan = _planned(raw, "bm25", "scifact bioasq")
    assert plan.datasets == ["scifact"]
    assert plan.not_supplied == {"bioasq": tmp_path / "bioasq"}
    assert not any("bioasq" in target for target in everything(plan))
    notice = Summary(plan).notice()
    assert "docs/datasets.md" in notice
    assert f"\n  bioasq: {tmp_path / 'bioasq'}" in notice
    (tmp_path / "bioasq").mkdir()
    assert Grid(config.load(raw)).not_supplied == {}


PAPER = "msmarco trec-covid nfcorpus bioasq nq hotpotqa fiqa signal1m trec-news robust04 arguana webis-touche2020 "
PAPER += "cqadupstack quora dbpedia-entity scidocs fever climate-fever scifact"


def test_the_papers_nineteen_datasets_are_described(raw):
    """Every fact of Table 1; documents and queries of CQADupStack are the sums over its forums."""
    loaded = config.load(raw)
    assert {name for name, dataset in loaded.datasets.items() if dataset.group == "beir"} == set(PAPER.split())
    for name in PAPER.split():
        dataset = loaded.datasets[name]
        assert all([dataset.task, dataset.domain, dataset.relevance])
        assert dataset.statistics.model_fields_set == {"relevant", "query_words", "document_words"}
        for part in dataset.mean_of or (name,):
            corpus = loaded.corpora[loaded.datasets[part].corpus]
            assert all([corpus.documents, corpus.licence, loaded.datasets[part].queries])
    forums = [loaded.datasets[part] for part in loaded.datasets["cqadupstack"].mean_of]
    assert sum(forum.queries or 0 for forum in forums) == 13_145
    assert sum(loaded.corpora[forum.corpus].documents or 0 for forum in forums) in (457_199, 457_198)


def test_ids_and_counts_are_those_of_ir_datasets(raw, tmp_path, monkeypatch):
    monkeypatch.setenv("IR_DATASETS_HOME", str(tmp_path))
    import ir_datasets

    loaded = config.load(raw)
    for name, corpus in loaded.corpora.items():
        if corpus.source == "ir_datasets":
            known = ir_datasets.load(corpus.id)
            assert known.docs_metadata()["count"] == corpus.documents, name
            assert known.docs_lang() == corpus.language, name
    for name, dataset in loaded.datasets.items():
        if dataset.id and loaded.corpora[dataset.corpus].source == "ir_datasets":
            known = ir_datasets.load(dataset.id)
            assert known.has_queries(), name
            assert known.has_qrels(), name
            assert known.docs_metadata()["count"] == loaded.corpora[dataset.corpus].documents, name
            assert known.queries_metadata()["count"] == dataset.queries, name
            grades = known.qrels_metadata()["fields"]["relevance"]["counts_by_value"]
            levels = 2 if dataset.relevance == "binary" else int(dataset.relevance[0])
            assert max(map(int, grades)) == levels - 1, name
            relevant = sum(count for grade, count in grades.items() if int(grade) > 0)
            if dataset.statistics.relevant:
                assert relevant / dataset.queries == pytest.approx(dataset.statistics.relevant, abs=0.06), name


def test_metrics_are_read():
    assert parse_metric("recall_cap@100") == (MEASURES["recall_cap"], 100)
    for measure, name in {"nDCG@10": "ndcg", "R@10": "recall", "RR@10": "mrr", "AP@10": "map", "P@10": "p"}.items():
        assert parse_metric(measure) == parse_metric(f"{name}@10") == (MEASURES[name], 10)
        assert written(f"{name}@10") == measure
    for measure, name in {
        "NDCG@10": "ndcg@10",
        'nDCG(dcg="exp-log2")@5': "ndcg_burges@5",
        "AP(cutoff=5)": "map@5",
        "P(rel = 2)@10": "P(rel=2)@10",
        "Bpref(rel=1)": "Bpref",
        "Judged@10": "Judged@10",
        "nDCG": "nDCG",
    }.items():
        assert parse_metric(measure).name == name
        assert written(name) == str(ir_measures.parse_measure(measure))
    for wrong in ("ndcg@0", "ndcg@", "ndcg@10\n", "ndcg@ten", "@10"):
        with pytest.raises(BeirgridError):
            parse_metric(wrong)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ("bpref", "there is no metric 'bpref'; did you mean 'BPref'?"),
        ("rpb(p=0.8)", "there is no metric 'rpb'; did you mean 'RBP'?"),
        ("nDCG@0", "'nDCG@0' is not a metric of the form name@k, such as nDCG@10"),
        ("P", "'P' is not a metric of the form name@k, such as P@10"),
        ("P(rel='a')@5", "ir_measures refuses the metric \"P(rel='a')@5\": invalid param rel='a'"),
        ("P(level=2)@5", "ir_measures refuses the metric 'P(level=2)@5': unsupported params found: ['level']"),
        ("INSQ", "ir_measures refuses the metric 'INSQ': invalid param max_rel"),
        ("alpha_nDCG@10", "ir_measures cannot compute 'alpha_nDCG@10' here: pip install ir-measures[pyndeval]"),
        ("RBP", "ir_measures cannot compute 'RBP' here: it takes other parameters, or needs more of them"),
        ("P(rel=2)@2000000", "looks deeper than any run"),
        ("P(rel=2)@1000", "metrics: P(rel=2)@1000 looks deeper than the runs are (retrieve.depth is 200)"),
    ],
)
def test_a_metric_that_cannot_be_computed_is_refused_with_the_configuration(raw, metric, message):
    raw["metrics"] = ["ndcg@10", metric]
    raw["retrieve"]["depth"] = 200
    with pytest.raises(ConfigError, match=re.escape(message)):
        config.load(raw)


def test_only_a_metric_of_ir_measures_imports_it():
    """Each job and Snakemake read the configuration."""
    code = "import sys; from beirgrid.measures import parse_metric; parse_metric({!r}); print(*sys.modules)"
    for metric, imported in (("nDCG@10", False), ("Bpref", True)):
        command = [sys.executable, "-c", code.format(metric)]
        modules = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split()
        assert ("ir_measures" in modules) == imported
        assert not {"torch", "pandas", "pyarrow"} & {*modules}


def test_short_stages_of_a_small_corpus_share_a_job(raw):
    def groups(**changes):
        nodes = Resources(_planned(raw | changes, "bm25 minilm bm25+minilm", "scifact trec-covid"))

        def shard(rule, corpus):
            return nodes.group(Job.of(rule, {"model": "minilm", "corpus": corpus, "shard": "0"}))

        def cell(rule, system, dataset):
            return nodes.group(Job.of(rule, {"system": system, "dataset": dataset}))

        return shard, cell

    shard, cell = groups(device="cpu")
    assert cell("fuse", "bm25+minilm", "scifact") == "combine-1"
    assert (shard("encode_dense", "scifact"), shard("encode_dense", "trec-covid")) == ("encode-index", None)
    retrieved = [cell("retrieve_dense", "minilm", dataset) for dataset in ("scifact", "trec-covid")]
    assert retrieved == ["retrieve-model", None]
    assert cell("fuse", "bm25+minilm", "trec-covid") == "combine-trec-covid-bm25+minilm"  # fusing is short anywhere
    shard, cell = groups()
    # GPU jobs share no cluster job; later stages on plain nodes share jobs there.
    assert (shard("encode_dense", "scifact"), shard("index_dense", "scifact")) == (None, None)
    assert (cell("retrieve_dense", "minilm", "scifact"), cell("evaluate", "minilm", "scifact")) == (None, "evaluate")
    assert cell("evaluate", "minilm", "trec-covid") is None
    assert {cell(rule, "bm25", "scifact") for rule in ("retrieve_lexical", "evaluate")} == {"retrieve-bm25"}
    assert {cell(rule, "bm25+minilm", "scifact") for rule in ("fuse", "evaluate")} == {"combine-1"}
    for device in ({}, {"device": "cpu"}):
        shard, cell = groups(small_corpus=0, **device)
        assert shard("encode_dense", "scifact") is None
        assert (cell("fuse", "bm25+minilm", "scifact"), cell("evaluate", "minilm", "scifact")) == (None, None)


def test_jobs_that_share_a_cluster_job_do_not_wait_for_each_other(raw, root):
    raw["systems"] |= {
        "rr": {"first_stage": "bm25+ce", "reranker": "monot5", "depth": 10},
        "mixed": {"fusion": "rrf", "of": ["bm25+ce", "rr", "minilm"]},
    }
    nodes, on_gpus = (
        Resources(_planned(raw | {"device": kind}, "mixed minilm-tsdae-genq minilm-gpl")) for kind in ("cpu", "cuda")
    )

    def group(system):
        return nodes.group(Job.of("evaluate", {"system": system, "dataset": "demo"}))

    systems = ("bm25", "minilm", "bm25+ce", "rr", "mixed")
    assert list(map(group, systems)) == ["retrieve-bm25", "retrieve-model", "combine-1", "combine-2", "combine-3"]
    models = ("minilm", "minilm-gpl@demo", "minilm-tsdae@demo", "minilm-tsdae-genq@demo")
    jobs = [nodes.group(Job.of("index_dense", {"model": model, "corpus": "demo", "shard": "0"})) for model in models]
    assert jobs == ["encode-index", None, None, None]
    profile = yaml.safe_load((root / "profiles/slurm/config.yaml").read_text())
    together = {name.partition("=")[0] for name in profile["group-components"]}
    evaluation = Job.of("evaluate", {"system": "minilm", "dataset": "demo"})
    assert {jobs[0], *map(group, systems[:4]), on_gpus.group(evaluation)} == together


@pytest.mark.parametrize(("documents", "queries"), [(1, 250_000), (5183, 49), (83_333, 4), (83_334, 3)])
def test_gpl_writes_as_many_queries_per_document_as_its_own_code(raw, documents, queries):
    """``queries_per_passage = -1`` and ``new_size = -1`` there: ceil(250e3 / documents) of at most 83,334."""
    raw["corpora"]["demo"]["documents"] = documents
    for changes, of_each in (({}, queries), ({"queries_per_document": 5}, 5)):
        raw["models"]["x"] = {**_ADAPTED, "train": {**_GPL, "corpus": "demo", **changes}}
        grid = Grid(config.load(raw))
        assert grid.training("x").documents == 83_334
        assert stages()["generate"].work(Sizes(grid, "cpu"), model="x")["queries"] == of_each * documents


def test_a_summary_says_what_queries_became_and_what_they_were_before(raw):
    """Of RM3, that is the same BM25 without it; a reranker changes no query, and a first stage may be left out."""
    raw["systems"] |= {
        "other": {**raw["systems"]["bm25-rm3"], "k1": 1.2},
        "bm25-own": {"retriever": "bm25", "fields": "flat"},
    }
    raw["grid"] = {
        "systems": ["bm25-own", "bm25-rm3", "other", "minilm", "minilm-rocchio", "minilm+ce"],
        "datasets": ["demo"],
    }
    summary = _summary(Grid(config.load(raw)))
    assert summary.first_stages == {"bm25-rm3": "bm25-own", "minilm-rocchio": "minilm"}
    words = "RM3: 10 words of 10 documents"
    assert summary.rewritten == {"bm25-rm3": words, "other": words, "minilm-rocchio": "rocchio of 3 documents"}


def test_a_summary_says_what_systems_were_trained_on_and_compared_with(raw):
    """A reranked system has its reranker's training data, GenQ those of TAS-B; a corpus stands for all its datasets."""
    asked = raw, "minilm bm25-flat bm25 bm25+ce genq dpr bm25+e5", "msmarco trec-dl-2019 nq fiqa"
    summary = _summary(_planned(*asked, name="mine"))
    marco = ("msmarco", "trec-dl-2019")
    trained_on = {"minilm": (*marco, "nq"), "bm25+ce": marco, "genq": marco, "dpr": ("nq",), "bm25+e5": (*marco, "nq")}
    assert summary.trained_on == trained_on
    assert (summary.name, summary.baseline) == ("mine", "bm25-flat")
    assert _summary(_planned(*asked, baseline="minilm")).baseline == "minilm"
    assert summary.datasets["nq"].qrels == "results/datasets/nq/qrels.tsv"


def test_a_summary_says_of_which_rows_the_training_data_is_not_known(raw, tmp_path, monkeypatch):
    """GTE states nothing, BGE's list is incomplete, Contriever had no judgements; others made some runs. A folder of
    one's own is in nobody's training data, unless it replaces a registered collection or is one with a licence.
    """
    monkeypatch.chdir(tmp_path)
    for dataset in ("nq", "fiqa", "demo", "signal1m"):
        (tmp_path / f"{dataset}.trec").touch()
    raw["corpora"]["fiqa"] |= {"source": "local", "path": raw["corpora"]["demo"]["path"]}
    raw["systems"]["told"] = {"run": "{dataset}.trec", "trained_on": {"names": ["nq"], "source": "its authors"}}
    raw["systems"]["untold"] = {"run": "{dataset}.trec"}
    expansion = {"source": "huggingface", "id": "a/b", "revision": "c" * 40, "files": ["x.jsonl"]}
    raw["systems"]["published"] = {"retriever": "bm25", "expansion": expansion}
    systems = "bm25 contriever told gte bge-base-en-v1.5 bm25+bge untold published"
    summary = _summary(_planned(raw, systems, "nq fiqa demo signal1m"))
    assert summary.trained_on == dict.fromkeys(["told", "bge-base-en-v1.5", "bm25+bge"], ("nq",))
    unknown = dict.fromkeys(["gte", "untold", "published"], ("nq", "fiqa", "signal1m"))
    assert summary.training_unknown == unknown | dict.fromkeys(["bge-base-en-v1.5", "bm25+bge"], ("fiqa", "signal1m"))


def test_a_reranker_that_the_workflow_trains_was_trained_on_the_collection_of_its_qrels(raw):
    summary = _summary(_planned(raw, "bm25+demo-ce", "demo nq fiqa"))
    assert summary.trained_on == {"bm25+demo-ce": ("demo", "nq")}  # MiniLM, its base and teacher, was trained on nq
    assert summary.training_unknown == {}


def test_gpl_and_genq_are_registered_as_published(raw):
    plan = _planned(raw, "genq gpl gpl-distilbert minilm-gpl")
    for name, documents, queries, of_each in (
        ("genq", 100_000, None, 5),
        ("gpl", 83_334, 250_000, None),
        ("minilm-gpl", 83_334, None, 3),
    ):
        recipe = settings(plan, "generate", model=f"{name}@demo")["recipe"]
        wanted = (recipe["documents"], recipe.get("queries"), recipe.get("queries_per_document"))
        assert wanted == (documents, queries, of_each), name
    assert plan.training("gpl@demo").miners == ("tas-b",)
    miners = plan.training("gpl-distilbert@demo").miners
    assert [raw["models"][name]["checkpoint"].rpartition("/")[2] for name in miners] == [
        "msmarco-distilbert-base-v3",
        "msmarco-MiniLM-L6-v3",
    ]
    mined = inputs(plan, "mine", model="gpl-distilbert@demo")
    assert "index" not in mined
    assert len(mined["checkpoints"]) == len(mined["dense_indexes"]) == 2


def test_notes_reach_every_system_that_a_model_is_behind(raw):
    """GenQ and GPL show the generator's note; a fusion of reranked systems shows the reranker's."""
    raw["systems"]["fused"] = {"fusion": "rrf", "of": ["bm25+demo-ce", "minilm"]}
    told = {note.model: note for note in _summary(_planned(raw, "genq gpl minilm fused")).notes}
    assert told["genq-queries"].systems == ("genq", "gpl")
    assert told["genq-queries"].note == raw["models"]["genq-queries"]["note"]
    assert told["gpl"].systems == ("gpl",)
    assert told["demo-reranker"].systems == ("fused",)
    assert "minilm" not in told


def test_bge_reads_queries_of_arguana_and_quora_without_its_prefix(raw):
    """As in pyserini's faiss form, whose values are judged."""
    prefix = raw["models"]["bge-base-en-v1.5"]["prompts"]["query"]
    grid, system = Grid(config.load(raw)), "bge-base-en-v1.5"
    searches = {
        name: settings(grid, "retrieve_dense", system=system, dataset=name) for name in ("scifact", "arguana", "quora")
    }
    prompts = {name: search["model"]["prompts"]["query"] for name, search in searches.items()}
    assert prompts == {"scifact": prefix, "arguana": "", "quora": ""}


def test_the_brackets_of_queries_rerun_no_encoding(raw):
    grid = _planned(raw, "sgpt-125m", "scifact")
    document = settings(grid, "encode_dense", model="sgpt-125m", corpus="scifact", shard="0")["model"]
    query = settings(grid, "retrieve_dense", system="sgpt-125m", dataset="scifact")["model"]
    assert document.pop("brackets") == {"document": ["{", "}"]}
    assert query.pop("brackets") == {"query": ["[", "]"]}
    assert document == query
