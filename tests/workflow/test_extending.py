"""What docs/extending.md shows: its diffs apply to a copy of the checkout and do what the page says."""

from __future__ import annotations

import functools
import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest
from helpers import ROOT, copy_checkout, run_copy

from beirgrid.runs import runs

slow = pytest.mark.slow  # whole workflows

PAGE = ROOT / "docs" / "extending.md"


# Prints the records behind a cell, and its memory.
BEHIND = """
import sys
from pathlib import Path
from beirgrid.graph import artifacts
from beirgrid.graph.grid import Grid
from beirgrid.graph.resources import Resources
from beirgrid.graph.dag import Job, jobs_behind
from beirgrid.config.load import merged
grid = Grid(merged([Path(sys.argv[1])]))
cell = {"system": "bm25-minilm", "dataset": "demo"}
print(*(job.record for job in jobs_behind(grid, artifacts.run(grid, **cell))))
print(Resources(grid).need(Job.of("rescore", cell)).memory)
"""
GRID = """
systems: {bm25-minilm: {first_stage: bm25, rescorer: minilm, depth: 50}}
grid: {systems: [bm25, minilm, bm25-minilm], datasets: [demo]}
encode: {shard: 100, keep: true}
"""


def _extended(target: Path, heading: str) -> tuple[Path, list[str]]:
    """Apply the diff under a heading of the page to a copy of the checkout; return it, and the files that changed."""
    checkout = copy_checkout(target)
    section = PAGE.read_text(encoding="utf-8").split(f"\n## {heading}\n")[1].split("\n## ")[0]
    (diff,) = re.findall(r"^```diff\n(.*?)^```$", section, re.MULTILINE | re.DOTALL)
    subprocess.run(["git", "apply", "-p1", "-"], cwd=checkout, input=diff, text=True, check=True)
    return checkout, re.findall(r"^\+\+\+ b/(\S+)$", diff, re.MULTILINE)


