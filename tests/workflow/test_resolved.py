"""A model whose commit is resolved and whose weights are converted, in the workflow."""

from __future__ import annotations

import yaml
from checkpoints import save_pickled
from helpers import snakemake
from model_hub import serve
from small import collection

from beirgrid.core import files


def test_a_resolved_and_converted_model_is_fetched_once(tiny_models, tmp_path, monkeypatch):
    """The lock file that the first run leaves, and a branch that moves on, rerun nothing."""
    collection(tmp_path / "small")
    model = {"family": "dense", "similarity": "dot", "pooling": "mean", "checkpoint": "some/model"}
    configuration = {
        "corpora": {"small": {"source": "local", "path": str(tmp_path / "small")}},
        "datasets": {"small": {"corpus": "small"}},
        "models": {"resolved": {**model, "revision": "resolve", "pickled": True}},
        "systems": {"resolved": {"retriever": "resolved"}},
        "grid": {"systems": ["resolved"], "datasets": ["small"]},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(configuration))
    pickled = save_pickled(tmp_path / "pickled", tiny_models["bert"])
    arguments = ["--configfile", tmp_path / "config.yaml", "--directory", tmp_path / "work", "--cores", "1"]
    target = "results/models/resolved/checkpoint"
    with serve() as hub:
        commit = hub.push("some/model", pickled)
        for name, value in hub.environment(tmp_path / "home").items():
            monkeypatch.setenv(name, value)
        first = snakemake(*arguments, target)
        assert first.returncode == 0, first.stdout
        assert files.read_json(tmp_path / "work/checkpoints.lock.json")["some/model"]["commit"] == commit
        (pickled / "config.json").write_text((pickled / "config.json").read_text() + "\n")
        hub.push("some/model", pickled)
        again = snakemake(*arguments, "-n", target)
        assert "Nothing to be done" in again.stdout, again.stdout
