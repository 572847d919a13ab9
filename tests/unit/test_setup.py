"""``make setup``: the build of torch that it installs, its messages, and folders with odd names."""

from __future__ import annotations

import hashlib
import importlib.util
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path
from types import ModuleType

import pytest
from packaging.tags import sys_tags

pytestmark = pytest.mark.slow  # installs
TAG = next(str(tag) for tag in sys_tags())


def _wheel(folder: Path, version: str) -> str:
    """Write an empty package, called as its folder, for one package index; return the hash of its file."""
    folder.mkdir(parents=True, exist_ok=True)
    name = folder.name.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    path = folder / f"{name}-{version}-{TAG}.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}\n")
        archive.writestr(f"{info}/RECORD", "")
    links = "".join(f'<a href="{file.name.replace("+", "%2B")}">{file.name}</a>' for file in folder.glob("*.whl"))
    (folder / "index.html").write_text(links)
    return hashlib.sha256(path.read_bytes()).hexdigest()


def test_extras_choose_the_builds_for_uv(root, tmp_path):
    for name in ("torch", "faiss-cpu", "faiss-gpu"):
        _wheel(tmp_path / "pypi" / name, "3.0")
    _wheel(tmp_path / "pytorch/torch", "3.0+cpu")
    project = (root / "pyproject.toml").read_text()
    faiss = re.search(r'"faiss-cpu.*"', project)[0]
    project = re.sub(r"(?m)^dependencies = \[$(?s:.*?)^\]$", f'dependencies = ["torch", {faiss}]', project)
    project = project.replace("https://download.pytorch.org/whl/cpu", (tmp_path / "pytorch").as_uri())
    (tmp_path / "pyproject.toml").write_text(project)
    uv = [Path(sys.executable).with_name("uv"), "pip", "compile", "pyproject.toml", "--python", sys.executable]
    uv += ["--default-index", (tmp_path / "pypi").as_uri(), "--cache-dir", "cache"]
    uv += ["--quiet", "--no-annotate", "--no-header"]
    for extra, faiss, build in (
        ("", "faiss-cpu", "3.0"),
        ("cpu", "faiss-cpu", "3.0+cpu"),
        ("cuda", "faiss-gpu", "3.0"),
    ):
        words = [*uv, *(["--extra", extra] if extra else [])]
        assert subprocess.check_output(words, cwd=tmp_path, text=True) == f"{faiss}==3.0\ntorch=={build}\n"


@pytest.fixture(scope="module")
def environment(tmp_path_factory) -> Path:
    """An empty virtual environment."""
    folder = tmp_path_factory.mktemp("setup") / ".venv"
    venv.create(folder, with_pip=True)
    return folder


@pytest.fixture
def setup(root, environment, tmp_path, monkeypatch) -> ModuleType:
    """requirements/install.py for that environment; the machine's package index has torch's CUDA build only."""
    spec = importlib.util.spec_from_file_location("install", root / "requirements/install.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    cuda = _wheel(tmp_path / "index/torch", "2.0")
    cpu = _wheel(tmp_path / "pytorch/torch", "2.0+cpu")
    head = "# 1 package, {size} MB to download (Python 3.11 on x86-64 Linux)\n"
    (tmp_path / "torch-cuda.txt").write_text(f"{head.format(size=2730)}torch==2.0 --hash=sha256:{cuda}\n")
    names = f"# wheels: torch-2.0+cpu-{TAG}\n"
    (tmp_path / "torch-cpu.txt").write_text(f"{head.format(size=192)}{names}torch==2.0+cpu --hash=sha256:{cpu}\n")
    monkeypatch.setattr(module, "HERE", tmp_path)
    monkeypatch.setattr(module, "PYTHON", environment / "bin/python")
    monkeypatch.setattr(module, "UV", tmp_path / "uv")  # none
    monkeypatch.setattr(module, "LOG", tmp_path / "install.log")
    monkeypatch.setattr(module, "PYTORCH", (tmp_path / "out-of-reach").as_uri())
    for name in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "index").as_uri())
    monkeypatch.setattr(module.shutil, "which", lambda name: None)  # no GPU
    for installed in environment.glob("lib/python*/site-packages/torch-*.dist-info"):
        shutil.rmtree(installed)
    return module


def _installed(environment: Path) -> str:
    script = "from importlib.metadata import version; print(version('torch'))"
    return subprocess.check_output([environment / "bin/python", "-c", script], text=True).strip()


