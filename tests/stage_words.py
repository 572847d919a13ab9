"""Write the job of a stage as words (``index dense --vectors 0.npy``), as tests and benchmarks do."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

from beirgrid.pipeline import job
from beirgrid.pipeline.stage import functions

# Stages that are also commands with options.
_COMMANDS = ("evaluate", "analyse")


def stage_job(*words: str | Path) -> tuple[list[str], str]:
    """Return the words of ``beirgrid`` and its standard input: for a stage, its job; else the words themselves."""
    first, kind, *others = [*map(str, words), "", ""]
    if first in ("fetch", "index", "retrieve"):
        name = f"{first}_{kind.replace('-', '_')}"
        if name not in functions():  # a family of vectors
            name, others = f"{first}_vectors", [*others, *(("--family", kind) if first == "index" else ())]
    elif first in functions() and first not in _COMMANDS:
        name, others = first, [kind, *others]
    else:
        return [*map(str, words)], ""
    options = job.options_of_words(job.stage_function(name), filter(None, others))
    return ["stage", name], json.dumps({"options": options})


def stage_command(*words: str | Path, python: str | Path = sys.executable) -> list[str]:
    """Return a command that runs a stage in a process of its own, with its job on standard input."""
    arguments, text = stage_job(*words)
    return ["bash", "-c", f'exec "$@" <<< {shlex.quote(text)}', "bash", str(python), "-m", "beirgrid", *arguments]
