"""Reasons to make an artifact again, in words: keys with the values before and now."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

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
