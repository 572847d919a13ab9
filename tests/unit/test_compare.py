"""Compare two systems, grids or results folders: values, other differences, and the exit status."""

from __future__ import annotations

import gzip
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import finished
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from helpers import main, write_record

from beirgrid.core import files
from beirgrid.stages.encode.plan import Encode
from beirgrid.stages.fetch.plan import FetchModel
from beirgrid.stages.index.plan import IndexLexical
from beirgrid.stages.rerank.plan import Rerank


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two folders, a and b. The system s of b is better on x, and was computed in another precision."""
    folder = tmp_path_factory.mktemp("work")
    for name, better, precision in (("a", 0, "float32"), ("b", 9, "bfloat16")):
        with finished.at(folder / name):
            finished.collection(Path(), "x")
            finished.collection(Path(), "y")
            finished.searched("base", "x", finished.rankings(1), "float32", path=f"/somewhere/{name}")
            finished.searched("s", "x", finished.rankings(2, better), precision, depth=10)
            finished.searched("s", "y", finished.rankings(3), precision, depth=10)
    return folder


@pytest.fixture
def copy(work: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    shutil.copytree(work, tmp_path / "copy")
    return tmp_path / "copy"


def _compare(*arguments: str | Path) -> int:
    return main(["compare", *map(str, arguments)])


def test_every_value_is_compared_query_by_query(work, tmp_path):
    assert _compare(work / "a", work / "b/results", "--output", tmp_path / "c.csv") == 1
    found = pd.read_csv(tmp_path / "c.csv").to_dict("records")
    values = {(row["system"], row["dataset"], row["metric"]): row for row in found}
    assert len(values) == 6
    for (system, dataset, metric), row in values.items():
        first, second = (
            pd.read_parquet(work / side / f"results/metrics/{system}/{dataset}.per-query.parquet")[metric].to_numpy()
            for side in "ab"
        )
        difference = second - first
        assert row["queries"] == 12
        assert (row["first"], row["second"]) == pytest.approx((first.mean(), second.mean()))
        assert row["difference"] == pytest.approx(difference.mean())
        assert row["rmse"] == pytest.approx(np.sqrt((difference**2).mean()))
        assert row["low"] <= row["difference"] <= row["high"]
        assert row["same"] == ((system, dataset) != ("s", "x"))
        if row["same"]:
            assert (row["low"], row["high"], row["p"], row["verdict"]) == (0, 0, 1, "open")
            continue
        # Of the three cells of a metric, one differs; all are corrected.
        test = scipy.stats.ttest_1samp(difference, 0)
        assert (row["low"], row["high"]) == pytest.approx(tuple(test.confidence_interval(1 - 0.05 / 3)))
        assert row["p"] == pytest.approx(min(1, 3 * test.pvalue))
        assert row["verdict"] == ("open" if row["low"] <= 0 else "B is better")


@pytest.fixture
def reproduced(tmp_path: Path, monkeypatch) -> None:
    """Work in a folder with an original experiment (base, s) in a, and its reproduction in b, with shorter rankings."""
    monkeypatch.chdir(tmp_path)
    for name, seed in (("a", 1), ("b", 5)):
        with finished.at(Path(name)):
            finished.collection(Path(), "x")
            finished.searched("base", "x", finished.rankings(seed), "float32")
            found = finished.rankings(seed + 1, 6)
            if name == "b":
                found["q11"] = found["q11"][:4]
            finished.searched("s", "x", found, "float32")


@pytest.mark.usefixtures("reproduced")
def test_measures_of_a_reproduction_are_those_of_repro_eval(capsys):
    evaluators = pytest.importorskip("repro_eval.Evaluator")
    found, qrels = {}, Path("qrels.trec")
    for side in "ab":
        for system in ("base", "s"):
            found[side, system] = Path(f"{side}-{system}.trec")
            content = gzip.decompress(Path(f"{side}/results/runs/{system}/x.run.gz").read_bytes()).decode()
            found[side, system].write_text(content)
    lines = Path("a/results/datasets/x/qrels.tsv").read_text().splitlines()
    qrels.write_text("".join(f"{q} 0 {d} {g}\n" for q, d, g in (line.split("\t") for line in lines[1:])))
    given = {
        f"run_{role}_{which}_path": str(found[side, system])
        for role, system in (("b", "base"), ("a", "s"))
        for which, side in (("orig", "a"), ("rep", "b"))
    }
    theirs = evaluators.RpdEvaluator(qrels_orig_path=str(qrels), **given)
    theirs.evaluate()
    for run in (theirs.run_a_orig, theirs.run_a_rep):
        run["q11"] = dict(list(run["q11"].items())[:4])  # it takes no rankings of different lengths
    tau = theirs.ktu()["advanced"]
    theirs.run_a_orig = evaluators.load_run(str(found["a", "s"]))
    assert _compare("a:s", "b:s", "--reproduction", "--baseline", "base", "--output", "c.csv") == 1
    rows = pd.read_csv("c.csv").set_index("metric").to_dict("index")
    for metric, name in (("ndcg@10", "nDCG@10"), ("recall@5", "R@5")):
        row = rows[metric]
        assert row["ktu"] == pytest.approx(tau)
        assert row["rbo"] == pytest.approx(theirs.rbo()["advanced"])
        assert row["rmse"] == pytest.approx(theirs.rmse()["advanced"][name])
        assert row["effect_ratio"] == pytest.approx(theirs.er()[name])
        assert row["p_paired"] == pytest.approx(theirs.ttest()["advanced"][name])
    assert "repro_eval's measures of Breuer et al. (2020)" in capsys.readouterr().out


@pytest.mark.usefixtures("reproduced")
def test_without_a_baseline_there_is_no_effect_and_without_the_option_no_repro_eval(monkeypatch, capsys):
    _compare("a:s", "b:s", "--reproduction", "--output", "c.csv")
    assert list(pd.read_csv("c.csv"))[-3:] == ["ktu", "rbo", "p_paired"]
    _compare("a:s", "a:s", "--reproduction", "--output", "c.csv")
    same = pd.read_csv("c.csv").iloc[0]
    assert (same["ktu"], same["rmse"], same["p_paired"]) == (1, 0, 1)
    assert _compare("a:s", "b:s", "--baseline", "base") == 2
    assert _compare("a:s", "b:s", "--reproduction", "--baseline", "nosuch") == 2
    said = capsys.readouterr().err
    assert "--baseline: only --reproduction reads it" in said
    assert "--baseline: A has no system 'nosuch' on x" in said
    for name in [name for name in sys.modules if name.startswith("repro_eval")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "repro_eval", None)
    assert _compare("a:s", "b:s") == 1
    assert _compare("a:s", "b:s", "--reproduction") == 2
    assert "pip install 'beirgrid[reproduction]'" in capsys.readouterr().err


def test_a_group_of_queries_counts_once_also_where_main_is_a_metric_of_groups(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(finished, "QUERIES", [f"t{i // 3}_{i}" for i in range(12)])
    monkeypatch.setattr(finished, "METRICS", ["main", "p@5", "--main", "robustness@5"])
    with finished.at(tmp_path / "work"):
        finished.collection(Path(), "x")
        finished.searched("a", "x", finished.rankings(1), "float32")
        finished.searched("b", "x", finished.rankings(2), "float32")
        _compare("a", "b", "--output", "found.csv")
        assert pd.read_csv("found.csv").set_index("metric")["queries"].to_dict() == {"main": 4, "p@5": 12}
        capsys.readouterr()
        assert main(["show", "a", "x"]) == 0
        values = pd.read_parquet("results/metrics/a/x.per-query.parquet").set_index("query")
    groups = values["main"].to_numpy().reshape(4, 3).mean(axis=1)
    low, high = scipy.stats.bootstrap((groups,), np.mean, n_resamples=10_000, rng=1).confidence_interval
    shown = re.search(r"\n *main +([.0-9]+) +([.0-9]+) +([.0-9]+)", capsys.readouterr().out)
    assert [float(number) for number in shown.groups()] == pytest.approx([groups.mean(), low, high], abs=0.02)


def test_what_else_differs_is_told(work, capsys):
    _compare(work / "a", work / "b")
    said = capsys.readouterr().out
    # A path is no condition.
    assert said.partition("Differing settings:\n")[2] == '  retrieve (2 cells): precision "float32" → "bfloat16"\n'
    assert "\n3 cells: 4 of 6 values agree\n" in said


def test_two_systems_are_compared_by_name(work, capsys, monkeypatch):
    monkeypatch.chdir(work / "a")
    assert _compare(":base", ":s", "--metrics", "ndcg@10") == 1
    Path("s").mkdir()  # a folder of a model, without results, may have the name of its system
    assert _compare("base", "s", "--metrics", "ndcg@10") == 1
    Path("s").rmdir()
    said = capsys.readouterr().out
    assert "\nbase / s on x: 0 of 1 value agrees\n" in said
    assert "only in B: s on y" in said
    assert _compare("results:s", work / "b", "--datasets", "y") == 0
    assert "\ns on y: all 2 values agree\n" in capsys.readouterr().out


def test_datasets_may_have_commas_between_them(work, capsys):
    for names in (["x,y"], ["x", "y"]):
        assert _compare(work / "a", work / "b", "--tolerance", "1", "--datasets", *names) == 0
        assert "\n3 cells: all 6 values agree within 1\n" in capsys.readouterr().out


def test_a_grid_has_its_own_cells_and_records(copy, capsys):
    record = "results/indexes/i/x/0.json"
    cells = [{"system": "s", "dataset": "x", "records": [record, "results/runs/s/x.json"]}]
    for side, version in (("a", 1), ("b", 2)):
        files.write_json(copy / side / "results/grids/g/grid.json", {"cells": cells})
        write_record(IndexLexical(), copy / side / record, settings={"version": version})
    given = (copy / "a/results/grids/g", copy / "b/results/grids/g/grid.json", "--tolerance", "0.9")
    assert _compare(*given) == 0
    said = capsys.readouterr().out
    assert "\ns on x: all 2 values agree within 0.9\n" in said
    assert "\n  index: version 1 → 2\n" in said
    (copy / "b" / record).unlink()  # a step of one side has nothing to differ from
    assert _compare(*given) == 0
    assert "index: " not in capsys.readouterr().out


def test_what_differs_between_models_is_told_in_words(copy, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    model = "results/models/m/model.json"
    run = "results/runs/s/x.json"
    for side, pooling, length, first, depth in (
        (
            "a",
            {"pooling_mode_cls_token": False, "pooling_mode_mean_tokens": True, "include_prompt": True},
            256,
            "bm25",
            20,
        ),
        ("b", {"pooling_mode": "cls"}, 512, "minilm", 10),
    ):
        folder = copy / side
        cells = [{"system": "s", "dataset": "x", "records": [model, "results/embeddings/m/x/0.json", run]}]
        files.write_json(folder / "results/grids/g/grid.json", {"cells": cells})
        hashes = {"config.json": "0", "vocab.txt": "1", "model.safetensors": f"weights of {side}"}
        own = {"pooling": pooling, "prompts": {"query": f"{side}: "}}
        checkpoint = {"checkpoint": f"hub/{side}", "files": {"model.safetensors": f"weights of {side}"}}
        write_record(
            FetchModel(), folder / model, settings={"entry": checkpoint}, facts={"files": hashes, "states": own}
        )
        read = {"model": {"max_length": length}, "precision": "auto"}
        encoded = {"dimension": 2 * length, "precision": "float32"}
        write_record(Encode("dense"), folder / "results/embeddings/m/x/0.json", settings=read, facts=encoded)
        shutil.copytree(folder / "results/runs/base", folder / f"results/runs/{first}")
        inputs = {"first_stage": str(folder / f"results/runs/{first}/x.run.gz")}
        write_record(Rerank(), folder / run, [folder / run], settings={"depth": depth}, inputs=inputs)
    assert _compare(copy / "a/results/grids/g", copy / "b/results/grids/g", "--tolerance", "0.9") == 0
    assert capsys.readouterr().out.partition("Differing settings:\n")[2].splitlines() == [
        '  checkpoint: 1 of 3 files, checkpoint "hub/a" → "hub/b", pooling "mean" → "cls", prompts.query "a: " → "b: "',
        "  encode: dimension 512 → 1024, max_length 256 → 512",
        '  rerank: depth 20 → 10, first stage "bm25" → "minilm"',
    ]


@pytest.fixture
def seeded(copy: Path, monkeypatch) -> None:
    """Work in a folder in which a grid has the system t with two seeds on x."""
    monkeypatch.chdir(copy / "a")
    for number in (1, 2):
        finished.searched(f"t.seed{number}", "x", finished.rankings(20 + number), "float32", seed=40 + number)
    cells = [{"system": system, "dataset": "x", "records": []} for system in ("base", "t.seed1", "t.seed2")]
    files.write_json("results/grids/g/grid.json", {"cells": cells, "seeds": {"t": ["t.seed1", "t.seed2"]}})


@pytest.mark.usefixtures("seeded")
@pytest.mark.parametrize("place", ["", "results/grids/g"])
def test_a_system_with_seeds_is_compared_by_its_mean_for_each_query(capsys, place):
    assert _compare(f"{place}:base", f"{place}:t", "--metrics", "ndcg@10", "--output", "c.csv") == 1
    (row,) = pd.read_csv("c.csv").to_dict("records")
    base, first, second = (
        pd.read_parquet(f"results/metrics/{system}/x.per-query.parquet")["ndcg@10"].to_numpy()
        for system in ("base", "t.seed1", "t.seed2")
    )
    difference = (first + second) / 2 - base
    assert (row["difference"], row["rmse"]) == pytest.approx((difference.mean(), np.sqrt((difference**2).mean())))
    assert (row["first_seeds"], row["second_seeds"]) == (1, 2)
    assert row["p"] == pytest.approx(scipy.stats.ttest_1samp(difference, 0).pvalue)
    assert "t in B: the score of a query is its mean over 2 seeds\n" in capsys.readouterr().out


@pytest.mark.usefixtures("seeded")
def test_seeds_of_equal_numbers_are_compared_with_each_other(capsys):
    assert _compare("results/grids/g", ".", "--datasets", "x") == 1
    said = capsys.readouterr().out
    assert "only in B: s on x" in said
    assert "\n2 cells: all 4 values agree\n" in said
    assert "t.seed1 on x" not in said
    shutil.rmtree("results/metrics/t.seed2")
    assert _compare(":base", ":t") == 2
    assert "cannot be compared: base and t on x: results/metrics/t.seed2" in capsys.readouterr().err
    assert _compare(":base", ":u") == 2
    assert "has no system 'u' (it has base, s, t)" in capsys.readouterr().err
    assert _compare("bas", "t") == 2
    assert "has no system 'bas'; did you mean 'base'?" in capsys.readouterr().err


@pytest.mark.parametrize(("tolerance", "status"), [("0", 1), ("0.01", 1), ("1", 0)])
def test_the_tolerance_decides(work, tolerance, status, capsys):
    assert _compare(work / "a", work / "b", "--tolerance", tolerance) == status
    assert ("nDCG@10" in capsys.readouterr().out) == bool(status)


def _other_queries(cell: Path) -> None:
    kept = pd.read_parquet(cell / "x.per-query.parquet").iloc[1:]
    kept.to_parquet(cell / "x.per-query.parquet")
    record = json.loads((cell / "x.json").read_text())
    record["scores"] |= {"queries": len(kept), "means": kept.drop(columns="query").mean().to_dict()}
    files.write_json(cell / "x.json", record | {"outputs": {}})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_other_queries, "should have the same queries of x"),
        (lambda cell: (cell / "x.per-query.parquet").write_bytes(b"PAR1"), "is damaged"),
    ],
)
def test_a_cell_that_cannot_be_compared_fails_and_the_others_are_shown(copy, capsys, damage, message):
    damage(copy / "b/results/metrics/s")
    assert _compare(copy / "a", copy / "b") == 2
    said = capsys.readouterr()
    assert re.search("^2 cells: all 4 values agree$", said.out, re.MULTILINE)
    assert said.err.startswith("cannot be compared: s on x: ")
    assert message in said.err


def test_a_folder_that_cannot_be_read_is_no_missing_system(copy):
    (copy / "b/results/metrics/s").chmod(0)
    able = ["setpriv", "--bounding-set", "-dac_override,-dac_read_search"] if os.geteuid() == 0 else []
    if able and not shutil.which("setpriv"):
        pytest.skip("root reads every folder, and there is no setpriv here")
    command = [*able, sys.executable, "-m", "beirgrid", "compare", str(copy / "a"), str(copy / "b")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert f"{copy}/b/results/metrics/s cannot be read: Permission denied" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["{a}", "{a}/nowhere"], "nowhere has no results"),
        (["{a}:t", "{b}"], "has no system 't' (it has base, s)"),
        (["{a}:base", "{b}:s", "--datasets", "y"], "have no cell in common"),
        (["{a}", "{b}", "--tolerance", "-1"], "tolerance: Input should be greater than or equal to 0 (here '-1')"),
        (["{a}", "{b}", "--metrics", "query"], "there is no metric 'query'"),
        (["{a}", "{b}", "--datasets", "x,z"], "--datasets: neither A nor B has 'z'"),
        (["{a}", "{b}", "--output", "{a}/v.json"], "v.json is written as CSV: name a file .csv"),
    ],
)
def test_what_cannot_be_compared_at_all_is_one_message(work, capsys, arguments, message):
    assert _compare(*(argument.format(a=work / "a", b=work / "b") for argument in arguments)) == 2
    assert message in capsys.readouterr().err