def test_each_diff_of_the_page_applies():
    diffs = re.findall(r"^```diff\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert len(diffs) == 5
    for diff in diffs:
        subprocess.run(["git", "apply", "-p1", "--check", "-"], cwd=ROOT, input=diff, text=True, check=True)


@pytest.fixture
def extended(tmp_path: Path) -> Callable[[str], tuple[Path, list[str]]]:
    """Return a function that applies the diff under a heading of the page to a copy of the checkout."""
    return functools.partial(_extended, tmp_path / "checkout")


@pytest.fixture(scope="module")
def ran(tmp_path_factory) -> tuple[Path, Path, list[str]]:
    """Return a checkout with the page's stage, a folder with a finished grid of its system, and the grid's options."""
    folder = tmp_path_factory.mktemp("stage")
    checkout, changed = _extended(folder / "checkout", "A stage")
    own = "workflow/beirgrid/stages/rescore/"
    assert {*changed} == {f"{own}__init__.py", f"{own}plan.py", f"{own}work.py", "workflow/rules/rerank.smk"}
    work = folder / "work"
    work.mkdir()
    (work / "grid.yaml").write_text(GRID)
    grid = ["--configfile", str(work / "grid.yaml"), "--directory", str(work)]
    run_copy(checkout, "snakemake", "--cores", "2", *grid)
    return checkout, work, grid


@slow
def test_a_stage_with_its_system_takes_its_folder_and_its_rule(ran):
    """The first documents of BM25 have MiniLM's scores, which are products of vectors, and MiniLM's order."""
    checkout, work, grid = ran
    results = work / "results"
    first, dense, rescored = (
        runs.read(results / f"runs/{system}/demo.run.gz") for system in ("bm25", "minilm", "bm25-minilm")
    )
    assert len(rescored) == 50
    for query, ranking in rescored.items():
        of_model = dict(zip(*dense[query], strict=True))
        top = {*first[query].ids[:50]}
        assert ranking.ids[: len(top)] == [name for name in dense[query].ids if name in top]
        expected = [of_model[name] for name in ranking.ids[: len(top)]]
        assert ranking.scores[: len(top)].tolist() == pytest.approx(expected, abs=1e-5)
        assert ranking.ids[len(top) :] == first[query].ids[50:]
    scores = pd.read_csv(results / "grids/grid/tables/scores.csv").query("metric == 'ndcg@10'")
    ours = scores.set_index("system")["value"]
    assert ours["bm25-minilm"] > ours["bm25"] + 0.1
    assert "Nothing to be done" in run_copy(checkout, "snakemake", "--cores", "2", *grid)


@slow
def test_the_system_of_a_new_stage_is_everywhere(ran, tmp_path):
    checkout, work, grid = ran
    tables = work / "results/grids/grid/tables"
    costs = pd.read_csv(tables / "costs.csv").query("system == 'bm25-minilm'")
    assert {"encode", "index", "retrieve", "rescore"} <= {*costs["stage"]}
    page = (tables.parent / "report/index.html").read_text()
    assert page.count("bm25-minilm") > 5
    summary = json.loads((tables.parent / "grid.json").read_text())
    assert summary["families"]["bm25-minilm"] == "rescored"
    unfinished = (*grid[:2], "--directory", str(tmp_path), "--format", "json")
    plan = json.loads(run_copy(checkout, "beirgrid", "plan", *unfinished))
    assert plan["rules"]["rescore"]["jobs"] == 1
    job = json.loads(run_copy(checkout, "beirgrid", "why", str(work / "results/runs/bm25-minilm/demo.json"), "--job"))
    assert (job["stage"], job["settings"]["depth"]) == ("rescore", 50)
    place = ("--directory", str(work))
    found = run_copy(checkout, "beirgrid", "search", "bm25-minilm", "demo", "how do bees keep warm in winter", *place)
    assert re.search(r"^ *1 +0\.\d+ +bee-024 ", found, re.MULTILINE)  # the first system's scores are above 1
    timed = run_copy(checkout, "beirgrid", "latency", "--dataset", "demo", "--queries", "3", "--warm-up", "1", *place)
    assert re.search(r"^bm25-minilm +", timed, re.MULTILINE)
    (checkout / "workflow/behind.py").write_text(BEHIND)
    *records, memory = run_copy(checkout, "behind", str(work / "grid.yaml")).split()
    encoded = [path for path in records if path.startswith("results/embeddings")]
    assert encoded == [f"results/embeddings/minilm/demo/{shard}.json" for shard in range(4)]
    assert "results/runs/bm25/demo.json" in records
    assert records[-1] == "results/runs/bm25-minilm/demo.json"
    assert float(memory) > 200 + 50_000 * 300e-6


@slow
@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ("rescorer: sparta", "systems.bm25-minilm.rescorer: 'sparta' is a sparse model; a dense model is needed here"),
        ("rescorer: dpr", "systems.bm25-minilm.rescorer: 'dpr' has a query_model; take a model of one tower"),
    ],
)
def test_the_keys_of_a_new_system_are_checked(ran, tmp_path, keys, message):
    (tmp_path / "grid.yaml").write_text(GRID.replace("rescorer: minilm", keys))
    assert message in run_copy(ran[0], "beirgrid", "plan", "--configfile", tmp_path / "grid.yaml", status=1)


@slow
def test_a_raised_version_makes_the_runs_of_a_new_stage_again(ran, tmp_path):
    checkout, _, grid = ran
    plan = checkout / "workflow/beirgrid/stages/rescore/plan.py"
    plan.write_text(plan.read_text().replace("version = 1\n", "version = 2\n"))
    planned = run_copy(checkout, "snakemake", "-n", *grid)
    assert re.search(r"^rescore +1$", planned, re.MULTILINE)
    assert not re.search(r"^retrieve_dense +1$", planned, re.MULTILINE)


