"""Resolve the dependencies in pyproject.toml into the files that set-up installs: ``make lock``.

- lock.txt: what a run of the workflow needs, torch aside
- torch-cpu.txt and torch-cuda.txt: torch's two builds. pip cannot choose between two builds under one name with
  hashes, and the CUDA build needs packages of several GB that the CPU build does not.
- dev.txt: what tests, checks, documentation, benchmarks, ``make lock`` and ``beirgrid[documents]`` need beside those

Packages that only pyserini requires are in none of them, because its jar needs none (``tool.uv`` in pyproject.toml).

Each file begins with the size of its download, which set-up shows. Pins stay as they are where pyproject.toml allows
it; a raised bound there moves a pin.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote

from packaging.markers import Marker
from packaging.tags import compatible_tags, cpython_tags
from packaging.utils import parse_wheel_filename

HERE = Path(__file__).parent
PROJECT = HERE.parent / "pyproject.toml"
CUDA = re.compile(r"(nvidia-|cuda-|triton)")
MACHINE = "Python 3.11 on x86-64 Linux"
_PYTHON = {"python_version": "3.11", "python_full_version": "3.11.11", "sys_platform": "linux"}
_PLATFORMS = [f"manylinux_2_{minor}_x86_64" for minor in range(39, 4, -1)] + ["manylinux2014_x86_64", "linux_x86_64"]
_TAGS = [*cpython_tags((3, 11), platforms=_PLATFORMS), *compatible_tags((3, 11), "cp311", _PLATFORMS)]


def uv(*arguments: str | Path) -> str:
    """Run ``uv pip compile`` for every platform and Python that the project supports; return its standard output."""
    command = ["uv", "pip", "compile", "--no-header", "--universal", "--python-version", "3.11"]
    return subprocess.run([*command, *map(str, arguments)], text=True, stdout=subprocess.PIPE, check=True).stdout


def blocks(*arguments: str | Path) -> list[str]:
    """Resolve; return one piece of text for each package: its pin, its marker and its hashes."""
    return re.split(r"\n(?=[A-Za-z0-9])", uv("--generate-hashes", "--no-annotate", *arguments).strip())


def wheels(package: dict) -> dict[str, dict]:
    """Return the wheels of a locked package by file name."""
    return {unquote(wheel["url"].rsplit("/", 1)[1]): wheel for wheel in package.get("wheels", [])}


def size(package: dict) -> int:
    """Return the bytes of the file of a locked package that MACHINE downloads; 0 if MACHINE needs none."""
    if not Marker(package.get("marker", "python_version > '3'")).evaluate(_PYTHON):
        return 0
    ranks = {
        min(_TAGS.index(tag) for tag in parse_wheel_filename(name)[3] if tag in _TAGS): wheel
        for name, wheel in wheels(package).items()
        if parse_wheel_filename(name)[3] & set(_TAGS)
    }
    file = ranks[min(ranks)] if ranks else package["sdist"]
    with urllib.request.urlopen(urllib.request.Request(file["url"], method="HEAD")) as answer:  # noqa: S310
        return int(answer.headers["Content-Length"])


def write(name: str, packages: list[str], *options: str) -> None:
    """Write one file, with the size of its download in its first line; of one package, what its wheels are for."""
    path = HERE / name
    path.write_text("\n".join(packages) + "\n")
    found = tomllib.loads(uv("--no-deps", "--format", "pylock.toml", path, *options))["packages"]
    with ThreadPoolExecutor(8) as pool:
        sizes = list(pool.map(size, found))
    count = sum(map(bool, sizes))
    head = f"# {count} package{'s' * (count > 1)}, {sum(sizes) / 1e6:.0f} MB to download ({MACHINE})\n"
    if len(found) == 1:
        head += f"# wheels: {' '.join(wheel.removesuffix('.whl') for wheel in sorted(wheels(found[0])))}\n"
    path.write_text(head + path.read_text())
    print(head, end="")


def main(torch_index: str) -> None:
    """Write lock.txt, dev.txt, torch-cpu.txt and torch-cuda.txt beside this file; the index has torch's CPU build."""
    with tempfile.TemporaryDirectory() as folder:
        pins = Path(folder) / "pins.txt"
        pins.write_text("".join((HERE / f"{name}.txt").read_text() for name in ("lock", "dev", "torch-cuda")))
        # Not --all-extras: cpu would take torch from another index.
        extras = [f"--extra={name}" for name in ("slurm", "documents", "dev", "docs")]
        everything = blocks(PROJECT, *extras, "--output-file", pins)
        run = blocks(PROJECT, extras[0], "--constraint", pins)
        torch = next(block for block in run if block.startswith("torch=="))
        pins.write_text(f"{torch.split()[0]}+cpu\n")
        index = ("--index", torch_index)
        cpu = blocks(pins, "--no-deps", *index)
    cuda = [torch, *(block for block in run if CUDA.match(block))]
    write("lock.txt", [block for block in run if block not in cuda])
    write("dev.txt", [block for block in everything if block not in run])
    write("torch-cuda.txt", cuda)
    write("torch-cpu.txt", cpu, *index)


if __name__ == "__main__":
    main(*sys.argv[1:])
