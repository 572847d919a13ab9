"""The functions of ``import beirgrid``, without Snakemake."""

from __future__ import annotations

import gzip
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers import forked_snakemake, main, run_work

import beirgrid
from beirgrid.core import files
from beirgrid.core.compute import Compute
from beirgrid.core.errors import BeirgridError, ConfigError, DataError
from beirgrid.results import results_folder, scores
from beirgrid.stages.evaluate.work import evaluate, show_metrics

QRELS = {"q1": {"d1": 1, "d2": 0}, "q2": {"d3": 2}, "q3": {"d1": 1}}
RUN = {"q1": {"d2": 3.0, "d1": 2.0}, "q2": {"d3": 1.0}}


def test_the_package_has_the_functions_that_it_names():
    assert set(beirgrid.__all__) <= set(dir(beirgrid))
    assert all(getattr(beirgrid, name) for name in beirgrid.__all__)
    with pytest.raises(AttributeError, match="no attribute 'serch'"):
        beirgrid.serch  # noqa: B018


def _write(folder: Path) -> tuple[Path, Path]:
    """Write run and qrels in TREC's layout, gzipped."""
    run = "".join(f"{q} Q0 {d} 0 {s} t\n" for q, found in RUN.items() for d, s in found.items())
    qrels = "".join(f"{q} 0 {d} {g}\n" for q, grades in QRELS.items() for d, g in grades.items())
    for name, text in (("a.trec.gz", run), ("qrels.txt.gz", qrels)):
        (folder / name).write_bytes(gzip.compress(text.encode()))
    return folder / "a.trec.gz", folder / "qrels.txt.gz"


def test_a_script_decides_where_messages_go():
    """Without a handler, a script sees only warnings, as usual in Python."""
    script = "from beirgrid.core.progress import Progress; from beirgrid.core.errors import warn; "
    script += "Progress('encode', 2, 'documents'); warn('one \\x1b[2J')"
    own = "import logging; logging.basicConfig(level='INFO', format='%(name)s %(levelname)s %(message)s'); "
    for before, said in (
        ("", ["one \x1b[2J"]),
        (own, ["beirgrid INFO progress: encode: 0/2 documents", "beirgrid WARNING one \x1b[2J"]),
        (
            "from beirgrid.core.errors import log_to_standard_error as log; log(); log(); ",
            ["progress: encode: 0/2 documents", "warning: one \\x1b[2J"],
        ),
    ):
        done = subprocess.run([sys.executable, "-c", before + script], capture_output=True, text=True, check=True)
        assert done.stderr.splitlines() == said


def test_runs_of_ones_own_are_evaluated_from_files_or_in_memory(tmp_path):
    expected = {"mrr@10": (1 / 2 + 1 + 0) / 3, "recall@1": 1 / 3}
    assert beirgrid.evaluate_run(RUN, QRELS, list(expected)) == pytest.approx(expected)
    assert beirgrid.evaluate_run(*_write(tmp_path), list(expected)) == pytest.approx(expected)
    with pytest.raises(BeirgridError, match="did you mean 'ndcg'"):
        beirgrid.evaluate_run(RUN, QRELS, ["nddcg@10"])


def test_the_command_prints_scores_without_an_output(tmp_path, capsys):
    run, qrels = _write(tmp_path)
    show_metrics(run=run, qrels=qrels, metrics=["mrr@10", "recall@1"])
    assert capsys.readouterr().out == "RR@10\t0.5000\nR@1\t0.3333\nqueries\t3\n"
    assert len(list(tmp_path.iterdir())) == 2


@pytest.fixture
def folder(tmp_path) -> Path:
    """A working folder with scores of the systems a and b; the grid ``mine`` has b."""
    run, qrels = _write(tmp_path)
    folder = tmp_path / "work"
    for system in ("a", "b"):
        output = folder / f"results/metrics/{system}/x.json"
        names = {"system": system, "dataset": "x", "per_query": output.with_suffix(".per-query.parquet")}
        run_work(evaluate, output, "run", "qrels", run=run, qrels=qrels, metrics=["mrr@10"], **names)
    files.write_json(folder / "results/grids/mine/grid.json", {"cells": [{"system": "b", "dataset": "x"}]})
    return folder


def test_ranx_gets_the_runs_and_qrels_of_cells(folder, tmp_path):
    run, qrels = _write(tmp_path)
    for system in ("a", "b"):
        target = folder / f"results/runs/{system}/x.run.gz"
        target.parent.mkdir(parents=True)
        shutil.copy(run, target)
    (folder / "results/datasets/x").mkdir(parents=True)
    (folder / "results/datasets/x/qrels.tsv").write_bytes(gzip.decompress(qrels.read_bytes()))
    for_ranx, runs = beirgrid.ranx_runs(folder, "x")
    assert for_ranx.to_dict() == QRELS
    assert [run.name for run in runs] == ["a", "b"]
    assert [run.to_dict() for run in runs] == [{**RUN, "q3": {}}] * 2
    assert [run.name for run in beirgrid.ranx_runs(folder, "x", ["b"])[1]] == ["b"]
    with pytest.raises(DataError, match="has no dataset 'xx'; did you mean 'x'"):
        beirgrid.ranx_runs(folder, "xx")
    with pytest.raises(DataError, match="has no system 'c' on x"):
        beirgrid.ranx_runs(folder, "x", ["c"])


