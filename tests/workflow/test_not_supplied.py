"""A dataset that only the user can supply: the rest of the grid runs without it, and it joins when it is there."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
import yaml
from helpers import ROOT
from small import collection, finish, job_counts, run, table

# Files of results that others may read, by their suffixes.
TEXTS = (".json", ".csv", ".md", ".tex", ".html")


def _scores(folder: Path) -> dict[str, dict[str, str]]:
    return {row["dataset"]: row for row in table(folder) if row["metric"] == "ndcg@10"}


@pytest.fixture(scope="module")
def grid(finished, small_grid, tmp_path_factory) -> tuple[Path, Path, Path]:
    """A configfile of the finished grid with a dataset more, a copy of the results, and the folder that is lacking."""
    folder = tmp_path_factory.mktemp("without")
    shutil.copytree(finished, folder / "work", symlinks=True)
    absent = folder / "licensed"
    grid = yaml.safe_load((finished / "grid.yaml").read_text())
    configfile = small_grid(
        folder,
        corpora={**grid["corpora"], "licensed": {"source": "local", "path": str(absent), "supplied": "user"}},
        datasets={
            **grid["datasets"],
            "licensed": {"corpus": "licensed", "queries": 11, "task": "news retrieval"},
            "both": {"mean_of": ["small", "licensed"]},
        },
        grid={"systems": ["bm25-flat"], "datasets": ["small", "licensed", "both"]},
    )
    return configfile, folder / "work", absent


@pytest.mark.slow
def test_the_grid_runs_without_it_and_its_cells_say_so(grid):
    configfile, work, absent = grid
    notice = f"docs/datasets.md says, and run again:\n  licensed: {absent}\n"
    assert notice in finish(configfile, work, "-n")
    assert finish(configfile, work).count(notice) == 1
    tables, scores = work / "results/grids/grid/tables", _scores(work)
    assert scores["small"]["queries"] == "11"
    assert 0 < float(scores["small"]["low"]) <= float(scores["small"]["value"]) <= float(scores["small"]["high"]) < 1
    for dataset in ("licensed", "both"):
        assert [scores[dataset][key] for key in ("value", "queries", "status")] == ["", "", "not supplied"]
    assert scores["both"]["detail"] == "lacks licensed (not supplied)"
    verdicts = {row["dataset"]: row for row in table(work, "verdicts")}
    assert verdicts["licensed"]["verdict"] == verdicts["licensed"]["status"] == "not supplied"
    assert verdicts["small"]["verdict"] == "no reference"

    by_metric = [(row["ndcg@10"], row["bm25-flat"]) for row in table(work, "ndcg@10")]
    assert by_metric[1:] == [("licensed", ""), ("both", "")]
    assert "| licensed | not supplied |" in (tables / "ndcg@10.md").read_text()
    assert r"licensed & not supplied \\" in (tables / "ndcg@10.tex").read_text()
    page = (work / "results/grids/grid/report/index.html").read_text()
    assert page.count('class="none">not supplied</td>') == 2 * 2  # licensed, and the mean with it; per metric
    assert f"not supplied: there is no folder {os.path.relpath(absent, work)}<" in page
    assert "1 queries that are documents and do not retrieve themselves" in page
    texts = {path: path.read_text() for path in (work / "results").rglob("*.*") if path.suffix in TEXTS}
    assert len(texts) > 20
    named = [path for path, text in texts.items() if str(work.parent) in text or f"{ROOT}/" in text]
    assert not named, "results name folders of the person who made them"


@pytest.mark.slow
def test_once_it_is_there_only_its_cells_are_computed(grid):
    configfile, work, absent = grid
    collection(absent, seed=1)
    done = run(configfile, work)
    jobs = ("fetch_corpus", "fetch_dataset", "index_lexical", "retrieve_lexical", "evaluate", "aggregate", "report")
    assert job_counts(done) == dict.fromkeys(jobs, 1)
    assert "not supplied" not in done.stdout
    scores = _scores(work)
    values = {name: float(row["value"]) for name, row in scores.items()}
    assert values["both"] == pytest.approx((values["small"] + values["licensed"]) / 2)
    assert scores["both"]["queries"] == "22"
