"""The environment in which the workflow's jobs run."""

from __future__ import annotations

import json
import os
import signal
import sys
import tempfile
from pathlib import Path

from .errors import BeirgridError

# Tokens per batch by device; of the sizes tried on a CPU, small ones are as fast as larger ones.
BATCH_TOKENS = {"cpu": 2048, "cuda": 65536}


def prepare_jobs(device: str, batch_tokens: dict[str, int], mirror: str, on_gpu: str) -> None:
    """Let ``python -m beirgrid`` in a job find this checkout's package and, outside conda, this Python.

    Jobs inherit the environment of the Snakemake process, on a cluster that of the job's own. Conda
    puts its environment before the PATH that is set here. Device, batch size, mirror and what runs on GPU nodes
    go the same way: they do not change results, so they must not be params, whose change reruns jobs.

    A Python of the jobs looks for no modules in the working directory: what lies there (a ``json.py``) is data.
    """
    os.environ["BEIRGRID_DEVICE"] = device
    os.environ["BEIRGRID_BATCH_TOKENS"] = json.dumps(batch_tokens)
    os.environ["BEIRGRID_MIRROR"] = mirror
    os.environ["BEIRGRID_ON_GPU"] = on_gpu
    package = str(Path(__file__).parent.parent)
    os.environ["PYTHONSAFEPATH"] = "1"
    os.environ["PYTHONPATH"] = _prepend(package, os.environ.get("PYTHONPATH", ""))
    os.environ["PATH"] = _prepend(str(Path(sys.executable).parent), os.environ.get("PATH", ""))


def check_temporary_folder() -> None:
    """Raise BeirgridError unless 1 MB can be written to $TMPDIR: Snakemake's scheduler and the stages write there."""
    folder = os.environ.get("TMPDIR", "")
    try:
        folder = folder or tempfile.gettempdir()
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(bytes(2**20))
            stream.flush()
    except OSError as error:
        where = f"TMPDIR: nothing can be written to {folder or 'any folder for temporary files'} ({error.strerror})"
        raise BeirgridError(f"{where}; free space there, or set TMPDIR to another folder") from None


def heed_hangup() -> None:
    """Have SIGHUP, which a terminal that closes sends, end Snakemake as SIGTERM does: once the running jobs have ended.

    Under ``nohup``, which has the signal ignored, it stays ignored.
    """
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, lambda *_: signal.raise_signal(signal.SIGTERM))


def _prepend(first: str, rest: str) -> str:
    # An empty entry stands for the working directory.
    others = [entry for entry in rest.split(os.pathsep) if entry and entry != first]
    return os.pathsep.join([first, *others])
