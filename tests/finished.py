"""Write finished grids without Snakemake: small results folders from the real commands, for tests that read results."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path
from typing import Any

import numpy as np
from helpers import main, write_collection

from beirgrid.core import paths, provenance
from beirgrid.pipeline.retrieve import RETRIEVE
from beirgrid.runs import runs

QUERIES = [f"q{i}" for i in range(12)]
DOCUMENTS = [f"d{i}" for i in range(10)]
METRICS = ["ndcg@10", "recall@5"]


def record(stage: str, **keys: Any) -> dict[str, Any]:
    """Return the content of a record with all keys that readers take."""
    of_none = {"settings": {}, "settings_key": None, "outputs": {}, "facts": {}, "packages": {"beirgrid": "0.2.0"}}
    costs = {"seconds": 1.0, "peak_memory_mb": 1.0, "finished": "2026-11-21T19:20:09+00:00"}
    return {"stage": stage, "stage_version": 1, **of_none, **costs, **keys}


def rankings(seed: int, better: int = 0) -> dict[str, list[str]]:
    """Return ten documents per query; in the first ``better`` queries, the relevant documents come first."""
    numbers = np.random.default_rng(seed)
    shuffled = {query: [f"d{i}" for i in numbers.permutation(10)] for query in QUERIES}
    return shuffled | dict.fromkeys(QUERIES[:better], DOCUMENTS)


def collection(folder: Path, dataset: str) -> None:
    """Fetch a corpus and a dataset of one name; the documents d0, d1 and d2 are relevant, with grades 3, 2 and 1."""
    documents = [{"_id": name, "title": "", "text": f"text of {name}"} for name in DOCUMENTS]
    queries = [{"_id": query, "text": f"words of {query}"} for query in QUERIES]
    qrels = [(query, f"d{i}", 3 - i) for query in QUERIES for i in range(3)]
    place = write_collection(folder / "data" / dataset, documents, queries, {"test": qrels})
    entry = json.dumps({"source": "local", "path": str(place)})
    named = {"corpus": dataset, "dataset": dataset}
    corpus, corpus_record, queries_file, qrels_file, record = (
        pattern.format(**named)
        for pattern in (paths.CORPUS, paths.CORPUS_RECORD, paths.QUERIES, paths.QRELS, paths.DATASET_RECORD)
    )
    command("fetch", "corpus", "--name", dataset, "--entry", entry, "--output", corpus, "--record", corpus_record)
    fetched = ["--corpus-entry", entry, "--corpus", corpus, "--queries", queries_file, "--qrels", qrels_file]
    own = json.dumps({"corpus": dataset})
    command("fetch", "dataset", "--name", dataset, "--entry", own, *fetched, "--record", record)


def command(*words: str) -> None:
    """Run a command of beirgrid in this process and in the working directory."""
    assert main([*words]) == 0


def searched(system: str, dataset: str, found: dict[str, list[str]], precision: str, **settings: Any) -> None:
    """Write a run with its record, as a search does, and evaluate it."""
    named = {"system": system, "dataset": dataset}
    run = Path(paths.RUN.format(**named))
    words = ["retrieve", "dense", "--checkpoint", f"results/models/{system}/checkpoint"]
    provenance.use_command(words)
    settings = {"family": "dense", **settings}
    with provenance.record(RETRIEVE, paths.RUN_RECORD.format(**named), settings, [run]) as facts:
        ranked = {query: runs.canonical(query, ids, range(len(ids), 0, -1)) for query, ids in found.items()}
        runs.write(run, ranked, system)
        facts |= {"precision": precision, "device": "cpu"}
    evaluated(system, dataset)


def evaluated(system: str, dataset: str) -> None:
    """Evaluate a run."""
    named = {"system": system, "dataset": dataset}
    run, qrels = (pattern.format(**named) for pattern in (paths.RUN, paths.QRELS))
    scores, per_query = (pattern.format(**named) for pattern in (paths.METRICS, paths.PER_QUERY))
    given = ["--system", system, "--dataset", dataset, "--run", run, "--qrels", qrels, "--metrics", *METRICS]
    command("evaluate", *given, "--output", scores, "--per-query", per_query)


def at(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Create a folder and return a context in which it is the working directory."""
    folder.mkdir(parents=True)
    return contextlib.chdir(folder)
