"""``make gpu``: each check fails where something is wrong."""

from __future__ import annotations

import importlib
import sys
from functools import partial

import numpy as np
import pytest
from helpers import ROOT

from beirgrid.encoders.base import LoadedModel
from beirgrid.encoders.engine import Tokens
from beirgrid.execution import forks
from beirgrid.runs import runs
from beirgrid.search import exact


@pytest.fixture(scope="module")
def gpu(tmp_path_factory):
    """The module in its small form, with checkpoints in a folder of the test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCH", "small")  # read when the modules are imported
        patch.syspath_prepend(ROOT / "bench")
        for name in ("gpu", "encoding", "generation", "search"):
            patch.delitem(sys.modules, name, raising=False)
        gpu = importlib.import_module("gpu")
        patch.undo()
        patch.setattr(gpu, "scratch", partial(tmp_path_factory.getbasetemp().joinpath, "gpu"))
        (tmp_path_factory.getbasetemp() / "gpu").mkdir()
        yield gpu


def test_a_wrong_kernel_fails(gpu, monkeypatch):
    import torch

    assert gpu.compare_kind("dense", "float32")["passed"]
    right = torch.nn.functional.layer_norm

    def wrong(values, shape, weight=None, bias=None, eps=1e-5):
        return right(values, shape, weight, bias, 0.01)

    monkeypatch.setattr(torch.nn.functional, "layer_norm", wrong)
    found = gpu.compare_kind("dense", "float32")
    assert not found["passed"]
    assert found["distance"] > gpu.TOLERANCE["float32"]


@pytest.mark.parametrize("kind", ["decoder", "sparse", "late-interaction", "cross-encoder", "T5"])
def test_a_family_is_its_own_equal(gpu, kind):
    found = gpu.compare_kind(kind, "float32")
    assert found["passed"], found


def test_a_vector_that_depends_on_its_batch_fails(gpu, monkeypatch):
    padded = Tokens.padded

    def without_mask(tokens, texts, tokenizer):
        inputs = padded(tokens, texts, tokenizer)
        return {**inputs, "attention_mask": inputs["attention_mask"] * 0 + 1}

    gpu.asked_and_expected("dense")
    monkeypatch.setattr(Tokens, "padded", without_mask)
    monkeypatch.setattr(LoadedModel, "depends_on_batch", lambda *_: False)  # or it would see the same
    found = gpu.compare_kind("dense", "float32")
    assert not found["passed"]
    assert found["batch"] > gpu.TOLERANCE["float32"]


def test_an_engine_that_must_not_pad_fails(gpu, monkeypatch):
    monkeypatch.setattr(LoadedModel, "depends_on_batch", lambda *_: True)
    found = gpu.compare_kind("dense", "float32")
    assert found["one_length"]
    assert not found["passed"]


def test_factors_that_are_rounded_to_tf32_fail(gpu, monkeypatch):
    """The ranking may still be right by the proof's reserve; the bound tells."""
    nearest = exact._nearest_in_torch

    def rounded(queries, *given, **options):
        return nearest((queries.view(np.uint32) & 0xFFFFE000).view(np.float32), *given, **options)

    assert gpu.search_exactly("torch")["bound"] < 0.001
    monkeypatch.setattr(exact, "_nearest_in_torch", rounded)
    found = gpu.search_exactly("torch")
    assert found["bound"] > 0.05
    assert not found["passed"]


def test_a_document_that_the_search_loses_fails(gpu, monkeypatch):
    assert gpu.search_exactly("torch")["passed"]
    nearest = exact._nearest_in_torch

    def without_the_best(*given, **options):
        products, rows = nearest(*given, **options)
        return products[:, 1:], rows[:, 1:]

    monkeypatch.setattr(exact, "_nearest_in_torch", without_the_best)
    found = gpu.search_exactly("torch")
    assert found["different"]
    assert not found["passed"]


def test_a_probe_that_lets_everything_through_fails(gpu, monkeypatch):
    assert gpu.probe()["passed"]
    (gpu.scratch() / "large").rename(gpu.scratch() / "before")
    monkeypatch.setattr(LoadedModel, "fits_float16", lambda *_: True)
    assert not gpu.probe()["passed"]


@pytest.mark.slow
def test_a_document_that_a_run_lacks_fails(gpu, monkeypatch):
    monkeypatch.delenv(forks.FOLDER)  # jobs are forked from the run's own servers
    assert gpu.run_workflow()["passed"]
    right = runs.read

    def examined(change):
        def changed(path):
            run = right(path)
            query = min(run)
            return {**run, query: change(query, run[query])}

        monkeypatch.setattr(runs, "read", changed)
        return gpu.examine_runs(gpu.scratch(), gpu.TOLERANCE["float32"])

    lost = examined(lambda query, ranking: runs.canonical(query, ranking.ids[:-1], np.array(ranking.scores[:-1])))
    assert lost["lost"] == {"late": 1, "tiny": 1, "tiny+ce": 1}
    assert not lost["passed"]
    off = examined(lambda query, ranking: runs.canonical(query, ranking.ids, np.array(ranking.scores) + 0.01))
    assert off["score_difference"] > gpu.TOLERANCE["float32"]
    assert not off["passed"]


def test_checks_that_passed_do_not_run_again(gpu, tmp_path):
    calls = []

    def check(name, *outcomes):
        calls.append(name)
        found = outcomes[min(calls.count(name), len(outcomes)) - 1]
        if isinstance(found, Exception):
            raise found
        return {"passed": found}

    checks = {"a": partial(check, "a", True), "b": partial(check, "b", ValueError("no memory"), True)}
    gpu.Results(tmp_path).run("parity", checks)
    assert "no memory" in "\n".join(gpu.page(gpu.machine(), gpu.Results(tmp_path).checks))
    gpu.Results(tmp_path).run("parity", checks)
    assert calls == ["a", "b", "b"]
    assert "Failed: nothing." in "\n".join(gpu.page(gpu.machine(), gpu.Results(tmp_path).checks))


def test_a_part_that_is_ended_fails(gpu, tmp_path):
    def ended():
        raise KeyboardInterrupt  # as timeout ends it

    with pytest.raises(KeyboardInterrupt):
        gpu.Results(tmp_path).run("speed", {"a": ended})
    assert "Failed: speed, all checks ran." in "\n".join(gpu.page(gpu.machine(), gpu.Results(tmp_path).checks))


def test_wheels_have_the_versions_of_the_lock():
    lock = (ROOT / "requirements" / "lock.txt").read_text()
    for line in (ROOT / "bench" / "gpu-wheels.txt").read_text().splitlines():
        assert f"{line} " in lock, line


def test_the_tolerances_are_those_of_the_protocol(gpu):
    protocol = " ".join((ROOT / "docs" / "protocol.md").read_text().split())
    assert "0.0001 in float32, 0.02 in float16 and 0.1 in bfloat16" in protocol
    assert gpu.TOLERANCE == {"float32": 0.0001, "float16": 0.02, "bfloat16": 0.1}
