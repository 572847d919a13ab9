"""Run the small grid: its files, its records, and a second run."""

from __future__ import annotations

import csv
import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest
import yaml
from helpers import ROOT, beirgrid, copy_checkout, quick_first, snakemake
from small import ENCODE, SYSTEMS, collection, finish, job_counts, run, table

from beirgrid.collections.collection import read_queries, read_restrictions
from beirgrid.core import files, paths, provenance
from beirgrid.core.compute import cpu_name
from beirgrid.execution.open_systems import open_system
from beirgrid.runs import runs
from beirgrid.tools import latency


def _scores(folder: Path) -> dict[tuple[str, str], float]:
    return {(row["system"], row["metric"]): float(row["value"]) for row in table(folder)}


def test_every_system_is_evaluated_on_every_query(finished):
    assert {*_scores(finished)} == {(system, metric) for system in SYSTEMS for metric in ("ndcg@10", "recall@100")}
    assert {row["queries"] for row in table(finished)} == {"11"}
    assert all(0 < value <= 1 for value in _scores(finished).values())


def test_results_stand_under_the_directory_and_nowhere_else(finished, root):
    assert not (root / "results/runs/tiny").exists()


def test_shards_follow_the_registry_and_embeddings_are_dropped(finished):
    shards = sorted(path.name for path in (finished / "results/indexes/tiny-dense/small").glob("*.faiss"))
    assert shards == ["0.faiss", "1.faiss", "2.faiss"]
    assert not list((finished / "results/embeddings/tiny-dense").rglob("*.npy"))


def test_token_vectors_are_kept_and_say_how_many(finished):
    tokens = 0
    for shard in range(3):
        folder = finished / f"results/embeddings/tiny-colbert/small/{shard}.tokens"
        assert {path.name for path in folder.glob("*.npy")} == {"offsets.npy", "vectors.npy"}
        made = files.read_json(folder.with_suffix(".json"))["facts"]
        assert made["dimension"] == 16
        tokens += made["tokens"]
        index = files.read_json(finished / f"results/indexes/tiny-colbert/small/{shard}.json")
        assert (index["facts"]["index"], index["facts"]["tokens"]) == ("Flat", made["tokens"])
    assert tokens == 60 * (12 * 4 + 3)  # 12 words of 4 pieces, [CLS], [D] and [SEP]
    retrieved = files.read_json(finished / "results/runs/tiny-late/small.json")
    assert retrieved["job"]["settings"]["candidates"] == 20


def test_runs_leave_out_the_query_itself(finished):
    for system in SYSTEMS:
        run = runs.read(finished / f"results/runs/{system}/small.run.gz")
        assert "d3" in run
        assert "d3" not in run["d3"].ids
    dense = runs.read(finished / "results/runs/tiny/small.run.gz")
    assert all(len(ranking.ids) in (59, 60) for ranking in dense.values())


def test_every_artifact_says_what_made_it(finished):
    made = files.read_json(finished / "results/embeddings/tiny-dense/small/0.json")
    assert made["job"]["settings"]["model"]["similarity"] == "cosine"
    facts = {"device": "cpu", "precision": "float32", "kernels": "auto", "documents": 25, "dimension": 32}
    facts["rows"] = [0, 25]
    assert made["facts"] | {"documents_per_second": 0} == {**facts, "documents_per_second": 0}
    assert made["packages"]["sentence-transformers"]
    assert made["seconds"] > 0
    assert made["peak_memory_mb"] > 50
    assert (made["command"], made["job"]["stage"]) == ("python -m beirgrid stage encode", "encode")
    assert re.fullmatch("[0-9a-f]{16}", made["job"]["digest"])
    for system in SYSTEMS:
        assert files.read_json(finished / f"results/runs/{system}/small.json")["stage"]


