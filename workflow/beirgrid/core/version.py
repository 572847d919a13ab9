"""The package's version and the commit of its code."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from .checkout import CHECKOUT

__version__ = "0.2.0"
# File in a wheel or source archive that names the commit it was built from (setup.py).
COMMIT = "COMMIT"


@cache
def commit() -> tuple[str, str]:
    """Return the abbreviated commit of the code and its date, or two empty strings if unknown.

    The commit ends in ``.dirty`` if the checkout has uncommitted changes.
    """
    return read_commit(CHECKOUT)


def read_commit(folder: Path) -> tuple[str, str]:
    """Like ``commit``, for a checkout, a source archive or the shared files of a wheel."""
    if (file := folder / COMMIT).is_file():
        name, _, date = file.read_text(encoding="utf-8").strip().partition(" ")
        return name, date
    if not (folder / ".git").exists():
        return "", ""
    described = _git(folder, "describe", "--always", "--dirty=.dirty", "--abbrev=9", "--exclude=*")
    return described, _git(folder, "show", "--no-patch", "--format=%cs") if described else ""


def _git(folder: Path, *arguments: str) -> str:
    """Return the output of git; empty if git is not installed or distrusts the folder's owner."""
    import os
    import subprocess

    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(folder), "--no-optional-locks", *arguments]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def full_version() -> str:
    """Return the version with its commit in PEP 440 form: 0.2.0+g70e1d4bab."""
    name, _ = commit()
    return f"{__version__}+g{name}" if name else __version__


def dated_version() -> str:
    """Return the version with its commit and, in brackets, the commit's date."""
    _, date = commit()
    return f"{full_version()} ({date})" if date else full_version()