def test_setup_takes_the_cpu_build_where_the_package_index_has_it(setup, environment, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "pytorch").as_uri())
    setup.install_torch("", "")
    assert _installed(environment) == "2.0+cpu"
    assert "192 MB" in capsys.readouterr().out


def test_uv_installs_from_the_index_that_pip_is_told(setup, environment, tmp_path, monkeypatch):
    monkeypatch.setattr(setup, "UV", Path(sys.executable).with_name("uv"))
    monkeypatch.setattr(setup, "pip", None)
    setup.install(*setup.locked("torch-cuda.txt"))
    assert _installed(environment) == "2.0"
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", (tmp_path / "pytorch").as_uri())
    setup.install(*setup.locked("torch-cpu.txt"))
    assert _installed(environment) == "2.0+cpu"


def test_setup_takes_the_cpu_build_from_where_pytorch_has_it(setup, environment, tmp_path, monkeypatch):
    monkeypatch.setattr(setup, "PYTORCH", (tmp_path / "pytorch").as_uri())
    setup.install_torch("", "")
    assert _installed(environment) == "2.0+cpu"


def test_setup_says_how_large_the_cuda_build_is_before_it_downloads_it(setup, environment, capsys):
    said = []
    pip, setup.pip = setup.pip, lambda *arguments: said.append(capsys.readouterr().out) or pip(*arguments)
    setup.install_torch("", "")
    assert _installed(environment) == "2.0"
    before = "".join(said)
    assert "No package index in reach has it" in before
    assert f"make setup TORCH_INDEX={setup.PYTORCH}" in before
    assert "2730 MB to download" in before


@pytest.mark.parametrize(
    ("named", "installed", "said"),
    [(False, "2.0", "The lock has no hash of it for Python"), (True, "2.0+cpu", "pip trusts this index")],
)
def test_without_a_hash_for_this_python_only_a_named_index_is_trusted(
    setup, environment, tmp_path, capsys, named, installed, said
):
    lock = tmp_path / "torch-cpu.txt"
    lock.write_text(lock.read_text().replace(f"-{TAG}", "-cp39-cp39-manylinux_2_28_x86_64"))
    setup.install_torch("", (tmp_path / "pytorch").as_uri() if named else "")
    assert _installed(environment) == installed
    assert said in capsys.readouterr().out


def test_a_file_with_another_hash_is_not_installed_from_a_named_index(setup, environment, tmp_path):
    lock = tmp_path / "torch-cpu.txt"
    lock.write_text(lock.read_text().partition("--hash=")[0] + f"--hash=sha256:{'0' * 64}\n")
    with pytest.raises(SystemExit, match="Set-up failed"):
        setup.install_torch("", (tmp_path / "pytorch").as_uri())
    assert not list(environment.glob("lib/python*/site-packages/torch-*"))


def test_setup_installs_no_other_build_than_the_one_asked_for(setup, environment):
    with pytest.raises(SystemExit, match="TORCH=cpu"):
        setup.install_torch("cpu", "")
    assert not list(environment.glob("lib/python*/site-packages/torch-*"))


ODD = 'it\'s "{co}" $(touch hacked) `touch hacked` & ; * ü'
TARGETS = "help demo picture plan test test-slow test-all test-full test-environments lint docs schema bench reproduce"


@pytest.mark.parametrize("target", TARGETS.split())
def test_every_target_runs_in_a_folder_with_an_odd_name(root, tmp_path, target):
    """Only the commands are checked: a script that says its arguments stands in for Python."""
    folder = tmp_path / ODD
    python = folder / ".venv/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o755)
    (folder / "Makefile").write_text((root / "Makefile").read_text())
    for name in ("ready", "ready-dev"):
        (folder / ".venv" / name).touch()
    command = ["make", "--old-file=.venv/ready", "--old-file=.venv/ready-dev", target, "CHROMIUM=echo"]
    done = subprocess.run(command, cwd=folder, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert not list(tmp_path.rglob("hacked"))
    assert target != "picture" or f"file://{folder}/results/grids/demo/report/index.html" in done.stdout


def test_an_old_python_is_refused_before_anything_is_installed(root, monkeypatch):
    """In a Python that says it is 3.10: one message, no traceback."""
    script = "import sys, runpy; sys.version_info = (3, 10, 0); runpy.run_path(sys.argv[1], run_name='__main__')"
    command = [sys.executable, "-c", script, str(root / "requirements/install.py")]
    done = subprocess.run(command, text=True, capture_output=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("beirgrid needs Python 3.11 or newer")
