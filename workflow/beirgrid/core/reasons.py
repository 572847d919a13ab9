"""Explain why an artifact must be made again: changed keys with old and new values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from .portable import portable

_NONE = object()


def changes(before: Any, now: Any, key: str = "") -> Iterator[str]:
    """Yield each changed key with both values: ``max_length 256 → 128``."""
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
    """Return the options in a job's params. Local files are compared by content (``files``), not by path."""
    found = json.loads(params.get("settings", "{}"))
    return _without_paths(found) if params.get("files") else found


def _without_paths(value: Any) -> Any:
    if not isinstance(value, Mapping):
        return value
    return {key: _without_paths(inner) for key, inner in value.items() if key != "path"}


def of_settings(record: Mapping[str, Any], params: Mapping[str, Any]) -> list[str]:
    """Return the differences between the options in a record and those in a job's params.

    Keys of a registry entry appear without the option that holds the entry. Records of earlier versions have no
    options.
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
    """Explain why a job reruns although its record exists: the digests differ."""
    made, now = record.get("stage_version"), params.get("version")
    found = [f"stage version {made} → {now}"] if made != now else []
    found += of_settings(record, params)
    if found:
        return ", ".join(found)
    if "asked" not in record:
        release = record.get("packages", {}).get("beirgrid", "unknown")
        return f"made by beirgrid {release}, whose records keep no settings to compare"
    return "a local file, or a setting outside the options, has changed"
