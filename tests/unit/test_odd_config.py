"""Odd configurations are refused in one message that names the key, or they work."""

from __future__ import annotations

import copy
import json
import os
import re
import time
from typing import Any

import pytest
import yaml
from graph import everything, settings
from helpers import tracked_configuration
from snakemake.iocontainers import Wildcards
from snakemake.utils import update_config

from beirgrid import config
from beirgrid.core.errors import ConfigError
from beirgrid.pipeline.grid import Grid
from beirgrid.pipeline.rules import Rules
from beirgrid.pipeline.summaries import Summary

# A configfile over the tracked configuration, and parts of the expected message.
REFUSED: dict[str, tuple[str, str]] = {
    "a float as a depth": (
        "retrieve: {depth: 1000.0}",
        "retrieve.depth: Input should be a valid integer (here 1000.0)",
    ),
    "a depth in YAML 1.2's form": (
        "retrieve: {depth: 1e3}",
        "retrieve.depth: Input should be a valid integer (here '1e3')",
    ),
    "a truth value as a depth": (
        "retrieve: {depth: true}",
        "retrieve.depth: Input should be a valid integer (here True)",
    ),
    "a depth of 2³¹ - 1": (
        "retrieve: {depth: 2147483647}",
        "retrieve.depth: Input should be less than or equal to 1000000 (here 2147483647)",
    ),
    "a depth of 0": ("retrieve: {depth: 0}", "retrieve.depth: Input should be greater than or equal to 1 (here 0)"),
    "a depth below 0": (
        "retrieve: {depth: -5}",
        "retrieve.depth: Input should be greater than or equal to 1 (here -5)",
    ),
    "no depth": ("retrieve: {depth: null}", "retrieve.depth: Input should be a valid integer (here None)"),
    "a depth with underscores as text": (
        "retrieve: {depth: '1_000'}",
        "retrieve.depth: Input should be a valid integer (here '1_000')",
    ),
    "NaN as a depth": ("retrieve: {depth: .nan}", "retrieve.depth: Input should be a valid integer (here nan)"),
    "a list as a map": (
        "retrieve: [100]",
        "retrieve: Input should be a valid dictionary or instance of RetrieveSettings (here [100])",
    ),
    "text as a map": (
        "retrieve: deep",
        "retrieve: Input should be a valid dictionary or instance of RetrieveSettings (here 'deep')",
    ),
    "null as a map": (
        "retrieve:",
        "retrieve: Input should be a valid dictionary or instance of RetrieveSettings (here None)",
    ),
    "a map as a list": ("grid: {systems: {bm25: 1}}", "grid.systems: Input should be a valid tuple"),
    "text as a list": ("grid: {systems: bm25}", "grid.systems: Input should be a valid tuple (here 'bm25')"),
    "an empty list": (
        "grid: {systems: []}",
        "grid.systems: Value should have at least 1 item after validation, not 0 (here [])",
    ),
    "a list of nothing": ("grid: {systems: [null]}", "grid.systems.0: Input should be a valid string (here None)"),
    "a list of lists": ("grid: {systems: [[bm25]]}", "grid.systems.0: Input should be a valid string (here ['bm25'])"),
    "a system twice": ("grid: {systems: [bm25, bm25]}", "grid.systems: 'bm25' is listed twice"),
    "a number as a system": ("grid: {systems: [25]}", "grid.systems.0: Input should be a valid string (here 25)"),
    "a list that holds itself": (
        "grid: {systems: &a [*a]}",
        "grid.systems.0: Input should be a valid string (here [[[[[[[...]]]]]]])",
    ),
    "no grid": ("grid:", "grid: Input should be a valid dictionary or instance of GridSettings (here None)"),
    "no models": ("models:", "models: should be a mapping of names to entries (here None)"),
    "an entry of nothing": (
        "models: {x: }",
        "models.x: Input should be a valid dictionary or object to extract fields from (here None)",
    ),
    "a float as k": (
        "systems: {x: {fusion: rrf, of: [bm25, minilm], k: 60.0}}",
        "systems.x.k: Input should be a valid integer (here 60.0)",
    ),
    "k of 2³¹ - 1": (
        "systems: {x: {fusion: rrf, of: [bm25, minilm], k: 2147483647}}",
        "systems.x.k: Input should be less than or equal to 1000000 (here 2147483647)",
    ),
    "NaN as k1": (
        "systems: {x: {retriever: bm25, k1: .nan}}",
        "systems.x.k1: Input should be a finite number (here nan)",
    ),
    "infinity as k1": (
        "systems: {x: {retriever: bm25, k1: .inf}}",
        "systems.x.k1: Input should be a finite number (here inf)",
    ),
    "a truth value as k1": (
        "systems: {x: {retriever: bm25, k1: yes}}",
        "systems.x.k1: Input should be a valid number (here True)",
    ),
    "minus infinity as b": (
        "systems: {x: {retriever: bm25, b: -.inf}}",
        "systems.x.b: Input should be a finite number (here -inf)",
    ),
    "an infinite weight": (
        "systems: {x: {fusion: wsum, of: [bm25, minilm], weights: [1, .inf]}}",
        "systems.x.weights.1: Input should be a finite number (here inf)",
    ),
    "text as weights": (
        "systems: {x: {fusion: wsum, of: [bm25, minilm], weights: '1,1'}}",
        "systems.x.weights: Input should be 'tuned' (here '1,1')",
    ),
    "NaN as a tolerance": ("tolerances: {exact: .nan}", "tolerances.exact: Input should be a finite number (here nan)"),
    "candidates of 2³¹ - 1": (
        "systems: {x: {retriever: colbertv2, candidates: 2147483647}}",
        "systems.x.candidates: Input should be less than or equal to 1000000 (here 2147483647)",
    ),
    "a reranking depth of 2³¹ - 1": (
        "systems: {x: {first_stage: bm25, reranker: ms-marco-minilm, depth: 2147483647}}",
        "systems.x.depth: Input should be less than or equal to 1000000 (here 2147483647)",
    ),
    "a shard of 2³¹ - 1": (
        "encode: {shard: 2147483647}",
        "encode.shard: Input should be less than or equal to 100000000 (here 2147483647)",
    ),
    "batches of 2³¹ - 1": (
        "encode: {batch_tokens: {cpu: 2147483647}}",
        "encode.batch_tokens.cpu: Input should be less than or equal to 1000000 (here 2147483647)",
    ),
    "a length of 2³¹ - 1": (
        "models: {minilm: {max_length: 2147483647}}",
        "models.minilm.max_length: Input should be less than or equal to 1000000 (here 2147483647)",
    ),
    "a query length of 2³¹ - 1": ("models: {colbertv2: {query_length: 2147483647}}", "models.colbertv2.query_length: "),
    "no links in an index": (
        "systems: {x: {retriever: minilm, index: {kind: hnsw, links: 0}}}",
        "systems.x.index.links: Input should be greater than or equal to 2 (here 0)",
    ),
    "faiss's name of the links": (
        "systems: {x: {retriever: minilm, index: {kind: hnsw, m: 0}}}",
        "systems.x.index: Hnsw has no key 'm'",
    ),
    "queries that may be documents": (
        "datasets: {demo: {queries_are_documents: maybe}}",
        "datasets.demo.queries_are_documents: Input should be a valid boolean (here 'maybe')",
    ),
    "more dimensions than a model has": (
        "{systems: {x: {retriever: minilm, dimensions: 385}}, grid: {systems: [x]}}",
        "systems.x.dimensions: 385 is more than the 384 of 'minilm'",
    ),
    "codes that do not divide the dimensions": (
        "{systems: {x: {retriever: minilm, index: {kind: ivfpq, codes: 7}}}, grid: {systems: [x]}}",
        "systems.x.index.codes: 7 does not divide the 384 dimensions",
    ),
    "codes that do not divide the dimensions that are kept": (
        "{systems: {x: {retriever: minilm, dimensions: 100, index: {kind: ivfpq}}}, grid: {systems: [x]}}",
        "systems.x.index.codes: 64 does not divide the 100 dimensions",
    ),
    "weights of 0": (
        "systems: {x: {fusion: wsum, of: [bm25, minilm], weights: [0, 0]}}",
        "systems.x: weights: all are 0, so all scores would be",
    ),
    "a fusion that is none": (
        "systems: {x: {fusion: mean, of: [bm25, minilm]}}",
        "systems.x.fusion: 'mean' is not one of rrf, wsum",
    ),
    "expansions that are not there": (
        "{systems: {x: {retriever: bm25, expansion: {source: local, path: 'nowhere/{corpus}'}}}, grid: {systems: [x]}}",
        "systems.x.expansion.path: there is no file or folder ",
    ),
    "expansions among the results": (
        "{systems: {x: {retriever: bm25, expansion: {source: local, path: results/mine}}}, grid: {systems: [x]}}",
        "results/mine lies in results/, whose files the workflow replaces",
    ),
    "an empty key of a recipe": (
        "models: {minilm-gpl: {train: {'': 1}}}",
        "models.minilm-gpl.train: Gpl has no key ''",
    ),
    "a seed beyond 32 bits": (
        "models: {doct5query: {seed: 4294967296}}",
        "models.doct5query.seed: Input should be less than or equal to 4294967295 (here 4294967296)",
    ),
    "a name that ends in a line break": (
        'systems: {"x\\n": {retriever: bm25}}',
        "systems: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here 'x\\n')",
    ),
    "an empty name": (
        'systems: {"": {retriever: bm25}}',
        "systems: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here '')",
    ),
    "a name of dots": (
        'systems: {"..": {retriever: bm25}}',
        "systems: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here '..')",
    ),
    "a name with a slash": (
        'datasets: {"a/b": {corpus: demo}}',
        "datasets: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here 'a/b')",
    ),
    "a name with a space": (
        'corpora: {"a b": {source: local, path: /}}',
        "corpora: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here 'a b')",
    ),
    "a name with braces": (
        'models: {"{x}": {family: dense}}',
        "models: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here '{x}')",
    ),
    "a name like an option": (
        'systems: {"-n": {retriever: bm25}}',
        "systems: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here '-n')",
    ),
    "a name like an argument file": (
        'systems: {"@x": {retriever: bm25}}',
        "systems: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here '@x')",
    ),
    "a Cyrillic letter in a name": (
        "systems: {bm25х: {retriever: bm25}}",
        "systems: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here 'bm25х')",
    ),
    "a full-width digit in a name": (
        "systems: {bm２5: {retriever: bm25}}",
        "systems: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here 'bm２5')",
    ),
    "a name of 81 letters": (
        f"systems: {{{'a' * 81}: {{retriever: bm25}}}}",
        "systems: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here 'aaaaaaaa",
    ),
    "a name of 300 letters": (
        f"systems: {{{'a' * 300}: {{retriever: bm25}}}}",
        "systems: the name: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$' (here 'aaaaaaaa",
    ),
    "a number as a key": (
        "systems: {2019: {retriever: bm25}}",
        "systems: the name: Input should be a valid string (here 2019)",
    ),
    "a date as a key": (
        "systems: {2019-01-01: {retriever: bm25}}",
        "systems: the name: Input should be a valid string (here datetime.date(2019, 1, 1))",
    ),
    "a truth value as a key": (
        "systems: {no: {retriever: bm25}}",
        "systems: the name: Input should be a valid string (here False)",
    ),
    "nothing as a key": (
        "systems: {~: {retriever: bm25}}",
        "systems: the name: Input should be a valid string (here None)",
    ),
    "names that differ by case": (
        "systems: {BM25: {retriever: bm25}}",
        "systems: 'bm25' and 'BM25' differ by case only",
    ),
    "a model in Lucene's place": (
        "models: {bm25: {family: dense, similarity: dot, path: /}}",
        "models.bm25: 'bm25' stands",
    ),
    "a metric that ends in a line break": (
        'metrics: ["ndcg@10\\n"]',
        "metrics: 'ndcg@10\\n' is not a metric of the form",
    ),
    "a metric's cutoff in other digits": ('metrics: ["ndcg@1٠"]', "metrics: 'ndcg@1٠' is not a metric of the form"),
    "a metric of 0": ('metrics: ["ndcg@0"]', "metrics: 'ndcg@0' is not a metric of the form"),
    "a metric beyond all runs": (
        "metrics: [ndcg@99999999999999999999]",
        "metrics: 'ndcg@99999999999999999999' looks deeper than any run (1,000,000 documents)",
    ),
    "a revision that ends in a line break": (
        f'models: {{x: {{family: dense, similarity: dot, checkpoint: a/b, revision: "{"0" * 40}\\n"}}}}',
        "models.x.revision: String should match pattern '^([0-9a-f]{40}|resolve)$' (here '0000000000000000000",
    ),
    "a number as a revision": (
        f"models: {{x: {{family: dense, similarity: dot, checkpoint: a/b, revision: {'1' * 40}}}}}",
        "models.x.revision: Input should be a valid string (here 1111111111111111111111111111111111111111)",
    ),
    "a language that ends in a line break": (
        'corpora: {demo: {language: "en\\n"}}',
        "corpora.demo.language: String should match pattern '^[a-z]{2}$' (here 'en\\n')",
    ),
    "an empty path": (
        'corpora: {demo: {path: ""}}',
        "corpora.demo.path: String should match pattern '^[^\\x00-\\x1f\\x7f]{1,4095}$' (here '')",
    ),
    "a path of two lines": (
        'corpora: {demo: {path: "a\\nb"}}',
        "corpora.demo.path: String should match pattern '^[^\\x00-\\x1f\\x7f]{1,4095}$' (here 'a\\nb')",
    ),
    "a path with a zero byte": (
        'corpora: {demo: {path: "a\\0b"}}',
        "corpora.demo.path: String should match pattern '^[^\\x00-\\x1f\\x7f]{1,4095}$' (here 'a\\x00b')",
    ),
    "a path of 5,000 characters": (
        f"corpora: {{demo: {{path: {'a' * 5000}}}}}",
        "corpora.demo.path: String should match pattern '^[^\\x00-\\x1f\\x7f]{1,4095}$' (here 'aaaaaaaaaaaaaaaaa",
    ),
    "a name in a path of 300 characters": (
        f"corpora: {{demo: {{path: /{'a' * 300}}}}}",
        "corpora.demo.path: there is no",
    ),
    "a model's name in a path of 300 characters": (
        f"models: {{minilm: {{path: /{'a' * 300}}}}}",
        "models.minilm.path: there is no folder /aaa",
    ),
    "a list as a path": (
        "corpora: {demo: {path: [a, b]}}",
        "corpora.demo.path: Input should be a valid string (here ['a', 'b'])",
    ),
    "a home that is nobody's": ("corpora: {demo: {path: ~nobody-at-all/x}}", "corpora.demo.path: there is no folder"),
    "a link to itself": ("corpora: {demo: {path: loop}}", "corpora.demo.path: there is no folder"),
    "a model's link to itself": ("models: {minilm: {path: loop}}", "models.minilm.path: there is no folder"),
    "a link to the results": ("models: {minilm: {path: link}}", "models.minilm.path: "),
    "a file as a folder": (
        "corpora: {demo: {path: /etc/hostname}}",
        "corpora.demo.path: there is no folder /etc/hostname",
    ),
    "a model's folder that holds the results": (
        "models: {minilm: {family: dense, similarity: cosine, path: .}}",
        "models.minilm.path: the grid runs in",
    ),
    "a model's folder among the results": (
        "models: {minilm: {family: dense, similarity: cosine, path: results/models/minilm/checkpoint}}",
        "lies in results/, whose files the workflow replaces",
    ),
    "a collection among the results": ("corpora: {demo: {path: results/mine}}", "results/mine lies in results/"),
    "a checkpoint with a space": (
        f"models: {{x: {{family: dense, similarity: dot, checkpoint: a b, revision: {'1' * 40}}}}}",
        "models.x.checkpoint: String should match pattern '^([A-Za-z0-9_][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9_][",
    ),
    "a checkpoint that is a URL": (
        f"models: {{x: {{family: dense, similarity: dot, checkpoint: 'https://hub/a/b', revision: {'1' * 40}}}}}",
        "models.x.checkpoint: String should match pattern '^([A-Za-z0-9_][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9_][",
    ),
    "expansions of nobody": (
        "systems: {x: {retriever: bm25, expansion: {source: huggingface, id: /b, files: [f], "
        f"revision: {'1' * 40}}}}}}}",
        "systems.x.expansion.id: String should match pattern '^([A-Za-z0-9_][A-Za-z0-9._-]{0,95}/)?[A-Za-z0-9",
    ),
    "a device in a map": ("device: {cuda: 0}", "device: Input should be 'auto', 'cpu' or 'cuda'"),
    "a device of nothing": ("device:", "device: Input should be 'auto', 'cpu' or 'cuda' (here None)"),
    "a precision of 16": (
        "encode: {precision: 16}",
        "encode.precision: Input should be 'auto', 'float32', 'bfloat16' or 'float16' (here 16)",
    ),
    "a small corpus below 0": (
        "small_corpus: -1",
        "small_corpus: Input should be greater than or equal to 0 (here -1)",
    ),
    "a node's memory as text": (
        "nodes: {cpu: {mem_mb: 64GB}}",
        "nodes.cpu.mem_mb: Input should be a valid integer (here '64GB')",
    ),
    "an unknown node": ("nodes: {tpu: {mem_mb: 64000}}", "nodes: Nodes has no key 'tpu'; did you mean 'gpu'?"),
    "a prompt that is a number": (
        "models: {minilm: {prompts: {query: 5}}}",
        "models.minilm.prompts.query: Input should be a valid string (here 5)",
    ),
    "a size below 0": (
        "models: {minilm: {size: {parameters: -1}}}",
        "models.minilm.size.parameters: Input should be greater than 0 (here -1)",
    ),
    "NaN as a size": (
        "models: {minilm: {size: {parameters: .nan}}}",
        "models.minilm.size.parameters: Input should be a finite number (here nan)",
    ),
    "NaN as a learning rate": (
        "models: {x: {family: dense, similarity: cosine, train: {recipe: tsdae, base: minilm, learning_rate: .nan}}}",
        "models.x.train.learning_rate: Input should be a finite number (here nan)",
    ),
    "a hash in capitals": (
        f"models: {{x: {{family: cross-encoder, package: p, files: {{a: {'A' * 64}}}}}}}",
        "models.x.files.a: String should match pattern '^[0-9a-f]{64}$' (here 'AAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
    ),
    "a mean of itself": ("datasets: {x: {mean_of: [x]}}", "datasets.x.mean_of: 'x' is itself a mean"),
    "a mean of nothing": (
        "datasets: {x: {mean_of: []}}",
        "datasets.x.mean_of: Value should have at least 1 item after validation, not 0 (here [])",
    ),
    "a tiny weight": (
        "systems: {x: {fusion: wsum, of: [bm25, minilm], weights: [1.0e-320, 1.0e-320]}}",
        "systems.x: weights.0: the size of 9.99989e-321 is not between 0.000001 and 1,000,000: float32 could ",
    ),
    "a huge weight": (
        "systems: {x: {fusion: wsum, of: [bm25, minilm], weights: [1, -1.0e+308]}}",
        "systems.x: weights.1: the size of -1e+308 is not between 0.000001 and 1,000,000",
    ),
    "a saturation that float32 cannot hold": (
        "systems: {x: {retriever: bm25, k1: 1.0e+300}}",
        "systems.x.k1: Input should be less than or equal to 1000 (here 1e+300)",
    ),
    "seeds as a list": (
        "systems: {x: {first_stage: bm25, reranker: demo-reranker, seeds: [1, 2]}}",
        "systems.x.seeds: Input should be a valid integer (here [1, 2])",
    ),
    "a single seed": (
        "systems: {x: {first_stage: bm25, reranker: demo-reranker, seeds: 1}}",
        "systems.x.seeds: Input should be greater than or equal to 2 (here 1)",
    ),
    "an index without a kind": (
        "systems: {x: {retriever: minilm, index: {links: 3}}}",
        "systems.x.index: Unable to extract tag using discriminator 'kind'",
    ),
    "an index of terms": (
        "systems: {x: {retriever: splade-v3, index: {kind: hnsw}}}",
        "systems.x: Retriever has no key 'index'",
    ),
    "no lists to look into": (
        "systems: {x: {retriever: minilm, index: {kind: ivfpq, probes: 0}}}",
        "systems.x.index.probes: Input should be greater than or equal to 1 (here 0)",
    ),
    "a prompt of a dataset as text": (
        "models: {minilm: {prompts: {datasets: {demo: x}}}}",
        "models.minilm.prompts.datasets.demo: Input should be a valid dictionary or instance of DatasetPrompts",
    ),
    "a prompt of a dataset for documents": (
        "models: {minilm: {prompts: {datasets: {demo: {document: x}}}}}",
        "models.minilm.prompts.datasets.demo: DatasetPrompts has no key 'document'",
    ),
    "a split outside of the collection": (
        "datasets: {demo: {split: ../../etc/passwd}}",
        "datasets.demo.split: String should match pattern '^[A-Za-z0-9][A-Za-z0-9._+@-]{0,79}$'",
    ),
    "a run of two datasets in one file": (
        "{systems: {x: {run: /nowhere/x.trec}}, grid: {systems: [x]}}",
        "systems.x.run: there is no file /nowhere/x.trec",
    ),
    "a set as a list": ("grid: {systems: !!set {bm25}}", "grid.systems: Input should be a valid tuple (here {'bm25'})"),
    "bytes as a name": ("grid: {name: !!binary aGk=}", "grid.name: Input should be a valid string (here b'hi')"),
    "a metric with a sign": ('metrics: ["ndcg@+1"]', "metrics: 'ndcg@+1' is not a metric of the form"),
    "a metric with a leading 0": ('metrics: ["ndcg@010"]', "metrics: 'ndcg@010' is not a metric of the form"),
    "a mean of a dataset twice": (
        "datasets: {x: {mean_of: [demo, demo]}}",
        "datasets.x.mean_of: 'demo' is listed twice",
    ),
    "a system made from itself": ("systems: {x: {fusion: rrf, of: [bm25, x]}}", "systems x → x form a cycle"),
}


