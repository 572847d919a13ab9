"""Where the code comes from (version, commit, folders), and paths with or without the folders of this machine."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import Any

__version__ = "0.2.0"
# File in a wheel or source archive that names the commit it was built from (setup.py).
COMMIT = "COMMIT"
_PACKAGE = Path(__file__).parents[1]
# The folder that contains the package. In a checkout it contains no other package.
MODULES = _PACKAGE.parent
INSTALLED = (_PACKAGE / "share" / "Snakefile").is_file()
# A wheel keeps the checkout's workflow files in `share` (setup.py).
CHECKOUT = _PACKAGE / "share" if INSTALLED else MODULES.parent


# Unlike methods of Path, these take a path that cannot be looked up (a name of 300 characters, an unknown ~user).
is_folder = os.path.isdir
is_file = os.path.isfile
expanded = os.path.expanduser


def resolve_path(path: str) -> Path:
    """Make a path absolute. A relative path starts at the working directory, or at the checkout if it is only there."""
    here, ours = (Path(folder, expanded(path)) for folder in (Path.cwd(), CHECKOUT))
    return here if is_folder(here) or is_file(here) or not (is_folder(ours) or is_file(ours)) else ours


def portable(value: Any) -> Any:
    """Make the absolute paths in settings, or in one word of a command, relative.

    A path in the checkout becomes relative to the checkout; any other path, to the working directory. ``resolve_path``
    takes both. Other texts are unchanged.
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


def commit(folder: Path) -> str:
    """Return the abbreviated commit of a checkout, a source archive or the shared files of a wheel; empty if unknown.

    The commit ends in ``.dirty`` and a hash of the difference if the checkout has uncommitted changes.
    """
    import hashlib
    import subprocess

    if (file := folder / COMMIT).is_file():
        return file.read_text(encoding="utf-8").strip()
    if not (folder / ".git").exists():
        return ""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}

    def said(command: str) -> bytes:
        words = ["git", "-C", str(folder), "--no-optional-locks", *command.split()]
        try:
            return subprocess.run(words, env=environment, capture_output=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):  # git is not installed, or cannot read the folder
            return b""

    name = said("describe --always --dirty=.dirty --abbrev=9 --exclude=*").decode().strip()
    if not name.endswith(".dirty"):
        return name
    difference = said("diff HEAD --binary --no-ext-diff --no-textconv --no-color")
    return f"{name}.{hashlib.sha256(difference).hexdigest()[:9]}"


@cache
def full_version() -> str:
    """Return the version with its commit in PEP 440 form: 0.2.0+g70e1d4bab."""
    name = commit(CHECKOUT)
    return f"{__version__}+g{name}" if name else __version__
