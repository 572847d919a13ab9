"""Write finished grids without Snakemake: small results folders from the real commands, for tests that read results."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from helpers import main, write_collection, write_record

from beirgrid.core import files, paths
from beirgrid.results.summary import Cell, DatasetSummary, GridSummary
from beirgrid.runs import runs
from beirgrid.stages.evaluate.plan import Evaluate
from beirgrid.stages.fuse.plan import Fuse
from beirgrid.stages.retrieve.plan import RetrieveVectors

QUERIES = [f"q{i}" for i in range(12)]
DOCUMENTS = [f"d{i}" for i in range(10)]
METRICS = ["ndcg@10", "recall@5"]
# Digest of the settings of a cell that ``write_cell`` writes.
SETTINGS = "0123456789abcdef"


def record(stage: str, **keys: Any) -> dict[str, Any]:
    """Return the content of a record with all keys that readers take."""
    of_none = {"settings": {}, "settings_key": None, "outputs": {}, "facts": {}, "packages": {"beirgrid": "0.2.0"}}
    costs = {"seconds": 1.0, "peak_memory_mb": 1.0, "finished": "2026-11-21T19:20:09+00:00"}
    return {"stage": stage, "kind": "encode", "stage_version": 1, **of_none, **costs, **keys}


def rankings(seed: int, better: int = 0) -> dict[str, list[str]]:
    """Return ten documents per query; in the first ``better`` queries, the relevant documents come first."""
    numbers = np.random.default_rng(seed)
    shuffled = {query: [f"d{i}" for i in numbers.permutation(10)] for query in QUERIES}
    return shuffled | dict.fromkeys(QUERIES[:better], DOCUMENTS)


def collection(
    folder: Path,
    dataset: str,
    texts: Mapping[str, str] | None = None,
    words: Mapping[str, str] | None = None,
    grades: Mapping[str, Mapping[str, int]] | None = None,
) -> None:
    """Fetch a corpus and a dataset of one name: texts of documents, words and grades of queries.

    By default, the documents d0, d1 and d2 are relevant to each query, with grades 3, 2 and 1.
    """
    texts = texts or {name: f"text of {name}" for name in DOCUMENTS}
    words = words or {query: f"words of {query}" for query in QUERIES}
    grades = grades or {query: {"d0": 3, "d1": 2, "d2": 1} for query in words}
    documents = [{"_id": name, "title": "", "text": text} for name, text in texts.items()]
    queries = [{"_id": query, "text": text} for query, text in words.items()]
    qrels = [(query, document, grade) for query, of in grades.items() for document, grade in of.items()]
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
    ranked = {query: runs.canonical(query, ids, range(len(ids), 0, -1)) for query, ids in found.items()}
    runs.write(run, ranked, system)
    facts = {"precision": precision, "device": "cpu", "queries": len(ranked)}
    write_record(RetrieveVectors("dense"), paths.RUN_RECORD.format(**named), [run], settings=settings, facts=facts)
    evaluated(system, dataset)


def evaluated(system: str, dataset: str) -> None:
    """Evaluate a run."""
    named = {"system": system, "dataset": dataset}
    run, qrels = (pattern.format(**named) for pattern in (paths.RUN, paths.QRELS))
    scores, per_query = (pattern.format(**named) for pattern in (paths.METRICS, paths.PER_QUERY))
    given = ["--system", system, "--dataset", dataset, "--run", run, "--qrels", qrels, "--metrics", *METRICS]
    command("evaluate", *given, "--output", scores, "--per-query", per_query)


def cell(system: str, dataset: str, before: Iterable[str] = ()) -> Cell:
    """Name the files of a cell; ``before`` has the records of the steps before its run."""
    named = {"system": system, "dataset": dataset}
    patterns = (paths.RUN_RECORD, paths.METRICS, paths.PER_QUERY)
    run, scores, per_query = (pattern.format(**named) for pattern in patterns)
    return Cell(**named, scores=scores, per_query=per_query, records=(*before, run))


def summary(cells: Sequence[Cell], more: Mapping[str, DatasetSummary] | None = None, **keys: Any) -> GridSummary:
    """Return the summary of a grid of these cells and more datasets; its baseline is the system of the first cell."""
    qrels = {of.dataset: paths.QRELS.format(dataset=of.dataset) for of in cells}
    of_cells = {
        name: DatasetSummary(corpus=name, qrels=path if Path(path).is_file() else "") for name, path in qrels.items()
    }
    datasets, systems = of_cells | dict(more or {}), tuple(dict.fromkeys(of.system for of in cells))
    own = {"systems": systems, "rows": tuple(datasets), "datasets": datasets, "metrics": ("ndcg@10",)}
    return GridSummary(**own | {"baseline": systems[0], "cells": tuple(cells)} | keys)


def write_cell(
    system: str, dataset: str, values: pd.DataFrame, before: Iterable[str] = (), settings: str = SETTINGS, **facts: Any
) -> Cell:
    """Write some run, and its values, queries × metrics, as evaluate does; return the cell.

    ``settings`` is the digest of its settings; ``facts`` are those of the evaluation.
    """
    made, run = cell(system, dataset, before), Path(paths.RUN.format(system=system, dataset=dataset))
    means = {"system": system, "dataset": dataset, "queries": len(values), "means": values.mean().to_dict()}
    files.write_text(run, f"{system} {dataset}\n" * 20)
    write_record(Fuse(), made.records[-1], [run], settings={}, digest=settings)
    Path(made.per_query).parent.mkdir(parents=True, exist_ok=True)
    values.rename_axis("query").reset_index().to_parquet(made.per_query)
    facts = {"queries": len(values), "queries_without_documents": 0, **facts}
    of_cell: dict[str, Any] = {"settings": {}, "digest": settings, "inputs": {"run": str(run)}, "facts": facts}
    write_record(Evaluate(), made.scores, [made.per_query], results={"scores": means}, **of_cell)
    return made


def at(folder: Path) -> contextlib.AbstractContextManager[None]:
    """Create a folder and return a context in which it is the working directory."""
    folder.mkdir(parents=True)
    return contextlib.chdir(folder)