@slow
def test_a_key_of_bm25_takes_its_entry_its_plan_its_work_and_the_search(extended, tmp_path):
    checkout, changed = extended("A key of a system")
    assert len(changed) == 4, changed
    entry = {"retriever": "bm25", "title": 3.0}
    systems = {"titled": entry, "plain": {**entry, "title": 1.0}}
    config = {"systems": systems, "grid": {"systems": ["bm25", "plain", "titled"], "datasets": ["demo"]}}
    (tmp_path / "grid.yaml").write_text(json.dumps(config))
    grid = ("--configfile", str(tmp_path / "grid.yaml"), "--directory", str(tmp_path))
    targets = [f"results/runs/{system}/demo.json" for system in config["grid"]["systems"]]
    run_copy(checkout, "snakemake", "--cores", "2", *grid, *targets)
    bm25, plain, titled = (runs.read(tmp_path / path.replace(".json", ".run.gz")) for path in targets)
    rankings = [{query: (one.ids, one.scores.tolist()) for query, one in run.items()} for run in (bm25, plain, titled)]
    assert rankings[0] == rankings[1]
    # Of each document, the score is that of its text and so many times that of its title.
    corpus = pq.read_table(tmp_path / "results/corpora/demo/corpus.parquet").to_pylist()
    untitled = {row["_id"] for row in corpus if not row["title"]}
    more = 0
    for query, ranking in titled.items():
        own = dict(zip(*bm25[query], strict=True))
        for name, score in zip(*ranking, strict=True):
            assert own[name] - 1e-3 <= score <= 3 * own[name] + 1e-3
            assert name not in untitled or score == pytest.approx(own[name], abs=1e-3)
            more += score > own[name] + 1e-3
    assert more > 50
    settings = [json.loads((tmp_path / path).read_text())["job"]["settings"] for path in targets]
    assert [given.get("title") for given in settings] == [None, 1.0, 3.0]
    found = run_copy(checkout, "beirgrid", "search", "titled", "demo", "bees in winter", "--directory", str(tmp_path))
    assert "cannot be searched" not in found
    wrong = {**config, "systems": {**systems, "titled": {**entry, "fields": "flat"}}}
    (tmp_path / "grid.yaml").write_text(json.dumps(wrong))
    refused = run_copy(checkout, "beirgrid", "plan", *grid, status=1)
    assert "title: does not go with fields: flat" in refused


@slow
def test_a_metric_takes_a_function_and_a_row(extended, tmp_path):
    """Two of three relevant documents are among the first four: precision 1/2, recall 2/3."""
    checkout, changed = extended("A metric")
    assert changed == ["workflow/beirgrid/measures.py"]
    (tmp_path / "run.trec").write_text("".join(f"q Q0 d{i} {i} {9 - i} t\n" for i in range(1, 6)))
    (tmp_path / "qrels.tsv").write_text("q\td1\t1\nq\td4\t2\nq\td5\t1\nq\td2\t0\n")
    words = ("--run", str(tmp_path / "run.trec"), "--qrels", str(tmp_path / "qrels.tsv"), "--metrics", "f_measure@4")
    assert f"f_measure@4\t{2 / (1 / (1 / 2) + 1 / (2 / 3)):.4f}" in run_copy(checkout, "beirgrid", "evaluate", *words)


@slow
def test_a_source_takes_three_files(extended, tmp_path):
    """A replaced file is fetched again, and a line without a tab is refused by its place."""
    checkout, changed = extended("A source of collections")
    assert len(changed) == 3, changed
    folder = tmp_path / "work" / "data"
    folder.mkdir(parents=True)
    (folder / "collection.tsv").write_text("d1\tNitrogen in soils\nd2\tThe moon has no air\n")
    (folder / "queries.tsv").write_text("q1\tsoil nitrogen\nq2\tnot judged\n")
    (folder / "qrels.tsv").write_text("q1 0 d1 2\n")
    (tmp_path / "grid.yaml").write_text(
        "grid: {systems: [bm25-flat], datasets: [mine]}\n"
        "corpora: {mine: {source: tsv, path: data}}\ndatasets: {mine: {corpus: mine}}\n"
    )
    grid = ("--configfile", str(tmp_path / "grid.yaml"), "--directory", str(folder.parent))
    record = "results/datasets/mine/dataset.json"
    run_copy(checkout, "snakemake", "--cores", "1", *grid, record)
    corpus = pq.read_table(folder.parent / "results/corpora/mine/corpus.parquet").to_pylist()
    assert corpus[0] == {"_id": "d1", "title": "", "text": "Nitrogen in soils"}
    assert len(corpus) == 2
    assert (folder.parent / record).with_name("qrels.tsv").read_text().splitlines()[1:] == ["q1\td1\t2"]
    (folder / "queries.tsv").write_text("q1 soil nitrogen\n")
    failed = run_copy(checkout, "snakemake", "--cores", "1", *grid, record, status=1)
    assert "queries.tsv:1: expected an id, a tab and a text" in failed


@slow
def test_a_kernel_takes_a_module_a_switch_and_a_test(extended):
    checkout, changed = extended("A kernel")
    assert len(changed) == 3, changed
    added = next(path for path in changed if path.startswith("tests/parity/"))
    assert "5 passed" in run_copy(checkout, "pytest", "-q", "-p", "no:cacheprovider", added)
