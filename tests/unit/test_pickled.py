"""Pickled weights that are refused, and the lock file of checkpoints that no source pins."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from graph import settings
from helpers import ROOT, main, python, write_collection
from model_hub import ModelHub, serve
from safetensors.torch import load_file
from stage_words import stage_command

from beirgrid import config
from beirgrid.config import lock
from beirgrid.core import files
from beirgrid.core.errors import ConfigError, DataError
from beirgrid.graph.grid import Grid
from beirgrid.models import convert

OTHERS = {"config.json": b"{}", "tokenizer.json": b"{}"}
PLAIN = {**OTHERS, "model.safetensors": b"weights"}
WEIGHTS = {"a.weight": torch.arange(6.0).reshape(2, 3), "a.bias": torch.ones(2)}


class Attack:
    """Runs a command when it is unpickled in full."""

    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, (f"touch {self.marker}",)


def saved(path: Path, value: Any, **options: Any) -> bytes:
    torch.save(value, path, **options)
    return path.read_bytes()


@pytest.fixture
def hub() -> Iterator[ModelHub]:
    with serve() as found:
        yield found


def start(hub: ModelHub, folder: Path, model: str = "toy", also: str = "", **entry: Any) -> subprocess.Popen[str]:
    """Start to fetch a model into the results under a folder."""
    entry = {"checkpoint": "some/model", "revision": "resolve", "pickled": True, **entry}
    out = Path("results/models") / model
    words = ["fetch", "model", "--name", model, "--entry", json.dumps(entry)]
    words += ["--output", str(out / "checkpoint"), "--record", str(out / "model.json")]
    environment = {**hub.environment(folder / "home"), "PYTHONPATH": f"{ROOT / 'workflow'}:{also}"}
    return subprocess.Popen(
        stage_command(*words, python=python()), cwd=folder, env=environment, text=True, stderr=subprocess.PIPE
    )


def refusal(hub: ModelHub, folder: Path, also: str = "") -> str:
    """Return the only message of a job that fails and leaves no file."""
    job = start(hub, folder, also=also)
    _, stderr = job.communicate()
    assert job.returncode == 1, stderr
    assert "Traceback" not in stderr
    assert not list((folder / "results/models/toy").iterdir())
    return stderr.strip().splitlines()[-1]


def done(job: subprocess.Popen[str], folder: Path, model: str = "toy") -> dict[str, Any]:
    """Return the facts that a job recorded."""
    _, stderr = job.communicate()
    assert job.returncode == 0, stderr
    return files.read_json(folder / "results/models" / model / "model.json")["facts"]


def fetch(hub: ModelHub, folder: Path, **entry: Any) -> dict[str, Any]:
    """Fetch a model; return its facts."""
    return done(start(hub, folder, **entry), folder)


# ---- files that are refused


def attack(path: Path) -> bytes:
    """A pickle that torch.load without weights_only would execute."""
    marker = path.with_name("marker")
    data = saved(path, {**WEIGHTS, "z": Attack(marker)})
    with pytest.raises(AttributeError):  # what follows the command fails, the command does not
        torch.load(path, weights_only=False)["z"].no_tensor  # noqa: B018
    assert marker.exists()
    marker.unlink()
    return data


def bare_attack(path: Path) -> bytes:
    return pickle.dumps(Attack(path.with_name("marker")), protocol=2)


def fetch_folder(folder: Path, pickled: bytes, **entry: Any) -> int:
    """Fetch a checkpoint with pickled weights from a folder, in this process."""
    (folder / "own").mkdir()
    for name, data in {**OTHERS, "pytorch_model.bin": pickled}.items():
        (folder / "own" / name).write_bytes(data)
    words = ["--entry", json.dumps({"path": str(folder / "own"), "pickled": True, **entry})]
    words += ["--output", str(folder / "out/checkpoint"), "--record", str(folder / "out/model.json")]
    return main(["fetch", "model", "--name", "toy", *words])


@pytest.mark.parametrize(
    ("content", "entry", "message"),
    [
        (attack, {}, r"pytorch_model.bin cannot be read as tensors alone \(names posix.system\)$"),
        (bare_attack, {}, r"cannot be read as tensors alone \(names posix.system\)$"),
        (attack, {"files": {"pytorch_model.bin": "0" * 64}}, "has SHA-256 .*, the registry says 0{64}$"),
    ],
    ids=["zip", "bare", "another file than registered"],
)
def test_a_file_with_anything_but_tensors_is_refused(tmp_path, capsys, content, entry, message):
    assert fetch_folder(tmp_path, content(tmp_path / "made"), **entry) == 1
    error = capsys.readouterr().err.strip()
    assert error.startswith("beirgrid stage fetch_model: error: model 'toy': ")
    assert "\n" not in error
    assert "weights_only" not in error
    assert re.search(message, error), error
    assert not (tmp_path / "marker").exists()
    assert not list((tmp_path / "out").iterdir())


def test_pickled_weights_are_converted_and_their_hash_is_recorded(tmp_path):
    pickled = saved(tmp_path / "good", WEIGHTS)
    digest = files.sha256(tmp_path / "good")
    assert fetch_folder(tmp_path, pickled, files={"pytorch_model.bin": digest}) == 0
    facts = files.read_json(tmp_path / "out/model.json")["facts"]
    assert facts["converted"]["files"] == {"pytorch_model.bin": digest}
    assert set(facts["files"]) == {*OTHERS, "model.safetensors"}
    modes = {(tmp_path / "out/checkpoint" / name).stat().st_mode for name in facts["files"]}
    assert len(modes) == 1  # a group can read them


@pytest.mark.parametrize(
    ("content", "message"),
    [
        pytest.param(lambda path: saved(path, WEIGHTS)[:-400], r"cannot be read as .*is it whole\?", id="cut"),
        pytest.param(
            lambda path: saved(path, WEIGHTS, _use_new_zipfile_serialization=False)[:-9],
            r"cannot be read as .*is it whole\?",
            id="cut-legacy",
        ),
        pytest.param(lambda _: b"", "pytorch_model.bin cannot be read as", id="empty"),
        *(
            pytest.param(lambda path, of=content: saved(path, of), "something else than plain tensors", id=name)
            for name, content in {
                "int": {**WEIGHTS, "epoch": 3},
                "nested": {"model": WEIGHTS},
                "list": [WEIGHTS["a.bias"]],
                "nothing": {},
                "sparse": {"a": torch.eye(3).to_sparse()},
            }.items()
        ),
    ],
)
def test_weights_that_are_no_plain_tensors_are_refused(tmp_path, content, message):
    weights = tmp_path / "pytorch_model.bin"
    weights.write_bytes(content(weights))
    with pytest.raises(DataError, match=message) as refused:
        convert.convert(tmp_path, ["pytorch_model.bin"])
    assert "\n" not in str(refused.value)
    assert "weights_only" not in str(refused.value)
    assert list(tmp_path.iterdir()) == [weights]


def test_where_there_are_safetensors_no_pickle_is_fetched(hub, tmp_path):
    commit = hub.commit("some/model", {**PLAIN, "pytorch_model.bin": b"code"})
    facts = fetch(hub, tmp_path, revision=commit)
    assert hub.downloaded() == set(facts["files"]) == {*PLAIN}
    assert "converted" not in facts


def test_tensors_of_every_kind_are_kept(tmp_path):
    """Views, tied and trainable tensors, types and shapes that safetensors refuses or that are seldom."""
    whole = torch.arange(12.0).reshape(3, 4)
    tensors = {"whole": whole, "tied": whole, "transposed": whole.T, "view": whole[1:, 2:], "step": torch.tensor(7)}
    tensors |= {"half": whole.half(), "brain": whole.bfloat16(), "mask": whole > 3, "empty": torch.ones(0, 3)}
    tensors |= {"parameter": torch.nn.Parameter(whole + 1), "positions": torch.arange(4).expand((1, -1))}
    saved(tmp_path / "pytorch_model.bin", tensors)
    convert.convert(tmp_path, ["pytorch_model.bin"])
    found = load_file(tmp_path / "model.safetensors")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert found[name].dtype == tensor.dtype
        assert torch.equal(found[name], tensor), name


def test_a_disk_that_is_full_while_weights_are_converted_is_named(full_disk, tmp_path):
    from safetensors import SafetensorError

    saved(full_disk / "pytorch_model.bin", {"a": torch.ones(150_000)})
    with pytest.raises(SafetensorError, match="No space left"):  # which every command explains
        convert.convert(full_disk, ["pytorch_model.bin"])


# ---- a branch that is resolved once


def locked(folder: Path) -> Any:
    return files.read_json(folder / lock.LOCK)


PINNED = {"commit": "a" * 40, "files": {}}
FACTS: dict[str, Any] = {"mteb": "2", "entry": {}, "trained_on": None}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ([], "'list' object has no attribute 'items'"),
        (None, "'NoneType' object has no attribute 'items'"),
        ({"a/b": None}, "checkpoint 'a/b' has no commit, or one of another form"),
        ({"a/b": []}, "checkpoint 'a/b' has no commit, or one of another form"),
        ({"a/b": PINNED, "c/d": {"commit": "a" * 40}}, "checkpoint 'c/d' has no files, or one of another form"),
        ({"a/b": PINNED | {"files": []}}, "checkpoint 'a/b' has no files, or one of another form"),
        ({"names": []}, "'list' object is not a mapping"),
        ({"names": {"models": []}}, "'list' object has no attribute 'items'"),
        (
            {"names": {"models": {"a/b": FACTS, "c/d": {"mteb": "2"}}}},
            "models 'c/d' has no entry, or one of another form",
        ),
        ({"names": {"datasets": {"x": {}}}}, "datasets 'x' has no task, or one of another form"),
        ({"names": {"benchmarks": {"x": None}}}, "benchmarks 'x' has no rows, or one of another form"),
    ],
)
def test_a_lock_file_of_another_form_is_named_with_its_entry(tmp_path, monkeypatch, content, message):
    monkeypatch.chdir(tmp_path)
    files.write_json(Path(lock.LOCK), content)
    for read in (lock.read, lock.names, lambda: lock.check("a/b", {})):
        with pytest.raises(DataError, match=re.escape(f"checkpoints.lock.json is damaged ({message})")):
            read()


@pytest.mark.parametrize("content", [{}, {"a/b": PINNED}, {"names": {}}, {"names": {"models": {"a/b": FACTS}}}])
def test_a_lock_file_without_some_kinds_is_read(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    files.write_json(Path(lock.LOCK), content)
    assert lock.read() == content
    assert lock.names() == {"models": {}, "datasets": {}, "benchmarks": {}} | content.get("names", {})


@pytest.mark.slow
def test_a_branch_is_resolved_once(hub, tmp_path):
    contents = {**OTHERS, "pytorch_model.bin": saved(tmp_path / "good", WEIGHTS)}
    first = hub.commit("some/model", contents)
    facts = fetch(hub, tmp_path)
    digests = {**facts["files"], **facts["converted"]["files"]}
    del digests["model.safetensors"]
    assert locked(tmp_path) == {"some/model": {"commit": first, "files": digests}}
    hub.commit("some/model", {**contents, "config.json": b'{"new": 1}'})
    hub.asked.clear()
    assert fetch(hub, tmp_path)["commit"] == first
    assert not any(path.endswith("/revision/main") for path in hub.asked)


@pytest.mark.slow
def test_a_changed_file_and_a_lost_commit_are_refused(hub, tmp_path):
    commit = hub.commit("some/model", PLAIN)
    fetch(hub, tmp_path)
    shutil.rmtree(tmp_path / "results")
    hub.commits["some/model", commit] = {**PLAIN, "model.safetensors": b"other weights"}
    error = refusal(hub, tmp_path)
    assert "model.safetensors of some/model has SHA-256" in error
    assert "remove 'some/model' from checkpoints.lock.json and run again" in error
    del hub.commits["some/model", commit]
    error = refusal(hub, tmp_path)
    assert f"some/model at revision {commit} cannot be fetched (RevisionNotFoundError" in error
    assert "remove 'some/model' from checkpoints.lock.json and run again" in error
    newer = hub.commit("some/model", {**PLAIN, "model.safetensors": b"newer weights"})
    (tmp_path / lock.LOCK).write_text("{}")
    assert fetch(hub, tmp_path)["commit"] == newer


@pytest.mark.slow
def test_jobs_that_resolve_side_by_side_agree(hub, tmp_path):
    """Three of one checkpoint, and two of others."""
    names = ["some/model", "some/model", "some/model", "some/second", "some/third"]
    for name in set(names):
        hub.commit(name, PLAIN)
    jobs = [start(hub, tmp_path, f"m{i}", checkpoint=name) for i, name in enumerate(names)]
    commits = [done(job, tmp_path, f"m{i}")["commit"] for i, job in enumerate(jobs)]
    assert [locked(tmp_path)[name]["commit"] for name in names] == commits
    assert all(set(entry["files"]) == set(PLAIN) for entry in locked(tmp_path).values())
    assert sum(path.endswith("some/model/revision/main") for path in hub.asked) == 1


@pytest.mark.slow
def test_a_hub_that_does_not_answer_is_named(tmp_path):
    """The client's waits between its attempts are left out."""
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep = lambda seconds: None\n")
    error = refusal(ModelHub("http://127.0.0.1:9"), tmp_path, also=str(tmp_path))
    assert "some/model at revision resolve cannot be fetched (ConnectError: " in error
    assert "set models.toy.path to it" in error
    assert not (tmp_path / lock.LOCK).exists()


