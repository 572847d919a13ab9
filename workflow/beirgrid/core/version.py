"""The package's version and the commit of its code."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from .checkout import CHECKOUT

__version__ = "0.2.0"
# File in a wheel or source archive that names the commit it was built from (setup.py).
COMMIT = "COMMIT"


def commit(folder: Path) -> str:
    """Return the abbreviated commit of a checkout, a source archive or the shared files of a wheel; empty if unknown.

    The commit ends in ``.dirty`` if the checkout has uncommitted changes.
    """
    import os
    import subprocess

    if (file := folder / COMMIT).is_file():
        return file.read_text(encoding="utf-8").strip()
    if not (folder / ".git").exists():
        return ""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    describe = ["describe", "--always", "--dirty=.dirty", "--abbrev=9", "--exclude=*"]
    command = ["git", "-C", str(folder), "--no-optional-locks", *describe]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except OSError:  # git is not installed
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


@cache
def full_version() -> str:
    """Return the version with its commit in PEP 440 form: 0.2.0+g70e1d4bab."""
    name = commit(CHECKOUT)
    return f"{__version__}+g{name}" if name else __version__
