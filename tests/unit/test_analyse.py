"""Run the stage analyse on a small grid: its inputs, outputs, omissions and refusals."""

from __future__ import annotations

import contextlib
import copy
import json
import random
import shutil
import statistics
from pathlib import Path

import finished
import pages
import pandas as pd
import pytest
from helpers import main, run_work

from beirgrid import measures
from beirgrid.core import files, paths
from beirgrid.page import retrieved
from beirgrid.paper import figures, published
from beirgrid.paper import work as analyse
from beirgrid.results import answer_files, answers
from beirgrid.results.summary import DatasetSummary
from beirgrid.runs import runs
from beirgrid.stages.aggregate import work as aggregate
from beirgrid.stages.report import work as report

SYSTEMS, DATASETS = ("bm25", "dense", "bm25+ce"), ("one", "two")
FAMILIES = {"bm25": "lexical", "dense": "dense", "bm25+ce": "cross-encoder"}


class Grid:
    """A grid of two datasets and their mean, written under the working directory."""

    def __init__(self) -> None:
        self.documents: dict[str, dict[str, str]] = {}
        self.qrels: dict[str, dict[str, dict[str, int]]] = {}
        self.runs: dict[tuple[str, str], dict[str, list[str]]] = {}
        for seed, dataset in enumerate(DATASETS):
            self.write_dataset(dataset, random.Random(seed))
        cells = [finished.cell(system, dataset) for dataset in DATASETS for system in SYSTEMS]
        both = {"both": DatasetSummary(mean_of=DATASETS)}
        self.summary = finished.summary(cells, both, name="small", trained_on={"dense": ("two",)}, families=FAMILIES)
        self.folder = Path("results/grids/small")
        files.write_text(self.folder / "grid.json", self.summary.model_dump_json())
        tables = self.folder / "tables"
        run_work(aggregate.aggregate, tables / "aggregate.json", grid=self.summary, output=tables)

    def write_dataset(self, name: str, choose: random.Random) -> None:
        words = [f"{name[0]}{number}" for number in range(40)] + [f"shared{number}" for number in range(20)]
        documents = {f"d{i}": " ".join(choose.choices(words, k=choose.randint(1, 60))) for i in range(50)}
        queries = {f"q{i}": " ".join(choose.choices(words, k=4)) for i in range(8)}
        qrels = {query: {d: choose.choice((0, 1, 2)) for d in choose.sample(list(documents), 12)} for query in queries}
        self.documents[name], self.qrels[name] = documents, qrels
        finished.collection(Path(), name, documents, queries, qrels)
        for system in SYSTEMS:
            self.runs[system, name] = {query: choose.sample(list(documents), 30) for query in queries}
            model = {"similarity": "cosine" if system == "dense" else "dot"}
            finished.searched(system, name, self.runs[system, name], "float32", model=model)

    def analyse(self) -> int:
        options = ["--grid", self.folder / "grid.json", "--output", self.folder]
        return main(["analyse", *map(str, options), "--record", str(self.folder / "analyses.json")])

    def table(self, name: str) -> pd.DataFrame:
        return pd.read_csv(self.folder / "tables" / f"{name}.csv")


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> tuple[Grid, Path]:
    """A grid and its folder, to copy."""
    folder = tmp_path_factory.mktemp("grid")
    with contextlib.chdir(folder):
        return Grid(), folder


