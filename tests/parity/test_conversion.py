"""Pickled checkpoints of a hub on the loopback interface give the same results after conversion."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from checkpoints import FAMILIES, opened, results, save_ance, save_pickled, states
from helpers import ROOT, python
from model_hub import ModelHub, serve
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense
from stage_words import stage_command

from beirgrid.core import files
from beirgrid.models import convert

TEXTS = ["a word", "another one", "and a longer text of words"]


def fetch(hub: ModelHub, folder: Path, **entry: Any) -> Path:
    """Fetch the newest commit of a checkpoint from the hub, with the workflow's command."""
    entry = {"revision": hub.main[entry["checkpoint"]], "pickled": True, **entry}
    words = ["fetch", "model", "--name", "toy", "--entry", json.dumps(entry)]
    words += ["--output", str(folder / "checkpoint"), "--record", str(folder / "model.json")]
    environment = {**hub.environment(folder / "home"), "PYTHONPATH": str(ROOT / "workflow")}
    done = subprocess.run(
        stage_command(*words, python=python()), cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return folder / "checkpoint"


def converted(folder: Path) -> Path:
    """Convert a checkpoint in this process, because a process of its own takes seconds to import torch."""
    convert.convert(folder, ["pytorch_model.bin"])
    (folder / "pytorch_model.bin").unlink()
    return folder


KINDS = ("bert", "dpr-question", "dpr-context", "sparta", "splade", "stanford", "term-weights", "electra", "seq2seq")


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*KINDS, "query-generator"])
def test_each_kind_computes_the_same_after_conversion(tiny_models, tmp_path, kind):
    pickled = converted(save_pickled(tmp_path / "pickled", tiny_models[kind], legacy=kind.startswith("dpr")))
    family, entry = FAMILIES[kind]
    found, expected = (opened(family, folder, entry) for folder in (pickled, tiny_models[kind]))
    if kind == "query-generator":
        assert found.generate(TEXTS, per_text=3, seed=0) == expected.generate(TEXTS, per_text=3, seed=0)
    else:
        np.testing.assert_array_equal(*(np.concatenate(results(model, TEXTS)) for model in (found, expected)))


def vectors(folder: Path) -> Any:
    return opened("dense", folder, {"similarity": "dot"}).encode_documents(TEXTS)


@pytest.mark.slow
def test_ance_keeps_its_head(tiny_models, tmp_path):
    head, norm = save_ance(tmp_path / "pickled", tiny_models["roberta"])
    found = vectors(converted(tmp_path / "pickled"))
    first = np.stack([tokens[0] for tokens in states(tiny_models["roberta"], TEXTS, add_pooling_layer=False)])
    with torch.inference_mode():
        expected = norm(head(torch.tensor(first)))
    np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.slow
def test_shards_and_modules_are_converted(tiny_models, tmp_path):
    """Weights in several files with an index, and a module of sentence-transformers with weights of its own."""
    whole = SentenceTransformer(str(tiny_models["dense"]), device="cpu")
    whole.append(Dense(32, 8))
    whole.save_pretrained(str(tmp_path / "whole"))
    pickled = save_pickled(tmp_path / "pickled", tmp_path / "whole")
    weights = torch.load(pickled / "pytorch_model.bin")
    (pickled / "pytorch_model.bin").unlink()
    names = sorted(weights)
    parts = {"pytorch_model-00001-of-00002.bin": names[:9], "pytorch_model-00002-of-00002.bin": names[9:]}
    for name, part in parts.items():
        torch.save({key: weights[key] for key in part}, pickled / name)
    weight_map = {key: name for name, part in parts.items() for key in part}
    (pickled / "pytorch_model.bin.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    torch.save(whole[2].state_dict(), pickled / "2_Dense" / "pytorch_model.bin")
    for junk in ("training_args.bin", "optimizer.pt", "1_Pooling/rust_model.ot", "checkpoint-9/pytorch_model.bin"):
        (pickled / junk).parent.mkdir(exist_ok=True)
        (pickled / junk).write_bytes(b"no tensors")
    with serve() as hub:
        hub.push("some/model", pickled)
        folder = fetch(hub, tmp_path, checkpoint="some/model")
        assert {name for name in hub.downloaded() if name.endswith((".bin", ".pt", ".ot"))} == {
            *parts,
            "2_Dense/pytorch_model.bin",
        }
    np.testing.assert_array_equal(vectors(folder), vectors(tmp_path / "whole"))
    assert not [path for path in folder.rglob("*") if path.suffix == ".bin" or path.name.startswith("pytorch_model")]
    facts = files.read_json(tmp_path / "model.json")["facts"]
    sources = {name: files.sha256(pickled / name) for name in (*parts, "2_Dense/pytorch_model.bin")}
    assert facts["converted"]["files"] == sources
    kept = "2_Dense/model.safetensors"
    assert facts["files"][kept] == files.sha256(folder / kept)
