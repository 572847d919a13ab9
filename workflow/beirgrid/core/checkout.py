"""Locations of the workflow and its configuration, in a checkout or in the installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
# The folder that contains the package. In a checkout it contains no other package.
MODULES = _PACKAGE.parent
INSTALLED = (_PACKAGE / "share" / "Snakefile").is_file()
# A wheel keeps the checkout's workflow files in `share` (setup.py).
CHECKOUT = _PACKAGE / "share" if INSTALLED else MODULES.parent
