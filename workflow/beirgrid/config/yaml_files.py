"""Refuse mistakes and traps in configfiles that YAML parsers accept: duplicate keys, odd numbers, code, aliases."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from ..core.checkout import CHECKOUT
from ..core.errors import ConfigError, quoted
from .load import refuse

# libyaml's faster loader, if PyYAML was built with it.
_FAST_YAML = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
# Whole numbers that YAML 1.1 reads in base 8 or 60.
_ODD_NUMBER = re.compile(r"[-+]?(0[0-7_]*[1-7][0-7_]*|[0-9][0-9_]*(:[0-5]?[0-9])+)")
# The key that turns a configfile into a template of YTE, whose expressions Snakemake evaluates as Python.
_TEMPLATE = "__use_yte__"
# Values that the aliases (*x) of a file may add to it: eight lines of YAML can stand for billions of values.
_MOST_ALIASED = 100_000
# Deepest nesting of keys in a configuration that can run.
_DEEPEST = 10


def refuse_unsafe(configfiles: Iterable[str | Path]) -> None:
    """Raise ConfigError if a configfile could run code or exhaust its reader. Call this before Snakemake reads the
    files.

    The file is parsed as Snakemake parses it. A file that cannot be parsed is left to Snakemake, which names it.
    """
    problems: list[str] = []
    for path in map(Path, configfiles):
        root = _root(path, yaml.FullLoader)
        problems += _aliased(path, root)
        if any(node.value == _TEMPLATE for node in _nodes(root)):
            problems.append(
                f"{path}: {_TEMPLATE} makes it a YTE template, which can run code; write the file as plain YAML"
            )
    refuse(problems)


def read(path: Path) -> Any:
    """Return the content of a YAML file that says what it looks like.

    Raises:
        ConfigError: it is no regular file, cannot be parsed, or has a trap (``refuse_misread``, ``refuse_unsafe``).
    """
    if not path.is_file():
        raise ConfigError(f"{path} is no file")
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, _FAST_YAML)
        refuse(_aliased(path, root))
        refuse(_misread(path, root))
        return yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as YAML ({type(error).__name__})") from None


def refuse_misread(configfiles: Iterable[str | Path], settings: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Raise ConfigError if Snakemake would read a configuration differently from how it looks.

    YAML's readers keep the last of two values of a key, and read 010 and 1:30 as 8 and 90. Snakemake drops a mapping
    without keys that is merged over something else.

    Args:
        settings: the values of ``--config``.
        merged: Snakemake's merged configuration.
    """
    roots: dict[str | Path, yaml.Node | None] = {path: _root(Path(path), _FAST_YAML) for path in configfiles}
    refuse(problem for path, root in roots.items() for problem in _aliased(path, root))
    refuse(problem for path, root in roots.items() for problem in _misread(path, root))
    own = {path: root for path, root in roots.items() if CHECKOUT / "config" not in Path(path).parents}
    own["--config"] = yaml.compose(yaml.safe_dump(json.loads(json.dumps(settings, default=str))), _FAST_YAML)
    refuse(_dropped(own, merged))


def _root(path: Path, loader: Any) -> yaml.Node | None:
    """Return the root of a file's YAML; None for JSON, a file that is no regular one, and one that cannot be parsed."""
    root: yaml.Node | None = None
    if path.is_file():
        # Snakemake says what is wrong with the file.
        with suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
            text = path.read_text(encoding="utf-8")
            if loader is not yaml.FullLoader or not _is_json(text):
                root = yaml.compose(text, loader)
    return root


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _nodes(root: yaml.Node | None) -> Iterator[yaml.Node]:
    """Yield each node once, keys included."""
    waiting, visited = [root] if root else [], set()
    while waiting:
        node = waiting.pop()
        if id(node) not in visited:
            visited.add(id(node))
            yield node
            waiting += _children(node)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [child for pair in node.value for child in pair]
    return list(node.value) if isinstance(node, yaml.SequenceNode) else []


def _aliased(name: str | Path, root: yaml.Node | None) -> Iterator[str]:
    """Yield a problem if the aliases of a file stand for too many values."""
    sizes: dict[int, int] = {}
    waiting = [root] if root else []
    while waiting:
        node = waiting[-1]
        if id(node) not in sizes:
            sizes[id(node)] = 0  # until its children are counted; stays if a node contains itself
            waiting += [child for child in _children(node) if id(child) not in sizes]
        else:
            waiting.pop()
            sizes[id(node)] = 1 + sum(sizes[id(child)] for child in _children(node))
    if root and sizes[id(root)] - len(sizes) > _MOST_ALIASED:
        yield f"{name}: its aliases (*x) stand for more than {_MOST_ALIASED:,} values; write what is meant without them"


def _misread(name: str | Path, root: yaml.Node | None) -> Iterator[str]:
    waiting: list[tuple[tuple[str, ...], Any]] = [((), root)]
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
                yield f"{name}: {'.'.join(at)} appears twice, on lines {seen[at[-1]]} and {line}"
            seen[at[-1]] = line
            waiting.append((at, value))
        if node and node.tag == "tag:yaml.org,2002:int" and _ODD_NUMBER.fullmatch(node.value):
            number = yaml.safe_load(node.value)
            read = f"YAML reads {quoted(node.value)} as {number}"
            yield f"{name}: {'.'.join(where) or 'top level'}: {read}; write the number that is meant"
        if isinstance(node, yaml.SequenceNode):
            waiting += [(where, value) for value in node.value]


def _dropped(roots: Mapping[str | Path, yaml.Node | None], merged: Mapping[str, Any]) -> Iterator[str]:
    """Yield the mappings without keys that were merged over something, in files that are merged one after another."""
    found: dict[tuple[str, ...], str | Path] = {}
    for name, root in roots.items():
        for keys, empty in _mappings(root, ()):
            found.pop(keys, None)  # of an earlier file: what stays may come from this one
            if empty:
                found[keys] = name
    for keys, name in found.items():
        if len(keys) > 1 and (kept := _at(merged, keys)):
            stays = f"{{}} has no key to merge, so {quoted(kept)} stays"
            yield f"{name}: {'.'.join(keys)}: {stays}; write the value that is meant, or leave the key out"


def _mappings(node: yaml.Node | None, where: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], bool]]:
    """Yield the path of each key in mappings, and whether its value is a mapping without keys."""
    for key, value in node.value if isinstance(node, yaml.MappingNode) and len(where) < _DEEPEST else ():
        at = (*where, str(key.value))
        yield at, isinstance(value, yaml.MappingNode) and not value.value
        yield from _mappings(value, at)


def _at(merged: Any, keys: Iterable[str]) -> Any:
    """Return the value at the end of a path of keys; None if there is none."""
    for key in keys:
        merged = merged.get(key) if isinstance(merged, Mapping) else None
    return merged
