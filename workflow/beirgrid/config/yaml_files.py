"""Mistakes in configuration files that YAML parsers accept: duplicate keys."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from .load import refuse

# libyaml where PyYAML was built with it: ten times as fast.
_FAST_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def refuse_duplicate_keys(configfiles: Iterable[str | Path]) -> None:
    """Raise ConfigError if a configfile says a key twice: YAML's readers keep the last without a word."""
    refuse(problem for path in configfiles for problem in _duplicate_keys(Path(path)))


def _duplicate_keys(path: Path) -> Iterator[str]:
    waiting: list[tuple[tuple[str, ...], Any]] = []
    try:
        waiting.append(((), yaml.compose(path.read_text(encoding="utf-8"), _FAST_YAML)))
    except (OSError, ValueError, yaml.YAMLError):
        return  # Snakemake says what is wrong with the file
    visited = set()
    while waiting:
        where, node = waiting.pop()
        if id(node) in visited:  # an alias
            continue
        visited.add(id(node))
        seen: dict[str, int] = {}
        for key, value in node.value if isinstance(node, yaml.MappingNode) else ():
            at, line = (*where, str(key.value)), key.start_mark.line + 1
            if at[-1] in seen:
                yield f"{path}: {'.'.join(at)} stands there twice, on lines {seen[at[-1]]} and {line}"
            seen[at[-1]] = line
            waiting.append((at, value))
        if isinstance(node, yaml.SequenceNode):
            waiting += [(where, value) for value in node.value]
