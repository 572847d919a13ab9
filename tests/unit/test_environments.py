"""Pins agree between the conda environments, the lock and the installed packages."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions, version
from pathlib import Path

import grimp
import pytest
import yaml
from helpers import rules
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from beirgrid.graph.dag import stages

_modules = cache(packages_distributions)  # reads the files of all packages
ENVIRONMENTS = sorted((Path(__file__).parent.parent.parent / "envs").glob("*.yaml"))


def _pins(text: str) -> dict[str, str]:
    """Return name to version for the Python of the conda environments."""
    lines = re.findall(r"^[A-Za-z0-9_.-]+==[^\\\n]+", text, flags=re.MULTILINE)
    python = {"python_full_version": "3.11.11", "python_version": "3.11"}
    pins = [pin for pin in map(Requirement, lines) if pin.marker is None or pin.marker.evaluate(python)]
    return {canonicalize_name(pin.name): str(pin.specifier).removeprefix("==") for pin in pins}


def _locked(root: Path) -> dict[str, str]:
    """Return the packages that a run installs."""
    return _pins("".join((root / "requirements" / name).read_text() for name in ("lock.txt", "torch-cuda.txt")))


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.stem)
def test_conda_environments_have_exact_pins_which_agree_with_the_lock(root, path):
    environment = yaml.safe_load(path.read_text())
    assert environment.keys() == {"name", "channels", "dependencies"}
    assert environment["name"] == f"beirgrid-{path.stem}"
    assert environment["channels"]
    assert all(isinstance(channel, str) for channel in environment["channels"])
    *packages, pip = environment["dependencies"]
    assert all(re.fullmatch(r"[a-z]+=[\d.]+", package) for package in packages)
    assert {"python", "pip"} <= {package.partition("=")[0] for package in packages}
    assert pip.keys() == {"pip"}
    locked = _pins((root / "requirements/dev.txt").read_text()) | _locked(root)
    lacking = {"evaluate": 0, "lexical": 60, "neural": 60, "neural-cpu": 60}[path.stem]  # what only pyserini requires
    pins = [pin.partition("==") for pin in pip["pip"] if not pin.startswith("--")]
    assert sum(name not in locked for name, _, _ in pins) <= lacking
    for name, _, pinned in pins:
        assert locked.get(name, pinned) == pinned.removesuffix("+cpu"), f"{name} is not what requirements/ has"


def test_the_cpu_environment_is_the_other_but_for_torch_and_faiss(root):
    gpu, cpu = (yaml.safe_load((root / f"envs/{name}.yaml").read_text()) for name in ("neural", "neural-cpu"))
    assert gpu["channels"] == cpu["channels"]
    assert gpu["dependencies"][:-1] == cpu["dependencies"][:-1]
    index, torch, *rest = cpu["dependencies"][-1]["pip"]
    assert index == "--extra-index-url https://download.pytorch.org/whl/cpu"
    cuda = set(re.findall(r"^[a-z0-9-]+==[\d.]+", (root / "requirements/torch-cuda.txt").read_text(), re.MULTILINE))
    pins = [pin.replace("faiss-gpu", "faiss-cpu") for pin in gpu["dependencies"][-1]["pip"]]
    assert len(cuda & set(pins)) > 10
    cuda |= {pin for pin in pins if "-cu12==" in pin}  # what faiss-gpu requires: torch has those of CUDA 13
    assert [torch.removesuffix("+cpu"), *rest] == pins[:1] + [pin for pin in pins[1:] if pin not in cuda]


# Imports

# Imported where it is used only: BM25 opens no model, and a model needs no ir_datasets. mteb needs torch: fetch refuses
# `source: mteb` where mteb is absent. No job merges configfiles, or reads the names of metrics, as Snakemake does.
_SNAKEMAKE = ("snakemake", "snakemake_interface_common")
_LAZY = {
    "lexical": ("sentence_transformers", "faiss", "ir_datasets", "ir_measures", "mteb", *_SNAKEMAKE),
    # py3langid: slices of queries, whose environment is evaluate.
    "neural": ("ir_datasets", "ir_measures", "py3langid", *_SNAKEMAKE),
    # torch and the next three: fetch model alone, whose environment is neural.
    "evaluate": ("mteb", "torch", "safetensors", "sentence_transformers", "openai", *_SNAKEMAKE),
}


@cache
def _imports() -> grimp.ImportGraph:
    """Return the imports of the package and of its plugin, also those within functions."""
    names = ("beirgrid", "snakemake_logger_plugin_beirgrid")
    graph = grimp.build_graph(*names, include_external_packages=True, cache_dir=None)
    for module in graph.modules:
        if (package := module.rpartition(".")[0]) not in ("", "beirgrid"):  # Python imports it, too
            graph.add_import(importer=module, imported=package)
    return graph


def _packages(modules: set[str]) -> set[str]:
    """Return the packages of other projects among imported modules."""
    return modules - {*sys.stdlib_module_names} - {name for name in modules if "beirgrid" in name}


def _provided(path: Path) -> set[str]:
    """Return the modules, as installed here, of an environment's pip packages. It pins what these require, too."""
    pins = [pin for pin in yaml.safe_load(path.read_text())["dependencies"][-1]["pip"] if not pin.startswith("--")]
    names = {canonicalize_name(Requirement(pin).name).replace("faiss-gpu", "faiss-cpu") for pin in pins}  # same modules
    return {module for module, owners in _modules().items() if set(map(canonicalize_name, owners)) & names}


