"""Grids of any size with invented numbers, and the tables that their runs would write."""

from __future__ import annotations

import base64
import gzip
import itertools
import json
import re
from functools import cache
from pathlib import Path
from typing import Any

import finished
import numpy as np
import pandas as pd

from beirgrid.results import answers
from beirgrid.results.answers import Answers
from beirgrid.results.published import Published
from beirgrid.results.summary import Cell, DatasetSummary, GridSummary
from beirgrid.stages.aggregate.work import collect_costs, judge

METRICS = ("ndcg@10", "recall@100", "hole@10")
# Metrics that papers report.
PUBLISHED = ("ndcg@10", "recall@100")
FAMILIES = ("lexical", "dense", "sparse", "late-interaction", "cross-encoder")
NAMES = ("bm25", "bm25-flat", "doct5query", "deepct", "sparta", "dpr", "ance", "tas-b", "genq", "colbert", "bm25+ce")
NAMES += ("splade-v3", "minilm", "contriever-msmarco", "bge-base-en-v1.5", "bm25+minilm", "bm25+minilm-wsum")
DATASETS = ("trec-covid", "nfcorpus", "nq", "hotpotqa", "fiqa", "arguana", "touche2020", "cqadupstack", "quora")
DATASETS += ("dbpedia-entity", "scidocs", "fever", "climate-fever", "scifact")


def grid(systems: int, datasets: int, metrics: tuple[str, ...] = METRICS, records: tuple[str, ...] = ()) -> GridSummary:
    """Build a grid of this many systems and datasets; each cell has these records."""
    names = [*NAMES, *(f"some-model-{number}" for number in range(systems))][:systems]
    rows = [*DATASETS, *(f"dataset-{number}" for number in range(datasets))][:datasets]
    return GridSummary(
        systems=tuple(names),
        rows=tuple(rows),
        datasets={
            name: DatasetSummary(
                task=("QA", "fact checking", "argument retrieval")[number % 3],
                domain=("science", "Wikipedia")[number % 2],
                source=f"beir/{name}",
                corpus=name,
            )
            for number, name in enumerate(rows)
        },
        families={name: FAMILIES[number % len(FAMILIES)] for number, name in enumerate(names)},
        metrics=metrics,
        cells=tuple(
            Cell(system=s, dataset=d, scores=f"{s}/{d}.json", per_query=f"{s}/{d}.parquet", records=records)
            for s in names
            for d in rows
        ),
    )


def tables(grid: GridSummary, states: dict[tuple[str, str], tuple[str, str]] | None = None) -> Answers:
    """Build tables of invented numbers. ``states`` gives unfinished cells a status and a detail."""
    rng = np.random.default_rng(0)
    states = states or {}
    scores, published, tests, pairs = [], [], [], []
    for metric, dataset in itertools.product(grid.metrics, grid.rows):
        values = dict(zip(grid.systems, rng.uniform(0.2, 0.9, len(grid.systems)), strict=True))
        done = [system for system in grid.systems if states.get((system, dataset), ("done",))[0] == "done"]
        best = max(done, key=values.__getitem__)
        for system in grid.systems:
            status, detail = states.get((system, dataset), ("done", ""))
            value = values[system] if status == "done" else np.nan
            cell = {"system": system, "dataset": dataset, "metric": metric, "value": value, "status": status}
            cell |= {"queries": 300 if status == "done" else None, "precision": "bfloat16"}
            scores.append({**cell, "low": value - 0.02, "high": value + 0.02, "detail": detail})
            if metric in PUBLISHED and rng.random() < 0.5:
                told = round(values[system] + rng.normal(0, 0.01), 3)
                published.append(Published(system, dataset, metric, told, "paper", "BEIR paper, Table 2", ""))
        for system in done:
            row = {"dataset": dataset, "metric": metric, "queries": 300, "system": system, "mean": values[system]}
            near = values[best] - values[system] < 0.03
            row |= {"best": best, "in_best_group": near, "p_tukey": 0.4 if near else 0.001}
            if system != grid.systems[0]:
                row |= {"baseline": grid.systems[0], **_tests(values[system] - values[grid.systems[0]])}
            tests.append(row)
        for first, second in itertools.combinations(done, 2):
            pair = {"dataset": dataset, "metric": metric, "queries": 300, "system": first, "other": second}
            pairs.append({**pair, **_tests(values[first] - values[second]), "p_tukey": 0.02})
    table = answers.typed("scores", pd.DataFrame(scores))
    made = {"scores": table, "verdicts": judge(table, published, {"paper": 0.01}), "costs": costs(grid)}
    found = {"significance": tests, "pairs": pairs, "across": _across(grid, table)}
    return answers_of(**made, **{name: pd.DataFrame(rows) for name, rows in found.items()})


