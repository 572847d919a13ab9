"""Odd configurations are refused in one message that names the key, or they work."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from graph import everything, settings
from helpers import tracked_configuration
from snakemake.iocontainers import Wildcards
from snakemake.utils import update_config

from beirgrid import config
from beirgrid.core.errors import ConfigError
from beirgrid.graph.grid import Grid
from beirgrid.graph.rules import Rules
from beirgrid.graph.summaries import Summary

# Long values in the configfiles below.
LONG = {"A300": "a" * 300, "A81": "a" * 81, "ONES40": "1" * 40}
LONG["ZEROS40"] = "0" * 40
LONG |= {"GPL": "recipe: gpl, derive: [titles], teacher: ms-marco-minilm", "DENSE": "family: dense, similarity: cosine"}
LONG["HEAD"] = "head: sparse"
LONG["CHUNKS"] = "chunks: {tokens: 20, stride: 7, aggregate: max}"
# Parts of the message and, below it, configfiles over the tracked configuration that it refuses.
REFUSED = r"""
grid.systems: 'bm25' is listed twice
    grid: {systems: [bm25, bm25]}
models: Input should be a valid dictionary
    models:
systems.x: weights: all are 0, so all scores would be
    systems: {x: {fusion: wsum, of: [bm25, minilm], weights: [0, 0]}}
String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here '
    systems: {"x\n": {retriever: bm25}}
    systems: {"..": {retriever: bm25}}
    systems: {bm25х: {retriever: bm25}}
    systems: {A81: {retriever: bm25}}
systems.2019: Input should be a valid string
    systems: {2019: {retriever: bm25}}
datasets.x.corpus: no corpus is named 'demi'; did you mean 'demo'?
    {corpora: {2019: {source: local, path: .}}, datasets: {x: {corpus: demi}}}
metrics: 'ndcg@99999999999999999999' looks deeper than any run (1,000,000 documents)
    metrics: [ndcg@99999999999999999999]
models.x.revision: String should match pattern '^([0-9a-f]{40}|resolve)$'
    models: {x: {family: dense, similarity: dot, checkpoint: a/b, revision: "ZEROS40\n"}}
corpora.demo.path: String should match pattern '^[^\x00-\x1f\x7f]{1,4095}$'
    corpora: {demo: {path: ""}}
corpora.demo.path: there is no
    corpora: {demo: {path: /A300}}
corpora.demo.path: there is no folder
    corpora: {demo: {path: ~nobody-at-all/x}}
corpora.demo.path: there is no folder /etc/hostname
    corpora: {demo: {path: /etc/hostname}}
lies in results/, whose files the workflow replaces
    models: {minilm: {DENSE, package: null, path: results/models/minilm/checkpoint}}
    corpora: {demo: {path: results/mine}}
    models: {minilm: {package: null, path: link}}
models.x.checkpoint: String should match pattern '^([A-Za-z0-9_][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9_][
    models: {x: {family: dense, similarity: dot, checkpoint: 'https://hub/a/b', revision: 'ONES40'}}
datasets.x.mean_of: 'x' is itself a mean
    datasets: {x: {mean_of: [x]}}
datasets.demo.split: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$'
    datasets: {demo: {split: ../../etc/passwd}}
systems.x: weights: rrf takes k
    systems: {x: {fusion: rrf, of: [bm25, minilm], weights: [1, 1]}}
models.minilm.prompts.datasets.scifact.document: Extra inputs are not permitted
    models: {minilm: {prompts: {datasets: {scifact: {query: 'q: ', document: 'd: '}}}}}
systems.x.candidates: Extra inputs are not permitted
    systems: {x: {retriever: minilm, candidates: 10}}
systems.x.first_stage: Field required
    systems: {x: {reranker: ms-marco-minilm}}
systems.x.retriever: Field required
    systems: {x: {}}
datasets.x.id: nothing reads it over a corpus with source: local; leave it out
    {corpora: {c: {source: local, path: .}}, datasets: {x: {corpus: c, id: a/b}}}
