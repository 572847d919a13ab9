"""Portable paths: records, tables and pages contain no absolute path of the machine that made them."""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from .checkout import CHECKOUT


def portable(value: Any) -> Any:
    """Make the absolute paths in settings, or in one word of a command, relative.

    A path in the checkout becomes relative to the checkout; any other path, to the working directory. The configuration
    resolves both (``config.places``). JSON inside a word is rewritten too. Other texts are unchanged.
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
    """Tell whether a text is an absolute path to an existing file or folder, or a glob in an existing folder."""
    path = Path(text)
    try:
        return path.is_absolute() and (path.exists() or (path.parent != Path("/") and path.parent.is_dir()))
    except OSError:  # longer than a path may be
        return False


def without_folders(text: str) -> str:
    """Make the absolute paths in a message relative to the working directory or the checkout."""
    for folder in (Path.cwd(), CHECKOUT):
        text = text.replace(f"{folder}/", "")
    return text