@pytest.fixture(scope="module")
def tracked() -> dict[str, Any]:
    """The tracked configuration, with a grid that needs no download."""
    merged = tracked_configuration()
    merged["grid"] = {"systems": ["bm25", "minilm"], "datasets": ["demo"]}
    return merged


def _merged(tracked: dict[str, Any], *configfiles: str) -> dict[str, Any]:
    """Merge configfiles over the tracked configuration with Snakemake's own function."""
    from snakemake.utils import update_config

    merged = copy.deepcopy(tracked)
    for text in configfiles:
        update_config(merged, yaml.safe_load(text))
    return merged


@pytest.mark.parametrize(("text", "message"), REFUSED.values(), ids=REFUSED)
def test_it_is_refused_in_one_line_with_its_key(tracked, tmp_path, monkeypatch, text, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "results/mine").mkdir(parents=True)
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "link").symlink_to("results/mine")
    (tmp_path / "results/models/minilm/checkpoint").mkdir(parents=True)
    with pytest.raises(ConfigError) as caught:
        config.load(_merged(tracked, text))
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
    "braces and brackets in a path": ("models: {minilm: {path: 'model {x} <y> $(z)'}}",),
}


@pytest.mark.parametrize("texts", WORKS.values(), ids=WORKS)
def test_it_works(tracked, tmp_path, monkeypatch, texts):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "model {x} <y> $(z)").mkdir()
    (tmp_path / "model {x} <y> $(z)/config.json").write_text("{}")
    merged = _merged(tracked, *texts)
    grid = Grid(config.load(merged))
    entry = settings(grid, "retrieve_dense", system="minilm", dataset="demo")["model"]
    assert everything(grid)
    assert json.loads(Summary(grid).as_json({}))["rows"] == ["demo"]
    assert entry["family"] == "dense"
    fetched = Rules(grid, own_python=True).fetch_model.inputs(Wildcards(fromdict={"model": "minilm"}))
    assert "files" not in fetched  # Snakemake would fill in {x} and <y>


