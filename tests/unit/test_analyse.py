"""Run the stage analyse on a small grid: its inputs, outputs, omissions and refusals."""

from __future__ import annotations

import base64
import contextlib
import gzip
import json
import random
import re
import statistics
from pathlib import Path
from typing import Any

import finished
import numpy as np
import pages
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytrec_eval
from helpers import main

from beirgrid.collections.collection import CORPUS_SCHEMA, QUERIES_SCHEMA
from beirgrid.core import paths
from beirgrid.page import documents
from beirgrid.results import answers, efficiency
from beirgrid.results.cells import find, steps_of
from beirgrid.results.summary import Cell, DatasetSummary, GridSummary
from beirgrid.runs import runs
from beirgrid.stages import aggregate, report

Scores = dict[str, dict[str, float]]
SYSTEMS = ("bm25", "dense", "bm25+ce")
METRIC = "ndcg@10"
FACTS = {
    "retrieve": {"search_seconds": 0.8, "queries": 8, "device": "cpu"},
    "score": {"queries": 8, "pairs": 120, "pairs_per_second": 30.0, "device": "cpu"},
    "rerank": {"queries": 8, "reranker": {}},
}


def write_record(path: str | Path, stage: str, settings: dict, **results: Any) -> None:
    record = finished.record(stage, settings=settings, facts=FACTS.get(stage, {}), **results)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    Path(path).write_text(json.dumps(record))


def write_run(system: str, dataset: str, scores: Scores) -> None:
    run = {q: runs.canonical(q, list(found), np.array(list(found.values()))) for q, found in scores.items()}
    runs.write(paths.RUN.format(system=system, dataset=dataset), run, system)


def reranked(first: Scores, scores: dict[tuple[str, str], float], depth: int) -> Scores:
    run: Scores = {}
    for query, found in first.items():
        ids = sorted(found, key=found.get, reverse=True)
        head = sorted(ids[:depth], key=lambda document: scores[query, document], reverse=True)
        run[query] = {document: float(-place) for place, document in enumerate([*head, *ids[depth:]])}
    return run


