"""Models of the BEIR paper's kinds from a hub, in one command: commits resolved, pickled weights converted."""

from __future__ import annotations

import pytest
import yaml
from checkpoints import save_pickled
from helpers import snakemake
from model_hub import serve
from small import collection

from beirgrid.core import files

PICKLED = {
    "dpr": ("dpr-context", {"family": "dense", "pooling": "pooler", "query_model": "dpr-question"}),
    "dpr-question": ("dpr-question", {"family": "dense", "pooling": "pooler"}),
    "electra": ("electra", {"family": "cross-encoder"}),
}


@pytest.mark.slow
def test_a_grid_of_pickled_models_is_made_once(tiny_models, tmp_path, monkeypatch):
    """The lock file that the first run leaves, and branches that move on, rerun nothing."""
    collection(tmp_path / "small")
    models = {name: {**entry, "checkpoint": f"some/{name}", "pickled": True} for name, (_, entry) in PICKLED.items()}
    for entry in models.values():
        entry |= {"revision": "resolve", "max_length": 48}
        entry |= {"similarity": "dot"} if entry["family"] == "dense" else {}
    systems = {
        "dpr": {"retriever": "dpr"},
        "bm25+electra": {"first_stage": "bm25-flat", "reranker": "electra", "depth": 5},
    }
    configuration = {
        "corpora": {"small": {"source": "local", "path": str(tmp_path / "small"), "documents": 60}},
        "datasets": {"small": {"corpus": "small"}},
        "models": models,
        "systems": systems,
        "grid": {"systems": list(systems), "datasets": ["small"]},
        "encode": {"precision": "float32"},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(configuration))
    arguments = ["--configfile", tmp_path / "config.yaml", "--directory", tmp_path / "work", "--cores", "2"]
    with serve() as hub:
        for name, (kind, _) in PICKLED.items():
            save_pickled(tmp_path / name, tiny_models[kind])
            hub.push(f"some/{name}", tmp_path / name)
        commits = dict(hub.main)
        for variable, value in hub.environment(tmp_path / "home").items():
            monkeypatch.setenv(variable, value)
        first = snakemake(*arguments)
        assert first.returncode == 0, first.stdout
        locked = files.read_json(tmp_path / "work/checkpoints.lock.json")
        assert {checkpoint: entry["commit"] for checkpoint, entry in locked.items()} == commits
        for system in systems:
            assert files.read_json(tmp_path / f"work/results/metrics/{system}/small.json")
        for checkpoint in commits:
            hub.commit(checkpoint, {"config.json": b"another"})
        again = snakemake(*arguments, "-n")
        assert "Nothing to be done" in again.stdout, again.stdout
