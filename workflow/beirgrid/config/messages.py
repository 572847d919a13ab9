"""Format pydantic's messages about entries with the keys of the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from ..core.errors import quoted


def explain(error: ValidationError, where: str, value: Any) -> Iterator[str]:
    """Yield one line per mistake: the key and pydantic's sentence, with the value unless it is a mapping.

    Args:
        where: key of the validated value; empty for the top level.
    """
    for details in error.errors():
        place = ".".join([where, *_path(details["loc"], value)]).strip(".") or "top level"
        if details["type"] == "missing" and isinstance(key := details["loc"][-1], str):
            yield f"{place}: needs the key {key!r}"
        elif details["type"] == "value_error":  # of our own validators, which repeat no secret
            yield f"{place}: {details['ctx']['error']}"
        else:
            shown = "" if isinstance(details["input"], Mapping) else f" (here {quoted(details['input'])})"
            yield f"{place}: {details['msg']}{shown}"


def _path(loc: Sequence[int | str], value: Any) -> Iterator[str]:
    """Yield the parts of pydantic's location that are in the value, without names of classes of a union."""
    for part in loc:
        listed = isinstance(value, Sequence) and isinstance(part, int) and part < len(value)
        if listed or (isinstance(value, Mapping) and part in value):
            value = value[part]
            yield str(part)