# ---- the lock file and the job graph


@pytest.fixture
def grid(tmp_path, monkeypatch) -> Callable[[], Grid]:
    """Return how Snakemake reads a grid of a resolved model, in the working directory."""
    monkeypatch.chdir(tmp_path)
    small = write_collection(
        tmp_path / "small", [{"_id": "d", "text": "t"}], [{"_id": "q", "text": "t"}], {"test": [("q", "d", 1)]}
    )
    source = {"checkpoint": "some/model", "revision": "resolve", "pickled": True}
    raw = {
        "corpora": {"small": {"source": "local", "path": str(small)}},
        "datasets": {"small": {"corpus": "small"}},
        "models": {"toy": {"family": "dense", "similarity": "dot", "pooling": "mean", **source}},
        "systems": {"toy": {"retriever": "toy"}},
        "grid": {"systems": ["toy"], "datasets": ["small"]},
        "metrics": ["ndcg@10"],
    }
    return lambda: Grid(config.load(raw))


def test_a_lock_file_that_appears_reruns_nothing_and_one_of_another_commit_is_refused(grid, hub, tmp_path):
    commit = hub.commit("some/model", PLAIN)
    before = settings(grid(), "fetch_model", model="toy")
    assert fetch(hub, tmp_path)["commit"] == commit
    assert settings(grid(), "fetch_model", model="toy") == before
    files.write_json(lock.LOCK, {"some/model": {"commit": "f" * 40, "files": {}}})
    message = f"results/models/toy was fetched at commit {commit}, .* says {'f' * 40}. Remove"
    with pytest.raises(ConfigError, match=message):
        grid()


@pytest.mark.parametrize("content", ["", "<<<<<<< main"])
def test_a_damaged_lock_file_is_refused(grid, content):
    Path(lock.LOCK).write_text(content)
    with pytest.raises(DataError, match=r"checkpoints\.lock\.json is damaged"):
        grid()
