"""A model and a collection that no file of the checkout names: from three lines of configuration to a grid."""

from __future__ import annotations

import pandas as pd
import pytest
from checkpoints import save_dense, save_static
from helpers import hub, snakemake
from model_hub import serve

from beirgrid.config import lock, mteb_collections, names, registry
from beirgrid.core import files

pytestmark = pytest.mark.slow  # whole workflows

MODEL, STATIC, TASK = "thenlper/gte-small", "minishlab/potion-base-2M", "NanoSCIDOCSRetrieval"
LOADED = "WhereIsAI/UAE-Large-V1"  # by mteb's loader
CONFIGURATION = f"grid:\n  systems: [{MODEL}, {STATIC}, {LOADED}]\n  datasets: [{TASK}]\n"


def test_three_lines_give_a_grid(tmp_path, monkeypatch):
    """Tiny weights and a tiny collection stand at the pinned commits of a hub on the loopback interface."""
    (tmp_path / "mine.yaml").write_text(CONFIGURATION)
    task, data = mteb_collections.collection(TASK)["datasets"][TASK]["corpus"], f"datasets/mteb/{TASK}"
    ids = range(task["documents"])
    corpus = [{"_id": f"d{number}", "text": f"document {number} of the corpus"} for number in ids]
    layout = {
        "corpus": {"train": corpus},
        "queries": {"train": [{"_id": f"q{number}", "text": f"document {number}"} for number in range(5)]},
        "qrels": {"train": [{"query-id": f"q{n}", "corpus-id": f"d{n}", "score": 1} for n in range(5)]},
    }
    hub(tmp_path / "data", layout)
    save_dense(tmp_path / "model")
    save_static(tmp_path / "static", model2vec=True)
    arguments = ["--configfile", tmp_path / "mine.yaml", "--directory", tmp_path / "work", "--cores", "2"]
    with serve() as loopback:
        commits = {name: registry.model_facts(name)["entry"]["revision"] for name in (MODEL, STATIC, LOADED)}
        commits[data] = task["revision"]
        for repository, folder in ((MODEL, "model"), (STATIC, "static"), (LOADED, "model"), (data, "data")):
            paths = [path for path in (tmp_path / folder).rglob("*") if path.is_file()]
            contents = {str(path.relative_to(tmp_path / folder)): path.read_bytes() for path in paths}
            loopback.commits[repository, commits[repository]] = contents
        for name, value in loopback.environment(tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        dry = snakemake(*arguments, "-n")
        assert dry.returncode == 0, dry.stdout
        assert not (tmp_path / "work" / lock.LOCK).exists()  # a dry run keeps nothing
        done = snakemake(*arguments)
        assert done.returncode == 0, done.stdout
        assert done.stdout.count(f"now has what mteb states of {TASK}, {LOADED}, {STATIC}, {MODEL}.") == 1, done.stdout
        again = snakemake(*arguments, "-n")
        assert "Nothing to be done" in again.stdout, again.stdout
    work = tmp_path / "work"
    scores = pd.read_csv(next((work / "results/grids/grid").rglob("scores.csv")))
    assert set(scores["system"]) == set(map(names.local_name, (MODEL, STATIC, LOADED)))
    loaded = files.read_json(next(work.glob("results/embeddings/WhereIs*/*/*.json")))["facts"]
    assert loaded["loader"] == f"mteb {registry.mteb_version()}"
    assert scores["dataset"].unique().tolist() == [TASK]
    record = files.read_json(work / "results/models/thenlper__gte-small/model.json")
    assert record["facts"]["entry"] == f"mteb {registry.mteb_version()}"
    assert record["facts"]["states"]["pooling"]["pooling_mode"] == "mean"
    page = next((work / "results/grids/grid").rglob("index.html")).read_text(encoding="utf-8")
    assert page.count(f">mteb {registry.mteb_version()}</td>") == 3
    locked = files.read_json(work / lock.LOCK)
    locked["names"]["models"][MODEL]["entry"]["similarity"] = "dot"
    files.write_json(work / lock.LOCK, locked)
    changed = snakemake(*arguments, "-n").stdout
    assert next(line.split() for line in changed.splitlines() if line.startswith("encode")) == ["encode_dense", "1"]
