"""Shared fixtures: the checkout, small collections, and tiny checkpoints in the true on-disk format."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import forkserver
import pytest
from helpers import FORKING, ROOT, made_once, python, set_step

from beirgrid.core import errors
from beirgrid.execution import forks

errors.log_to_standard_error()  # as commands do
# Tests reach no hub on any machine, and leave no collections in the user's cache.
os.environ["HF_HUB_OFFLINE"] = "1"
if "HF_DATASETS_CACHE" not in os.environ:
    os.environ["HF_DATASETS_CACHE"] = tempfile.mkdtemp(prefix="beirgrid-datasets-")
    atexit.register(shutil.rmtree, os.environ["HF_DATASETS_CACHE"])
# The models are tiny: several threads would wait for each other longer than they compute. Jobs have the threads of
# their rules. On a busy machine, waiting threads should sleep.
for name in [*forkserver.THREADS, "NUMBA_NUM_THREADS"]:
    os.environ.setdefault(name, "1")
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# Servers of tests are on the loopback interface, to which no proxy leads. Processes of pytest-xdist inherit the entry.
if "127.0.0.1" not in (direct := os.environ.get("NO_PROXY", "").split(",")):
    os.environ["NO_PROXY"] = ",".join(filter(None, ["127.0.0.1", *direct]))
# Jobs of all runs are forked from the servers of this session, not of a run, unless FORKING names another Python.
if FORKING not in os.environ:
    os.environ[forks.FOLDER] = ""
os.environ[FORKING] = python()
ENVIRONMENT = forkserver.environment()
# Imported libraries leave a million objects. The collector would look at them a thousand times, a tenth of all time.
gc.set_threshold(20_000, 20, 20)


def pytest_collection_finish() -> None:
    """Exempt what was imported from all later collections."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with whole workflows, the longest files. If a worker starts a long file late, the others wait for it.

    One worker makes the small grid that many of these files read. Until then, the others get files that do not read it,
    and those of parity.
    """
    workflow = {item.path for item in items if item.path.parent.name == "workflow"}
    readers = workflow & {item.path for item in items if "finished" in getattr(item, "fixturenames", ())}
    maker = min(readers, default=None)

    def rank(item: pytest.Item) -> int:
        if item.path == maker:
            return 0
        if item.path in workflow:
            return 3 if item.path in readers else 1
        return 2 if item.path.parent.name == "parity" else 4

    items.sort(key=rank)


def pytest_make_parametrize_id(val: object, argname: str) -> str | None:
    """Keep bytes out of test names: archives contain times, and all workers need the same names."""
    return argname if isinstance(val, bytes) else None


@pytest.fixture(autouse=True)
def same_process() -> Iterator[None]:
    """Refuse a test that changes environment variables or the number of threads.

    After a changed variable, later tests could not fork processes. With other threads, sums round differently.
    """
    yield
    left = forkserver.environment()
    assert {name for name in left | ENVIRONMENT if left.get(name) != ENVIRONMENT.get(name)} == set()
    if torch := sys.modules.get("torch"):
        assert torch.get_num_threads() == int(os.environ["OMP_NUM_THREADS"])


@pytest.fixture(scope="module")
def few_permutations() -> Iterator[None]:
    """Draw few permutations for the tests of a module that assert no p value which depends on their number."""
    from beirgrid.analysis import tables
    from beirgrid.results import permutations

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(permutations, "LEAST", 1000)
        patch.setattr(permutations, "PERMUTATIONS", 1000)
        patch.setattr(tables, "PERMUTATIONS", 1000)
        yield


@pytest.fixture
def as_on_a_gpu(monkeypatch):
    """Return a function after whose call ``precision: auto`` has its GPU meaning on a CPU."""
    from beirgrid.core import compute

    def resolve(runtime, precision=None, wide=False):
        asked = precision or runtime.precision
        return asked if asked != "auto" else runtime.wide if wide else "float16"

    def choose(*, bfloat16: bool) -> None:
        monkeypatch.setattr(compute.Runtime, "resolve", resolve)
        monkeypatch.setattr(compute, "multiplies_bfloat16", lambda device: bfloat16)

    return choose


@pytest.fixture
def endpoint_key(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the key of a served model, and shorten pauses between attempts."""
    import openai._base_client
    from endpoint_server import KEY

    monkeypatch.setenv("TESTED_KEY", KEY)
    monkeypatch.setattr(openai._base_client, "MAX_RETRY_DELAY", 0.001)


@pytest.fixture
def told(capsys):
    """Return a function that runs a command of ``beirgrid set`` and returns what it prints, warnings first."""

    def run(*words: object) -> str:
        capsys.readouterr()
        set_step(*words)
        shown, warned = capsys.readouterr()
        return warned + shown

    return run


@pytest.fixture
def served(endpoint_key):
    """A stand-in for a server of models, with the key."""
    from endpoint_server import Served, serving

    with serving(Served()) as found:
        yield found


@pytest.fixture(scope="session")
def root() -> Path:
    """Return the checkout."""
    return ROOT


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Save checkpoints of random weights, one per architecture and use; return their folders."""
    folder = made_once(tmp_path_factory, "checkpoints", _save_tiny_models)
    return {path.name: path for path in folder.iterdir()}


def _save_tiny_models(folder: Path) -> None:
    import checkpoints

    checkpoints.save_bert(folder / "bert")
    checkpoints.save_bert(folder / "distilbert", "DistilBertModel")
    checkpoints.save_bert(folder / "dpr-question", "DPRQuestionEncoder", 10)
    checkpoints.save_bert(folder / "dpr-context", "DPRContextEncoder", 9)
    checkpoints.save_bert(folder / "sparta", "DistilBertModel", 3)
    checkpoints.save_roberta(folder / "roberta")
    checkpoints.save_dense(folder / "dense")
    checkpoints.save_decoder(folder / "decoder")
    checkpoints.save_modernbert(folder / "modernbert")
    checkpoints.save_gemma(folder / "gemma")
    checkpoints.save_splade(folder / "splade")
    checkpoints.save_splade(folder / "distil-splade", "DistilBert")
    checkpoints.save_pylate(folder / "late-interaction")
    checkpoints.save_stanford(folder / "stanford")
    checkpoints.save_cross_encoder(folder / "cross-encoder")
    checkpoints.save_cross_encoder(folder / "electra", "Electra")
    checkpoints.save_seq2seq(folder / "seq2seq")
    checkpoints.save_gtr(folder / "gtr")
    checkpoints.save_sgpt(folder / "sgpt")
    checkpoints.save_sgpt(folder / "sgpt-j", "GPTJ")
    checkpoints.save_query_generator(folder / "query-generator")
    checkpoints.save_term_weights(folder / "term-weights")


@pytest.fixture
def full_disk(tmp_path):
    """Mount a file system of 1 MB."""
    if os.geteuid() != 0 or not shutil.which("mount"):
        pytest.skip("only root may mount a small file system, with the command mount")
    disk = tmp_path / "disk"
    disk.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False)
    if mounted.returncode != 0:
        pytest.skip(f"mounting is not permitted here: {mounted.stderr.strip()}")
    yield disk
    if subprocess.run(["umount", disk], check=False).returncode != 0:
        gc.collect()  # the traceback of a failed write can hold its file open
        subprocess.run(["umount", disk], check=True)
