"""Refuse mistakes in configfiles that YAML's readers accept: a key that stands twice, an empty mapping over another."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from ..core.checkout import CHECKOUT
from ..core.errors import ConfigError, quoted

# libyaml's faster loader, if PyYAML was built with it.
_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def read(path: Path) -> Any:
    """Return the content of a YAML file.

    Raises:
        ConfigError: it cannot be read or parsed, or a key stands twice.
    """
    if not path.is_file():
        raise ConfigError(f"{path} is no file")
    try:
        loader = _Loader(path.read_text(encoding="utf-8"))
        root = loader.get_single_node()
        _refuse_repeated(root)
        return loader.construct_document(root) if root else None
    except (OSError, ValueError, yaml.YAMLError, RecursionError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from None


def _refuse_repeated(node: Any) -> None:
    """Refuse a key that stands twice in a mapping."""
    if isinstance(node, yaml.MappingNode):
        keys = set[str]()
        for key, value in node.value:
            if str(key.value) in keys:
                raise yaml.constructor.ConstructorError(None, None, f"{key.value} stands twice", key.start_mark)
            keys.add(str(key.value))
            _refuse_repeated(value)
    elif isinstance(node, yaml.SequenceNode):
        for value in node.value:
            _refuse_repeated(value)


def refuse_misread(configfiles: Iterable[str | Path], settings: Mapping[str, Any], merged: Mapping[str, Any]) -> None:
    """Raise ConfigError if Snakemake would read a configuration differently from how it looks.

    YAML's readers keep the last of two values of a key. Snakemake drops a mapping without keys that is merged over
    something else.

    Args:
        settings: the values of ``--config``.
        merged: Snakemake's merged configuration.
    """
    contents = {str(path): read(path) for path in map(Path, configfiles) if path.is_file()}  # a pipe is read only once
    for name, content in (contents | {"--config": settings}).items():
        if CHECKOUT / "config" not in Path(name).parents:
            _refuse_unmerged(name, content, merged)


def _refuse_unmerged(name: str, value: Any, stays: Any, *keys: object) -> None:
    """Refuse a mapping without keys below the registries where the merged configuration has something."""
    if isinstance(value, Mapping):
        if not value and stays and len(keys) > 1:
            place = ".".join(map(str, keys))
            raise ConfigError(f"{name}: {place}: {{}} has no key to merge, so {quoted(stays)} stays")
        for key, below in value.items():
            _refuse_unmerged(name, below, stays.get(key) if isinstance(stays, Mapping) else None, *keys, key)
