"""Registry entries as commands receive them: JSON text with the keys that change the command's output."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from pydantic import TypeAdapter, ValidationError

from ..config.messages import explain
from ..core.errors import ConfigError


def from_json(kind: Any) -> Callable[[str], Any]:
    """Return the function that reads a value of a class (or of a union of classes) from JSON text.

    The function raises ConfigError, one message for all mistakes: unknown keys, missing keys, wrong values.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(kind)

    def read(text: str) -> Any:
        try:
            return adapter.validate_json(text)
        except ValidationError as error:
            problems = explain(error, "", kind if isinstance(kind, type) else None)
            raise ConfigError(f"the JSON of an entry cannot be used: {'; '.join(problems)}") from None

    return read
