"""List the keys of the configuration, from the classes that check it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from .entries import Config

_TYPES = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true, false"}


def keys() -> list[dict[str, str]]:
    """Return each key with its path: its value, its default, what it means, and the kinds of entries that have it."""
    schema = Config.model_json_schema(by_alias=True)
    rows: dict[tuple[str, ...], list[str]] = {}
    for kind, *row in _below(schema, "", schema["$defs"]):
        rows.setdefault(tuple(row), []).append(kind)
    names = ("key", "value", "default", "meaning")
    found = []
    for texts, kinds in rows.items():
        found.append(dict(zip(names, texts, strict=True)) | {"of": ", ".join(filter(None, kinds))})
    return found


def _below(kind: dict[str, Any], path: str, kinds: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield the keys of a class, each with those of the classes that may stand below it."""
    fixed = next((f"{key}: {value['const']}" for key, value in kind["properties"].items() if "const" in value), "")
    for key, value in kind["properties"].items():
        place = f"{path}.{key}".strip(".")
        yield fixed, place, value_of(value), default_of(value), value.get("description", "A mapping of these keys.")
        place += ".{name}" * ("additionalProperties" in value)
        for name in dict.fromkeys(re.findall(r"#/\$defs/(\w+)", json.dumps(value))):
            if "properties" in kinds[name]:
                yield from _below(kinds[name], place, kinds)


def default_of(value: dict[str, Any]) -> str:
    """Return the default of a key, ``required``, or an empty text where it may be left out."""
    default = value.get("default", ...)
    if default is ...:
        return "required"
    return "" if isinstance(default, dict) or default in (None, [], "") else json.dumps(default)


def value_of(value: dict[str, Any]) -> str:
    """Return what may stand as the value of a key."""
    if choices := value.get("anyOf") or value.get("oneOf"):
        return " or ".join(dict.fromkeys(value_of(choice) for choice in choices if choice.get("type") != "null"))
    if choices := value.get("enum") or [value[key] for key in ("const",) if key in value]:
        return ", ".join(str(choice) for choice in choices if choice != "")
    if value.get("type") == "array":
        return f"list of {value_of(value.get('items') or value['prefixItems'][0])}"
    return _TYPES.get(value.get("type", ""), "mapping")
