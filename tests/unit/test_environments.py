"""Pins agree: conda environments, the lock, and what is installed."""

from __future__ import annotations

import ast
import re
import sys
from importlib.metadata import PackageNotFoundError, packages_distributions, requires, version
from pathlib import Path

import jsonschema
import pytest
import yaml
from helpers import rules
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ENVIRONMENTS = sorted((Path(__file__).parent.parent.parent / "envs").glob("*.yaml"))


def _locked(root: Path) -> dict[str, str]:
    """Return name to version for the Python that the conda environments have."""
    text = "".join((root / "requirements" / name).read_text() for name in ("lock.txt", "torch-cuda.txt"))
    lines = re.findall(r"^[A-Za-z0-9_.-]+==[^\\\n]+", text, flags=re.MULTILINE)
    python = {"python_full_version": "3.11.11", "python_version": "3.11"}
    pins = [pin for pin in map(Requirement, lines) if pin.marker is None or pin.marker.evaluate(python)]
    return {pin.name: str(pin.specifier).removeprefix("==") for pin in pins}


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.stem)
def test_conda_environments_agree_with_the_lock(root, path):
    environment = yaml.safe_load(path.read_text())
    *packages, pip = environment["dependencies"]
    assert all(re.fullmatch(r"[a-z]+=[\d.]+", package) for package in packages), "conda packages have exact pins"
    locked = _locked(root)
    for pin in pip["pip"]:
        if not pin.startswith("--"):
            name, _, pinned = pin.partition("==")
            assert locked.get(name) == pinned.removesuffix("+cpu"), f"{path.name}: {pin} is not what requirements/ has"


# What conda documents of an environment file (docs.conda.io, "Managing environments", creating an environment file
# manually): a name, channels, and dependencies that are match specs, or one mapping of pip to requirement lines.
SPECIFICATION = {
    "type": "object",
    "additionalProperties": False,
    "required": ["name", "channels", "dependencies"],
    "properties": {
        "name": {"type": "string", "pattern": "^[^/ :#]+$"},
        "channels": {"type": "array", "minItems": 1, "items": {"type": "string"}},
        "dependencies": {
            "type": "array",
            "items": {
                "anyOf": [
                    {"type": "string", "pattern": r"^[a-z0-9_.-]+(=[\w.*]+){0,2}$"},
                    {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["pip"],
                        "properties": {"pip": {"type": "array", "items": {"type": "string"}}},
                    },
                ]
            },
        },
        "prefix": {"type": "string"},
        "variables": {"type": "object", "additionalProperties": {"type": "string"}},
    },
}


@pytest.mark.parametrize("path", ENVIRONMENTS, ids=lambda path: path.stem)
def test_conda_environments_are_what_conda_reads(path):
    environment = yaml.safe_load(path.read_text())
    jsonschema.Draft202012Validator(SPECIFICATION).validate(environment)
    assert environment["name"] == f"beirgrid-{path.stem}"
    assert any(package.startswith("pip=") for package in environment["dependencies"] if isinstance(package, str))


def test_the_cpu_environment_is_the_other_but_for_torch(root):
    gpu, cpu = (yaml.safe_load((root / f"envs/{name}.yaml").read_text()) for name in ("neural", "neural-cpu"))
    assert gpu["channels"] == cpu["channels"]
    assert gpu["dependencies"][:-1] == cpu["dependencies"][:-1]
    index, torch, *rest = cpu["dependencies"][-1]["pip"]
    assert index == "--extra-index-url https://download.pytorch.org/whl/cpu"
    cuda = set(re.findall(r"^[a-z0-9-]+==[\d.]+", (root / "requirements/torch-cuda.txt").read_text(), re.MULTILINE))
    pins = gpu["dependencies"][-1]["pip"]
    assert len(cuda & set(pins)) > 10
    assert [torch.removesuffix("+cpu"), *rest] == pins[:1] + [pin for pin in pins[1:] if pin not in cuda]


