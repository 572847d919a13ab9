"""Locations of the workflow and its configuration, and paths without the folders of this machine."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

_PACKAGE = Path(__file__).parents[1]
# The folder that contains the package. In a checkout it contains no other package.
MODULES = _PACKAGE.parent
INSTALLED = (_PACKAGE / "share" / "Snakefile").is_file()
# A wheel keeps the checkout's workflow files in `share` (setup.py).
CHECKOUT = _PACKAGE / "share" if INSTALLED else MODULES.parent


def portable(value: Any) -> Any:
    """Make the absolute paths in settings, or in one word of a command, relative.

    A path in the checkout becomes relative to the checkout; any other path, to the working directory. The configuration
    resolves both (``config.places``). Other texts are unchanged.
    """
    if isinstance(value, dict):
        return {key: portable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [portable(entry) for entry in value]
    if not isinstance(value, str) or not value.startswith("/"):
        return value
    folder = Path(value).parent
    if not os.path.exists(value if folder == Path("/") else folder):  # noqa: PTH110  Path refuses long names
        return value
    inside = Path(value).is_relative_to(CHECKOUT) and not Path(value).is_relative_to(Path.cwd())
    return os.path.relpath(value, CHECKOUT if inside else None)


def without_folders(text: str) -> str:
    """Make the absolute paths in a message relative to the working directory or the checkout."""
    for folder in (Path.cwd(), CHECKOUT):
        text = text.replace(f"{folder}/", "")
    return text