def test_a_command_from_the_log_runs_alone(finished, tmp_path):
    made = files.read_json(finished / "results/metrics/tiny/small.json")
    command = provenance.command_line(made).replace("python", sys.executable, 1)
    shutil.copytree(finished / "results", tmp_path / "results")
    (tmp_path / "results/metrics/tiny/small.json").unlink()
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "workflow")}
    subprocess.run(["bash", "-c", command], cwd=tmp_path, env=environment, check=True)
    assert files.read_json(tmp_path / "results/metrics/tiny/small.json")["facts"] == made["facts"]


def test_the_report_is_one_file_with_every_cell(finished):
    page = (finished / "results/grids/grid/report/index.html").read_text()
    assert not re.search(r'(src|href)="(?!#|data:)', page)  # nothing is loaded from elsewhere
    for (system, _), value in _scores(finished).items():
        assert system in page
        assert f"{value:.4f}" in page


def test_a_second_run_does_nothing(finished):
    assert "Nothing to be done" in finish(finished / "grid.yaml", finished)


def test_the_screen_of_a_finished_grid(finished):
    screen = beirgrid("status", "--directory", finished).stdout
    assert screen.startswith("finished after 0:")
    assert re.search(r"^[3-9]\d jobs done, [\d,.]+ per minute$", screen, re.MULTILINE)
    assert "stage" not in screen
    assert "Failed" not in screen
    assert "Running" not in screen


def test_a_dry_run_is_no_run_of_which_there_is_a_screen(small_grid, tmp_path):
    finish(small_grid(tmp_path), tmp_path, "--dry-run")
    done = beirgrid("status", "--directory", tmp_path)
    assert done.returncode == 1
    assert "no grid was run in this folder" in done.stderr


def test_snakemakes_own_report_opens_on_a_text_and_has_captions(finished, tmp_path):
    finish(finished / "grid.yaml", finished, "--report", str(tmp_path / "report.html"))
    text = " ".join((tmp_path / "report.html").read_text().replace("\\n", " ").split())
    assert "holds each score against the published value" in text
    assert "bm25-flat, tiny, sparse, tiny-late, bm25+ce, bm25+trained, fused" in text
    assert "results/grids/grid/tables/ndcg@10.csv" in text
    assert "names the systems that are open against the best one of the row" in text


# The jobs that a change reruns, from a dry run.
_TABLES = {"aggregate": 1, "report": 1}
_DENSE = {"encode_dense": 3, "index_dense": 3, "retrieve_dense": 1, "fuse": 1, "evaluate": 2, **_TABLES}
_FAMILIES = ("dense", "sparse", "late_interaction")
_ENCODED = {f"{stage}_{family}": 3 for stage in ("encode", "index") for family in _FAMILIES}
_ENCODED |= {f"retrieve_{family}": 1 for family in _FAMILIES} | {"fuse": 1, "evaluate": 4, **_TABLES}
_RERANKED = {"score": 1, "rerank": 1, "evaluate": 1, **_TABLES}
CHANGES = {
    "a new system": (
        {"systems": {**SYSTEMS, "tiny+ce": {"first_stage": "tiny", "reranker": "tiny-ce", "depth": 5}}},
        _RERANKED,
    ),
    "another depth": (
        {"systems": {**SYSTEMS, "ce@5": {"first_stage": "bm25-flat", "reranker": "tiny-ce", "depth": 5}}},
        {"rerank": 1, "evaluate": 1, **_TABLES},
    ),
    "device, batch, kernels and small corpora": (
        {"device": "cpu", "encode": {**ENCODE, "batch_tokens": {"cpu": 99}}, "kernels": "plain", "small_corpus": 0},
        {},
    ),
    "another metric": ({"metrics": ["ndcg@10", "recall@100", "p@5"]}, {"evaluate": len(SYSTEMS), **_TABLES}),
    "another precision of all": (
        {"encode": {**ENCODE, "precision": "bfloat16"}},
        {**_ENCODED, "score": 2, "rerank": 2, "evaluate": 6},
    ),
}