# Imports

# Imported where it is used only: BM25 uses no torch, only evaluate computes metrics, a model needs no ir_datasets.
_LAZY = {
    "lexical": ("torch", "transformers", "sentence_transformers", "faiss", "scipy", "numba", "filelock", "ranx"),
    "neural": ("ranx", "ir_datasets"),
}


def _jobs() -> set[tuple[str, str]]:
    """Return the pairs (environment, stage) that the rules have."""
    pairs = set()
    for body in rules().values():
        environment = re.search(r"conda:\n +([A-Z]+)\n", body)
        pairs.add((environment[1].lower(), re.search(r"python -m beirgrid (\w+)", body)[1]))
    return pairs


def _imports(package: Path, name: str, seen: set[str]) -> set[str]:
    """Return the packages that a module and those of this project that it uses import, within functions too."""
    if name in seen:
        return set()
    seen.add(name)
    path = package / f"{name.replace('.', '/')}.py"
    path = path if path.is_file() else package / name.replace(".", "/") / "__init__.py"
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found.add(node.module.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            base = name.split(".") if path.name == "__init__.py" else name.split(".")[:-1]
            base = base[: len(base) - (node.level - 1)] if node.level > 1 else base
            for target in [node.module] if node.module else [alias.name for alias in node.names]:
                inner = ".".join([*base, target])
                if (package / f"{inner.replace('.', '/')}.py").is_file() or (
                    package / inner.replace(".", "/")
                ).is_dir():
                    found |= _imports(package, inner, seen)
    return found


def _provided(path: Path) -> set[str]:
    """Return the modules that an environment's pip packages and what they require bring, as installed here."""
    pins = [pin for pin in yaml.safe_load(path.read_text())["dependencies"][-1]["pip"] if not pin.startswith("--")]
    waiting, seen = [Requirement(pin) for pin in pins], set()
    while waiting:
        requirement = waiting.pop()
        key = (canonicalize_name(requirement.name), *sorted(requirement.extras))
        if key in seen or (requirement.marker and not requirement.marker.evaluate({"extra": ""})):
            continue
        seen.add(key)
        try:
            required = requires(requirement.name) or []
        except PackageNotFoundError:  # of another platform
            continue
        waiting += map(Requirement, required)
    names = {name for name, *_ in seen}
    return {
        module for module, owners in packages_distributions().items() if set(map(canonicalize_name, owners)) & names
    }


@pytest.mark.slow
def test_each_environment_has_what_its_stages_import(root):
    from beirgrid.__main__ import _STAGES

    jobs = _jobs()
    assert {environment for environment, _ in jobs} == {"lexical", "neural", "evaluate"}
    provided = {name: _provided(root / f"envs/{name}.yaml") | set(sys.stdlib_module_names) for name, _ in jobs}
    for environment, stage in sorted(jobs):
        needed = _imports(root / "workflow/beirgrid", _STAGES[stage][0], set())
        missing = needed - provided[environment] - set(_LAZY.get(environment, ()))
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


def test_every_locked_package_has_hashes(root):
    for path in (root / "requirements").glob("*.txt"):
        blocks = re.split(r"\n(?=[A-Za-z0-9])", path.read_text().strip())
        assert all("==" in block and "--hash=sha256:" in block for block in blocks), path


def test_what_is_installed_is_what_is_locked(root):
    direct = re.findall(r"^([A-Za-z0-9_-]+)(?:\[\w+\])?==(\S+)", (root / "requirements" / "lock.in").read_text(), re.M)
    assert len(direct) > 20
    for name, pinned in direct:
        assert version(name).split("+")[0] == pinned, name


def test_torchs_two_builds_are_one_version(root):
    cpu = (root / "requirements" / "torch-cpu.txt").read_text().split()[0]
    cuda = (root / "requirements" / "torch-cuda.txt").read_text().split()[0]
    assert cpu == f"{cuda}+cpu"
