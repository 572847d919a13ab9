"""Install what the project needs into .venv, and say how much and how far: ``make setup`` (standard library only).

Without --dev: what a run of the workflow needs. With --dev: what tests, checks, documentation and benchmarks need
beside that. --torch and --torch-index choose torch's build and where it comes from. uv, where pip can get it, installs
the rest, because it unpacks several packages at once.
"""

from __future__ import annotations

import argparse
import os
import platform
import re
import shutil
import subprocess
import sys
import time
import venv
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).parent
VENV = HERE.parent / ".venv"
PYTHON = VENV / "bin" / "python"
UV = VENV / "bin" / "uv"
LOG = VENV / "install.log"
PYTORCH = "https://download.pytorch.org/whl/cpu"  # torch's CPU builds, for those whose package index has none
# Half of all code, of which a run imports nothing or little. Python compiles such a module when it imports it.
SELDOM = r".*/tests/|(pip|setuptools|openai|networkx|fontTools|pygments|polars|torchgen|test|mteb|ir_datasets|seaborn)/"
SELDOM += r"|(pyserini|google|git|transformers/models|torch/(_inductor|onnx|testing|_vendor)|numpy/distutils)/"
SELDOM += r"|(sympy/(physics|parsing|stats|combinatorics|geometry)|sqlalchemy/(dialects|testing|ext)|numba/cuda)/"
SELDOM += r"|(sklearn/(linear_model|ensemble|model_selection|cluster|decomposition|datasets)|scipy/(signal|io))/"
SELDOM += r"|(torch/(ao|sparse|_export)|transformers/(exporters|pipelines|cli)|huggingface_hub/(cli|inference))/"
SELDOM += r"|(anyio|bs4|click|docutils|fastparquet|lxml|markdown_it|pydantic/v1|starlette|traitlets|typer|uvicorn)/"
WAIT = ("--retries", "0", "--timeout", "15")  # PYTORCH may be out of reach: then the CUDA build does


def say(text: str) -> None:
    """Print a line at once."""
    print(text, flush=True)


def size(name: str) -> str:
    """Return what the first line of a file of requirements says of its download."""
    return re.search(r"^# (.*) \(", (HERE / name).read_text())[1]


def pip(*arguments: str | Path) -> bool:
    """Run ``pip install`` and report its progress; return whether it succeeded."""
    return run(PYTHON, "-m", "pip", "install", "--no-deps", "--no-compile", "--progress-bar", "off", *arguments)


def uv(*arguments: str | Path) -> bool:
    """Run ``uv pip install`` with pip's indexes, if there is uv; return whether it succeeded."""
    if not UV.exists():
        return False
    settings = subprocess.run([PYTHON, "-m", "pip", "config", "list"], capture_output=True, text=True).stdout
    environment = {"UV_INDEX_STRATEGY": "unsafe-best-match"}  # as pip; the hashes decide
    for name, value in re.findall(r"^[^.]+\.([\w-]+)='(.*)'$", settings, re.MULTILINE):
        if name in _SETTINGS:
            variable, separator = _SETTINGS[name]
            environment[variable] = separator.join(value.replace("\\n", " ").split())
    return run(UV, "pip", "install", "--python", PYTHON, "--no-deps", *arguments, **environment)


# uv's name of each of pip's settings, and what separates several values.
_SETTINGS = {
    "index-url": ("UV_DEFAULT_INDEX", " "),
    "extra-index-url": ("UV_INDEX", " "),
    "find-links": ("UV_FIND_LINKS", ","),
    "cert": ("SSL_CERT_FILE", " "),
    "trusted-host": ("UV_INSECURE_HOST", " "),
}


def run(*command: str | Path, **environment: str) -> bool:
    """Run an installer and report its large downloads; return whether it succeeded. Its whole output goes to LOG."""
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    with LOG.open("a") as log, subprocess.Popen(command, env={**os.environ, **environment}, **output) as process:
        for line in process.stdout:
            log.write(line)
            if large := re.match(r" *Downloading (\S+) \((\d{2,}(?:\.\d)? ?Mi?B|\d.*Gi?B)\)", line):
                say(f"    {large[1].rpartition('/')[2]}, {large[2]}")
            elif line.startswith(("Installing", "Prepared")):
                say("    unpacking")
    return process.returncode == 0


def install_uv() -> None:
    """Install the locked uv, if pip can get it."""
    pinned = VENV / "uv.txt"
    pinned.write_text(re.search(r"^uv==(?:.*\\\n)*.*", (HERE / "dev.txt").read_text(), re.MULTILINE)[0])
    pip("--require-hashes", "-r", pinned)


