"""Write the job of a stage as words (``index dense --vectors 0.npy``), as tests and benchmarks do."""

from __future__ import annotations

import dataclasses
import json
import shlex
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, get_origin, get_type_hints

from beirgrid.graph import job
from beirgrid.graph.dag import by_function

# Stages that are also commands with options.
_COMMANDS = ("evaluate", "report")


def stage_job(*words: str | Path) -> tuple[list[str], str]:
    """Return the words of ``beirgrid`` and its standard input: for a stage, its job; else the words themselves."""
    first, kind, *others = [*map(str, words), "", ""]
    if first in ("fetch", "index", "retrieve"):
        name = f"{first}_{kind.replace('-', '_')}"
        if name not in by_function():  # a family of vectors
            name, others = f"{first}_vectors", [*others, *(("--family", kind) if first == "index" else ())]
    elif first in by_function() and (first not in _COMMANDS or "--output" in words):
        name, others = first, [kind, *others]
    else:
        return [*map(str, words)], ""
    function = job.stage_function(name)
    parts: dict[str, dict[str, Any]] = {"inputs": {}, "outputs": {}, "settings": {}}
    outputs = {"record", "output", *by_function()[name].outputs} - {by_function()[name].main}
    for option, value in _options(function, filter(None, others)).items():
        is_input = str(get_type_hints(function, include_extras=True).get(option)).find("function artifact") > 0
        parts["inputs" if is_input else "outputs" if option in outputs else "settings"][option] = value
    return ["stage", name], json.dumps(parts)


def _options(function: Callable[..., Any], words: Iterable[str]) -> dict[str, Any]:
    """Return the values of words: ``--queries a b --depth 10``."""
    hints = get_type_hints(function)
    for kind in [kind for kind in hints.values() if dataclasses.is_dataclass(kind)]:
        hints |= get_type_hints(kind)
    texts: dict[str, list[str]] = {}
    for word in words:
        if word.startswith("--"):
            texts[word[2:].replace("-", "_")] = []
        else:
            texts[next(reversed(texts))].append(word)
    return {name: _value(hints.get(name), values) for name, values in texts.items()}


def _value(kind: Any, texts: list[str]) -> Any:
    if get_origin(kind) in (list, tuple):
        return texts
    if kind is bool:
        return True
    text = " ".join(texts)
    return json.loads(text) if text.startswith("{") and kind is not str else text


def stage_command(*words: str | Path, python: str | Path = sys.executable) -> list[str]:
    """Return a command that runs a stage in a process of its own, with its job on standard input."""
    arguments, text = stage_job(*words)
    return ["bash", "-c", f'exec "$@" <<< {shlex.quote(text)}', "bash", str(python), "-m", "beirgrid", *arguments]
