"""Mistakes in configuration files that YAML parsers accept: duplicate keys, and numbers that are not what they seem."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from ..core.errors import quoted
from .load import refuse

# libyaml where PyYAML was built with it: ten times as fast.
_FAST_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Whole numbers that YAML 1.1 reads in base 8 or 60.
_ODD_NUMBER = re.compile(r"[-+]?(0[0-7_]*[1-7][0-7_]*|[0-9][0-9_]*(:[0-5]?[0-9])+)")


def refuse_misread(configfiles: Iterable[str | Path]) -> None:
    """Raise ConfigError if a configfile says a key twice, or a number such as 010 or 1:30.

    YAML's readers keep the last of two values, and read these numbers as 8 and 90, without a word.
    """
    refuse(problem for path in configfiles for problem in _misread(Path(path)))


def _misread(path: Path) -> Iterator[str]:
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
                yield f"{path}: {'.'.join(at)} appears twice, on lines {seen[at[-1]]} and {line}"
            seen[at[-1]] = line
            waiting.append((at, value))
        if node and node.tag == "tag:yaml.org,2002:int" and _ODD_NUMBER.fullmatch(node.value):
            number = yaml.safe_load(node.value)
            read = f"YAML reads {quoted(node.value)} as {number}"
            yield f"{path}: {'.'.join(where) or 'top level'}: {read}; write the number that is meant"
        if isinstance(node, yaml.SequenceNode):
            waiting += [(where, value) for value in node.value]
