"""Read exports back with the libraries for their formats."""

from __future__ import annotations

import contextlib
import itertools
import json
import shutil
from pathlib import Path

import finished
import numpy as np
import pytest
import pytrec_eval
import yaml
from helpers import main
from huggingface_hub import parse_eval_result_entries

from beirgrid.config.registry import tasks
from beirgrid.core import files
from beirgrid.core.checkout import full_version
from beirgrid.results import scores
from beirgrid.runs import runs

SYSTEMS = ("first", "second", "both")


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a grid of two searches and their fusion on two datasets, one of which mteb knows."""
    folder = tmp_path_factory.mktemp("export") / "work"
    with finished.at(folder):
        for dataset in ("scifact", "mine"):
            finished.collection(Path(), dataset)
            finished.searched("first", dataset, finished.rankings(1), "bfloat16", depth=10, prompts={"query": "q: "})
            finished.searched("second", dataset, finished.rankings(2, better=5), "float32", depth=10)
            _fuse(dataset)
        parts = {"first": (), "second": (), "both": ("first", "second")}
        _write_summary(parts, "scifact", "mine", datasets={"mine": {"language": "sw"}})
    return folder


@pytest.fixture
def copy(work: Path, tmp_path: Path) -> Path:
    """A copy that a test may change."""
    return shutil.copytree(work, tmp_path / "copy")


def _fuse(dataset: str) -> None:
    parts = [f"results/runs/{system}/{dataset}.run.gz" for system in SYSTEMS[:2]]
    fused = f"results/runs/both/{dataset}"
    written = ["--output", f"{fused}.run.gz", "--record", f"{fused}.json"]
    finished.command("fuse", "--system", "both", "--runs", *parts, "--method", "rrf", *written)
    finished.evaluated("both", dataset)


def _write_summary(parts: dict[str, tuple[str, ...]], *datasets: str, **more: object) -> None:
    """Write the part of a grid's summary that names its cells: systems with those whose runs they read."""
    cells = []
    for (system, read), dataset in itertools.product(parts.items(), datasets):
        records = [f"results/corpora/{dataset}/corpus.json", f"results/datasets/{dataset}/dataset.json"]
        records += [f"results/runs/{name}/{dataset}.json" for name in (*read, system)]
        cells.append({"system": system, "dataset": dataset, "records": records})
    files.write_json("results/grids/g/grid.json", {"cells": cells, **more})


def _export(work: Path, kind: str, output: Path, *options: str, status: int = 0) -> Path:
    assert main(["export", kind, "--directory", str(work), "--output", str(output), *options]) == status
    return output


def _mean(work: Path, system: str, dataset: str) -> float:
    return scores.read(work / f"results/metrics/{system}/{dataset}.json").means["ndcg@10"]


def test_trec_files_are_read_by_pytrec_eval(work, tmp_path):
    out = _export(work, "trec", tmp_path / "out", "--grid", "g")
    for system in SYSTEMS:
        run, qrels = out / f"runs/mine/{system}.trec", out / "qrels/mine.txt"
        with run.open() as of_run, qrels.open() as of_qrels:
            evaluator = pytrec_eval.RelevanceEvaluator(pytrec_eval.parse_qrel(of_qrels), {"ndcg_cut_10"})
            found = evaluator.evaluate(pytrec_eval.parse_run(of_run))
        assert len(found) == len(finished.QUERIES)
        mean = np.mean([values["ndcg_cut_10"] for values in found.values()])
        assert mean == pytest.approx(_mean(work, system, "mine"))


def test_comments_say_what_made_a_run_and_are_read_as_none(work, tmp_path):
    """As repro_eval reads them: YAML after the first #. pytrec_eval refuses them, so they are an option."""
    out = _export(work, "trec", tmp_path / "out", "--grid", "g", "--metadata")
    plain = _export(work, "trec", tmp_path / "plain", "--grid", "g")
    run = out / "runs/mine/both.trec"
    comments = [line for line in run.read_text().splitlines(keepends=True) if line.startswith("#")]
    about = yaml.safe_load("".join(line.strip("#") for line in comments[1:-1]))
    assert (about["tag"], about["data"]["test collection"]) == ("both", {"name": "mine"})
    assert f"beirgrid=={full_version()}" in about["platform"]["software"]["libraries"]["python"]
    assert about["implementation"]["source"]["commit"] == full_version().partition("+g")[2]
    hashes = {row["name"]: row["sha256"] for row in about["data"]["other"]}
    assert {"runs/both/mine.run.gz", "runs/first/mine.run.gz", "datasets/mine/qrels.tsv"} <= {*hashes}
    for name, digest in hashes.items():
        assert files.sha256(work / "results" / name) == digest
    read, expected = (runs.read(folder / "runs/mine/both.trec") for folder in (out, plain))
    assert [(query, of.ids) for query, of in read.items()] == [(query, of.ids) for query, of in expected.items()]
    with run.open() as lines, pytest.raises(ValueError, match="unpack"):
        pytrec_eval.parse_run(lines)


def test_a_run_without_documents_is_exported_as_a_run(tmp_path, capsys):
    with finished.at(tmp_path / "work"):
        finished.collection(Path(), "mine")
        finished.searched("nothing", "mine", {}, "float32")
    out = _export(tmp_path / "work", "trec", tmp_path / "out")
    words = ["--run", str(out / "runs/mine/nothing.trec"), "--qrels", str(out / "qrels/mine.txt")]
    assert main(["evaluate", *words, "--metrics", "ndcg@10"]) == 0
    assert "nDCG@10\t0.0000\n" in capsys.readouterr().out


