"""Where the checkout is, and how the configuration's paths are read."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from ..core.checkout import CHECKOUT

SCHEMA = CHECKOUT / "workflow" / "schemas" / "config.schema.yaml"


def resolve_path(path: str) -> Path:
    """Return an absolute path; a relative one starts at the working directory or, if nothing is there, the checkout."""
    here = _expanded(path)
    return here.absolute() if here.is_absolute() or is_folder(here) or is_file(here) else CHECKOUT / here


def run_file(pattern: str, dataset: str) -> Path:
    """Return the absolute path of an external run; a relative one starts at the working directory."""
    return _expanded(pattern.replace("{dataset}", dataset)).absolute()


def _expanded(path: str) -> Path:
    try:
        return Path(path).expanduser()
    except RuntimeError:  # ~someone who does not exist
        return Path(path)


def is_folder(path: Path) -> bool:
    """Tell whether a path is a folder; a path that cannot be looked up (a name of 300 characters) is none."""
    try:
        return path.is_dir()
    except OSError:
        return False


def is_file(path: Path) -> bool:
    """Tell whether a path is a file; a path that cannot be looked up is none."""
    try:
        return path.is_file()
    except OSError:
        return False


def local_forms(folder: Path, name: str) -> list[Path]:
    """Return which of ``folder/name`` and its gzipped form exist."""
    return [path for path in (folder / name, folder / f"{name}.gz") if path.is_file()]


def find_local(folder: Path, name: str) -> Path | None:
    """Return ``folder/name`` or its gzipped form, whichever exists."""
    return next(iter(local_forms(folder, name)), None)


def both_forms(folder: Path, name: str) -> str:
    """Return the message about a folder that has a file and its gzipped form: they may differ."""
    return f"{folder} has both {name} and {name}.gz: keep one of them"


def is_url(place: str) -> bool:
    """Tell whether a place is the URL of a host and not a folder."""
    try:
        url = urlsplit(place)
    except ValueError:  # brackets without an address in them
        return False
    return url.scheme in ("http", "https") and bool(url.hostname)


def splits(folder: Path) -> list[str]:
    """Return the splits of which a folder has qrels."""
    return sorted(path.name.split(".tsv")[0] for path in folder.glob("qrels/*.tsv*"))