@pytest.mark.parametrize(("changes", "expected"), CHANGES.values(), ids=CHANGES)
def test_a_change_makes_again_what_depends_on_it(finished, small_grid, tmp_path, changes, expected):
    assert job_counts(run(small_grid(tmp_path, **changes), finished, "-n")) == expected


# A key of one model's entry, and the jobs of which it changes the output.
_LATE = {"retrieve_late_interaction": 1, "evaluate": 1, **_TABLES}
_REVISION = {"path": None, "checkpoint": "example/tiny", "revision": "1" * 40}
MODEL_CHANGES = {
    "revision of a retriever": (
        "tiny-dense",
        _REVISION,
        {**_DENSE, "fetch_model": 1, "train": 1, "score": 1, "rerank": 1, "evaluate": 3},  # it is a base, too
    ),
    "revision beside a folder": ("tiny-dense", {"checkpoint": "example/tiny", "revision": "1" * 40}, _TABLES),
    "precision of a retriever": ("tiny-dense", {"precision": "bfloat16"}, _DENSE),
    "prompt of a retriever": ("tiny-dense", {"prompts": {"document": "passage: "}}, _DENSE),
    "prompt of its queries": (
        "tiny-dense",
        {"prompts": {"query": "query: "}},
        {"retrieve_dense": 1, "fuse": 1, "evaluate": 2, **_TABLES},
    ),
    "length of its queries": ("tiny-colbert", {"query_length": 12}, _LATE),
    "length of a dataset's queries": ("tiny-colbert", {"query_lengths": {"small": 12}}, _LATE),
    "length of a retriever": ("tiny-dense", {"max_length": 16}, _DENSE),
    "note on a retriever": ("tiny-dense", {"note": "small"}, _TABLES),
    "revision of a reranker": ("tiny-ce", _REVISION, {"fetch_model": 1, **_RERANKED}),
    "precision of a reranker": ("tiny-ce", {"precision": "bfloat16"}, _RERANKED),
    "length of a reranker": ("tiny-ce", {"max_length": 32}, _RERANKED),
}


@pytest.mark.parametrize(("model", "change", "expected"), quick_first(MODEL_CHANGES.values()), ids=MODEL_CHANGES)
def test_a_change_of_a_model_makes_again_what_depends_on_it(finished, small_grid, tmp_path, model, change, expected):
    models = yaml.safe_load((finished / "grid.yaml").read_text())["models"]
    entry = {key: value for key, value in {**models[model], **change}.items() if value is not None}
    assert job_counts(run(small_grid(tmp_path, models={**models, model: entry}), finished, "-n")) == expected


_CELLS = {f"retrieve_{family}": 1 for family in ("lexical", *_FAMILIES)}
_CELLS |= {"fetch_dataset": 1, "score": 2, "rerank": 2, "fuse": 1, "evaluate": len(SYSTEMS), **_TABLES}
_CORPUS = {f"{stage}_{family}": 2 for stage in ("encode", "index") for family in _FAMILIES}
_CORPUS |= {"fetch_corpus": 1, "index_lexical": 1}


@pytest.mark.parametrize(
    ("corpus", "expected"),
    [("small", _CELLS), ("other", _CORPUS | _CELLS)],
    ids=["over the same corpus", "over a corpus of its own"],
)
def test_a_new_dataset_computes_only_its_own_cells(finished, small_grid, tmp_path, corpus, expected):
    settings = yaml.safe_load((finished / "grid.yaml").read_text())
    collection(tmp_path / "other", documents=40)
    corpora = {**settings["corpora"], "other": {"source": "local", "path": str(tmp_path / "other"), "documents": 40}}
    datasets = {**settings["datasets"], "more": {"corpus": corpus}}
    grid = {"systems": list(SYSTEMS), "datasets": ["small", "more"]}
    configfile = small_grid(tmp_path, corpora=corpora, datasets=datasets, grid=grid)
    assert job_counts(run(configfile, finished, "-n")) == expected