def test_mtebs_json_says_that_mteb_did_not_compute_it(work, tmp_path):
    out = _export(work, "mteb", tmp_path / "out")
    found = json.loads((out / f"beirgrid__first/{full_version()}/SciFact.json").read_text())
    assert found["mteb_version"] is None
    assert found["note"] == f"computed by beirgrid {full_version()}, not by mteb"
    ((split, (values,)),) = found["scores"].items()
    assert (split, values["hf_subset"], values["languages"]) == ("test", "default", ["eng-Latn"])
    assert values["main_score"] == values["ndcg_at_10"] == _mean(work, "first", "scifact")
    assert set(values) == {"ndcg_at_10", "recall_at_5", "main_score", "hf_subset", "languages"}
    own = json.loads((out / f"beirgrid__both/{full_version()}/mine.json").read_text())
    assert (own["task_name"], own["scores"]["test"][0]["languages"]) == ("mine", ["swa-Latn"])
    assert json.loads((out / f"beirgrid__both/{full_version()}/model_meta.json").read_text())["name"] == "beirgrid/both"


def test_exports_tell_of_queries_that_count_0(copy, tmp_path):
    with contextlib.chdir(copy):
        lost = {query: documents for query, documents in finished.rankings(1).items() if query != "q3"}
        finished.searched("first", "scifact", lost, "float32", depth=10)
        _fuse("scifact")
    said = "1 of 12 queries has no documents and counts 0"
    mteb = _export(copy, "mteb", tmp_path / "mteb") / f"beirgrid__first/{full_version()}/SciFact.json"
    assert json.loads(mteb.read_text())["note"].endswith(f"mteb; {said}")
    hub = _export(copy, "huggingface", tmp_path / "hub")
    (entry,) = yaml.safe_load((hub / "first/.eval_results/scifact.yaml").read_text())
    assert entry["notes"].endswith(f"float32, {said}")


def test_every_task_is_of_a_registered_dataset(root):
    registered = yaml.safe_load((root / "config/datasets.yaml").read_text())["datasets"]
    assert set(tasks()) <= set(registered)
    assert len(tasks()) == 26


def test_the_hub_reads_its_yaml(work, tmp_path, capsys):
    out = _export(work, "huggingface", tmp_path / "out")
    assert "export leaves out datasets that mteb has not: mine" in capsys.readouterr().err
    assert not list(out.rglob("mine.yaml"))
    (entry,) = parse_eval_result_entries(yaml.safe_load((out / "second/.eval_results/scifact.yaml").read_text()))
    assert (entry.dataset_id, entry.task_id) == ("mteb/scifact", "SciFact")
    assert entry.value == pytest.approx(100 * _mean(work, "second", "scifact"), abs=1e-5)
    assert entry.notes == f"ndcg@10 × 100, computed by beirgrid {full_version()}, not by mteb, float32"


SEEDED = {
    "trec": "runs/scifact/s.seed{n}.trec",
    "mteb": f"beirgrid__s.seed{{n}}/{full_version()}/SciFact.json",
    "huggingface": "s.seed{n}/.eval_results/scifact.yaml",
}


@pytest.mark.parametrize("place", [(), ("--grid", "g")])
def test_each_seed_is_exported_under_its_own_name(tmp_path, place):
    with finished.at(tmp_path / "work"):
        finished.collection(Path(), "scifact")
        for n in (1, 2):
            finished.searched(f"s.seed{n}", "scifact", finished.rankings(n), "float32", seed=n)
        _write_summary({"s.seed1": (), "s.seed2": ()}, "scifact", seeds={"s": ["s.seed1", "s.seed2"]})
    for kind, pattern in SEEDED.items():
        out = _export(tmp_path / "work", kind, tmp_path / kind, *place)
        contents = [(out / pattern.format(n=n)).read_bytes() for n in (1, 2)]
        assert contents[0] != contents[1]
        assert not (out / pattern.replace("s.seed{n}", "s")).exists()


@pytest.mark.parametrize("kind", ["trec", "mteb", "huggingface"])
def test_damage_and_places_are_named(work, copy, tmp_path, capsys, kind):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/kept").write_text("kept")
    _export(work, kind, tmp_path / "full", status=1)
    _export(work, kind, tmp_path / "out", "--grid", "h", status=1)
    (copy / "results/runs/first/mine.run.gz").write_bytes(b"")
    _export(copy, kind, tmp_path / "out", status=1)
    said = capsys.readouterr().err.splitlines()
    assert "full is not an empty folder; name a new one" in said[0]
    assert "has no grid 'h' (it has g)" in said[1]
    assert "mine.run.gz is damaged: it has 0 bytes" in said[2]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["copy", "full"]
    assert (tmp_path / "full/kept").read_text() == "kept"


def test_what_is_not_finished_is_left_out(copy, tmp_path, capsys):
    (copy / "results/metrics/first/mine.json").unlink()
    out = _export(copy, "trec", tmp_path / "out", "--grid", "g")
    assert "export leaves out 1 unfinished cells" in capsys.readouterr().err
    assert sorted(path.name for path in out.glob("runs/mine/*")) == ["both.trec", "second.trec"]
