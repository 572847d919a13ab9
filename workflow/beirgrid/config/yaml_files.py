"""Refuse mistakes in configfiles that YAML's readers accept: a key that stands twice, an empty mapping over another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import yaml

from ..core.checkout import CHECKOUT
from ..core.errors import ConfigError, quoted
from .load import refuse

# libyaml's faster loader, if PyYAML was built with it.
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        ConfigError: it cannot be read or parsed, or a key stands twice.
    """
    if not path.is_file():
        raise ConfigError(f"{path} is no file")
    try:
        text = path.read_text(encoding="utf-8")
        root = yaml.compose(text, _LOADER)
        refuse(_repeated(path, root, ()))
        return yaml.load(text, _LOADER)  # noqa: S506 - a safe loader
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from None


def refuse_misread(configfiles: Iterable[str | Path], settings: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Raise ConfigError if Snakemake would read a configuration differently from how it looks.

    YAML's readers keep the last of two values of a key. Snakemake drops a mapping without keys that is merged over
    something else.

    Args:
        settings: the values of ``--config``.
        merged: Snakemake's merged configuration.
    """
    problems, empty = list[str](), dict[tuple[str, ...], str]()
    for path in map(Path, configfiles):
        # Snakemake says what is wrong with a file that cannot be parsed. It has read a pipe to its end.
        with suppress(OSError, ValueError, yaml.YAMLError, RecursionError):
            text = path.read_text(encoding="utf-8") if path.is_file() else ""
            problems += _repeated(path, yaml.compose(text, _LOADER), ())
            if CHECKOUT / "config" not in path.parents:
                _note_empty(yaml.load(text, _LOADER), str(path), empty)  # noqa: S506 - a safe loader
    _note_empty(settings, "--config", empty)
    for keys, name in empty.items():
        if len(keys) > 1 and (stays := _value_at(merged, keys)):
            problems.append(f"{name}: {'.'.join(keys)}: {{}} has no key to merge, so {quoted(stays)} stays")
    refuse(problems)


def _repeated(name: Path, node: yaml.Node | None, where: tuple[str, ...]) -> Iterator[str]:
    """Yield the keys that stand twice in a mapping."""
    if isinstance(node, yaml.MappingNode):
        lines: dict[str, int] = {}
        for key, value in node.value:
            at, line = (*where, str(key.value)), key.start_mark.line + 1
            if at[-1] in lines:
                yield f"{name}: {'.'.join(at)} appears twice, on lines {lines[at[-1]]} and {line}"
            lines[at[-1]] = line
            yield from _repeated(name, value, at)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            yield from _repeated(name, value, where)


def _note_empty(value: Any, name: str, empty: dict[tuple[str, ...], str], where: tuple[str, ...] = ()) -> None:
    """Note which keys have a mapping without keys, unless a later file replaces it."""
    for key, below in value.items() if isinstance(value, Mapping) else ():
        at = (*where, str(key))
        empty.pop(at, None)
        if isinstance(below, Mapping) and not below:
            empty[at] = name
        _note_empty(below, name, empty, at)


def _value_at(merged: Any, keys: Iterable[str]) -> Any:
    """Return the value at the end of a path of keys; None if there is none."""
    for key in keys:
        merged = merged.get(key) if isinstance(merged, Mapping) else None
    return merged