@pytest.mark.slow
def test_each_environment_has_what_its_stages_import(root):
    plans = {rule.name: type(stages()[rule.name]).__module__ for rule in rules().values()}
    jobs = {
        (Path(rule.conda_env).stem.removesuffix("-cpu"), plans[rule.name].replace(".plan", ".work"))
        for rule in rules().values()
    }
    environments = {environment for environment, _ in jobs}
    assert environments == {"lexical", "neural", "evaluate"}
    provided = {name: _provided(root / f"envs/{name}.yaml") for name in environments}
    for environment, stage in sorted(jobs):
        imported = _packages(_imports().find_upstream_modules(stage))
        missing = imported - provided[environment] - {*_LAZY[environment]}
        assert not missing, f"envs/{environment}.yaml lacks what {stage} imports"


# Container


def test_the_container_recipes_have_the_pins_and_the_files(root):
    docker, apptainer = ((root / "container" / name).read_text() for name in ("Dockerfile", "beirgrid.def"))
    image = re.search(r"^FROM (\S+)$", docker, re.MULTILINE)[1]
    assert re.search(r"^From: (\S+)$", apptainer, re.MULTILINE)[1] == image
    python = yaml.safe_load((root / "envs/neural.yaml").read_text())["dependencies"][0].removeprefix("python=")
    assert image.startswith(f"python:{python}-")
    copied = re.findall(r"^COPY (.*) \S+$", docker, re.MULTILINE)
    files = [name for line in copied for name in line.split()]
    files += re.findall(r"^    (\S+) /opt/beirgrid/\S+$", apptainer, re.MULTILINE)
    assert len(files) > 10
    assert [name for name in files if not (root / name).exists()] == []
    for text in (docker, apptainer):
        installs = re.findall(r"-r /opt/beirgrid/requirements/(\S+)", text)
        assert installs[0] == "lock.txt"
        assert text.count("--require-hashes") == len(installs) == 2
        assert installs[1].startswith("torch-")


# The lock

LOCKS = ("lock", "dev", "torch-cpu", "torch-cuda")


def _direct(root: Path, name: str) -> list[Requirement]:
    """Return the packages that pyproject.toml names for a lock."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    extras = {"lock": ("slurm",), "dev": ("documents", "dev", "docs")}[name]
    lines = list(project["dependencies"]) if name == "lock" else []
    for extra in extras:
        lines += project["optional-dependencies"][extra]
    return [Requirement(line) for line in lines]


@pytest.mark.parametrize("name", LOCKS)
def test_every_locked_package_has_hashes_and_every_lock_begins_with_what_it_takes(root, name):
    text = (root / "requirements" / f"{name}.txt").read_text()
    packages = "".join(line for line in text.splitlines(keepends=True) if not line.startswith("#"))
    blocks = re.split(r"\n(?=[A-Za-z0-9])", packages.strip())
    assert all("==" in block and "--hash=sha256:" in block for block in blocks)
    takes = re.match(r"# (\d+) packages?, (\d+) MB to download \(Python 3.11 on x86-64 Linux\)\n", text)
    assert int(takes[2]) > 0
    assert 0 < int(takes[1]) <= len(blocks)


def test_what_is_named_is_locked_and_installed(root):
    run, more = _locked(root), _pins((root / "requirements/dev.txt").read_text())
    for name, pins in (("lock", run), ("dev", {**run, **more})):
        direct = _direct(root, name)
        assert len(direct) > 10
        for requirement in direct:
            pinned = pins[canonicalize_name(requirement.name)]
            assert requirement.specifier.contains(pinned), requirement
            assert version(requirement.name).split("+")[0] == pinned, requirement


def test_no_two_locks_have_a_package_in_two_versions(root):
    run, dev = _locked(root), _pins((root / "requirements/dev.txt").read_text())
    assert {name: (run[name], dev[name]) for name in run.keys() & dev.keys() if run[name] != dev[name]} == {}
    cpu, cuda = (_pins((root / f"requirements/torch-{build}.txt").read_text())["torch"] for build in ("cpu", "cuda"))
    assert cpu == f"{cuda}+cpu"


def test_the_workflow_imports_only_what_a_run_installs(root):
    """Set-up of a run lacks packages that only dev.txt has."""
    owners, run = _modules(), _locked(root)
    imported = _packages(_imports().modules)
    assert {"torch", "pyarrow", "snakemake"} <= imported
    missing = {module for module in imported if not {canonicalize_name(name) for name in owners[module]} & run.keys()}
    # beirgrid[documents], [language] and [reproduction]; a message tells how to install them
    assert missing == {"markitdown", "openpyxl", "py3langid", "pypdf", "repro_eval"}