@pytest.mark.parametrize("recorded", [True, False])
def test_another_grid_in_the_same_folder_is_made_whole(finished, small_grid, tmp_path, recorded):
    """The grid has only other cells and a further table, so nothing but the tables of the finished grid changes."""
    site = shutil.copytree(finished, tmp_path / "site", symlinks=True)
    if not recorded:
        shutil.rmtree(site / ".snakemake")
    settings = yaml.safe_load((finished / "grid.yaml").read_text())
    datasets = {**settings["datasets"], "more": {"corpus": "small"}}
    grid = {"systems": list(SYSTEMS), "datasets": ["more"]}
    changed = small_grid(tmp_path, datasets=datasets, grid=grid, metrics=["ndcg@10", "recall@100", "p@5"])
    assert job_counts(run(changed, site, "-n")) == _CELLS


@pytest.mark.slow
def test_a_grid_that_replaces_scores_of_another_says_so_and_the_other_knows(finished, small_grid, tmp_path):
    site = shutil.copytree(finished, tmp_path / "site", symlinks=True)
    systems = {"bm25-flat": {**SYSTEMS["bm25-flat"], "k1": 0.5}}
    grid = {"name": "other", "systems": ["bm25-flat"], "datasets": ["small"]}
    changed = small_grid(tmp_path, systems=systems, grid=grid)
    for options in (["-n"], []):
        said = finish(changed, site, *options)
        assert "results/runs/bm25-flat/small.json (k1 0.9 → 0.5)\nScores of the grid grid were made from this" in said
    assert beirgrid("report", "--grid", "grid", "--directory", site).returncode == 0
    replaced = [row for row in table(site) if row["status"] == "replaced"]
    assert {row["detail"] for row in replaced} == {"replaced by grid other: k1 0.9 → 0.5"}
    assert {row["system"] for row in replaced} == {"bm25-flat", "bm25+ce", "bm25+trained", "fused"}
    assert "Scores of the grid other were made from this" in finish(finished / "grid.yaml", site, "-n")


@pytest.mark.slow
def test_code_makes_nothing_again_until_its_stage_version_is_raised(finished, root, tmp_path):
    copy_checkout(tmp_path / "checkout")
    shutil.copytree(finished, tmp_path / "site", symlinks=True)
    arguments = ["--configfile", finished / "grid.yaml", "--directory", tmp_path / "site", "--cores", "1"]

    def jobs(*more: str) -> dict[str, int]:
        return job_counts(snakemake(*arguments, *more, cwd=tmp_path / "checkout"))

    jobs("--touch")  # the results are now this checkout's, as if made by it
    assert jobs("-n") == {}
    package = tmp_path / "checkout/workflow/beirgrid"
    for module in package.rglob("*.py"):
        module.write_text(module.read_text() + "\n# another line\n")
    assert jobs("-n") == {}
    encode = package / "stages/encode/plan.py"
    # Another length, too: Python compares compiled modules with the size and the second of their source.
    raised, count = re.subn(r"version = (\d+)", r"version = 10\1", encode.read_text())
    assert count == 1
    encode.write_text(raised)
    assert jobs("-n") == _ENCODED


@pytest.mark.slow
def test_pairs_are_scored_once(finished, small_grid, tmp_path):
    shutil.copytree(finished, tmp_path / "again", symlinks=True)
    systems = {**SYSTEMS, "tiny+ce": {"first_stage": "tiny", "reranker": "tiny-ce", "depth": 3}}
    finish(small_grid(tmp_path, systems=systems), tmp_path / "again")
    folder = tmp_path / "again/results/pairs/tiny-ce/small"
    first, second = (files.read_json(folder / f"{name}.json")["facts"] for name in ("bm25-flat", "tiny"))
    assert first["pairs_scored"] == first["pairs"] > 0
    stored = sum(pq.read_metadata(part).num_rows for part in folder.rglob("*.parquet"))
    assert stored == first["pairs"] + second["pairs_scored"]
    assert second["pairs_scored"] < second["pairs"]
    assert _scores(tmp_path / "again").items() >= _scores(finished).items()