def install(*arguments: str | Path) -> None:
    """Run uv or pip; end the program with their last lines if both fail."""
    if not (uv(*arguments) or pip(*arguments)):
        sys.exit("\n".join(LOG.read_text().splitlines()[-15:]) + f"\nSet-up failed. All of the output: {LOG}")


def compile_modules() -> None:
    """Compile most modules, on all cores; pip would use one. LOG names those that fail."""
    with LOG.open("a") as log:
        command = [PYTHON, "-m", "compileall", "-q", "-j", "0", "-x", f"site-packages/({SELDOM})"]
        command += [VENV / "lib", HERE.parent / "workflow"]
        subprocess.run(command, stdout=log, stderr=log, check=False)


def locked(name: str) -> tuple[str, ...]:
    """Return pip's arguments for a file of requirements."""
    return "--require-hashes", "-r", str(HERE / name)


def install_torch(build: str, index: str) -> None:
    """Install the CPU or the CUDA build of torch: the CPU build where it can be had, if no build is named."""
    cpu = (HERE / "torch-cpu.txt").read_text()
    has_hash = re.search(rf"cp{sys.version_info.major}{sys.version_info.minor}-\S+_{platform.machine()}\b", cpu)
    if build != "cuda" and index:
        say(f"  torch's CPU build from {index}: {size('torch-cpu.txt')}")
        if has_hash:
            return install("--index-url", index, *locked("torch-cpu.txt"))
        say(f"    The lock has no hash of this build for Python {platform.python_version()}: pip trusts this index.")
        return install("--index-url", index, re.search(r"^torch==\S+", cpu, re.MULTILINE)[0])
    if build == "cpu" or not (build or shutil.which("nvidia-smi")):
        say(f"  torch's CPU build: {size('torch-cpu.txt')}")
        if has_hash and (pip(*locked("torch-cpu.txt")) or pip("--index-url", PYTORCH, *WAIT, *locked("torch-cpu.txt"))):
            return None
        lacks = "No package index in reach has it" if has_hash else "The lock has no hash of it"
        say(f"    {lacks} for Python {platform.python_version()}. To install it from an index that you trust:")
        say(f"      make setup TORCH_INDEX={PYTORCH}")
        if build == "cpu":
            sys.exit("Set-up failed: TORCH=cpu asks for this build.")
        say("    Without TORCH_INDEX, set-up goes on with the CUDA build, which runs on a CPU too.")
    say(f"  torch's CUDA build: {size('torch-cuda.txt')} (Ctrl-C stops)")
    return install(*locked("torch-cuda.txt"))


def main() -> None:
    """Install, and report each step and the time that all steps took."""
    if sys.version_info < (3, 11):  # noqa: UP036 - any Python may run this
        sys.exit(f"beirgrid needs Python 3.11 or newer; this is {platform.python_version()}. Try PYTHON=python3.11.")
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dev", action="store_true", help="install what tests, lint, documentation and bench need")
    parser.add_argument("--torch", choices=["", "cpu", "cuda"], default="", help="torch's build; default: by machine")
    parser.add_argument("--torch-index", default="", help=f"package index that has torch's CPU build, as {PYTORCH}")
    args = parser.parse_args()
    started = time.monotonic()
    if args.dev:
        say(f"Packages for tests, lint, documentation and benchmarks: {size('dev.txt')}")
        install(*locked("dev.txt"))
    else:
        say(f"Set-up with Python {platform.python_version()}. Step 1 of 4: a virtual environment in {VENV}")
        try:
            venv.create(VENV, symlinks=True, with_pip=True)
        except (ImportError, subprocess.CalledProcessError):
            sys.exit("Python lacks its venv module: install it (Debian and Ubuntu: python3-venv).")
        say("Step 2 of 4: torch, and at the same time the rest of what a run needs")
        with ThreadPoolExecutor() as threads:
            torch = threads.submit(install_torch, args.torch, args.torch_index)
            install_uv()
            say(f"  the rest: {size('lock.txt')}")
            install(*locked("lock.txt"))
            torch.result()
        say("Step 3 of 4: beirgrid itself")
        install("--no-build-isolation", "--editable", HERE.parent)
        say("Step 4 of 4: compile modules")
        compile_modules()
    say(f"Done in {time.monotonic() - started:.0f} s.")


if __name__ == "__main__":
    main()