class Grid:
    """A grid of two datasets and their mean, written under the working directory."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, str]] = {}
        self.qrels: dict[str, dict[str, dict[str, int]]] = {}
        self.runs: dict[tuple[str, str], Scores] = {}
        for seed, dataset in enumerate(("one", "two")):
            self.write_dataset(dataset, random.Random(seed))
        cells = tuple(self.cell(system, dataset) for dataset in ("one", "two") for system in SYSTEMS)
        datasets = {name: DatasetSummary(corpus=f"c-{name}") for name in ("one", "two")}
        datasets["both"] = DatasetSummary(mean_of=("one", "two"))
        self.summary = GridSummary(
            name="small",
            systems=SYSTEMS,
            rows=tuple(datasets),
            datasets=datasets,
            metrics=(METRIC,),
            baseline="bm25",
            trained_on={"dense": ("two",)},
            cells=cells,
        )
        self.folder = Path("results/grids/small")
        self.folder.mkdir(parents=True)
        (self.folder / "grid.json").write_text(self.summary.model_dump_json(exclude_defaults=True))
        rows = [(c.system, c.dataset, METRIC, self.value(c.system, c.dataset), "done") for c in cells]
        states = find(self.summary)
        tables = pages.answers_of(
            scores=pd.DataFrame(rows, columns=["system", "dataset", "metric", "value", "status"]),
            efficiency=efficiency.efficiency(steps_of(states)),
            per_query=aggregate.collect_per_query(self.summary, states),
        )
        answers.write_answers(tables, self.folder / "tables")

    def write_dataset(self, name: str, choose: random.Random) -> None:
        words = [f"{name[0]}{number}" for number in range(40)] + [f"shared{number}" for number in range(20)]
        documents = {f"d{i}": " ".join(choose.choices(words, k=choose.randint(1, 60))) for i in range(50)}
        queries = {f"q{i}": " ".join(choose.choices(words, k=4)) for i in range(8)}
        qrels = {query: {d: choose.choice((0, 1, 2)) for d in choose.sample(list(documents), 12)} for query in queries}
        self.documents[name], self.qrels[name] = documents, qrels
        corpus = Path(paths.CORPUS.format(corpus=f"c-{name}"))
        of_dataset = Path(paths.QUERIES.format(dataset=name))
        for path in (corpus, of_dataset):
            path.parent.mkdir(parents=True)
        columns = [list(documents), [""] * len(documents), list(documents.values())]
        pq.write_table(pa.table(columns, schema=CORPUS_SCHEMA), corpus, row_group_size=16)
        pq.write_table(pa.table([list(queries), list(queries.values())], schema=QUERIES_SCHEMA), of_dataset)
        lines = [f"{q}\t{d}\t{grade}\n" for q, grades in qrels.items() for d, grade in grades.items()]
        Path(paths.QRELS.format(dataset=name)).write_text("query-id\tcorpus-id\tscore\n" + "".join(lines))
        for system in ("bm25", "dense"):
            run = {query: {d: choose.uniform(0, 9) for d in choose.sample(list(documents), 30)} for query in queries}
            self.runs[system, name] = run
        scores = {(q, d): choose.uniform(-9, 9) for q, found in self.runs["bm25", name].items() for d in found}
        self.runs["bm25+ce", name] = reranked(self.runs["bm25", name], scores, 15)
        for system in SYSTEMS:
            write_run(system, name, self.runs[system, name])
            self.write_scores(system, name)
        for system, stage, settings in (
            ("bm25", "retrieve", {"fields": "flat"}),
            ("dense", "retrieve", {"similarity": "cosine"}),
            ("bm25+ce", "rerank", {"depth": 15}),
        ):
            write_record(paths.RUN_RECORD.format(system=system, dataset=name), stage, settings)
        write_record(paths.PAIRS_RECORD.format(reranker="ce", dataset=name, first="bm25"), "score", {})

    def write_scores(self, system: str, dataset: str) -> None:
        path = Path(paths.PER_QUERY.format(system=system, dataset=dataset))
        path.parent.mkdir(parents=True, exist_ok=True)
        values = self.values(system, dataset)
        pd.DataFrame({"query": list(values), METRIC: list(values.values())}).to_parquet(path)
        means = {METRIC: statistics.mean(values.values())}
        scores = {"system": system, "dataset": dataset, "queries": len(values), "means": means}
        write_record(paths.METRICS.format(system=system, dataset=dataset), "evaluate", {}, scores=scores)

    def values(self, system: str, dataset: str) -> dict[str, float]:
        found = pytrec_eval.RelevanceEvaluator(self.qrels[dataset], {"ndcg_cut.10"}).evaluate(
            self.runs[system, dataset]
        )
        return {query: found[query]["ndcg_cut_10"] for query in self.qrels[dataset]}

    def value(self, system: str, dataset: str) -> float:
        return statistics.mean(self.values(system, dataset).values())

    @staticmethod
    def cell(system: str, dataset: str) -> Cell:
        own = paths.RUN_RECORD.format(system=system, dataset=dataset)
        first = paths.RUN_RECORD.format(system="bm25", dataset=dataset)
        pairs = paths.PAIRS_RECORD.format(reranker="ce", dataset=dataset, first="bm25")
        records = [first, pairs, own] if system == "bm25+ce" else [own]
        named = {"system": system, "dataset": dataset}
        scores, per_query = (pattern.format(**named) for pattern in (paths.METRICS, paths.PER_QUERY))
        return Cell(**named, scores=scores, per_query=per_query, records=tuple(records))

    def analyse(self) -> int:
        options = ["--grid", self.folder / "grid.json", "--output", self.folder]
        return main(["analyse", *map(str, options), "--record", str(self.folder / "analyses.json")])

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_csv(self.folder / "tables" / f"{name}.csv")


@pytest.fixture
def grid(tmp_path, monkeypatch) -> Grid:
    monkeypatch.chdir(tmp_path)
    return Grid()


@pytest.fixture(scope="module")
def analysed(tmp_path_factory) -> Grid:
    """A grid that was analysed over figures of an earlier grid. Tests only read it."""
    with contextlib.chdir(tmp_path_factory.mktemp("grid")):
        found = Grid()
        (found.folder / "figures").mkdir()
        (found.folder / "figures" / "old.svg").write_text("")
        assert found.analyse() == 0
        found.folder = found.folder.absolute()
    return found


def test_the_tables_of_a_grid(analysed):
    grid = analysed
    holes = grid.table("holes").set_index(["dataset", "system"])
    for dataset in ("one", "two"):
        values = {system: grid.value(system, dataset) for system in SYSTEMS}
        assert holes.loc[dataset, "ndcg"].to_dict() == pytest.approx(values)
    mean = (holes["ndcg"]["one"] + holes["ndcg"]["two"]) / 2
    assert holes["ndcg"]["both"].to_dict() == pytest.approx(mean.to_dict())
    assert holes.loc[("both", "dense"), "queries"] == 16
    costs = grid.table("efficiency").set_index(["dataset", "system"])["query_ms"]
    assert costs["one"].to_dict() == pytest.approx({"bm25": 100, "dense": 100, "bm25+ce": 100 + 1000 * 15 / 30})
    overlap = grid.table("overlap").set_index(["dataset", "other"])["similarity"]
    assert 0 < overlap["one", "two"] < overlap["one", "both"] < 1
    lengths = grid.table("lengths")
    retrieved = lengths[(lengths["dataset"] == "one") & (lengths["kind"] == "retrieved")].set_index("system")
    words = {
        dataset: [
            len(grid.documents[dataset][document].split())
            for found in grid.runs["dense", dataset].values()
            for document in sorted(found, key=found.get, reverse=True)[:10]
        ]
        for dataset in ("one", "two")
    }
    assert retrieved.loc["dense", "median"] == statistics.median(words["one"])
    both = lengths[(lengths["dataset"] == "both") & (lengths["system"] == "dense")]
    assert both["median"].tolist() == [statistics.median([*words["one"], *words["two"]])]


def test_the_figures_of_a_grid(analysed):
    folder = analysed.folder
    captions = json.loads((folder / "figures" / "captions.json").read_text())
    assert captions.keys() == {"lengths_retrieved", "lengths_judged", "overlap"}
    files = {f"{name}.{suffix}" for name in captions for suffix in ("svg", "pdf", "png")} | {"captions.json"}
    assert {path.name for path in (folder / "figures").iterdir()} == files
    for caption in captions.values():
        table = caption.rpartition("Numbers: ")[2].removesuffix(".")
        assert (folder / "tables" / table).is_file()


def test_cells_that_are_not_done_are_left_out(grid, capsys):
    Path(paths.METRICS.format(system="dense", dataset="two")).unlink()
    Path(paths.PER_QUERY.format(system="bm25+ce", dataset="one")).write_bytes(b"")
    assert grid.analyse() == 0
    errors = capsys.readouterr().err
    assert "dense on two is left out: it is pending" in errors
    assert "bm25+ce on one is left out: it is failed (" in errors
    found = {tuple(row) for row in grid.table("holes")[["system", "dataset"]].to_numpy()}
    assert found == {("bm25", "one"), ("dense", "one"), ("bm25", "two"), ("bm25+ce", "two"), ("bm25", "both")}


def test_a_grid_before_its_first_cell(grid):
    for path in Path("results/metrics").rglob("*.json"):
        path.unlink()
    assert grid.analyse() == 0
    assert grid.table("holes").empty


def test_a_damaged_run_is_named(grid, capsys):
    path = Path(paths.RUN.format(system="dense", dataset="two"))
    path.write_bytes(path.read_bytes()[:100])
    assert grid.analyse() == 1
    assert "results/runs/dense/two.run.gz" in capsys.readouterr().err


def test_a_page_has_the_documents_of_its_queries_with_grades_words_and_ranks(grid, monkeypatch):
    queries = {dataset: [f"q{n}" for n in range(8)] for dataset in ("one", "two")}
    found = documents.documents(grid.summary, queries)
    for dataset in ("one", "two"):
        assert found[dataset]["systems"] == list(SYSTEMS)
        ranked = {
            system: {q: sorted(of, key=of.get, reverse=True) for q, of in grid.runs[system, dataset].items()}
            for system in SYSTEMS
        }
        for query, rows in found[dataset]["queries"].items():
            shown = [row[0] for row in rows]
            assert {of[query][0] for of in ranked.values()} <= {*shown}
            grades = grid.qrels[dataset][query]
            missed = [document for document, grade in grades.items() if grade > 0 and document not in shown]
            assert not missed or len(shown) == documents.OF_QUERY + documents.MISSED
            for title, text, grade, words, ranks in rows:
                assert grade == grades.get(title)
                assert grid.documents[dataset][title].startswith(text.removesuffix(" …"))
                assert {*words.split(", ")} - {""} <= {*grid.documents[dataset][title].split()}
                of_all = [of[query].index(title) + 1 if title in of[query] else 0 for of in ranked.values()]
                assert ranks == of_all
    monkeypatch.setattr(documents, "MOST_DOCUMENTS", 3 * 2 * (documents.OF_QUERY + documents.MISSED))
    assert [len(of["queries"]) for of in documents.documents(grid.summary, queries).values()] == [3, 3]
    monkeypatch.setattr(documents, "MOST_RUNS", 10)
    assert documents.documents(grid.summary, queries) == {}


def test_no_text_is_shown_where_the_licence_forbids_it(grid):
    datasets = grid.summary.datasets
    hidden = datasets["one"].model_copy(update={"show_text": False})
    summary = grid.summary.model_copy(update={"datasets": {**datasets, "one": hidden}})
    page = report.illustrated(summary, answers.read_answers(grid.folder / "tables"))
    for name, shown in (("one", False), ("two", True)):
        packs = [re.search(rf'id="{pack}">([\w+/=]+)<', page)[1] for pack in ("per-query", "documents")]
        per_query, documents = (json.loads(gzip.decompress(base64.b64decode(pack)))[name] for pack in packs)
        rows = [row for rows in documents["queries"].values() for row in rows]
        assert any(per_query["texts"]) == any(row[1] for row in rows) == any(row[3] for row in rows) == shown
        assert all(ranks for *_, ranks in rows)
