"""The environment in which the workflow's jobs run."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def prepare_jobs() -> None:
    """Let ``python -m beirgrid`` in a job find this checkout's package and, outside conda, this Python.

    Jobs inherit the environment of the Snakemake process, on a cluster that of the job's own. Conda
    puts its environment before the PATH that is set here.
    """
    package = str(Path(__file__).parent.parent)
    os.environ["PYTHONPATH"] = _prepend(package, os.environ.get("PYTHONPATH", ""))
    os.environ["PATH"] = _prepend(str(Path(sys.executable).parent), os.environ.get("PATH", ""))


def _prepend(first: str, rest: str) -> str:
    others = [entry for entry in rest.split(os.pathsep) if entry and entry != first]
    return os.pathsep.join([first, *others])
