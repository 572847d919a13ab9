"""Resolve the paths of the configuration."""

from __future__ import annotations

import os
from pathlib import Path

from ..core.checkout import CHECKOUT


def resolve_path(path: str) -> Path:
    """Make a path absolute. A relative path starts at the working directory, or at the checkout if it is only there."""
    here, ours = (Path(folder, _expanded(path)) for folder in (Path.cwd(), CHECKOUT))
    return here if is_folder(here) or is_file(here) or not (is_folder(ours) or is_file(ours)) else ours


def run_file(pattern: str, dataset: str) -> Path:
    """Return the absolute path of an external run; a relative one starts at the working directory."""
    return Path(_expanded(pattern.replace("{dataset}", dataset))).absolute()


# Unlike methods of Path, these take a path that cannot be looked up (a name of 300 characters, an unknown ~user).
is_folder, is_file, _expanded = os.path.isdir, os.path.isfile, os.path.expanduser


def local_forms(folder: Path, name: str) -> list[Path]:
    """Return the existing ones of ``folder/name`` and its gzipped form."""
    return [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]


def find_local(folder: Path, name: str) -> Path | None:
    """Return ``folder/name`` or its gzipped form, whichever exists."""
    return next(iter(local_forms(folder, name)), None)


def splits(folder: Path) -> list[str]:
    """Return the splits of which a folder has qrels."""
    return sorted(path.name.split(".tsv")[0] for path in folder.glob("qrels/*.tsv*"))