datasets.x.revision: nothing reads it over a corpus with source: mteb; leave it out
    {corpora: {c: {source: mteb, task: T, revision: 'ONES40'}}, datasets: {x: {corpus: c, revision: 'ONES40'}}}
datasets.x.revision: nothing reads it over a corpus with source: ir_datasets; leave it out
    datasets: {x: {corpus: fiqa, id: beir/fiqa/test, revision: 'ONES40'}}
datasets.x: queries_are_documents: does not go with mean_of
    datasets: {x: {mean_of: [demo], queries_are_documents: true}}
corpora.demo.titles: Extra inputs are not permitted
    corpora: {demo: {titles: true}}
retrieve.depht: Extra inputs are not permitted; did you mean 'depth'?
    retrieve: {depht: 3}
retrieve.depth: Input should be a valid integer (here '100'). It is a text: write it without quotes or, if it stands in
    retrieve: {depth: "100"}
models.minilm: the key 'package' does not go with path: 'package: null' takes it out
    models: {minilm: {path: link}}
models.x: revision: needs the checkpoint of which it is a commit
    models: {x: {DENSE, path: /x, revision: 'ONES40'}}
models.x.adapter: needs a path, or a checkpoint with its revision
    models: {x: {DENSE, path: /x, adapter: {path: /y, revision: 'ONES40'}}}
models.demo-reranker: the key 'engine' does not go with train
    models: {demo-reranker: {engine: mteb}}
models.demo-reranker: the key 'pickled' does not go with train
    models: {demo-reranker: {pickled: true}}
models.x: the key 'special_tokens' does not go with endpoint
    models: {x: {DENSE, special_tokens: end, endpoint: {model: m, url: 'http://h'}}}
models.x: endpoint.protocol: no request to a dense model has it; leave it out
    models: {x: {DENSE, endpoint: {model: m, url: 'http://h', protocol: tei}}}
models.x: endpoint.dimensions: no request to a cross-encoder model has it; leave it out
    models: {x: {family: cross-encoder, endpoint: {model: m, url: 'http://h', dimensions: 8}}}
models.x.endpoint: body replaces the texts of a request by the key 'input'; leave it out
    models: {x: {DENSE, endpoint: {model: m, url: 'http://h', query_body: {input: [a]}}}}
models.x: endpoint.query_body: no request to a listwise-reranker model has it; leave it out
    models: {x: {family: listwise-reranker, endpoint: {model: m, url: 'http://h', query_body: {a: 1}}}}
nodes: cpu.gpu_model: nothing reads it; set gpu.gpu_model
    nodes: {cpu: {gpu_model: a100}}
systems.x.head: 'y' has the key 'special_tokens', which does not go with head
    {models: {y: {DENSE, path: ., special_tokens: end}}, systems: {x: {retriever: y, HEAD}}, grid: {systems: [x]}}
systems.x.head: 'y' has the key 'separator', which does not go with head
    {models: {y: {DENSE, path: ., separator: '-'}}, systems: {x: {retriever: y, HEAD}}, grid: {systems: [x]}}
models.x: the key 'query_length' does not go with query_model
    models: {x: {family: late-interaction, path: /x, query_length: 9, query_model: colbertv2}}
systems.x: candidates: does not go with exhaustive, which scores every document
    systems: {x: {retriever: colbertv2, candidates: 10, exhaustive: true}}
datasets.x: of a corpus of ir_datasets, it needs the key id, which names the split too (beir/fiqa/test)
    datasets: {x: {corpus: fiqa, id: beir/fiqa/test, split: dev}}
models.minilm.path: there is no folder /nowhere
    {models: {minilm: {package: null, path: /nowhere}}, grid: {systems: [minilm]}}
no system is named 'bm52'; did you mean 'bm25'?
    grid: {systems: [bm52]}
grid: baseline, compare: the grid has no system 'bm52'; did you mean 'bm25'?
    grid: {baseline: bm52}
grid.gate: 'scifact' is in grid.datasets, too: leave it out of one of them
    grid: {datasets: [demo, scifact], gate: [scifact]}
grid.compare: 'bm25' is listed twice
    grid: {compare: [bm25, bm25]}