def test_a_wide_net_of_fusions_is_quick(tracked):
    # each of two parts, of two parts: a million paths, 39 systems
    net = {f"{side}{i}": {"fusion": "rrf", "of": [f"a{i - 1}", f"b{i - 1}"]} for i in range(1, 20) for side in "ab"}
    merged = copy.deepcopy(tracked)
    merged["systems"] |= {"a0": {"retriever": "bm25"}, "b0": {"retriever": "bm25", "k1": 1.2}, **net}
    merged["grid"]["systems"] = ["a19"]
    started = time.monotonic()
    grid = Grid(config.load(merged))
    assert len(grid.systems) == 39
    assert len(everything(grid)) == 2 + 39 + 1  # corpus, queries; a run each; one index
    assert time.monotonic() - started < 20


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("grid:\n  systems: [bm25]\ngrid:\n  datasets: [demo]\n", ["grid appears twice, on lines 1 and 3"]),
        ("models:\n  x: {family: dense, family: sparse}\n", ["models.x.family appears twice, on lines 2 and 2"]),
        ("a: &a {b: 1}\nc: {<<: *a, b: 2}\nd: [*a, *a]\n", []),
        ("a: [{b: 1, b: 2}]\n", ["a.b appears twice, on lines 1 and 1"]),
        ("a: &a [*a]\n", []),
        ("- a\n", []),
        ("", []),
        ("a:\tb\n\tc: [", []),  # Snakemake says so
    ],
)
def test_a_key_that_stands_twice_is_named(tmp_path, text, problems):
    (tmp_path / "grid.yaml").write_text(text)
    said = []
    try:
        config.refuse_misread([tmp_path / "grid.yaml", tmp_path / "none.yaml"], {}, {})
    except ConfigError as error:
        said = str(error).split("\n")[1:]
    assert said == [f"  - {tmp_path / 'grid.yaml'}: {problem}" for problem in problems]


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
        (["grid: {datasets: {}}", "grid: {datasets: [nfcorpus]}"], {}, None),
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