@pytest.fixture
def grid(made, tmp_path, monkeypatch) -> Grid:
    """The grid in the working directory."""
    shutil.copytree(made[1], tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    return made[0]


@pytest.fixture(scope="module")
def analysed(made, tmp_path_factory) -> Grid:
    """The grid after it was analysed over figures of an earlier grid. Tests only read it."""
    found = copy.copy(made[0])
    with contextlib.chdir(shutil.copytree(made[1], tmp_path_factory.mktemp("analysed") / "grid")):
        (found.folder / "figures").mkdir()
        (found.folder / "figures" / "old.svg").write_text("")
        assert found.analyse() == 0
        found.folder = found.folder.absolute()
    return found


def test_the_tables_of_a_grid(analysed):
    grid = analysed
    holes = grid.table("holes").set_index(["dataset", "system"])
    scores = grid.table("scores").set_index(["dataset", "system"])
    assert holes["ndcg"].to_dict() == pytest.approx(scores["value"].to_dict())
    assert holes.loc[("both", "dense"), "queries"] == 16
    for (system, dataset), found in grid.runs.items():
        run = {query: runs.canonical(query, ids, range(len(ids), 0, -1)) for query, ids in found.items()}
        whole = measures.per_query(run, grid.qrels[dataset], [f"{name}@10" for name in analyse.METRICS])
        values = [of.mean() for of in whole.values()]
        assert holes.loc[(dataset, system), list(analyse.METRICS)].tolist() == pytest.approx(values)
    assert ((holes["hole_corpus"] > 0) & (holes["hole_corpus"] < holes["hole"])).all()
    overlap = grid.table("overlap").set_index(["dataset", "other"])["similarity"]
    assert 0 < overlap["one", "two"] < overlap["one", "both"] < 1
    lengths = grid.table("lengths")
    of_runs = lengths[(lengths["dataset"] == "one") & (lengths["kind"] == "retrieved")].set_index("system")
    words = {
        dataset: [
            len(grid.documents[dataset][document].split())
            for found in grid.runs["dense", dataset].values()
            for document in found[:10]
        ]
        for dataset in DATASETS
    }
    assert of_runs.loc["dense", "median"] == statistics.median(words["one"])
    assert of_runs["similarity"].dropna().to_dict() == {"dense": "cosine"}
    bins = grid.table("length_histogram").set_index(["dataset", "system"]).loc[("one", "dense")]
    assert bins["documents"].sum() == len(words["one"])
    counted = [sum(low <= length <= high for length in words["one"]) for low, high in bins[["low", "high"]].to_numpy()]
    assert bins["documents"].tolist() == counted
    both = lengths[(lengths["dataset"] == "both") & (lengths["system"] == "dense")]
    assert both["median"].tolist() == [statistics.median([*words["one"], *words["two"]])]


def test_the_figures_of_a_grid(analysed):
    folder = analysed.folder
    captions = json.loads((folder / "figures" / "captions.json").read_text())
    assert captions.keys() == {"effectiveness", "lengths_retrieved", "lengths_judged", "overlap", "overlap_map"}
    files = {f"{name}.{suffix}" for name in captions for suffix in ("svg", "pdf", "png")} | {"captions.json"}
    assert {path.name for path in (folder / "figures").iterdir()} == files
    for caption in captions.values():
        for table in caption.rpartition("Numbers: ")[2].removesuffix(".").split(" and "):
            assert (folder / "tables" / table).is_file()


def test_wins_are_counted_as_in_the_table(grid):
    """Over the datasets that no system was trained on, if there are some."""
    folder = grid.folder / "tables"
    for trained, counted in (({"dense": ("two",)}, ["one"]), ({}, ["one", "two"])):
        summary = grid.summary.model_copy(update={"trained_on": trained, "rows": DATASETS})
        run_work(aggregate.aggregate, folder / "aggregate.json", grid=summary, output=folder)
        found = answer_files.read_answers(folder)
        differences = figures.against(found.scores[found.scores["metric"] == "ndcg@10"], found.across, summary)
        assert differences.index.tolist() == counted
        table = answers.against_baseline(found.across).set_index("system")
        for system, of in differences.items():
            assert table.loc[system, ["wins", "losses"]].tolist() == [(of > 0).sum(), (of < 0).sum()]


def test_the_papers_values_stand_beside_those_of_the_grid():
    """Of the systems with the paper's names, on its datasets."""
    grid = finished.summary([finished.cell(system, "trec-covid") for system in ("bm25", "tas-b")])
    holes = pd.DataFrame(
        {"dataset": "trec-covid", "system": ["bm25", "tas-b"], "hole_corpus": 0.07, "ndcg": [0.6, 0.5]}
    )
    sizes = pd.DataFrame({"dataset": "dbpedia-entity", "system": ["bm25"], "index_bytes": [5e8]})
    table = published.beside(grid, holes, sizes, None)
    assert set(table["table"]) == {"Table 4", "Table 10"}
    here = table.dropna(subset="here").set_index(["measure", "system"])[["published", "here"]]
    assert here.loc[("hole_corpus@10", "tas-b")].tolist() == [0.318, 0.07]
    assert here.loc[("ndcg@10", "bm25")].tolist() == [0.656, 0.6]
    assert len(here) == 4
    latency = pd.DataFrame({"system": "tas-b", "dataset": "dbpedia-entity", "device": ["cpu", "cuda:0"]})
    latency = latency.assign(as_run=True, p50_ms=[90.0, 9.0])
    grid = finished.summary([finished.cell("bm25", "dbpedia-entity")])
    table = published.beside(grid, holes, sizes, latency).dropna(subset="here").set_index(["measure", "system"])
    assert table["here"].to_dict() == {
        ("index_gb", "bm25"): 0.5,
        ("latency_ms (GPU)", "tas-b"): 9,
        ("latency_ms (CPU)", "tas-b"): 90,
    }


def test_cells_that_are_not_done_are_left_out(grid, capsys):
    Path(paths.METRICS.format(system="dense", dataset="two")).unlink()
    Path(paths.RUN.format(system="bm25+ce", dataset="one")).write_bytes(b"")
    assert grid.analyse() == 0
    errors = capsys.readouterr().err
    assert "dense on two is left out: it is pending" in errors
    assert "bm25+ce on one is left out: it is failed (results/runs/bm25+ce/one.run.gz is damaged" in errors
    found = {tuple(row) for row in grid.table("holes")[["system", "dataset"]].to_numpy()}
    assert found == {("bm25", "one"), ("dense", "one"), ("bm25", "two"), ("bm25+ce", "two"), ("bm25", "both")}


def test_a_grid_before_its_first_cell(grid):
    for path in Path("results/metrics").rglob("*.json"):
        path.unlink()
    assert grid.analyse() == 0
    assert grid.table("holes").empty


def test_a_damaged_corpus_is_named(grid, capsys):
    path = Path(paths.CORPUS.format(corpus="two"))
    path.write_bytes(path.read_bytes()[:100])
    assert grid.analyse() == 1
    assert f"{path} is damaged" in capsys.readouterr().err


def test_a_page_has_the_documents_of_its_queries_with_grades_words_and_ranks(grid, monkeypatch):
    queries = {dataset: list(of) for dataset, of in grid.qrels.items()}
    found = retrieved.documents(grid.summary, queries)
    for dataset in DATASETS:
        assert found[dataset]["systems"] == list(SYSTEMS)
        ranked = {system: grid.runs[system, dataset] for system in SYSTEMS}
        for query, rows in found[dataset]["queries"].items():
            shown = [row[0] for row in rows]
            assert {of[query][0] for of in ranked.values()} <= {*shown}
            grades = grid.qrels[dataset][query]
            missed = [document for document, grade in grades.items() if grade > 0 and document not in shown]
            assert not missed or len(shown) == retrieved.OF_QUERY + retrieved.MISSED
            for title, text, grade, words, ranks in rows:
                assert grade == grades.get(title)
                assert grid.documents[dataset][title].startswith(text.removesuffix(" …"))
                assert {*words.split(", ")} - {""} <= {*grid.documents[dataset][title].split()}
                of_all = [of[query].index(title) + 1 if title in of[query] else 0 for of in ranked.values()]
                assert ranks == of_all
    monkeypatch.setattr(retrieved, "MOST_DOCUMENTS", 3 * 2 * (retrieved.OF_QUERY + retrieved.MISSED))
    assert [len(of["queries"]) for of in retrieved.documents(grid.summary, queries).values()] == [3, 3]
    monkeypatch.setattr(retrieved, "MOST_RUNS", 10)
    assert retrieved.documents(grid.summary, queries) == {}


def test_no_text_is_shown_where_the_licence_forbids_it(grid):
    datasets = grid.summary.datasets
    hidden = datasets["one"].model_copy(update={"show_text": False})
    summary = grid.summary.model_copy(update={"datasets": {**datasets, "one": hidden}})
    page = report.illustrated(summary, answer_files.read_answers(grid.folder / "tables"), grid.folder)
    for name, shown in (("one", False), ("two", True)):
        per_query, documents = (pages.packed(page, pack)[name] for pack in ("per-query", "documents"))
        rows = [row for rows in documents["queries"].values() for row in rows]
        assert any(per_query["texts"]) == any(row[1] for row in rows) == any(row[3] for row in rows) == shown
        assert all(ranks for *_, ranks in rows)