models.minilm.trained_on.names: no dataset or corpus is named 'ms-marco'; did you mean 'msmarco'?
    models: {minilm: {trained_on: {names: [ms-marco], source: x}}}
no corpus is named 'scifct'; did you mean 'scifact'?
    datasets: {x: {corpus: scifct}}
no model is named 'miniml'; did you mean 'minilm'?
    systems: {x: {retriever: miniml}}
systems.x.of: Value should have at least 2 items
    systems: {x: {fusion: rrf, of: [bm25]}}
1 weight for 2 systems
    systems: {x: {fusion: wsum, of: [bm25, minilm], weights: [1]}}
'minilm' is a dense model; a cross-encoder model is needed here
    systems: {x: {first_stage: bm25, reranker: minilm}}
    models: {x: {DENSE, train: {recipe: gpl, base: minilm, derive: [titles], teacher: minilm}}}
'ndcg' is not a metric of the form name@k
    metrics: [ndcg]
there is no metric 'ndgc'; did you mean 'ndcg'?
    metrics: [ndgc@10]
models.x: needs a revision
    models: {x: {family: dense, checkpoint: a/b, similarity: dot}}
systems.x.expansion: no model is named 'doct5qery'; did you mean 'doct5query'?
    systems: {x: {retriever: bm25, expansion: doct5qery}}
'minilm' is a dense model; a query-generator or term-weights model is needed here
    systems: {x: {retriever: bm25, expansion: minilm}}
systems.x.retriever: 'doct5query' is a query-generator model; a dense or sparse or late
    systems: {x: {retriever: doct5query}}
models.minilm.prompts.datasets: no dataset is named 'scifct'; did you mean 'scifact'?
    models: {minilm: {prompts: {datasets: {scifct: {query: 'q: '}}}}}
models.minilm.query_model: no model is named 'minlm'; did you mean 'minilm'?
    models: {minilm: {query_model: minlm}}
models.minilm.query_model: needs a model of the same family and similarity
    models: {minilm: {query_model: ms-marco-minilm}}
    models: {x: {family: dense, path: /x, similarity: dot}, minilm: {query_model: x}}
    models: {minilm: {query_model: minilm}}
models.colbertv2.query_lengths: no dataset is named 'argana'; did you mean 'arguana'?
    models: {colbertv2: {query_lengths: {argana: 300}}}
systems.x.head: 'colbertv2' is a late-interaction model; a dense model is needed here
    {systems: {x: {retriever: colbertv2, head: sparse}}, grid: {systems: [x]}}
systems.x.head: 'e5' has the key 'prompts', which does not go with head
    {systems: {x: {first_stage: bm25, reranker: e5, head: tokens}}, grid: {systems: [x]}}
systems.x.head: 'dpr' has the key 'query_model', which does not go with head
    {systems: {x: {retriever: dpr, head: sparse}}, grid: {systems: [x]}}
systems.x: head: does not go with chunks
    systems: {x: {first_stage: bm25, reranker: minilm, head: tokens, CHUNKS}}
systems.x.chunks: stride 21 is more than tokens 20
    systems: {x: {retriever: minilm, chunks: {tokens: 20, stride: 21, aggregate: max}}}
take aggregate: mean
    {systems: {x: {retriever: minilm, index: {kind: int8}, CHUNKS}}, grid: {systems: [x]}}
systems.splade-pp-ed.chunks: Extra inputs are not permitted
    systems: {splade-pp-ed: {CHUNKS}}
systems.x.chunks: 'colbert' reads whole documents
    systems: {x: {first_stage: bm25, reranker: colbert, CHUNKS}}
systems.x.chunks: 'mteb-minilm' reads whole documents, or its tokens
    {models: {mteb-minilm: {DENSE, checkpoint: a/b, revision: 'ONES40', engine: mteb}},
        systems: {x: {retriever: mteb-minilm, CHUNKS}}, grid: {systems: [x]}}
systems.x.index: Input tag 'ivf' found
    systems: {x: {retriever: minilm, index: {kind: ivf}}}
