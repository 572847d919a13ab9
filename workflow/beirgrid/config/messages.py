"""Format pydantic's messages about entries with the keys of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ..core.errors import quoted

# Mistakes whose value says nothing or may be a secret: that of an unknown key, or one that our validators refuse.
_WITHOUT_VALUE = ("extra_forbidden", "value_error", "missing")


def explain(error: ValidationError, where: str, value: Any) -> Iterator[str]:
    """Yield one line per mistake: the key and pydantic's sentence, with a short value.

    Args:
        where: key of the validated value; empty for the top level.
    """
    for details in error.errors():
        missing = [str(details["loc"][-1])] if details["type"].startswith("missing") else []
        place = ".".join([where, *_path(details["loc"], value), *missing]).strip(".") or "top level"
        hidden = details["type"] in _WITHOUT_VALUE or isinstance(details["input"], Mapping)
        hidden = hidden or "endpoint" in place  # may be a key, or an address with a password
        shown = "" if hidden else f" (here {quoted(details['input'])})"
        yield f"{place}: {details['msg'].removeprefix('Value error, ')}{shown}"


def _path(loc: Sequence[int | str], value: Any) -> Iterator[str]:
    """Yield the parts of pydantic's location that are in the value, without names of classes of a union."""
    for part in loc:
        listed = isinstance(value, Sequence) and isinstance(part, int) and part < len(value)
        if listed or (isinstance(value, Mapping) and part in value):
            value = value[part]
            yield str(part)
