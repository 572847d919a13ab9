"""The version of the package, and the commit of its code."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from .checkout import CHECKOUT

__version__ = "0.2.0"
# The file in which a wheel or a source archive keeps the commit that it was made from (setup.py).
COMMIT = "COMMIT"


@cache
def commit() -> tuple[str, str]:
    """Return the abbreviated commit of the code and its date, or two empty texts where neither file nor git has them.

    The commit ends in ``.dirty`` if files of the checkout were changed since.
    """
    return read_commit(CHECKOUT)


def read_commit(folder: Path) -> tuple[str, str]:
    """Return what ``commit`` returns for a checkout, a source archive or the shared files of a wheel."""
    if (file := folder / COMMIT).is_file():
        name, _, date = file.read_text(encoding="utf-8").strip().partition(" ")
        return name, date
    if not (folder / ".git").exists():
        return "", ""
    described = _git(folder, "describe", "--always", "--dirty=.dirty", "--abbrev=9", "--exclude=*")
    return described, _git(folder, "show", "--no-patch", "--format=%cs") if described else ""


def _git(folder: Path, *arguments: str) -> str:
    """Return what git prints; nothing where git is not installed or does not trust the folder's owner."""
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
    """Return the version with its commit, as PEP 440 spells it: 0.2.0+g70e1d4bab."""
    name, _ = commit()
    return f"{__version__}+g{name}" if name else __version__


def dated_version() -> str:
    """Return the version with its commit and, in brackets, the day of that commit."""
    _, date = commit()
    return f"{full_version()} ({date})" if date else full_version()
