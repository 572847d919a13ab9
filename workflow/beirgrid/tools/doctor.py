"""``beirgrid doctor``: check what a grid needs of this machine, and suggest remedies."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

from ..config.entries import Nodes
from ..config.load import merged
from ..core.checkout import CHECKOUT, full_version
from ..core.errors import BeirgridError, show
from ..search import lucene
from .options import ConfigFiles

# MB of disk with which SciFact's grid fits, and seconds that a program may take to answer.
_LEAST_DISK, _LONGEST = 5_000, 60


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
    for what, seen, state, advice in examine(directory, merged(configfile).nodes):
        show(f"{state:7} {what}: {seen}", *([f"    {advice}"] if advice else []))
        status |= state == "PROBLEM"
    return status


def examine(directory: Path, nodes: Nodes) -> Iterator[Finding]:
    """Yield the findings about this machine and the folder of grids, whose jobs have the limits of ``nodes``."""
    yield Finding("beirgrid", f"{full_version()}, {CHECKOUT}")
    try:
        free = shutil.disk_usage(directory).free / 1e6
        tempfile.TemporaryFile(dir=directory).close()
        state, advice = ("note", "free space, or use --directory") if free < _LEAST_DISK else ("ok", "")
        yield Finding("disk", f"{free:,.0f} MB free in {directory.resolve()}", state, advice)
    except OSError as error:
        yield Finding("disk", str(error), "PROBLEM", "create the folder, or use --directory")
    try:
        version = (_output(java := lucene.java(), "-version") or "").partition("\n")[0]
        yield Finding("Java", version) if version else Finding("Java", f"{java} does not start", "PROBLEM")
    except BeirgridError as error:
        yield Finding("Java", str(error), "PROBLEM", "BM25 needs it; everything else runs without")
    yield from _slurm(nodes)
    yield from _pytorch()  # last: a broken driver may end this process


def _slurm(nodes: Nodes) -> Iterator[Finding]:
    """Yield the nodes of SLURM's partitions, and the limits of jobs, above which SLURM refuses a job."""
    if not shutil.which("sinfo"):
        return
    # A star marks the default partition.
    listed = _output("sinfo", "--noheader", "--format=partition %P: %c cores, %m MB, %l")
    if listed is None:
        yield Finding("SLURM", "sinfo fails", "PROBLEM", "ask your administrator: does slurmctld run?")
        return
    yield from (Finding("SLURM", line) for line in listed.splitlines())
    for kind, limits in (("cpu", nodes.cpu), ("gpu", nodes.gpu)):
        most = f"{limits.cores} cores, {limits.mem_mb} MB, {limits.runtime} minutes"
        yield Finding(f"nodes.{kind}", f"partition {limits.partition or 'by default'}: at most {most} for a job")


def _pytorch() -> Iterator[Finding]:
    """Yield PyTorch, the GPUs of the machine, and whether PyTorch sees them."""
    try:
        import torch
    except ImportError as error:
        yield Finding("PyTorch", str(error), "note", "models need it: pip install torch, or make setup")
        return
    cuda, count = torch.version.cuda, torch.cuda.device_count()
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
