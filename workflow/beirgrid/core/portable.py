"""Paths as readers elsewhere see them: records, tables and pages name no folder of the person who made them."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from .checkout import CHECKOUT


def portable(value: Any) -> Any:
    """Return the settings or a word of a command without absolute paths, for readers elsewhere.

    A path in the checkout starts at the checkout, any other path at the working directory. The configuration resolves
    both (``config.places``). JSON in a word is rewritten as well. Other texts stay as they are.
    """
    if isinstance(value, dict):
        return {key: portable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [portable(entry) for entry in value]
    if not isinstance(value, str):
        return value
    if value[:1] in ("{", "["):
        with suppress(ValueError):
            return json.dumps(portable(json.loads(value)))
    if not _is_path(value):
        return value
    inside = Path(value).is_relative_to(CHECKOUT) and not Path(value).is_relative_to(Path.cwd())
    return os.path.relpath(value, CHECKOUT if inside else None)


def _is_path(text: str) -> bool:
    """Tell whether a text is an absolute path to something, or a pattern of files in a folder."""
    path = Path(text)
    try:
        return path.is_absolute() and (path.exists() or (path.parent != Path("/") and path.parent.is_dir()))
    except OSError:  # too long for a path
        return False


def without_folders(text: str) -> str:
    """Return a message in which paths start at the working directory or at the checkout."""
    for folder in (Path.cwd(), CHECKOUT):
        text = text.replace(f"{folder}/", "")
    return text
