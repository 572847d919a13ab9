"""Where the workflow and its configuration are: in the checkout, or in the installed package."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1]
# The folder with the package and, in a checkout, nothing else to import.
MODULES = _PACKAGE.parent
INSTALLED = (_PACKAGE / "share" / "Snakefile").is_file()
# A wheel has the files of a checkout in `share` (setup.py).
CHECKOUT = _PACKAGE / "share" if INSTALLED else MODULES.parent