systems.x.index.links: Extra inputs
    systems: {x: {retriever: minilm, index: {kind: int8, links: 3}}}
systems.x.dimensions: Extra inputs
    systems: {x: {retriever: splade-pp-ed, dimensions: 9}}
weights from a package need their SHA-256
    models: {x: {family: cross-encoder, package: p}}
datasets.x: an id on the Hugging Face hub and its revision (40 hex digits) go together
    datasets: {x: {corpus: nano-scifact, id: BeIR/scifact-qrels}}
corpora.x.language: 'bm25' cannot read 'yo': Lucene here has no analyzer for it (known: ar bn
    {corpora: {x: {source: ir_datasets, id: miracl/yo, language: yo}}, datasets: {x: {corpus: x, id: miracl/yo/dev},
        y: {mean_of: [x]}}, grid: {datasets: [y]}}
'demo-reranker' is trained on 'demo-train'
    grid: {datasets: [demo-train], systems: [bm25+demo-ce]}
    {models: {x: {DENSE, train: {recipe: gpl, base: minilm, derive: [titles], teacher: demo-reranker}}},
        systems: {x: {retriever: x}}, grid: {datasets: [demo-train], systems: [x]}}
'demo-reranker' is trained on 'x'
    {datasets: {x: {corpus: demo, split: train}, y: {mean_of: [demo, x]}}, grid: {datasets: [y],
        systems: [bm25+demo-ce]}}
    {corpora: {c: {source: local, path: workflow/resources/demo}}, datasets: {x: {corpus: c, split: train}},
        grid: {datasets: [x], systems: [bm25+demo-ce]}}
'x' is trained on 'dev', so it cannot be evaluated on this dataset
    {corpora: {c: {source: mteb, task: T, revision: 'ONES40', split: dev}}, datasets: {y: {corpus: c},
        dev: {corpus: c, split: dev}}, models: {x: {family: cross-encoder, train: {base: minilm, corpus: c,
        dataset: y}}}, systems: {z: {first_stage: bm25, reranker: x}}, grid: {datasets: [dev], systems: [z]}}
recall@1000 looks deeper than the runs are (retrieve.depth is 200)
    retrieve: {depth: 200}
models.x.path: there is no folder /nowhere
    {models: {x: {family: dense, path: /nowhere, similarity: cosine}, y: {family: dense, path: /, similarity: cosine,
        query_model: x}}, systems: {minilm: {retriever: y}}}
retrieve.1: Keys should be strings (here 1)
    retrieve: {1: 2, depht: 3}
models.demo-reranker: the key 'path' does not go with train
    models: {demo-reranker: {path: /x}}
systems x → y → x form a cycle
    systems: {x: {fusion: rrf, of: [bm25, y]}, y: {fusion: rrf, of: [bm25, x]}}
models.tas-b.path: there is no folder /nowhere
    {models: {tas-b: {path: /nowhere}}, grid: {systems: [genq]}}
systems.x: rm3: Anserini's RM3 searches one field: write fields: flat
    systems: {x: {retriever: bm25, rm3: {}}}
systems.x.rm3.documents: Input should be less than or equal to 50
    systems: {x: {retriever: bm25, fields: flat, rm3: {documents: 51}}}
systems.x.first_stage: 'theirs' is an external system; a dense system is needed here
    systems: {theirs: {run: theirs.run}, x: {first_stage: theirs, feedback: {}}}
systems.x.first_stage: 'y' has an index or dimensions of its own; feedback searches exactly
    {systems: {y: {retriever: minilm, dimensions: 64}, x: {first_stage: y, feedback: {}}}, grid: {systems: [x]}}
systems.x.first_stage: 'y' has several vectors of a document: take aggregate: mean
    {systems: {y: {retriever: minilm, chunks: {tokens: 20, stride: 20, aggregate: max}}, x: {first_stage: y, feedback:
        {}}}, grid: {systems: [x]}}
systems.x.feedback.documents: is 1001, but runs have 1000 documents per query (retrieve.depth)
    {systems: {x: {first_stage: minilm, feedback: {documents: 1001}}}, grid: {systems: [x]}}
systems.x.feedback: alpha: average takes documents alone
    systems: {x: {first_stage: minilm, feedback: {method: average, alpha: 0.5}}}
systems.x.feedback: gamma: weighs the last documents: say how many in negatives
    systems: {x: {first_stage: minilm, feedback: {gamma: 0.5}}}
models.demo-reranker.train.dataset: has another corpus than 'demo'
    models: {demo-reranker: {train: {dataset: cqadupstack}}}
models.x.train: Unable to extract tag using discriminator 'recipe'
    models: {x: {DENSE, train: {base: minilm}}}
needs queries from a generator or from derive
    models: {x: {DENSE, train: {recipe: genq, base: minilm}}}
'minilm' is a dense model; a query-generator model is needed here
    models: {x: {DENSE, train: {recipe: genq, base: minilm, generator: minilm}}}
models.x.train.retrievers: no model is named 'miniml'; did you mean 'minilm'?
    models: {x: {DENSE, train: {base: minilm, GPL, retrievers: [bm25, miniml]}}}
models.x.train.base: 'minilm-tsdae' is itself trained
    models: {x: {DENSE, train: {recipe: mlm, base: minilm-tsdae}}}
models.x.train: training puts no brackets around texts: neither model nor base can have 'brackets'
    models: {x: {DENSE, train: {recipe: mlm, base: sgpt-125m}}}
only genq and gpl can start from a tsdae or mlm model
    models: {x: {DENSE, train: {base: minilm-genq, GPL}}}
models.x.train.base: 'y' is trained on corpus 'demo' alone
    models: {y: {DENSE, train: {recipe: tsdae, base: minilm, corpus: demo}}, x: {DENSE, train: {base: y, GPL}}}
"""


def _refused() -> Iterator[tuple[str, str]]:
    """Yield each message of the table with each of its configfiles; long ones go on in a line that is indented more."""
    message = ""
    for line in REFUSED.strip().replace("\n        ", " ").splitlines():
        if line.startswith(" "):
            yield message, line.strip()
        else:
            message = line


def _merged(*configfiles: str) -> dict[str, Any]:
    """Merge configfiles, as Snakemake does, over the tracked configuration with a grid that needs no download."""
    merged = tracked_configuration()
    merged["grid"] = {"systems": ["bm25", "minilm"], "datasets": ["demo"]}
    for text in configfiles:
        update_config(merged, yaml.safe_load(text))
    return merged


@pytest.mark.parametrize(("message", "text"), _refused())
def test_it_is_refused_in_one_line_with_its_key(tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/mine").mkdir(parents=True)
    (tmp_path / "results/models/minilm/checkpoint").mkdir(parents=True)
    (tmp_path / "link").symlink_to("results/mine")
    for name, value in LONG.items():
        text = text.replace(name, value)
    with pytest.raises(ConfigError) as caught:
        config.load(_merged(text))
    _, *problems = str(caught.value).split("\n")
    assert any(message in problem for problem in problems), problems
    assert all(problem.startswith("  - ") and len(problem) < 1200 for problem in problems)


WORKS: dict[str, tuple[str, ...]] = {
    "a name of 80 letters": (
        f"{{systems: {{{'abcdefgh' * 10}: {{retriever: bm25}}}}, grid: {{systems: [{'abcdefgh' * 10}]}}}}",
    ),
    "names with @ and +": ("{systems: {a@b+c_d.e-f: {retriever: bm25}}, grid: {systems: [a@b+c_d.e-f]}}",),
    "anchors and merges": ("{systems: {x: &x {retriever: bm25, k1: 1.2}, y: {<<: *x, b: 0.3}}, grid: {systems: [y]}}",),
    "a whole number where a fraction may be": ("systems: {x: {retriever: bm25, k1: 1}}",),
    "the later of two configfiles": ("retrieve: {depth: 10.5}\nmetrics: [ndcg@5]", "retrieve: {depth: 2000}"),
    "a map over a value": ("retrieve: 5", "retrieve: {depth: 2000}"),
    "line breaks in a prompt": ('models: {minilm: {prompts: {query: "a\\n\\u2028b\\0"}}}',),
    "braces and brackets in a path": ("models: {minilm: {package: null, path: 'model {x} <y> $(z)'}}",),
}


@pytest.mark.parametrize("texts", WORKS.values(), ids=WORKS)
def test_it_works(tmp_path, monkeypatch, texts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model {x} <y> $(z)").mkdir()
    (tmp_path / "model {x} <y> $(z)/config.json").write_text("{}")
    merged = _merged(*texts)
    grid = Grid(config.load(merged))
    entry = settings(grid, "retrieve_dense", system="minilm", dataset="demo")["model"]
    assert everything(grid)
    assert json.loads(Summary(grid).as_json({}))["rows"] == ["demo"]
    assert entry["family"] == "dense"
    fetched = Rules(grid, own_python=True).fetch_model.inputs(Wildcards(fromdict={"model": "minilm"}))
    assert "files" not in fetched  # Snakemake would fill in {x} and <y>


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("grid:\n  systems: [bm25]\ngrid:\n  datasets: [demo]\n", "grid stands twice.*line 3, column 1"),
        ("models:\n  x: {family: dense, family: sparse}\n", "family stands twice.*line 2, column 22"),
        ("a: &a {b: 1}\nc: {<<: *a, b: 2}\nd: [*a, *a]\n", None),
        ("a: [{b: 1, b: 2}]\n", "b stands twice.*line 1, column 12"),
        ("- a\n", None),
        ("", None),
    ],
)
def test_a_key_that_stands_twice_is_named(tmp_path, text, problem):
    (path := tmp_path / "grid.yaml").write_text(text)
    if problem is None:
        config.refuse_misread([path, tmp_path / "none.yaml"], {}, {})
    else:
        with pytest.raises(ConfigError, match=re.compile(f"{path} cannot be read as YAML: {problem}", re.DOTALL)):
            config.refuse_misread([path], {}, {})


def test_a_file_that_is_no_regular_one_is_not_read_twice(tmp_path):
    """Snakemake has read a pipe to its end, so a second read would wait forever."""
    os.mkfifo(tmp_path / "pipe.yaml")
    config.refuse_misread([tmp_path / "pipe.yaml", "/dev/zero"], {}, {})


@pytest.mark.parametrize(
    ("texts", "settings", "problem"),
    [
        (["grid: {datasets: {}}"], {}, "a.yaml: grid.datasets: {} has no key to merge, so ['demo'] stays"),
        (["retrieve: {depth: {}}"], {}, "a.yaml: retrieve.depth: {} has no key to merge, so 1000 stays"),
        (
            ["models: {e: {prompts: {}}}"],
            {},
            "a.yaml: models.e.prompts: {} has no key to merge, so {'query'",
        ),
        ([], {"grid": {"datasets": {}}}, "--config: grid.datasets: {} has no key to merge, so ['demo'] stays"),
        (["grid: {datasets: [nfcorpus]}", "grid: {datasets: {}}"], {}, "b.yaml: grid.datasets: {} has no key to merge"),
        (["models: {f: {prompts: {}}}"], {}, None),
        (["models: {}\nsystems: {}"], {}, None),
        (["grid: {datasets: [demo]}"], {}, None),
    ],
)
def test_a_mapping_that_changes_nothing_is_refused(tmp_path, texts, settings, problem):
    merged = {
        "grid": {"datasets": ["demo"]},
        "retrieve": {"depth": 1000},
        "models": {"e": {"prompts": {"query": "q: "}}},
    }
    paths = [tmp_path / f"{name}.yaml" for name, _ in zip("ab", texts, strict=False)]
    for path, text in zip(paths, texts, strict=True):
        path.write_text(text)
        update_config(merged, yaml.safe_load(text))
    update_config(merged, settings)
    if problem is None:
        config.refuse_misread(paths, settings, merged)
    else:
        with pytest.raises(ConfigError, match=re.escape(problem)):
            config.refuse_misread(paths, settings, merged)
