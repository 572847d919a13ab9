"""Reasons to make an artifact again, in words: keys with the values before and now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .portable import portable

_NONE = object()


def changes(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Yield each key whose value differs, with both values: ``max_length 256 → 128``."""
    if before == now:
        return
    if isinstance(before, Mapping) and isinstance(now, Mapping):
        for name in dict.fromkeys([*before, *now]):
            yield from changes(before.get(name, _NONE), now.get(name, _NONE), f"{key}.{name}".lstrip("."))
    else:
        yield f"{key} {_shown(before)} → {_shown(now)}"


def _shown(value: Any) -> str:
    text = "(none)" if value is _NONE else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else f"{text[:40]} … {text[-15:]}"


def options(params: Mapping[str, Any]) -> Any:
    """Return the options in the params of a job. Local files count by their content (``files``), not by their paths."""
    found = json.loads(params.get("settings", "{}"))
    return _without_paths(found) if params.get("files") else found


def _without_paths(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: _without_paths(inner) for key, inner in value.items() if key != "path"}


def of_settings(record: Mapping[str, Any], params: Mapping[str, Any]) -> list[str]:
    """Return what differs between the options that a record keeps and those that a job's params ask for.

    Keys of a registry entry stand without the option that holds the entry. Earlier versions kept no options.
    """
    if not isinstance(before := record.get("asked"), Mapping):
        return []
    now = portable(options(params))
    before = _without_paths(before) if params.get("files") else before
    found: list[str] = []
    for name in dict.fromkeys([*before, *now]):
        pair = before.get(name, _NONE), now.get(name, _NONE)
        entries = all(isinstance(value, Mapping) for value in pair)
        found += changes(*pair, "" if entries else name)
    return found


def of_record(record: Mapping[str, Any], params: Mapping[str, Any]) -> str:
    """Return why a job runs again whose record has another digest than the job's params."""
    made, now = record.get("stage_version"), params.get("version")
    found = [f"version of the stage {made} → {now}"] if made != now else []
    found += of_settings(record, params)
    if found:
        return ", ".join(found)
    if "asked" not in record:
        release = record.get("packages", {}).get("beirgrid", "unknown")
        return f"made by beirgrid {release}, whose records keep no settings to compare"
    return "a local file, or what the grid asks for beside its options, has another content"