@pytest.mark.slow
def test_the_analyses_are_a_target_of_their_own(finished, tmp_path):
    work = tmp_path / "work"
    shutil.copytree(finished, work)
    assert job_counts(run(work / "grid.yaml", work, "analyses")) == {"analyses": 1}
    folder = work / "results/grids/grid"
    captions = files.read_json(folder / "figures/captions.json")
    assert {f"{name}.svg" for name in captions} == {path.name for path in (folder / "figures").glob("*.svg")}
    page = html.unescape((folder / "report/index.html").read_text())
    assert all(caption in page for caption in captions.values())
    assert "made from other scores" not in page
    finish(work / "grid.yaml", work, "all", "analyses", "--report", str(work / "own.html"))
    assert (work / "own.html").read_text().count("captions.json") == len(captions)
    assert job_counts(run(work / "grid.yaml", work)) == {"report": 1}  # the page shows the analyses now
    assert "Nothing to be done" in finish(work / "grid.yaml", work, "all", "analyses", "-n")


def test_a_system_that_is_opened_again_finds_what_its_run_has(finished, monkeypatch):
    monkeypatch.chdir(finished)
    queries = paths.QUERIES.format(dataset="small")
    texts = read_queries(queries)
    assert read_restrictions(queries)[0], "a query is a document, which is not ranked for it"
    systems = sorted(path.name for path in Path("results/runs").iterdir() if (path / "small.run.gz").is_file())
    for system in systems:
        ranked = runs.read(paths.RUN.format(system=system, dataset="small"))
        again = open_system(system, "small", "cpu").rank(texts)
        for query in texts:
            assert again[query].ids == ranked.get(query, runs.EMPTY).ids, (system, query)
    assert {"bm25-flat", "tiny", "sparse", "tiny-late", "bm25+ce", "fused"} <= set(systems)


@pytest.mark.slow
def test_latency_is_measured_once_for_each_step(finished, tmp_path, monkeypatch):
    table = tmp_path / "latency.csv"
    options = ["--grid", "grid", "--dataset", "small", "--queries", "3", "--warm-up", "1", "--output", table]
    done = beirgrid("latency", *options, cwd=finished)
    assert done.returncode == 0, done.stderr
    assert "not measured" not in done.stdout
    again = beirgrid("latency", *options, "--systems", "bm25-flat", cwd=finished)  # replaces the rows of the first run
    assert again.returncode == 0, again.stderr
    with table.open() as stream:
        rows = list(csv.DictReader(stream))
    steps = {(row["system"], row["step"], int(row["depth"])) for row in rows}
    reranked = {
        (system, step, depth)
        for system in ("bm25+ce", "bm25+trained")
        for step in (latency.RERANK, latency.BOTH)
        for depth in (10, 50, 100, 200)
    }
    assert steps > reranked
    assert len(rows) == len(steps) == len(reranked) + 2 + 5  # bm25+trained reranks 5
    for row in rows:
        assert 0 < float(row["p50_ms"]) <= float(row["p95_ms"]) <= float(row["p99_ms"])
        assert (row["queries"], row["hardware"]) == ("3", cpu_name())
    # Java warns of the first option on standard error, and tells of its memory on standard output.
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xverify:none -Xlog:gc+init:stdout")
    done = beirgrid("latency", *options, "--systems", "fused", "bm25+ce", cwd=finished)
    assert (done.returncode, done.stderr) == (0, "")
    assert {line.split()[0] for line in done.stdout.splitlines()[2:]} == {"fused", "bm25+ce"}
    found = beirgrid("search", "bm25-flat", "small", "text", "--json", cwd=finished)
    assert isinstance(json.loads(found.stdout), list)
    run_as = {row["system"]: (row["step"], row["depth"]) for row in rows if row["as_run"] == "True"}
    assert run_as["bm25+ce"] == (latency.BOTH, "10")
    assert run_as["tiny"] == (latency.RETRIEVE, "1000")