def with_open_pairs(found: Answers) -> Answers:
    """Return tables in which systems that are nearer than 0.03 cannot be told apart."""
    pairs = found.pairs.assign(p_tukey=found.pairs["p_tukey"].where(found.pairs["difference"].abs() >= 0.03, 0.4))
    return found._replace(pairs=pairs)


def answers_of(**tables: pd.DataFrame) -> Answers:
    """Return answers with these tables; the others are empty."""
    return Answers(*(answers.typed(name, tables.get(name, pd.DataFrame())) for name in Answers._fields))


def costs(grid: GridSummary) -> pd.DataFrame:
    """Return the table of a grid's steps, from the records that are there."""
    read = cache(lambda path: json.loads(Path(path).read_text()))
    steps = {
        (cell.system, cell.dataset): {path: read(path) for path in (*cell.records, cell.scores) if Path(path).is_file()}
        for cell in grid.cells
    }
    return collect_costs(steps)


def per_query(values: dict[str, dict[str, list[float]]], queries: list[str]) -> pd.DataFrame:
    """Return the table of values per query: dataset → system → its values."""
    rows = [
        {"dataset": dataset, "system": system, "query": query, "value": value}
        for dataset, of in values.items()
        for system in of
        for query, value in zip(queries, of[system], strict=True)
    ]
    return answers.typed("per_query", pd.DataFrame(rows))


def _tests(difference: float) -> dict[str, float | bool]:
    p = float(np.exp(-60 * abs(difference)))
    ends = {"difference": difference, "difference_low": difference - 0.02, "difference_high": difference + 0.02}
    ends |= {"standard_error": 0.01, "degrees_of_freedom": 299}
    return {**ends, "p_randomisation": p, "p_holm": min(1, 3 * p), "p_t": p, "effect": 3 * difference}


def _across(grid: GridSummary, scores: pd.DataFrame) -> list[dict]:
    rows = []
    for metric, system in itertools.product(grid.metrics, grid.systems):
        own = scores[(scores["metric"] == metric) & (scores["system"] == system)]
        lacking = list(own.loc[own["value"].isna(), "dataset"])
        row = {"metric": metric, "over": "all", "datasets": len(grid.rows), "names": ", ".join(sorted(grid.rows))}
        mean = own["value"].mean() if not lacking else np.nan
        row |= {"system": system, "mean": mean, "low_queries": mean - 0.01, "high_queries": mean + 0.01}
        rows.append(
            {**row, "baseline": grid.systems[0], "note": f"no scores on {', '.join(lacking)}" if lacking else ""}
        )
    return rows


def packed(page: str, name: str) -> Any:
    """Return the data that the page stores for its script under a name."""
    found = re.search(rf'<script type="text/plain" id="{name}">([\w+/=]+)</script>', page)
    return json.loads(gzip.decompress(base64.b64decode(found[1])))


def record(path: Path, command: str = "python -m beirgrid index dense --output x", stage: str = "index") -> str:
    """Write the record of a step and return its path."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(finished.record(stage, seconds=1.5, peak_memory_mb=90.0, command=command)))
    return str(path)


def folder(path: Path) -> Path:
    """Create a folder in BEIR layout with empty files, for a grid that does not run."""
    (path / "qrels").mkdir(parents=True)
    for name in ("corpus.jsonl", "queries.jsonl", "qrels/test.tsv"):
        (path / name).touch()
    return path


def analyses(work: Path, title: str) -> None:
    """Write analyses of the grid in a working directory: a figure and a table."""
    folder = work / "results/grids/grid"
    (folder / "figures").mkdir(parents=True)
    (folder / "tables").mkdir()
    (folder / "figures/depth.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg' width='9' height='9'></svg>")
    (folder / "figures/captions.json").write_text(json.dumps({"depth": f"{title}, by depth"}))
    (folder / "tables/holes.csv").write_text("dataset,system,hole,bytes\n2019,bm25,0.123456,91607178.0\n2019,dpr,,\n")