def test_scores_of_a_grid_are_one_table(folder):
    mine = scores.read(folder / "results/metrics/b/x.json")
    assert mine == scores.Scores(system="b", dataset="x", queries=3, means={"mrr@10": 0.5})
    assert beirgrid.load_scores(folder).to_dict("list") == {
        **{"system": ["a", "b"], "dataset": ["x", "x"], "metric": ["mrr@10"] * 2},
        **{"value": [0.5, 0.5], "queries": [3, 3]},
    }
    with pytest.raises(DataError, match="elsewhere has no results"):
        beirgrid.load_scores(folder / "elsewhere")


def test_one_rule_finds_results_for_functions_and_commands(folder, monkeypatch, capsys):
    """A folder in which grids ran, its results, a grid's folder, its summary, and its name."""
    grid = folder / "results/grids/mine"
    for place in (grid, grid / "grid.json"):
        assert list(beirgrid.load_scores(place)["system"]) == ["b"]
        assert results_folder.working_folder(place) == (folder, "mine")
    for place in (folder, folder / "results"):
        assert list(beirgrid.load_scores(place)["system"]) == ["a", "b"]
        assert results_folder.working_folder(place) == (folder, "")
    assert main(["compare", "mine:b", ":b", "--directory", str(folder)]) == 0
    monkeypatch.chdir(folder)
    assert list(beirgrid.load_scores("mine")["system"]) == ["b"]
    assert main(["compare", "mine", "."]) == 1  # it has no system a
    capsys.readouterr()
    assert main(["compare", "yours", "."]) == 2
    assert "yours has no results" in capsys.readouterr().err
    with pytest.raises(DataError, match="there is no folder yours, and no grid of that name ran here"):
        results_folder.working_folder(Path("yours"))


@pytest.mark.parametrize("content", ["", "{}", "[1]", '{"scores": {"system": "a"}}', '{"facts": {"means": {}}}'])
def test_a_file_without_scores_is_named(tmp_path, content):
    (tmp_path / "x.json").write_text(content)
    with pytest.raises(DataError, match=r"x\.json (has no scores|is damaged)"):
        scores.read(tmp_path / "x.json")


def test_an_encoder_opens_by_the_keys_of_an_entry(tiny_models):
    runtime = Compute(device="cpu", precision="float32").start()
    encoder = beirgrid.open_encoder(str(tiny_models["dense"]), {"family": "dense", "similarity": "cosine"}, runtime)
    vectors = encoder.encode_documents(["ab cd", "ef"])
    assert vectors.shape == (2, encoder.dimension)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, rtol=1e-5)
    with pytest.raises(ConfigError, match="poling: Extra inputs are not permitted"):
        beirgrid.open_encoder(tiny_models["dense"], {"family": "dense", "similarity": "dot", "poling": "cls"})


def test_results_that_were_moved_are_not_worked_on_in_place(tmp_path):
    files.write_json(tmp_path / "archive/grids/mine/grid.json", {})
    with pytest.raises(DataError, match="archive must be called results"):
        results_folder.working_folder(tmp_path / "archive/grids/mine")


@pytest.mark.slow
def test_grids_run_from_python_and_the_demo_is_reproduced(tmp_path, monkeypatch, capfd):
    forked_snakemake(monkeypatch)
    scores = beirgrid.grid(systems=["bm25-flat"], datasets=["demo"], metrics=["ndcg@10"], directory=tmp_path)
    assert scores.to_dict("list")["system"] == ["bm25-flat"]
    assert 0.5 < scores["value"].item() < 0.6
    run = shutil.copy(tmp_path / "results/runs/bm25-flat/demo.run.gz", tmp_path / "mine.run.gz")
    again = beirgrid.evaluate(run, "demo", metrics=["ndcg@10"], directory=tmp_path)
    assert again["value"].item() == scores["value"].item()
    with pytest.raises(BeirgridError, match="did you mean 'bm25'"):
        beirgrid.grid(systems=["bm26"], datasets=["demo"], directory=tmp_path)
    capfd.readouterr()
    assert main(["reproduce", "bm25-flat", "demo", "--directory", str(tmp_path), "--cores", "2"]) == 0
    said = capfd.readouterr().out
    assert re.search(r"demo +0\.5333 +0\.5333 ", said)
    assert said.endswith("1 reproduced\n")
    monkeypatch.undo()  # Snakemake starts as it does for users
    with pytest.raises(BeirgridError, match="the grid did not finish"):
        beirgrid.grid(systems=["bm25"], datasets=["demo"], directory=tmp_path, options=["--no-such-option"])
    assert "unrecognized arguments: --no-such-option" in capfd.readouterr().err
